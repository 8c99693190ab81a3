// The kernels that the page times, as texts in WGSL: attention fused in the manner of FlashAttention, compiled for one
// width of head at a time, and unfused, with the T × T scores in memory. Readers see the fused text as it stands here.

/**
 * Threads that share a query. Each holds the query's columns, and the result's, divided by this: 32 + 32 numbers at width
 * 128. That fits everywhere: an Apple GPU has about 128 registers for a thread, an integrated Intel one likewise, and with 2
 * they would spill. The price is a fixed cost for each key, which blurs the steps: 40 columns' worth in place of 17 with 2,
 * where this was measured (SwiftShader, T = 256), because a workgroup takes 16 queries past every tile in place of 32.
 */
const LANES = 4;
/** Queries of one workgroup of 64 threads. */
export const ROWS = 64 / LANES;
/** What each kernel binds: 0 query, 1 key, 2 value, 3 result, 4 shape, 5 scores. */
export const BINDINGS = { fused: [0, 1, 2, 3, 4], scores: [0, 1, 4, 5], softmax: [4, 5], values: [2, 3, 4, 5] };
/** Workgroups of one call, by kernel; `stride` in vec4. */
export const GROUPS = {
  fused: (tokens, heads) => [Math.ceil(tokens / ROWS), heads, 1],
  scores: (tokens, heads) => [Math.ceil(tokens / 32), Math.ceil(tokens / 32), heads],
  softmax: (tokens, heads) => [Math.ceil(tokens / 4), heads, 1],
  values: (tokens, heads, stride) => [Math.ceil(tokens / 64), Math.ceil(stride / 4), heads],
};

/** Bytes of one number in memory. */
export const itemBytes = (dtype) => (dtype === "fp16" ? 2 : 4);

/** Keys of one tile: 16, or 8 where 16 would take more than 8 KiB. */
const tileKeys = (width, dtype) => (16 * width * itemBytes(dtype) > 8192 ? 8 : 16);

/** Workgroup memory of the fused kernel. WebGPU promises 16,384 bytes everywhere. */
export const workgroupBytes = (width, dtype) => {
  const keys = tileKeys(width, dtype);
  return keys * width * itemBytes(dtype) + 4 * (64 * keys + ROWS * keys);
};

const BUFFERS = [
  "@group(0) @binding(0) var<storage, read> query: array<Item>;  // [n_heads, T, stride]",
  "@group(0) @binding(1) var<storage, read> key: array<Item>;",
  "@group(0) @binding(2) var<storage, read> value: array<Item>;",
  "@group(0) @binding(3) var<storage, read_write> result: array<Item>;",
  "@group(0) @binding(4) var<uniform> shape: Shape;",
  "@group(0) @binding(5) var<storage, read_write> scores: array<Number>;  // [n_heads, T, T]",
];

/** What a kernel's text begins with: the types, and the buffers that it binds. */
const declarations = (kernel, dtype) => `${dtype === "fp16" ? "enable f16;\n" : ""}alias Number = ${dtype === "fp16" ? "f16" : "f32"};
alias Item = vec4<Number>;  // four columns of one row
struct Shape { tokens: u32, stride: u32, scale: f32 }  // stride: from one row to the next, in vec4s
${BINDINGS[kernel].map((i) => BUFFERS[i]).join("\n")}`;

