// Colours and patterns of blocks: 31 hues that stay apart for the colour-blind, and a pattern a state beside them.
const FREE = 0, CACHED = 1, ACTIVE = 2, SHARED = 3, NULL = 4;
const STATES = ["free", "cached and free", "in use", "shared", "null block"];
const HUES = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7b5ea7", "#b8a200",
  "#8c2d4f", "#44aa99", "#5566cc", "#c46f3b", "#3f7d20", "#e07a9b", "#2f8fa3", "#a05195",
  "#93a32a", "#1f5f8b", "#f0956c", "#6fae5b", "#9b3f2f", "#7fa6e8", "#b5852c", "#5f4b8b",
  "#3cb0c4", "#d16ba5", "#6b7f2a", "#c94f5c", "#4e8f6f", "#a98fd0", "#8a6d3b",
].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const STATE_HUES = { [CACHED]: [86, 180, 233], [ACTIVE]: [0, 114, 178], [SHARED]: [230, 159, 0] };

function mix(rgb, other, part) {
  return rgb.map((value, place) => Math.round(value + (other[place] - value) * part));
}

function css(rgb) {
  return `rgb(${rgb[0]},${rgb[1]},${rgb[2]})`;
}

function pack(rgb) {
  return ((255 << 24) | (rgb[2] << 16) | (rgb[1] << 8) | rgb[0]) >>> 0;
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((value) => ((value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function inkOn(rgb) {
  return luminance(rgb) > 0.18 ? [11, 22, 32] : [255, 255, 255];
}

function hatch(paint, x, y, size, colour) {
  paint.save();
  paint.beginPath();
  paint.rect(x, y, size, size);
  paint.clip();
  paint.strokeStyle = colour;
  paint.lineWidth = Math.max(0.8, size / 22);
  paint.beginPath();
  const gap = Math.max(3, size / 5);
  for (let at = gap / 2; at < 2 * size; at += gap) {
    paint.moveTo(x + at, y);
    paint.lineTo(x, y + at);
  }
  paint.stroke();
  paint.restore();
}

function cross(paint, x, y, size, colour) {
  paint.strokeStyle = colour;
  paint.lineWidth = Math.max(1, size / 14);
  paint.beginPath();
  paint.moveTo(x + size * 0.3, y + size * 0.3);
  paint.lineTo(x + size * 0.7, y + size * 0.7);
  paint.moveTo(x + size * 0.7, y + size * 0.3);
  paint.lineTo(x + size * 0.3, y + size * 0.7);
  paint.stroke();
}
