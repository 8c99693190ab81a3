// Attention timed on the reader's GPU through WebGPU: open it, check every kernel, choose T, measure, and write down what
// was found as a recording of the timing lab (schema 1 of splitheads.timing.record). It draws nothing.
import { grouped } from "./kit.js";
import { gpuAbsent } from "./gpu_absent.js";
import { BINDINGS, GROUPS, flashSource, itemBytes, unfusedSources } from "./flash_wgsl.js";

/** No dispatch may take longer: the page would stand still, and a driver might take the GPU for hung and reset it. */
const LONGEST_S = 0.05;
/** The slowest call of a sweep whose T is chosen here. */
const COMFORT_S = 0.03;
/** A sample takes at least so long by the page's clock, which browsers round to 1 ms. */
const ENOUGH_S = 0.02;
/** By the GPU's clock, so many of its steps: 16 ms where the browser rounds them to 0.1 ms. Longer samples meet more disturbance. */
const ENOUGH_STEPS = 160;
const CONFIDENCE = 0.95;
const TARGET_WIDTH = 0.02;
/** Empty submissions that are timed together. */
const EMPTY = 32;
/** No point is settled with fewer samples; T is chosen so that there is time for somewhat more. */
const LEAST_SAMPLES = 10;
const ROUNDS = 16;
/** T and heads to choose from. More tokens before more heads: a workgroup has its fixed costs, and T makes them small. */
const SHAPES = [[64, 1], [128, 1], [256, 1], [256, 2], [512, 2], [512, 4], [1024, 4], [1024, 8], [1024, 16], [2048, 16], [4096, 16]];
/** Memory that inputs may take, where it is ours to choose. */
const MODEST_BYTES = 2 ** 29;
/** Inputs are one block of random numbers over and over; no power of two, so that rows do not repeat. */
const BLOCK = 262140;
/** A check: odd numbers of tokens and columns, and rows at the ends and at the edges of tiles and workgroups. */
const CHECK = { tokens: 67, heads: 2, rows: [0, 15, 16, 47, 66] };
/**
 * How far a result may lie from one in 64 bits. Results are means of numbers of unit variance, so they are off by roundings: 1e-7
 * in fp32 (exp2 may be off by several), 5e-4 in fp16, and 2e-3 in a score of 4 that is kept in fp16.
 */
const TOLERANCE = { fp32: 2e-5, fp16: 5e-3 };

/** kind: insecure, absent, refused, device, dtype, lost, memory, wrong. The message is one for readers. */
export class GpuError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}
class SweepStopped extends Error {}

/**
 * The GPU that the browser gives to pages: {device, name, info, software, timestamps, f16, limits, lost}. Throws GpuError.
 * `name` is the browser's own word for it; browsers keep it vague.
 */
export async function openGpu() {
  const why = gpuAbsent();
  if (why) throw new GpuError(...why);
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" }).catch(() => null);
  if (!adapter) throw new GpuError("refused", "The browser has WebGPU and gives this page no GPU: its driver may be on the browser's list of faulty ones, or graphics acceleration is switched off in the settings.");
  const info = adapter.info ?? {};
  const { maxStorageBufferBindingSize, maxBufferSize } = adapter.limits;
  let device;
  try {
    device = await adapter.requestDevice({
      requiredFeatures: ["timestamp-query", "shader-f16"].filter((feature) => adapter.features.has(feature)),
      requiredLimits: { maxStorageBufferBindingSize, maxBufferSize },
    });
  } catch (error) {
    throw new GpuError("device", `The browser found a GPU and could not open it (${error.message}): close other pages that use it, or load this page again.`);
  }
  return {
    device,
    info,
    name: info.description || [info.vendor, info.architecture, info.device].filter(Boolean).join(" ") || "unnamed GPU",
    software: Boolean(info.isFallbackAdapter ?? adapter.isFallbackAdapter) || /swiftshader|llvmpipe|lavapipe/i.test(`${info.architecture} ${info.description} ${info.device}`),
    timestamps: device.features.has("timestamp-query"),
    f16: device.features.has("shader-f16"),
    limits: { maxStorageBufferBindingSize, maxBufferSize },
    lost: device.lost,
  };
}

// Numbers ------------------------------------------------------------------------------------------

/** Random numbers from 0 to 1 that a seed fixes (mulberry32). */
function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
const normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

const [asFloat, asBits] = ((buffer) => [new Float32Array(buffer), new Uint32Array(buffer)])(new ArrayBuffer(4));
/** The bits of a number in half precision, rounded to even; what is smaller than 6e-5 becomes zero. */
export function toHalf(x) {
  asFloat[0] = x;
  const sign = (asBits[0] >>> 16) & 0x8000;
  const bits = (asBits[0] & 0x7fffffff) - 0x38000000;
  return sign | (bits < 0x800000 ? 0 : Math.min(0x7c00, (bits + 0xfff + ((bits >>> 13) & 1)) >>> 13));
}
export function fromHalf(bits) {
  const power = (bits >>> 10) & 31;
  const size = power ? (1 + (bits & 1023) / 1024) * 2 ** (power - 15) : (bits & 1023) * 2 ** -24;
  return bits & 0x8000 ? -size : size;
}
const Items = (dtype) => (dtype === "fp16" ? Uint16Array : Float32Array);
const encoded = (dtype, x) => (dtype === "fp16" ? toHalf(x) : Math.fround(x));
const decoded = (dtype, x) => (dtype === "fp16" ? fromHalf(x) : x);