/** The fused kernel for heads of up to `width` columns (a multiple of 16, at most 256). */
export function flashSource(width, dtype) {
  const keys = tileKeys(width, dtype);
  // One line per register.
  const each = (indent, line) => Array.from({ length: width / (4 * LANES) }, (_, i) => " ".repeat(indent) + line(i)).join("\n");
  const at = (i) => (i ? `at + ${LANES * i}u` : "at");
  const fill = (buffer) => `    for (var i = thread; i < KEYS * COLUMNS; i += 64u) {
      let token = first + i / COLUMNS;
      let column = i % COLUMNS;
      var loaded = Item();
      if (token < shape.tokens && column < shape.stride) { loaded = ${buffer}[base + token * shape.stride + column]; }
      tile[i] = loaded;
    }`;
  return `// Attention in one kernel, compiled for heads of up to ${width} columns.
//
// A workgroup keeps ${ROWS} queries and lets all keys and values pass by, ${keys} at a time. ${LANES} threads ("lanes") share a
// query: lane l holds the vec4s l, l + ${LANES}, l + ${2 * LANES}, ... of it, and of its result, in registers. Registers cannot be picked by an
// index while a kernel runs, so their number is fixed when it is compiled: hence one kernel per width. A narrower head
// leaves zeros in the rest, and these are multiplied like everything else.
${declarations("fused", dtype)}

const COLUMNS = ${width / 4}u;  // the compiled width in vec4s, whatever d_head is
const KEYS = ${keys}u;
const LOWEST = -1e30;

var<workgroup> tile: array<Item, ${(keys * width) / 4}>;  // keys, later their values; read by all ${ROWS} queries
var<workgroup> parts: array<f32, ${64 * keys}>;  // what each lane contributes to each score
var<workgroup> scores: array<f32, ${ROWS * keys}>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let row = thread / ${LANES}u;
  let lane = thread % ${LANES}u;
  let own = group.x * ${ROWS}u + row;  // the token whose query this is
  let base = group.y * shape.tokens * shape.stride;  // where this head begins

  // The query stays here. Its factor turns exp into exp2, which is what the hardware has.
${each(2, (i) => `var q${i} = vec4<f32>();`)}
  if (own < shape.tokens) {
    let at = base + own * shape.stride + lane;
    let factor = shape.scale * 1.4426950408889634;
${each(4, (i) => `if (lane + ${LANES * i}u < shape.stride) { q${i} = factor * vec4<f32>(query[${at(i)}]); }`)}
  }
${each(2, (i) => `var o${i} = vec4<f32>();`)}
  var highest = LOWEST;  // the largest score so far
  var total = 0.0;  // the sum of all exp2(score - highest) so far

  for (var first = 0u; first < shape.tokens; first += KEYS) {
${fill("key")}
    workgroupBarrier();

    // Each lane: its columns of the query, times the same columns of each key. Zeros beyond d_head are paid for here ...
    for (var k = 0u; k < KEYS; k++) {
      let at = k * COLUMNS + lane;
${each(6, (i) => `${i ? "dots +=" : "var dots ="} q${i} * vec4<f32>(tile[${at(i)}]);`)}
      parts[64u * k + thread] = dots.x + dots.y + dots.z + dots.w;
    }
    workgroupBarrier();

    // Parts add up to scores; the lanes of a query share this. There are no keys beyond the last token.
    for (var k = lane; k < KEYS; k += ${LANES}u) {
      let at = 64u * k + ${LANES}u * row;
      let sum = ${Array.from({ length: LANES }, (_, i) => `parts[at + ${i}u]`).join(" + ")};
      scores[${ROWS}u * k + row] = select(LOWEST, sum, first + k < shape.tokens);
    }
${fill("value")}
    workgroupBarrier();

    // Online softmax: if this tile has a larger score than all before it, what was summed until now shrinks.
    var higher = highest;
    for (var k = 0u; k < KEYS; k++) { higher = max(higher, scores[${ROWS}u * k + row]); }
    let shrink = exp2(highest - higher);
    highest = higher;
    total *= shrink;
${each(4, (i) => `o${i} *= shrink;`)}
    for (var k = 0u; k < KEYS; k++) {
      let weight = exp2(scores[${ROWS}u * k + row] - highest);
      let at = k * COLUMNS + lane;
      total += weight;
      // ... and here once more.
${each(6, (i) => `o${i} += weight * vec4<f32>(tile[${at(i)}]);`)}
    }
    workgroupBarrier();
  }

  if (own < shape.tokens) {
    let at = base + own * shape.stride + lane;
${each(4, (i) => `if (lane + ${LANES * i}u < shape.stride) { result[${at(i)}] = Item(o${i} / total); }`)}
  }
}
`;
}

