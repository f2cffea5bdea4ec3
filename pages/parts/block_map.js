// The block map and its step player. One frame is one byte a block; a stretch of steps comes as changes to it, so that
// playing needs no server. Text from outside is only ever set as textContent.
const SPEEDS = [1, 2, 5, 10, 30];
const LARGEST_CELL = 72, LARGEST_ZOOMED = 46;
const DETAIL_PIXELS = 7; // a cell this wide has room for a pattern
const PUBLISH_MILLISECONDS = 1500;
const views = new WeakMap();
let translations = {}; // the reader's words by ours; empty in English

export default function (component) {
  const { parentElement, data } = component;
  const root = parentElement.querySelector(".kv");
  let view = views.get(root);
  if (!view) {
    view = new View(root);
    views.set(root, view);
  }
  view.component = component;
  if (data instanceof Uint8Array && data !== view.lastData) {
    view.lastData = data;
    view.receive(data);
  }
}

class View {
  constructor(root) {
    this.root = root;
    this.step = 0;
    this.cursor = 1;
    this.zoom = 1;
    this.left = this.top = 0;
    this.isPlaying = false;
    this.frames = 0;
    const get = (name) => root.querySelector(`.${name}`);
    this.canvas = get("map");
    this.box = get("mapbox");
    this.tip = get("tip");
    this.say = get("say");
    this.stand = get("stand");
    this.slider = get("slider");
    this.output = get("where");
    this.list = get("requests");
    this.more = get("more");
    this.legend = get("legend");
    this.reader = get("reader");
    this.playButton = get("play");
    this.speed = get("speed");
    this.speed.replaceChildren(...SPEEDS.map((rate) => make("option", { value: rate, textContent: words("{rate} steps a second", { rate }) })));
    this.speed.value = 2;
    this.listen(get);
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  async receive(data) {
    const turn = (this.turn = (this.turn || 0) + 1);
    const { header, light, stretch } = await unpack(data, this.stretch);
    if (turn !== this.turn) return;
    if (!stretch) {
      this.step = header.step;
      return this.publish(true); // drawn anew: ask for the whole
    }
    const before = this.header;
    const isNew = !before || before.run !== header.run;
    const isJump = isNew || before.jump !== header.jump;
    const wanted = isJump ? header.step : this.step;
    Object.assign(this, { header, light, stretch, frame: null, asked: null });
    this.speak(header.words ?? {});
    this.root.classList.toggle("still", Boolean(header.still)); // one moment: there is no other step to go to
    this.say.setAttribute("aria-live", header.still ? "off" : "polite"); // a pool that is watched changes by itself
    if (isNew) this.fit();
    if (isNew) this.cursor = Math.min(1, header.n - 1);
    this.slider.max = header.total - 1;
    if (isJump) this.pause(false);
    this.show(inside(header, wanted) ? wanted : header.step);
    this.drawLegend();
    if (isJump && !isNew) this.noteLink();
    this.root.dataset.answers = Number(this.root.dataset.answers || 0) + 1;
  }

  // -- steps --------------------------------------------------------------------------------------------------------

  show(step) {
    const { header } = this;
    if (!header) return;
    step = Math.max(0, Math.min(header.total - 1, step));
    this.slider.value = step;
    if (!inside(header, step)) {
      this.step = step;
      this.output.textContent = `${words("Step {step} of {last}", { step: number(step), last: number(header.total - 1) })} …`;
      this.publish();
      return;
    }
    this.rebuild(step);
    this.step = step;
    this.at = step - header.base;
    this.tell();
    this.draw();
    this.drawList();
  }

  rebuild(step) {
    const { header, light } = this, { part, first } = this.stretch;
    if (!this.frame || this.frame.step > step) {
      this.frame = {
        step: header.base,
        map: first.map.slice(),
        codes: first.codes.slice(),
        index: first.index.slice(),
        changed: first.changed.slice(),
        content: first.content.slice(),
        light: new Set(light.lit),
      };
    }
    const frame = this.frame;
    for (let next = frame.step + 1; next <= step; next++) {
      const place = next - header.base;
      for (let i = part.offsets[place]; i < part.offsets[place + 1]; i++) {
        const block = part.blocks[i];
        frame.map[block] = part.bytes[i];
        frame.codes[block] = part.codes[i];
        frame.index[block] = part.indices[i];
        frame.content[block] = part.contents[i];
        frame.changed[block] = next;
      }
      for (let i = light.lit_offsets[place]; i < light.lit_offsets[place + 1]; i++) {
        const change = light.lit_changes[i];
        if (change >>> 31) frame.light.delete(change & 0x7fffffff);
        else frame.light.add(change);
      }
    }
    frame.step = step;
  }

  go(step) {
    if (this.header.still) return;
    this.pause(false);
    this.show(step);
    clearTimeout(this.later);
    this.later = setTimeout(() => this.publish(), 180);
  }

  nextEvent() {
    const { header } = this;
    const found = header.says.find(([step]) => step > this.step);
    if (found) return this.go(found[0]);
    if (header.next_event !== null) this.go(header.next_event);
  }

  play() {
    if (this.header.still) return;
    if (this.isPlaying) return this.pause(true);
    if (this.step >= this.header.total - 1) this.show(0);
    this.isPlaying = true;
    this.setPlayLabel();
    this.published = performance.now();
    this.due = performance.now();
    const tick = (now) => {
      if (!this.isPlaying || !this.root.isConnected) return;
      const gap = 1000 / this.speed.value;
      if (now >= this.due) {
        this.due = Math.max(this.due + gap, now - gap);
        this.advance(now);
      }
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  advance(now) {
    const { header } = this;
    if (!inside(header, this.step)) return; // a new stretch is on its way
    if (this.step >= header.total - 1) return this.pause(true);
    this.show(this.step + 1);
    const isNearEnd = header.base + header.count - this.step < header.count / 4 && header.base + header.count < header.total;
    if (header.n <= 20000 ? now - this.published > PUBLISH_MILLISECONDS : isNearEnd && now - this.published > 400) {
      this.published = now;
      this.publish();
    }
  }

  pause(mustPublish) {
    const wasPlaying = this.isPlaying;
    this.isPlaying = false;
    this.setPlayLabel();
    if (wasPlaying && mustPublish) this.publish();
  }

  setPlayLabel() {
    this.playButton.textContent = this.isPlaying ? "❚❚" : "▶";
    this.playButton.setAttribute("aria-label", words(this.isPlaying ? "Pause" : "Play"));
  }

  publish(mustHaveAll = false) {
    clearTimeout(this.later);
    if (this.asked === this.step && !mustHaveAll) return;
    this.asked = this.step;
    this.noteLink();
    this.component.setStateValue("step", { step: this.step, held: mustHaveAll ? "" : this.stretch?.name ?? "" });
  }

  // The step in the address, without a new entry in the browser's history for each.
  noteLink() {
    if (this.header?.still) return;
    const others = location.search.slice(1).split("&").filter((each) => each && !each.startsWith("sim="));
    const text = this.header.link + (this.step ? `~step.${this.step}` : "");
    history.replaceState(history.state, "", `?${[...others, `sim=${text}`].join("&")}${location.hash}`);
  }

  pick(block) {
    this.pause(false);
    this.cursor = block;
    const state = this.frame.map[block] & 7;
    this.select(state === ACTIVE || state === SHARED ? this.ownerOf(block) : null);
    this.component.setTriggerValue("pick", { block, step: this.step, held: this.stretch.name });
  }

  choose(ordinal) {
    this.pause(false);
    const request = ordinal === this.header.selected ? null : ordinal;
    this.select(request);
    this.component.setTriggerValue("choose", { request, step: this.step, held: this.stretch.name });
  }

  // Shows the choice at once; the server's answer tells the same for the steps to come.
  select(ordinal) {
    const { frame, header, light } = this;
    header.selected = ordinal;
    frame.light = new Set();
    if (ordinal !== null) {
      for (let block = 0; block < header.n; block++) {
        const state = frame.map[block] & 7;
        if ((state === ACTIVE || state === SHARED) && this.ownerOf(block) === ordinal) frame.light.add(block);
      }
      for (let i = 0; i < light.shared.length; i += 2) if (light.shared[i + 1] === ordinal) frame.light.add(light.shared[i]);
    }
    this.draw();
    this.drawList();
  }

  // -- words --------------------------------------------------------------------------------------------------------

  // Put the markup into the reader's language; each element keeps its own words in English.
  speak(found) {
    const key = JSON.stringify(found);
    if (key === (this.spoken ?? "{}")) return;
    this.spoken = key;
    translations = found;
    for (const element of this.root.querySelectorAll("[aria-label], [title], .heading, .hint")) {
      element.own ??= { "aria-label": element.getAttribute("aria-label"), title: element.getAttribute("title"), text: element.textContent };
      for (const name of ["aria-label", "title"]) if (element.own[name]) element.setAttribute(name, words(element.own[name]));
      if (element.matches(".next, .whole, .picture, .heading, .hint")) element.textContent = words(element.own.text);
    }
    for (const option of this.speed.options) option.textContent = words("{rate} steps a second", { rate: option.value });
  }

  tell() {
    const { header, at } = this;
    const of = header.counters;
    this.output.textContent = words("Step {step} of {last}", { step: number(this.step), last: number(header.total - 1) });
    const texts = (header.says.find(([step]) => step === this.step) || [0, []])[1];
    this.say.replaceChildren(
      ...(texts.length ? texts : [words("Nothing new: every running request gains its tokens.")]).map((text) =>
        make("li", { textContent: text, className: kindOf(text) })
      )
    );
    const usable = header.n - 1;
    const finding = words(
      "{used} of {usable} blocks in use ({share}), {cached} more cached and free · {running} running, {waiting} waiting",
      {
        used: number(of.used[at]),
        usable: number(usable),
        share: percent(of.used[at], usable),
        cached: number(of.cached[at]),
        running: number(of.running[at]),
        waiting: number(of.waiting[at]),
      }
    );
    this.stand.textContent = finding;
    this.canvas.setAttribute("aria-label", `${words("Block map at step {step}: {finding}.", { step: this.step, finding })} ${texts.join(". ")}`);
  }

  nameOf(ordinal) {
    return this.header.names[ordinal] ?? this.rows().find((row) => row[0] === ordinal)?.[5] ?? words("no. {number}", { number: ordinal });
  }

  // The holder's ordinal, or the last holder's; -1 for nobody.
  ownerOf(block) {
    return (this.frame.codes[block] >>> 8) - 1;
  }

  groupOf(block) {
    return (this.frame.codes[block] >>> 3) & 31;
  }

  facts(block) {
    const { frame, header } = this;
    const state = frame.map[block] & 7, group = this.groupOf(block), size = header.sizes[group] ?? header.sizes[0];
    const lines = [words("Block {block} · {state}", { block: number(block), state: words(STATES[state]) })];
    if (state === NULL) return [...lines, words("vLLM keeps it as the stand-in for blocks that left a window.")];
    if (header.groups.length > 1 && state !== FREE) lines[0] += ` · ${header.groups[group]}`;
    const owner = this.ownerOf(block), index = frame.index[block];
    if (state !== FREE && owner >= 0) {
      const computed = this.computedOf(owner);
      const held = state === CACHED || computed === null ? size : Math.max(0, Math.min(size, computed - index * size));
      const who = state === SHARED ? this.holdersOf(block, owner).join(", ") : this.nameOf(owner);
      lines.push(words(state === CACHED ? "Last held by {who}; a hit can take it back" : "Held by {who}", { who }));
      const first = number(index * size), last = number(index * size + held - 1);
      const tokens = held ? words("tokens {first}–{last} ({held} of {size})", { first, last, held, size }) : words("no token of {size} yet", { size });
      lines.push(words("Its logical block {index}: {tokens}", { index: number(index), tokens }));
      const content = frame.content[block];
      if (content && held === size) lines.push(words("Content no. {number}: equal hash, equal number", { number: number(content) }));
    }
    const age = this.step - frame.changed[block];
    const unchanged = age === 1 ? words("Unchanged for 1 step") : words("Unchanged for {steps} steps", { steps: number(age) });
    lines.push(age > 0 ? unchanged : words("Changed in this step"));
    return lines;
  }

  holdersOf(block, owner) {
    const found = [], { shared } = this.light;
    for (let i = 0; this.step === this.header.step && i < shared.length; i += 2) {
      if (shared[i] === block) found.push(this.nameOf(shared[i + 1]));
    }
    return found.length ? found : [this.nameOf(owner), words("others")];
  }

  rows() {
    const { header, at } = this;
    return header.live[at] ?? header.rows;
  }

  computedOf(ordinal) {
    const row = this.rows().find((item) => item[0] === ordinal);
    return row ? row[3] : null;
  }

  // -- drawing ------------------------------------------------------------------------------------------------------

  colours() {
    const style = getComputedStyle(this.root);
    const text = style.color.match(/[\d.]+/g).map(Number).slice(0, 3);
    const isDark = (text[0] + text[1] + text[2]) / 3 > 127;
    return { isDark, text, back: isDark ? [17, 22, 27] : [255, 255, 255], grid: isDark ? [62, 74, 85] : [200, 208, 215] };
  }

  fill(byte, look) {
    const state = byte & 7, colour = byte >> 3;
    if (state === FREE) return look.isDark ? [30, 38, 45] : [236, 240, 243];
    if (state >= NULL) return look.isDark ? [110, 120, 130] : [120, 130, 138];
    const base = this.header.by === "state" || !colour ? STATE_HUES[state] : HUES[colour - 1];
    if (state === CACHED) return mix(base, look.back, look.isDark ? 0.62 : 0.68);
    return base;
  }

  fit() {
    this.zoom = 1;
    this.left = this.top = 0;
  }

  layout() {
    const { n } = this.header;
    const width = Math.max(200, this.box.clientWidth);
    const most = width < 460 ? 340 : 470;
    let columns = Math.max(1, Math.floor(width / Math.min(LARGEST_CELL, Math.sqrt((width * most) / n))));
    while (Math.ceil(n / columns) * Math.min(LARGEST_CELL, width / columns) > most && columns < n) columns++;
    if (columns > 8) columns += (n <= 16384 ? 8 : 64) - 1 - ((columns - 1) % (n <= 16384 ? 8 : 64));
    if (columns >= n) columns = n;
    const side = Math.min(LARGEST_CELL, width / columns), rows = Math.ceil(n / columns);
    return { columns, side, rows, width, height: Math.ceil(rows * side) };
  }

  draw() {
    if (!this.frame || !this.box.clientWidth) return;
    const layout = (this.shape = this.layout());
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(layout.width * ratio), height = Math.round(layout.height * ratio);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      Object.assign(this.canvas, { width, height });
      this.canvas.style.height = `${layout.height}px`;
    }
    const paint = this.canvas.getContext("2d");
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paint(paint, layout);
    this.frames++;
    this.root.dataset.painted = `${this.header.run}:${this.step}`;
    this.root.dataset.frames = this.frames;
    this.root.dataset.selected = this.header.selected ?? "";
  }

  paint(paint, layout) {
    const look = this.colours();
    const side = layout.side * this.zoom;
    this.left = Math.max(0, Math.min(this.left, layout.columns * side - layout.width));
    this.top = Math.max(0, Math.min(this.top, layout.rows * side - layout.height));
    paint.fillStyle = css(look.back);
    paint.fillRect(0, 0, layout.width, layout.height);
    if (side >= DETAIL_PIXELS) this.paintCells(paint, layout, side, look);
    else this.paintPixels(paint, layout, side, look);
    this.paintCursor(paint, layout, side, look);
  }

  paintPixels(paint, layout, side, look) {
    const { map, light } = this.frame, { n, selected } = this.header;
    const table = new Uint32Array(256);
    for (let byte = 0; byte < 256; byte++) {
      let rgb = this.fill(byte, look);
      if ((byte & 7) === SHARED) rgb = mix(rgb, look.text, 0.35);
      table[byte] = pack(selected !== null ? mix(rgb, look.back, 0.78) : rgb);
    }
    if (!this.small || this.small.width !== layout.columns || this.small.height !== layout.rows) {
      this.small = new OffscreenCanvas(layout.columns, layout.rows);
      this.image = new ImageData(layout.columns, layout.rows);
    }
    const pixels = new Uint32Array(this.image.data.buffer);
    for (let block = 0; block < n; block++) pixels[block] = table[map[block]];
    pixels.fill(0, n);
    for (const block of light) pixels[block] = pack(this.header.by === "state" ? [213, 94, 0] : this.fill(map[block], look));
    const small = this.small.getContext("2d");
    small.putImageData(this.image, 0, 0);
    paint.imageSmoothingEnabled = side < 1;
    paint.drawImage(this.small, -this.left, -this.top, layout.columns * side, layout.rows * side);
  }

  paintCells(paint, layout, side, look) {
    const { map, light } = this.frame, { n, selected } = this.header;
    const gap = side > 14 ? 1.5 : 0.5;
    const firstRow = Math.floor(this.top / side), lastRow = Math.min(layout.rows - 1, Math.floor((this.top + layout.height) / side));
    const firstColumn = Math.floor(this.left / side);
    const lastColumn = Math.min(layout.columns - 1, Math.floor((this.left + layout.width) / side));
    const filled = side >= 16 ? new Map(this.rows().map((row) => [row[0], row[3]])) : null;
    for (let row = firstRow; row <= lastRow; row++) {
      for (let column = firstColumn; column <= lastColumn; column++) {
        const block = row * layout.columns + column;
        if (block >= n) return;
        const x = column * side - this.left + gap / 2, y = row * side - this.top + gap / 2;
        this.paintCell(paint, { block, byte: map[block], x, y, size: side - gap, isDim: selected !== null && !light.has(block) }, look, filled);
        if (selected !== null && light.has(block)) {
          paint.strokeStyle = css(look.text);
          paint.lineWidth = Math.max(1.5, side / 16);
          paint.strokeRect(x + 1, y + 1, side - gap - 2, side - gap - 2);
        }
      }
    }
  }

  paintCell(paint, cell, look, filled) {
    const { byte, x, y, size } = cell;
    const state = byte & 7;
    let rgb = this.fill(byte, look);
    if (cell.isDim && state !== FREE) rgb = mix(rgb, look.back, 0.72);
    paint.fillStyle = css(rgb);
    paint.fillRect(x, y, size, size);
    if (state === ACTIVE || state === SHARED) this.paintRoom(paint, cell, rgb, look, filled);
    if (state === CACHED) hatch(paint, x, y, size, css(mix(this.fill((byte & ~7) | ACTIVE, look), look.back, cell.isDim ? 0.6 : 0.2)));
    if (state === FREE) {
      paint.strokeStyle = css(look.grid);
      paint.lineWidth = 1;
      paint.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    }
    if (state === NULL) cross(paint, x, y, size, css(look.back));
    if (state === SHARED) {
      paint.strokeStyle = css(cell.isDim ? mix(look.text, look.back, 0.6) : look.text);
      paint.lineWidth = Math.max(1, size / 14);
      paint.setLineDash([Math.max(2, size / 8), Math.max(1.5, size / 12)]);
      paint.strokeRect(x + size * 0.04, y + size * 0.04, size * 0.92, size * 0.92);
      paint.setLineDash([]);
    }
    if (size >= 20) this.paintLabel(paint, cell, rgb, look);
  }

  // the part of a block that no token has filled yet: this is all that paging wastes
  paintRoom(paint, cell, rgb, look, filled) {
    const empty = filled ? this.emptyPart(cell.block, filled.get(this.ownerOf(cell.block))) : 0;
    if (!empty) return;
    paint.fillStyle = css(mix(rgb, look.back, 0.7));
    paint.fillRect(cell.x, cell.y, cell.size, cell.size * empty);
  }

  emptyPart(block, computed) {
    const size = this.header.sizes[this.groupOf(block)];
    if (computed === undefined || computed === null) return 0;
    return 1 - Math.max(0, Math.min(1, (computed - this.frame.index[block] * size) / size));
  }

  paintLabel(paint, cell, rgb, look) {
    const { frame } = this, { size } = cell, state = cell.byte & 7, owner = this.ownerOf(cell.block);
    const name = state === FREE || state === NULL || owner < 0 ? "" : this.nameOf(owner);
    const empty = state === ACTIVE || state === SHARED ? this.emptyPart(cell.block, this.computedOf(owner)) : 0;
    const write = (text, at, scale, weight = "") => {
      const ground = empty > at || state === CACHED ? mix(rgb, look.back, state === CACHED ? 0 : 0.7) : rgb;
      paint.fillStyle = css(state === FREE ? mix(look.text, look.back, 0.42) : inkOn(ground));
      paint.font = `${weight} ${Math.round(Math.min(size * scale, (size * 1.25) / Math.max(2, text.length)))}px system-ui, sans-serif`;
      paint.fillText(text, cell.x + size / 2, cell.y + size * at);
    };
    paint.textAlign = "center";
    paint.textBaseline = "middle";
    if (state === FREE && size >= 26) write(number(cell.block), 0.5, 0.25);
    if (!name) return;
    if (size < 32) return write(short(name), 0.54, 0.4, 600);
    write(short(name), size < 56 ? 0.38 : 0.42, size < 56 ? 0.36 : 0.32, 600);
    write(words("no. {number}", { number: frame.index[cell.block] }), size < 56 ? 0.72 : 0.68, size < 56 ? 0.24 : 0.2);
    if (size >= 56) write(words("block {block}", { block: cell.block }), 0.18, 0.16);
  }

  paintCursor(paint, layout, side, look) {
    if (this.hover === undefined && this.root.getRootNode().activeElement !== this.canvas) return;
    const block = this.hover ?? this.cursor;
    const x = (block % layout.columns) * side - this.left, y = Math.floor(block / layout.columns) * side - this.top;
    const size = Math.max(side, 5);
    paint.strokeStyle = css(look.back);
    paint.lineWidth = 4;
    paint.strokeRect(x - 1, y - 1, size + 1, size + 1);
    paint.strokeStyle = css(look.text);
    paint.lineWidth = 2;
    paint.strokeRect(x - 1, y - 1, size + 1, size + 1);
  }

  drawLegend() {
    const look = this.colours();
    const names = [[ACTIVE, "in use"], [SHARED, "shared by several"], [CACHED, "cached and free: a hit can take it back"], [FREE, "free"], [NULL, "null block"]];
    const { by, groups } = this.header;
    const kinds = groups.map((name, place) => [ACTIVE | (((place % HUES.length) + 1) << 3), name]);
    const keys = names.map(([state, name]) => [state | (state === FREE || state === NULL ? 0 : 8), words(name)]);
    this.legend.replaceChildren(
      ...[...keys, ...(by === "group" ? kinds : [])].map(([byte, name]) => {
        const swatch = make("canvas", { width: 36, height: 36, className: "swatch" });
        const paint = swatch.getContext("2d");
        paint.scale(1.8, 1.8);
        this.paintCell(paint, { block: 0, byte, x: 0, y: 0, size: 19 }, look, null);
        const item = make("span", { className: "key" });
        swatch.setAttribute("aria-hidden", "true");
        item.append(swatch, name);
        return item;
      })
    );
  }

  drawList() {
    const { header, at } = this, rows = this.rows();
    const key = JSON.stringify([rows, header.selected, header.run, header.by]);
    if (key === this.listKey) return;
    this.listKey = key;
    const focused = this.root.getRootNode().activeElement?.dataset?.ordinal;
    this.list.replaceChildren(
      ...rows.map(([ordinal, place, blocks, computed, goal, name]) => {
        const button = make("button", { type: "button", className: place === 1 ? "request" : "request waiting" });
        button.dataset.ordinal = ordinal;
        button.setAttribute("aria-pressed", String(ordinal === header.selected));
        const rgb = HUES[ordinal % 31];
        const chip = make("span", { className: "chip", textContent: name });
        if (header.by === "request") Object.assign(chip.style, { background: css(rgb), color: css(inkOn(rgb)) });
        const done = { blocks: number(blocks), computed: number(computed), goal: number(goal) };
        const holds = words(blocks === 1 ? "1 block · {computed} of {goal}" : "{blocks} blocks · {computed} of {goal}", done);
        const told = place === 1 ? holds : words("waiting, holds nothing");
        button.append(chip, make("span", { className: "told", textContent: told }));
        if (place === 1) {
          const bar = make("span", { className: "bar" });
          bar.append(make("span", {}));
          bar.firstChild.style.width = `${Math.min(100, (100 * computed) / goal)}%`;
          button.append(bar);
        }
        button.addEventListener("click", () => this.choose(ordinal));
        const item = make("li", {});
        item.append(button);
        return item;
      })
    );
    if (focused) this.list.querySelector(`[data-ordinal="${focused}"]`)?.focus();
    const hidden = header.counters.running[at] + header.counters.waiting[at] - rows.length;
    this.more.textContent = hidden > 0 ? words("and {count} more", { count: number(hidden) }) : rows.length ? "" : words("No request is in the engine.");
  }

  // -- the reader's hands -------------------------------------------------------------------------------------------

  listen(get) {
    const on = (name, act) => get(name).addEventListener("click", act);
    on("first", () => this.go(0));
    on("back", () => this.go(this.step - 1));
    on("play", () => (this.isPlaying ? this.pause(true) : this.play()));
    on("forward", () => this.go(this.step + 1));
    on("last", () => this.go(this.header.total - 1));
    on("next", () => this.nextEvent());
    on("closer", () => this.zoomBy(2));
    on("wider", () => this.zoomBy(0.5));
    on("whole", () => (this.fit(), this.draw()));
    on("picture", () => this.save());
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.unpoint());
    this.canvas.addEventListener("pointerdown", (event) => (this.drag = { x: event.clientX, y: event.clientY, moved: 0 }));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.unpoint());
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.header) return;
    const { target } = event, isMap = target === this.canvas;
    const isField = ["INPUT", "SELECT"].includes(target.tagName);
    const moves = isMap ? { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.shape.columns, ArrowDown: this.shape.columns } : {};
    const acts = {
      k: () => (this.isPlaying ? this.pause(true) : this.play()),
      j: () => this.go(this.step - 1),
      l: () => this.go(this.step + 1),
      n: () => this.nextEvent(),
      Escape: () => this.header.selected !== null && this.choose(this.header.selected),
    };
    if (!isField) Object.assign(acts, { Home: () => this.go(0), End: () => this.go(this.header.total - 1) });
    if (isMap) Object.assign(acts, { "+": () => this.zoomBy(2), "=": () => this.zoomBy(2), "-": () => this.zoomBy(0.5), 0: () => (this.fit(), this.draw()), Enter: () => this.pick(this.cursor), " ": () => this.pick(this.cursor) });
    if (event.key in moves) this.moveCursor(moves[event.key]);
    else if (event.key in acts && !(target.tagName === "SELECT" && event.key.length === 1)) acts[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  moveCursor(by) {
    const next = this.cursor + by;
    if (next < 0 || next >= this.header.n) return;
    this.cursor = next;
    this.hover = undefined;
    const { columns, side, width, height } = this.shape, size = side * this.zoom;
    const x = (next % columns) * size, y = Math.floor(next / columns) * size;
    this.left = Math.min(x, Math.max(this.left, x + size - width));
    this.top = Math.min(y, Math.max(this.top, y + size - height));
    this.draw();
    this.showTip(next);
    this.reader.textContent = this.facts(next).join(". ");
  }

  blockAt(event) {
    const box = this.canvas.getBoundingClientRect(), side = this.shape.side * this.zoom;
    const column = Math.floor((event.clientX - box.left + this.left) / side);
    const block = Math.floor((event.clientY - box.top + this.top) / side) * this.shape.columns + column;
    return column < this.shape.columns && block >= 0 && block < this.header.n ? block : null;
  }

  point(event) {
    if (!this.frame) return;
    if (this.drag && event.buttons) return this.pan(event);
    const block = this.blockAt(event);
    if (block === null) return this.unpoint();
    if (block === this.hover) return;
    this.hover = block;
    this.draw();
    this.showTip(block);
  }

  unpoint() {
    this.hover = undefined;
    this.tip.hidden = true;
    if (this.frame) this.draw();
  }

  pan(event) {
    this.left -= event.clientX - this.drag.x;
    this.top -= event.clientY - this.drag.y;
    this.drag.moved += Math.abs(event.clientX - this.drag.x) + Math.abs(event.clientY - this.drag.y);
    Object.assign(this.drag, { x: event.clientX, y: event.clientY });
    this.tip.hidden = true;
    this.draw();
  }

  release(event) {
    const moved = this.drag?.moved ?? 0;
    this.drag = null;
    if (moved > 5 || !this.frame) return;
    const block = this.blockAt(event);
    if (block !== null) this.pick(block);
  }

  wheel(event) {
    if (!event.ctrlKey && this.root.getRootNode().activeElement !== this.canvas) return;
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - box.left, event.clientY - box.top);
  }

