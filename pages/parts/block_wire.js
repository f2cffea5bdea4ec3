// What the block map receives: a header in JSON, then arrays. Written by `step_player.py`.
// A stretch comes once; later views of it bring only what the reader's choice changed.
async function unpack(data, held) {
  const words = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const length = words.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  const body = data.slice(4 + length);
  const light = sections(header.light_parts, body.slice(0, header.light_bytes));
  if (!header.has_body) return { header, light, stretch: held && held.name === header.stretch ? held : null };
  let heavy = body.slice(header.light_bytes);
  if (header.packed) {
    const stream = new Blob([heavy]).stream().pipeThrough(new DecompressionStream("deflate"));
    heavy = new Uint8Array(await new Response(stream).arrayBuffer());
  }
  const part = sections(header.parts, heavy);
  return { header, light, stretch: { name: header.stretch, part, first: spread(part, header.n) } };
}

function sections(parts, bytes) {
  const found = {};
  let at = 0;
  for (const [name, kind, size] of parts) {
    found[name] = kind === "u4" ? new Uint32Array(bytes.buffer, at, size) : new Uint8Array(bytes.buffer, at, size);
    at += ((kind === "u4" ? size * 4 : size) + 3) & ~3;
  }
  return found;
}

// From runs of like blocks to one entry a block.
function spread(part, n) {
  const first = { map: new Uint8Array(n), codes: new Uint32Array(n), index: new Uint32Array(n), changed: new Uint32Array(n), content: new Uint32Array(n) };
  const starts = part.run_starts;
  for (let run = 0; run < starts.length; run++) {
    const start = starts[run], end = run + 1 < starts.length ? starts[run + 1] : n;
    first.map.fill(part.run_bytes[run], start, end);
    first.codes.fill(part.run_codes[run], start, end);
    first.changed.fill(part.run_changed[run], start, end);
    const index = part.run_indices[run] - start, content = part.run_contents[run];
    for (let block = start; block < end; block++) first.index[block] = index + block;
    if (content) for (let block = start; block < end; block++) first.content[block] = content + 2 * (block - start);
  }
  return first;
}

function inside(header, step) {
  return step >= header.base && step < header.base + header.count;
}
