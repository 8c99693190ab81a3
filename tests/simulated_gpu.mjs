// A GPU that is a formula, on a clock that is a number: the browser's bench measures it, and what it found can be held
// against the truth. Opening, checking and memory are left out; calibration, warm-up, rounds and points are the bench's own.
//
//     echo '{"bench": "file:///...", "scenario": {...}}' | node simulated_gpu.mjs   prints {recording, truth, passes, shape, byPage}
import { readFileSync } from "node:fs";

const { bench, scenario } = JSON.parse(readFileSync(0, "utf8"));
const {
  plan, statistics, // what startSweep gets; {n: [k, coverage]}
  timestamps = true, step_us = 100, // does the GPU tell the time, and how it is rounded
  page_ms = 1, // how the page's clock is rounded
  latency_ms = 0.3, // from a submission to its answer, beside the work
  check_s = 0.5,
  wakes = 1, // so many times faster once it measures
  slow = {}, // {width: factor}
  scale = 1, // 1: a fast GPU, 5 µs for T = 64
  disturb = null, // [state, number of the pass]: the tab goes into the background there, for 400 ms
} = scenario;

let now = 1000; // milliseconds
globalThis.performance = { now: () => Math.floor((now += 1e-3) / page_ms) * page_ms };
Object.defineProperty(globalThis, "navigator", { value: { userAgent: "simulated" }, configurable: true });
globalThis.GPUBufferUsage = {};
const { startSweep } = await import(bench);

let state = 7;
const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
/** Seconds of a call. */
const truth = ({ width, d }, { tokens, heads }, awake) =>
  (((scale * 5e-6 * heads * tokens ** 2) / 64 ** 2) * (40 + (width ?? 2 * d + 32)) * (slow[width] ?? 1)) / 168 / (awake ? wakes : 1);

const queue = { submit() { now += latency_ms * (0.8 + 0.4 * random()); }, async onSubmittedWorkDone() {} };
const device = {
  queue, createQuerySet() {}, createBuffer() {}, destroy() {}, pushErrorScope() {}, popErrorScope: async () => null,
  createCommandEncoder: () => ({ finish() {} }),
};
const gpu = { name: "simulated", timestamps, f16: true, software: true, limits: { maxStorageBufferBindingSize: 2 ** 30, maxBufferSize: 2 ** 30 }, lost: new Promise(() => {}), device };
const run = startSweep({ ...plan, order_statistics: (n) => statistics[n], open: async () => gpu });
const passes = [];
run.check = async () => { now += 1000 * check_s; return true; };
run.prepare = async (shape) => { now += 5; run.now = shape; return true; };
run.release = () => {};
run.pass = async function (task, calls) {
  let ms = 1000 * truth(task, this.now, this.state === "measuring") * calls * (1 + 0.01 * (2 * random() - 1));
  const mine = passes.filter(([when]) => when === this.state).length;
  passes.push([this.state, ms]);
  if (disturb?.[0] === this.state && disturb[1] === mine) {
    this.pause("hidden");
    ms += 400;
  }
  let seconds;
  if (this.byPage) {
    now += 0.7 * random();
    const begin = performance.now();
    now += ms + latency_ms;
    seconds = Math.max(0, performance.now() - begin - this.empty) / 1000;
  } else {
    now += latency_ms;
    const steps = (at) => Math.floor((at * 1e3) / step_us) * step_us * 1e3; // ns
    const ns = Math.round(steps(now + ms) - steps(now));
    now += ms + 0.8;
    let [a, b] = [this.step, ns];
    while (b > 0) [a, b] = [b, a % b];
    this.step = a;
    seconds = ns / 1e9;
  }
  if (this.since !== null) this.goOn();
  return seconds;
};
const recording = await run.promise;
const due = recording.points.map((point) => truth({ width: point.bucket, d: point.d_head }, run.shape, true));
console.log(JSON.stringify({ recording, truth: due, passes, shape: run.shape, byPage: Boolean(run.byPage), text: run.text }));