/** Attention in three kernels, with the scores in memory between them: written, read and rewritten, read again. */
export function unfusedSources(dtype) {
  const main = "@compute @workgroup_size(64)\nfn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {";
  return {
    scores: `// scores = scale * query * key^T: 32 × 32 of them per workgroup, 4 × 4 per thread.
${declarations("scores", dtype)}

var<workgroup> queries: array<Item, 128>;  // 32 rows, 16 columns of each at a time
var<workgroup> keys: array<Item, 128>;

${main}
  let base = group.z * shape.tokens * shape.stride;
  let x = thread % 8u;
  let y = thread / 8u;
  var sums: array<vec4<f32>, 4>;
  for (var first = 0u; first < shape.stride; first += 4u) {
    for (var i = thread; i < 128u; i += 64u) {
      let column = first + i % 4u;
      let q = group.y * 32u + i / 4u;
      let k = group.x * 32u + i / 4u;
      var one = Item();
      var other = Item();
      if (q < shape.tokens && column < shape.stride) { one = query[base + q * shape.stride + column]; }
      if (k < shape.tokens && column < shape.stride) { other = key[base + k * shape.stride + column]; }
      queries[i] = one;
      keys[i] = other;
    }
    workgroupBarrier();
    for (var c = 0u; c < 4u; c++) {
      let k0 = vec4<f32>(keys[x * 4u + c]);
      let k1 = vec4<f32>(keys[(x + 8u) * 4u + c]);
      let k2 = vec4<f32>(keys[(x + 16u) * 4u + c]);
      let k3 = vec4<f32>(keys[(x + 24u) * 4u + c]);
      for (var i = 0u; i < 4u; i++) {
        let q = vec4<f32>(queries[(y + 8u * i) * 4u + c]);
        sums[i] += vec4<f32>(dot(q, k0), dot(q, k1), dot(q, k2), dot(q, k3));
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < 4u; i++) {
    let q = group.y * 32u + y + 8u * i;
    if (q >= shape.tokens) { break; }
    let row = (group.z * shape.tokens + q) * shape.tokens;
    for (var j = 0u; j < 4u; j++) {
      let k = group.x * 32u + x + 8u * j;
      if (k < shape.tokens) { scores[row + k] = Number(shape.scale * sums[i][j]); }
    }
  }
}
`,
    softmax: `// Softmax of four rows of scores per workgroup, in place; 16 threads per row.
${declarations("softmax", dtype)}

var<workgroup> tops: array<f32, 64>;
var<workgroup> totals: array<f32, 64>;

${main}
  let token = group.x * 4u + thread / 16u;
  let row = (group.y * shape.tokens + token) * shape.tokens;
  let end = select(0u, shape.tokens, token < shape.tokens);
  var highest = -1e30;
  var total = 0.0;
  for (var k = thread % 16u; k < end; k += 16u) {
    let score = f32(scores[row + k]);
    let higher = max(highest, score);
    total = total * exp(highest - higher) + exp(score - higher);
    highest = higher;
  }
  tops[thread] = highest;
  totals[thread] = total;
  workgroupBarrier();
  let lanes = thread / 16u * 16u;
  for (var i = lanes; i < lanes + 16u; i++) { highest = max(highest, tops[i]); }
  total = 0.0;
  for (var i = lanes; i < lanes + 16u; i++) { total += totals[i] * exp(tops[i] - highest); }
  for (var k = thread % 16u; k < end; k += 16u) { scores[row + k] = Number(exp(f32(scores[row + k]) - highest) / total); }
}
`,
    values: `// result = weights * value: 64 rows × 16 columns per workgroup, 4 × 4 per thread.
${declarations("values", dtype)}

var<workgroup> weights: array<f32, 1024>;  // 64 rows, 16 keys at a time
var<workgroup> tile: array<Item, 64>;

${main}
  let base = group.z * shape.tokens * shape.stride;
  let column = group.y * 4u + thread % 4u;
  let y = thread / 4u;
  var sums: array<vec4<f32>, 4>;
  for (var first = 0u; first < shape.tokens; first += 16u) {
    for (var i = thread; i < 1024u; i += 64u) {
      let q = group.x * 64u + i / 16u;
      let k = first + i % 16u;
      var loaded = 0.0;
      if (q < shape.tokens && k < shape.tokens) { loaded = f32(scores[(group.z * shape.tokens + q) * shape.tokens + k]); }
      weights[i] = loaded;
    }
    var one = Item();
    if (first + y < shape.tokens && column < shape.stride) { one = value[base + (first + y) * shape.stride + column]; }
    tile[thread] = one;
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
      let v = vec4<f32>(tile[k * 4u + thread % 4u]);
      for (var i = 0u; i < 4u; i++) { sums[i] += weights[(y + 16u * i) * 16u + k] * v; }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < 4u; i++) {
    let q = group.x * 64u + y + 16u * i;
    if (q < shape.tokens && column < shape.stride) { result[base + q * shape.stride + column] = Item(sums[i]); }
  }
}
`,
  };
}