  zoomBy(factor, x, y) {
    if (!this.shape) return;
    const { side, width, height } = this.shape;
    const most = Math.max(1, LARGEST_ZOOMED / side);
    const zoom = Math.max(1, Math.min(most, this.zoom * factor));
    x ??= width / 2;
    y ??= height / 2;
    this.left = ((this.left + x) * zoom) / this.zoom - x;
    this.top = ((this.top + y) * zoom) / this.zoom - y;
    this.zoom = zoom;
    this.draw();
  }

  showTip(block) {
    const { columns, side, width } = this.shape, size = side * this.zoom;
    const x = (block % columns) * size - this.left, y = Math.floor(block / columns) * size - this.top;
    this.tip.replaceChildren(...this.facts(block).map((line, place) => make(place ? "div" : "strong", { textContent: line })));
    this.tip.hidden = false;
    const isRight = x > width / 2;
    Object.assign(this.tip.style, {
      left: isRight ? "auto" : `${x + size + 6}px`,
      right: isRight ? `${width - x + 6}px` : "auto",
      top: `${Math.max(0, y - 4)}px`,
    });
  }

  save() {
    const layout = this.layout(), scale = 2, head = 62, foot = 34 * Math.ceil(this.legend.children.length / 3);
    const width = Math.max(layout.width, 700);
    const canvas = make("canvas", { width: width * scale, height: (layout.height + head + foot) * scale });
    const paint = canvas.getContext("2d"), look = this.colours();
    paint.scale(scale, scale);
    paint.fillStyle = css(look.back);
    paint.fillRect(0, 0, width, layout.height + head + foot);
    paint.fillStyle = css(look.text);
    paint.font = "600 17px system-ui, sans-serif";
    paint.fillText(words("{title} · step {step}", { title: this.header.title, step: this.step }), 4, 22);
    paint.font = "13px system-ui, sans-serif";
    paint.fillText(this.stand.textContent, 4, 46);
    paint.save();
    paint.translate(0, head);
    paint.beginPath();
    paint.rect(0, 0, layout.width, layout.height);
    paint.clip();
    this.paint(paint, layout);
    paint.restore();
    paint.textBaseline = "middle";
    paint.textAlign = "left";
    paint.font = "13px system-ui, sans-serif";
    [...this.legend.children].forEach((item, place) => {
      const x = 4 + (place % 3) * 200, y = head + layout.height + 9 + Math.floor(place / 3) * 28;
      paint.drawImage(item.firstChild, x, y, 18, 18);
      paint.fillStyle = css(look.text);
      paint.fillText(item.textContent, x + 24, y + 9);
    });
    canvas.toBlob((blob) => {
      const address = URL.createObjectURL(blob);
      const anchor = make("a", { href: address, download: `kvscope-blocks-step-${this.step}.png` });
      document.body.append(anchor);
      anchor.click();
      anchor.remove();
      setTimeout(() => URL.revokeObjectURL(address), 2000);
    }, "image/png");
  }
}

function make(name, values) {
  return Object.assign(document.createElement(name), values);
}

function number(value) {
  return Number(value).toLocaleString("en-US");
}

// Our words in the reader's language, `values` put into the {names}.
function words(text, values = {}) {
  return (translations[text] ?? text).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

function percent(part, whole) {
  return whole ? `${Math.floor((100 * part) / whole)} %` : "0 %";
}

function kindOf(text) {
  if (text.includes(words("preempted"))) return "bad";
  if (text.includes(words("shares")) || text.includes(words("back into use"))) return "good";
  return "";
}

function short(name) {
  return name.length > 5 ? `${name.slice(0, 1)}…${name.slice(-2)}` : name;
}
