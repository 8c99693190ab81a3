// What the browser-GPU panel loads when a button is pressed: kernels, clock, and the timing lab's rules (`timingRules`,
// which Python puts in front: see browser_rules.py).
import { flashSource } from "./flash_wgsl.js";
import { startSweep } from "./gpu_bench.js";

export const rules = timingRules;
export const source = flashSource;
export const sweep = startSweep;