/** vec4s from one row to the next: rows of memory have a multiple of four columns. */
const strideOf = (d) => Math.ceil(d / 4);

/** [median, lower, upper] of the samples, as `splitheads.timing.analyse.median_limits` gives them. */
function medianLimits(samples, orderStatistics) {
  const values = [...samples].sort((a, b) => a - b);
  const n = values.length;
  const [k] = orderStatistics(n, CONFIDENCE);
  return [(values[Math.floor((n - 1) / 2)] + values[Math.floor(n / 2)]) / 2, values[k - 1], values[n - k]];
}

const inMs = (seconds) => (seconds < 1 ? `${Number((1000 * seconds).toPrecision(2))} ms` : `${Number(seconds.toPrecision(2))} s`);

// One kernel ---------------------------------------------------------------------------------------

/** The steps of a kernel: names of `BINDINGS`, and their texts. */
const kernelTexts = (width, dtype) => (width ? { fused: flashSource(width, dtype) } : unfusedSources(dtype));

/** Compiled: {fused: pipeline}, or {scores, softmax, values}. Throws GpuError("wrong") with the compiler's words. */
export async function compileKernel(device, texts) {
  const made = await Promise.all(Object.entries(texts).map(async ([name, code]) => {
    device.pushErrorScope("validation"); // what it catches is told by the compiler, with the line
    const module = device.createShaderModule({ code });
    device.popErrorScope().catch(() => {});
    const pipeline = device.createComputePipelineAsync({ layout: "auto", compute: { module } }).catch((error) => error);
    const wrong = (await module.getCompilationInfo()).messages.find(({ type }) => type === "error");
    const done = await pipeline;
    if (wrong) throw new GpuError("wrong", `the browser does not compile it (${name}, line ${wrong.lineNum}: ${wrong.message})`);
    if (done instanceof Error) throw new GpuError("wrong", `the browser does not compile it (${done.message})`);
    return [name, done];
  }));
  return Object.fromEntries(made);
}

/** Buffers by binding (see `BINDINGS`) to what a pass has to do: [[pipeline, bind group, workgroups], ...]. */
function stepsOf(device, pipelines, buffers, { tokens, heads }, d) {
  return Object.entries(pipelines).map(([name, pipeline]) => [
    pipeline,
    device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: BINDINGS[name].map((binding) => ({ binding, resource: { buffer: buffers[binding] } })),
    }),
    GROUPS[name](tokens, heads, strideOf(d)),
  ]);
}

function encodeCall(pass, steps) {
  for (const [pipeline, group, workgroups] of steps) {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...workgroups);
  }
}

function shapeBuffer(device, tokens, d) {
  const data = new DataView(new ArrayBuffer(16));
  data.setUint32(0, tokens, true);
  data.setUint32(4, strideOf(d), true);
  data.setFloat32(8, 1 / Math.sqrt(d), true);
  const buffer = device.createBuffer({ size: 16, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  device.queue.writeBuffer(buffer, 0, data.buffer);
  return buffer;
}

/** One row of attention in 64 bits: the result's columns for query `row` of head `h`. */
function referenceRow([query, key, value], { tokens }, d, h, row) {
  const stride = 4 * strideOf(d);
  const at = (token) => (h * tokens + token) * stride;
  const weights = Float64Array.from({ length: tokens }, (_, token) => {
    let sum = 0;
    for (let c = 0; c < d; c++) sum += query[at(row) + c] * key[at(token) + c];
    return sum / Math.sqrt(d);
  });
  const highest = weights.reduce((a, b) => Math.max(a, b));
  let total = 0;
  weights.forEach((score, token) => { total += weights[token] = Math.exp(score - highest); });
  const result = new Float64Array(stride);
  weights.forEach((weight, token) => { for (let c = 0; c < d; c++) result[c] += (weight / total) * value[at(token) + c]; });
  return result;
}

/**
 * Run a kernel once and compare rows of all heads with a reference: {worst, at, rows, ok}. Inputs have unit variance, so
 * scores have it, too. Whatever is no number counts as infinitely wrong.
 */
export async function checkKernel(device, pipelines, d, dtype, { tokens, heads, rows } = CHECK, seed = 1) {
  const random = seeded(seed + d);
  const stride = 4 * strideOf(d);
  const length = heads * tokens * stride;
  const bytes = length * itemBytes(dtype);
  const size = bytes + (-bytes & 3);
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const inputs = [0, 1, 2].map(() => Items(dtype).from({ length }, (_, i) => (i % stride < d ? encoded(dtype, normal(random)) : 0)));
  const buffers = inputs.map((data) => {
    const buffer = device.createBuffer({ size, usage: STORAGE | COPY_DST });
    device.queue.writeBuffer(buffer, 0, data);
    return buffer;
  });
  buffers.push(device.createBuffer({ size, usage: STORAGE | COPY_SRC }), shapeBuffer(device, tokens, d));
  const most = heads * tokens * tokens * itemBytes(dtype);
  if (pipelines.scores) buffers.push(device.createBuffer({ size: most + (-most & 3), usage: STORAGE }));
  const read = device.createBuffer({ size, usage: MAP_READ | COPY_DST });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encodeCall(pass, stepsOf(device, pipelines, buffers, { tokens, heads }, d));
  pass.end();
  encoder.copyBufferToBuffer(buffers[3], 0, read, 0, size);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(GPUMapMode.READ);
  const found = new (Items(dtype))(read.getMappedRange().slice(0)).subarray(0, length);
  read.unmap();
  [...buffers, read].forEach((buffer) => buffer.destroy());
  const exact = inputs.map((data) => Float64Array.from(data, (x) => decoded(dtype, x)));
  let [worst, at] = [0, ""];
  for (let h = 0; h < heads; h++) {
    for (const row of rows) {
      referenceRow(exact, { tokens }, d, h, row).forEach((due, c) => {
        const got = decoded(dtype, found[(h * tokens + row) * stride + c]);
        const off = Number.isFinite(got) ? Math.abs(got - due) : Infinity;
        if (off > worst) [worst, at] = [off, `head ${h}, token ${row}, column ${c}: ${got.toPrecision(4)} where ${due.toPrecision(4)} is due`];
      });
    }
  }
  return { worst, at, rows: rows.length * heads, ok: worst <= TOLERANCE[dtype] };
}

// The sweep ----------------------------------------------------------------------------------------

/**
 * startSweep(plan, on) -> {promise, stop(), pause(reason), goOn(), state}
 *
 * plan: {
 *   d_heads, series,     // names of `widths`, or "unfused"
 *   widths,              // {name: [compiled width for d_head 1, 2, ...]}
 *   dtype, budget_s, seed, command, version,
 *   seq_len, n_heads,    // 0: chosen here
 *   order_statistics,    // (n, confidence) => [k, coverage]: the rule of splitheads.timing.analyse
 * }
 * on({state, text, points, total, done_s, left_s, checked}) is told what goes on: points as a recording has them, as far as they
 * are known; checked: {kernel: {ok, worst, text}}. States: opening, checking, calibrating, measuring, paused, lost (`goOn` opens the
 * GPU again), and the last ones: done, stopped, failed, refused (there is no GPU to measure on).
 * `promise` gives the recording; null if there never was a GPU. It never rejects.
 */
export function startSweep(plan, on = () => {}) {
  return new Sweep(plan, on);
}

class Sweep {
  constructor(plan, on) {
    Object.assign(this, { plan, on, state: "opening", text: "Asking the browser for a GPU.", gpu: null, shape: null, checked: {}, ended: null });
    this.random = seeded(plan.seed);
    this.created = new Date();
    this.begin = performance.now();
    this.away = 0; // milliseconds in pauses so far
    this.since = null; // when the present pause began
    this.waiting = []; // who waits for its end
    this.halted = false;
    this.stopped = new Promise((_, fail) => { this.halt = () => fail(new SweepStopped()); });
    this.stopped.catch(() => {}); // whoever waits hears of it
    this.told = -Infinity;
    this.step = 0; // of the timestamps, in ns
    this.turn = 0;
    // One task for each pair of head size and kernel: policies that compile the same width share it.
    this.tasks = new Map();
    this.places = plan.series.flatMap((series) => plan.d_heads.map((d) => {
      const width = series === "unfused" ? null : plan.widths[series][d - 1];
      const key = `${d} ${width}`;
      if (!this.tasks.has(key)) {
        this.tasks.set(key, { d, width, kernel: width ? `width ${width}` : "unfused", status: "open", reason: null, samples: [], seconds: 0, calls: 1, lines: 0 });
      }
      this.tasks.get(key).lines += 1;
      return { series, d, task: this.tasks.get(key) };
    }));
    this.promise = Promise.resolve().then(() => this.work());
  }

  // From outside ---------------------------------------------------------------------------------

  /** End after the present sample; what was measured is kept. */
  stop() {
    this.halted = true;
    this.halt();
    this.wake();
  }

  /** Wait after the present sample, and forget that sample: something disturbed it. */
  pause(reason = "") {
    if (this.over() || this.since !== null) return;
    this.before = [this.state, this.text];
    this.since = performance.now();
    const kept = this.points().some(({ status }) => status === "ok") ? " Everything measured so far is kept." : "";
    this.tell("paused", reason === "hidden"
      ? `Paused, because browsers slow down a page in the background.${kept} Press “Go on” when you are back.`
      : `Paused${reason ? `: ${reason}` : ""}.${kept}`);
  }

  goOn() {
    if (this.since === null) return;
    this.away += performance.now() - this.since;
    this.since = null;
    if (this.state === "paused") this.tell(...this.before);
    this.wake();
  }

  over() {
    return ["done", "stopped", "failed", "refused"].includes(this.state);
  }

  wake() {
    this.waiting.splice(0).forEach((done) => done());
  }

  /** Seconds since the start, without pauses. */
  elapsed() {
    return ((this.since ?? performance.now()) - this.begin - this.away) / 1000;
  }
  left() {
    return this.plan.budget_s - this.elapsed();
  }

  tell(state = this.state, text = this.text) {
    if (this.since !== null && state !== "paused" && state !== "lost") {
      this.before = [state, text]; // what it will be when the pause ends
      return;
    }
    const news = state !== this.state || state !== "measuring";
    Object.assign(this, { state, text });
    const now = performance.now();
    if (!news && now - this.told < 220) return;
    this.told = now;
    const done_s = this.elapsed();
    this.on({ state, text, points: this.points(), total: this.places.length, done_s, left_s: this.over() ? 0 : Math.max(0, this.left()), checked: this.checked });
  }

  // The run --------------------------------------------------------------------------------------

  async work() {
    let last = ["done", ""];
    try {
      this.tell();
      while (!(await this.attempt()));
    } catch (error) {
      this.ended ??= "interrupted";
      if (error instanceof SweepStopped) {
        const some = [...this.tasks.values()].some(({ samples }) => samples.length);
        last = ["stopped", some ? "Stopped. What was measured until then is here." : "Stopped before anything was measured."];
      } else if (!this.gpu) {
        last = ["refused", error instanceof GpuError ? error.message : `The browser could not open a GPU (${error.message}).`];
      } else {
        last = [error.kind === "dtype" ? "refused" : "failed", error instanceof GpuError ? error.message : `The measurement broke off (${error.message}). What was measured until then is here.`];
      }
    }
    if (this.since !== null) this.away += performance.now() - this.since;
    this.since = null;
    this.shape ??= { tokens: this.plan.seq_len || SHAPES[0][0], heads: this.plan.n_heads || 1 };
    const recording = this.gpu && this.recording();
    this.gpu?.device.destroy();
    const bad = Object.entries(this.checked).filter(([, { ok }]) => !ok).map(([kernel, { text }]) => `${kernel}: ${text}`);
    const measured = [...this.tasks.values()].filter(({ samples }) => samples.length).length;
    if (last[0] === "done") {
      if (!measured && bad.length) last = ["failed", "No kernel passed its check, so nothing was timed."];
      else if (!measured) last = ["failed", `Nothing could be timed: ${this.points(true)[0].reason}.`];
      else last[1] = this.ended === "complete" ? "Done: every median is known to within 2 %." : "Done: time is up; some medians are less certain than 2 %.";
    }
    if (bad.length) last[1] += ` Not timed, because the check failed: ${bad.join("; ")}.`;
    this.tell(...last);
    return recording;
  }

  /** True when all is done; false when the GPU was lost and the reader wants to go on with another. */
  async attempt() {
    const known = this.gpu;
    try {
      if (!known || known.gone) await this.open(known);
      if (!(await this.check())) return true;
      if (!this.shape) await this.calibrate();
      await this.prepare(this.shape, true, true);
      await this.warmUp();
      await this.measure();
      return true;
    } catch (error) {
      // Whatever goes wrong at the moment when a GPU is lost goes wrong for that reason.
      if (error instanceof SweepStopped || !this.gpu) throw error;
      if (!this.gpu.gone) await Promise.race([this.gpu.lost, new Promise((done) => setTimeout(done, 50))]);
      if (!this.gpu.gone || error.kind === "dtype") throw error;
      const measured = this.points().filter(({ status }) => status === "ok").length;
      const why = error instanceof GpuError && error.kind !== "lost" ? error.message : `The browser lost the GPU${this.gpu.gone.message ? ` (${this.gpu.gone.message.replace(/\.$/, "")})` : ""}.`;
      this.since ??= performance.now();
      this.tell("lost", `${why} ${measured} of ${this.places.length} points are kept; to go on, the page opens the GPU again.`);
      await this.gate();
      return false;
    }
  }

  /** Wait while paused; throw when stopped. */
  async gate() {
    while (this.since !== null && !this.halted) {
      const end = new Promise((done) => this.waiting.push(done));
      await (this.gpu && !this.gpu.gone ? this.live(end) : end); // a GPU can be lost in a pause
    }
    if (this.halted) throw new SweepStopped();
  }

  /** A promise of the GPU's, which might never be kept once the GPU is gone. */
  async live(promise) {
    return Promise.race([promise, this.fallen]);
  }

  async open(known) {
    this.tell("opening", "Asking the browser for a GPU.");
    const asked = (this.plan.open ?? openGpu)(); // a browser may take its time, or never answer
    const gpu = await Promise.race([asked, this.stopped]).catch((error) => {
      if (this.halted) asked.then(({ device }) => device.destroy(), () => {});
      throw error;
    });
    if (known && known.name !== gpu.name) {
      gpu.device.destroy();
      throw new GpuError("device", `The browser now gives another GPU (${gpu.name}), and two are not mixed in one chart: start anew.`);
    }
    this.gpu = gpu;
    this.pool = null;
    this.pipelines = new Map();
    this.fallen = gpu.lost.then((info) => {
      gpu.gone = info;
      throw new GpuError("lost", info.message);
    });
    this.fallen.catch(() => {}); // whoever waits hears of it
    if (this.plan.dtype === "fp16" && !gpu.f16) throw new GpuError("dtype", `The browser offers no half precision (fp16) on this GPU (${gpu.name}): choose fp32.`);
    if (gpu.timestamps && !this.byPage) {
      this.queries = gpu.device.createQuerySet({ type: "timestamp", count: 2 });
      this.resolved = gpu.device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
      this.readable = gpu.device.createBuffer({ size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    } else this.byPage = true;
  }

  openTasks() {
    return [...this.tasks.values()].filter(({ status }) => status === "open");
  }

  /** Compile all kernels, side by side, and check each against the reference before anything is timed. False if time is over. */
  async check() {
    const { device } = this.gpu;
    const kernels = new Map(this.openTasks().map(({ kernel, width }) => [kernel, width]));
    let done = 0;
    const compiled = [...kernels].map(([kernel, width]) => [kernel, width, compileKernel(device, kernelTexts(width, this.plan.dtype)).catch((error) => error)]);
    for (const [kernel, width, promise] of compiled) {
      await this.gate();
      done += 1;
      this.tell("checking", `Compiling the kernels, and comparing each with a reference in 64 bits: ${kernel}, ${done} of ${kernels.size}.`);
      let pipelines = null;
      do {
        await this.gate();
        const late = new Promise((over) => setTimeout(over, Math.max(0, 1000 * this.left())));
        pipelines = await this.live(Promise.race([promise, this.stopped, late]));
      } while (!pipelines && (this.since !== null || this.left() > 0)); // a pause costs no time
      if (!pipelines) {
        this.ended = "budget";
        return false;
      }
      let verdict;
      if (pipelines instanceof Error) {
        await this.live(new Promise((later) => setTimeout(later, 20))); // on a GPU that is lost, nothing compiles
        if (!(pipelines instanceof GpuError)) throw pipelines;
        verdict = { ok: false, worst: null, text: pipelines.message };
      } else {
        const { ok, worst, at, rows } = await this.live(checkKernel(device, pipelines, width ? width - 1 : 61, this.plan.dtype));
        const text = ok ? `${rows} rows are right to ${worst.toPrecision(1)}` : `off by ${worst.toPrecision(2)} (${at}), and ${TOLERANCE[this.plan.dtype]} is allowed`;
        verdict = { ok, worst, text };
        this.pipelines.set(kernel, pipelines);
      }
      this.checked[kernel] = verdict;
      if (!verdict.ok) this.openTasks().filter((task) => task.kernel === kernel).forEach((task) => this.drop(task, "failed", `the kernel failed its check: ${verdict.text}`));
    }
    return true;
  }

  drop(task, status, reason) {
    Object.assign(task, { status, reason });
    this.tell();
  }

  // Memory ---------------------------------------------------------------------------------------

  /** Bytes of one tensor, of the scores, and of all that a call needs. */
  bytes(task, { tokens, heads }) {
    const item = itemBytes(this.plan.dtype);
    const tensor = heads * tokens * strideOf(task.d) * 4 * item;
    const scores = task.width ? 0 : heads * tokens * tokens * item;
    return { tensor, scores, all: 4 * tensor + scores };
  }

  /**
   * Buffers for all open tasks, used by each in turn, and their bind groups. False if there is no room; with `must`, those
   * that need most are skipped until there is.
   */
  async prepare(shape, must, several = false) {
    this.release();
    const { device, limits } = this.gpu;
    const most = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize);
    for (const task of this.openTasks()) {
      const { tensor, scores, all } = this.bytes(task, shape);
      if (Math.max(tensor, scores) <= most) continue;
      if (!must) return false;
      this.drop(task, "skipped", `memory: a call needs ${grouped(all)} bytes, ${grouped(Math.max(tensor, scores))} of them in one buffer, and the browser allows ${grouped(most)}; choose a smaller T`);
    }
    for (let copies = several ? 4 : 1; ; copies = 1) {
      const tasks = this.openTasks();
      if (!tasks.length) return false;
      const sizes = tasks.map((task) => this.bytes(task, shape));
      const tensor = Math.max(...sizes.map((size) => size.tensor));
      const scores = Math.max(...sizes.map((size) => size.scores));
      while (copies > 1 && (3 * copies + 1) * tensor + scores > MODEST_BYTES) copies -= 1;
      if (await this.allocate(shape, copies, tensor, scores)) {
        if (several) this.copies = copies;
        return true;
      }
      if (copies > 1) continue;
      if (!must) return false;
      const needed = Math.max(...sizes.map(({ all }) => all));
      tasks.filter((_, i) => sizes[i].all === needed).forEach((task) =>
        this.drop(task, "skipped", `memory: the browser had no room for the ${grouped(needed)} bytes of a call; choose a smaller T, or close other pages`));
    }
  }

  async allocate(shape, copies, tensor, scores) {
    const { device } = this.gpu;
    const { STORAGE, COPY_DST } = GPUBufferUsage;
    const whole = (size) => size + (-size & 3);
    const filters = ["validation", "out-of-memory", "internal"];
    filters.forEach((filter) => device.pushErrorScope(filter));
    const made = [];
    const buffer = (size, usage) => {
      made.push(device.createBuffer({ size: whole(size), usage }));
      return made.at(-1);
    };
    let sets = [];
    let thrown = null;
    try {
      const inputs = Array.from({ length: copies }, () => [0, 1, 2].map(() => buffer(tensor, STORAGE | COPY_DST)));
      const result = buffer(tensor, STORAGE);
      const between = scores ? buffer(scores, STORAGE) : null;
      sets = inputs.map((three) => [...three, result, null, between]);
    } catch (error) {
      thrown = error; // a RangeError, where the size itself is out of the question
    }
    const errors = await this.live(Promise.all(filters.map(() => device.popErrorScope())));
    this.pool = { made, copies };
    if (thrown || errors.some(Boolean)) {
      this.release();
      return false;
    }
    this.block ??= Items(this.plan.dtype).from({ length: BLOCK }, () => encoded(this.plan.dtype, normal(this.random)));
    const item = itemBytes(this.plan.dtype);
    for (const [i, target] of sets.flatMap((set) => set.slice(0, 3)).entries()) {
      // Every tensor begins at another place of the block.
      let skip = (i * 4 * 9973) % BLOCK;
      for (let at = 0; at < target.size;) {
        const count = Math.min(BLOCK - skip, (target.size - at) / item);
        device.queue.writeBuffer(target, at, this.block, skip, count);
        at += count * item;
        skip = 0;
      }
      await this.live(device.queue.onSubmittedWorkDone());
      await this.gate();
    }
    const shapes = new Map();
    for (const task of this.openTasks()) {
      if (!shapes.has(task.d)) {
        shapes.set(task.d, shapeBuffer(device, shape.tokens, task.d));
        made.push(shapes.get(task.d));
      }
      task.steps = sets.map((set) => stepsOf(device, this.pipelines.get(task.kernel), set.with(4, shapes.get(task.d)), shape, task.d));
    }
    this.pool.shape = shape;
    return true;
  }

  release() {
    this.pool?.made.forEach((buffer) => buffer.destroy());
    this.pool = null;
  }

  // Time -----------------------------------------------------------------------------------------

  /** Seconds of `calls` calls in one submission, by the GPU's clock or by the page's. */
  async pass(task, calls) {
    const { device } = this.gpu;
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass(this.byPage ? {} : { timestampWrites: { querySet: this.queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } });
    for (let i = 0; i < calls; i++) encodeCall(pass, task.steps[this.turn++ % task.steps.length]);
    pass.end();
    if (this.byPage) {
      const begin = performance.now();
      device.queue.submit([encoder.finish()]);
      await this.live(device.queue.onSubmittedWorkDone());
      return Math.max(0, performance.now() - begin - this.empty) / 1000;
    }
    encoder.resolveQuerySet(this.queries, 0, 2, this.resolved, 0);
    encoder.copyBufferToBuffer(this.resolved, 0, this.readable, 0, 16);
    device.queue.submit([encoder.finish()]);
    await this.live(this.readable.mapAsync(GPUMapMode.READ));
    const [start, end] = new BigUint64Array(this.readable.getMappedRange());
    const ns = Number(end - start);
    this.readable.unmap();
    // The step of the clock divides every difference.
    let [a, b] = [this.step, ns];
    while (b > 0) [a, b] = [b, a % b];
    this.step = a;
    return ns / 1e9;
  }

  /** Seconds per call, over enough calls for the clock; none of its submissions takes longer than one dispatch may. */
  async sample(task) {
    const most = Math.max(1, Math.floor(LONGEST_S / task.seconds));
    let seconds = 0;
    for (let calls = task.calls; calls > 0; calls -= most) seconds += await this.pass(task, Math.min(calls, most));
    return seconds / task.calls;
  }

  enough() {
    return this.byPage ? ENOUGH_S : Math.min(Math.max((ENOUGH_STEPS * this.step) / 1e9, 0.002), ENOUGH_S);
  }

  /** What a call takes, roughly: one to warm up, then more and more of them until the clock can tell. */
  async probe(task) {
    const { device } = this.gpu;
    device.pushErrorScope("validation"); // a call that is refused takes no time, and says nothing
    await this.pass(task, 1);
    const wrong = await this.live(device.popErrorScope());
    if (wrong) throw new GpuError("wrong", `The browser refused a call of ${task.kernel}: ${wrong.message}`);
    for (let calls = 1; ; calls *= 4) {
      await this.gate();
      const pauses = this.away;
      const seconds = await this.pass(task, calls);
      if (this.since !== null || this.away !== pauses) {
        calls /= 4; // something disturbed it: once more
        continue;
      }
      if (seconds >= this.enough() / 4) return seconds / calls;
      if (calls < 1024) continue;
      if (this.byPage) return Math.max(seconds, 1e-6) / calls;
      if (seconds > 0 && seconds * 1e9 >= 4 * this.step) return seconds / calls;
      // A thousand calls in no time: this GPU's timestamps tell nothing.
      await this.usePageClock();
      calls = 1;
    }
  }

  async usePageClock() {
    this.byPage = true;
    const { queue } = this.gpu.device;
    // Its step: browsers round it, some to 1 ms.
    this.tick = Infinity;
    for (let changes = 0, last = performance.now(); changes < 3;) {
      const now = performance.now();
      if (now > last) {
        this.tick = Math.min(this.tick, now - last);
        changes += 1;
        last = now;
      }
    }
    // An empty submission takes less than a step, so many are timed together.
    const begin = performance.now();
    for (let i = 0; i < EMPTY; i++) {
      queue.submit([this.gpu.device.createCommandEncoder().finish()]);
      await this.live(queue.onSubmittedWorkDone());
    }
    this.empty = (performance.now() - begin) / EMPTY;
  }

  /** [median, lower, upper] seconds of a call. A clock with steps makes many samples equal, and none is better known than half a step. */
  limits({ samples, calls }) {
    const [median, low, high] = medianLimits(samples, this.plan.order_statistics);
    const half = (this.byPage ? this.tick / 1e3 : this.step / 1e9) / 2 / calls;
    return [median, Math.max(low - half, median / 2), high + half];
  }

  /** What a call of `task` will take, from one that was probed: by width, or unfused by head size; by the square of T; by heads. */
  static expected(task, shape, known) {
    const size = (one) => one.width ?? one.d + 32; // unfused has work that does not depend on d_head
    return (known.seconds * Math.min(1, size(task) / size(known.task)) * shape.heads * shape.tokens ** 2) / (known.shape.heads * known.shape.tokens ** 2);
  }

  /** Choose T and the number of heads, from short calls to longer ones, so that no call is ever longer than it may be. */
  async calibrate() {
    const { seq_len, n_heads } = this.plan;
    this.tell("calibrating", "Choosing the number of tokens, so that no call takes long.");
    this.empty = 0;
    if (this.byPage) await this.usePageClock();
    const tasks = this.openTasks();
    const widest = (list) => list.reduce((a, b) => ((b.width ?? b.d) > (a.width ?? a.d) ? b : a), list[0]);
    let slow = [widest(tasks.filter(({ width }) => width)), widest(tasks.filter(({ width }) => !width))].filter(Boolean);
    const kernels = [...new Map(tasks.map((task) => [task.kernel, task])).values()];
    const given = seq_len > 0 && n_heads > 0;
    let ladder = SHAPES.map(([tokens, heads]) => ({ tokens: Math.min(tokens, seq_len || tokens), heads: n_heads || heads }));
    if (seq_len) ladder = [...ladder.filter(({ tokens }) => tokens < seq_len).map((one) => ({ ...one, heads: n_heads || 1 })), ...(n_heads ? [n_heads] : [1, 2, 4, 8, 16]).map((heads) => ({ tokens: seq_len, heads }))];
    ladder = ladder.filter(({ tokens, heads }, i) => !i || tokens !== ladder[i - 1].tokens || heads !== ladder[i - 1].heads);
    const first = ladder.findIndex(({ tokens }) => !seq_len || tokens === seq_len); // from here on, a shape may be taken
    this.known = null;
    let chosen = null;
    for (const [i, shape] of ladder.entries()) {
      await this.gate();
      if (!tasks.length) break;
      const sum = (one) => tasks.reduce((all, task) => all + Math.max(this.enough(), this.estimate(task, one)) + 0.003, 0);
      if (this.known) {
        const slowest = Math.max(...slow.map((task) => this.estimate(task, shape)));
        const affordable = i <= first || (slowest <= COMFORT_S && (slowest <= this.enough() || ROUNDS * sum(shape) <= 0.9 * this.left())); // within a sample, longer calls cost nothing
        if (slowest > 0.9 * LONGEST_S || !affordable) break;
      }
      if (!given && i > first && slow.some((task) => this.bytes(task, shape).all > MODEST_BYTES)) break;
      if (!(await this.prepare(shape, false))) break;
      // The widest kernel speaks for all, unless the shortest calls show that another one is slower.
      const asked = i ? slow : [...slow, ...kernels.filter(({ kernel }) => !slow.some((task) => task.kernel === kernel))];
      const found = [];
      for (const task of asked) found.push({ task, shape, seconds: await this.probe(task) });
      slow = slow.map((task) => {
        const mates = found.filter((one) => !one.task.width === !task.width);
        const worst = mates.reduce((a, b) => (b.seconds > 1.2 * a.seconds ? b : a));
        return worst.task;
      });
      this.known = found.filter(({ task }) => slow.includes(task));
      if (i >= first) chosen = shape;
    }
    // Where T is given and too long for the slowest, it may still do for others.
    this.shape = chosen ?? ladder[first];
    for (const task of this.known ? tasks : []) {
      const seconds = this.estimate(task, this.shape);
      if (seconds > LONGEST_S) this.drop(task, "skipped", this.tooLong(seconds, "would take about"));
    }
    if (this.byPage) await this.usePageClock();
  }

  estimate(task, shape) {
    const known = this.known?.find((one) => !one.task.width === !task.width);
    return known ? Sweep.expected(task, shape, known) : 0;
  }

  tooLong(seconds, verb) {
    return `a call at T = ${this.shape.tokens} with ${this.shape.heads} head${this.shape.heads > 1 ? "s" : ""} ${verb} ${inMs(seconds)}, and ${inMs(LONGEST_S)} is the longest that the page keeps the GPU busy: choose a smaller T`;
  }

  /** The first calls of every kernel do not count; they tell how many calls make a sample. */
  async warmUp() {
    this.tell("calibrating", `T = ${this.shape.tokens}, ${this.shape.heads} head${this.shape.heads > 1 ? "s" : ""}: warming up.`);
    for (const task of this.shuffled(this.openTasks())) {
      await this.gate();
      if (this.left() < 0) return; // `measure` says so
      this.takes(task, await this.probe(task));
      if (task.seconds > LONGEST_S) this.drop(task, "skipped", this.tooLong(task.seconds, "took"));
    }
  }

  /** A call of `task` takes so long: how many make a sample. */
  takes(task, seconds) {
    task.seconds = Math.max(seconds, 1e-9);
    // Where three lines share a kernel, a sample has two calls at least: a recording's points may not add up to more than its duration.
    task.calls = Math.min(4096, Math.max(task.lines > 2 ? 2 : 1, Math.ceil(this.enough() / task.seconds)));
  }

  shuffled(list) {
    const order = [...list];
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(this.random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  /**
   * Rounds: every kernel once, in a new order, so that whatever drifts meets all alike. It is over for all at the same time: a
   * point that left early would miss the drift that the rest see.
   */
  async measure() {
    const { tokens, heads } = this.shape;
    const tasks = this.openTasks();
    for (let settled = 0, round = 1; settled < tasks.length; round++) {
      for (const task of this.shuffled(tasks)) {
        await this.gate();
        if (this.left() < Math.max(1.2 * task.calls * task.seconds, 0.01)) {
          this.ended = "budget";
          return;
        }
        const pauses = this.away;
        const seconds = await this.sample(task);
        if (this.since === null && this.away === pauses && seconds > 0) {
          task.samples.push(seconds);
          this.takes(task, task.seconds + (seconds - task.seconds) / 4); // GPUs wake up, and get hot
        }
        this.tell("measuring", `T = ${tokens}, ${heads} head${heads > 1 ? "s" : ""}, round ${round}: ${settled} of ${tasks.length} medians within 2 %.`);
      }
      settled = tasks.filter((task) => this.isSettled(task)).length;
    }
    this.ended = "complete";
  }

  isSettled(task) {
    if (task.samples.length < LEAST_SAMPLES) return false;
    const [median, low, high] = this.limits(task);
    return high - low <= TARGET_WIDTH * median;
  }

  // What was found -------------------------------------------------------------------------------

  /** Points as a recording has them; all of them at the end, before that those about which something is known. */
  points(all = false) {
    const shape = this.shape;
    if (!shape) return [];
    return this.places.filter(({ task }) => all || task.samples.length || task.status !== "open").map(({ series, d, task }) => {
      const ok = task.samples.length > 0;
      const status = ok ? "ok" : task.status === "open" ? "skipped" : task.status;
      const [median_s, low, high] = ok ? this.limits(task) : [null];
      return {
        case: "plain", backend: series, direction: "forward", seq_len: shape.tokens, d_head: d, d_head_v: d, status,
        reason: ok ? null : task.reason ?? (this.ended === "interrupted" ? "interrupted before this point was measured" : "budget: the time was over before this point was measured"),
        median_s, interval_s: ok ? [low, high] : null, repeats: task.samples.length,
        flops: 4 * shape.heads * shape.tokens ** 2 * d, peak_bytes: this.bytes(task, shape).all,
        observed: ok ? (task.width ? "FUSED" : "UNFUSED") : null, predicted: null, bucket: task.width,
        flags: ok && !this.isSettled(task) ? ["wide interval"] : [],
      };
    });
  }

  recording() {
    const { plan, gpu } = this;
    const copies = this.copies ?? 1;
    const enough = inMs(this.enough());
    const clock = this.byPage
      ? `performance.now around submissions of calls that take ${enough} or more, until onSubmittedWorkDone, less that of an empty submission (${inMs((this.empty ?? 0) / 1000)})`
      : `timestamp-query before and after compute passes of ${enough} or more${this.step >= 1000 ? `, in steps of ${Number((this.step / 1000).toPrecision(3))} µs` : ""}`;
    return {
      kind: "splitheads.timing", schema: 1, created: `${this.created.toISOString().slice(0, 19)}Z`, command: plan.command ?? "",
      duration_s: Math.ceil(this.elapsed()), ended: this.ended ?? "interrupted",
      device: { type: "webgpu", name: gpu.name, key: null, driver: null, threads: null, memory_bytes: null, clocks: null, software: gpu.software, timestamps: !this.byPage },
      software: { python: null, torch: null, build: null, cuda: null, cudnn: null, splitheads: plan.version ?? null, system: navigator.userAgent },
      plan: {
        dtype: plan.dtype, batch: 1, n_heads: this.shape.heads, seq_lens: [this.shape.tokens], d_heads: plan.d_heads, directions: ["forward"],
        backends: plan.series, cases: ["plain"], budget_s: plan.budget_s, seed: plan.seed,
      },
      method: {
        clock, statistic: "median", confidence: CONFIDENCE, interval: "order statistics", target_width: TARGET_WIDTH,
        order: "rounds; every kernel once per round, in a new random order",
        inputs: `random normal, ${copies === 1 ? "one copy; small ones stay in the caches" : `${copies} copies in turn`}`,
        warmup: "every kernel checked, then called twice or more, before the first sample",
      },
      ceilings: { matmul_flops_per_s: null, copy_bytes_per_s: null }, points: this.points(true), agreement: { compared: 0, agree: 0, differ: [] },
    };
  }
}
