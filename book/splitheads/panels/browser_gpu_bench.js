// What the browser-GPU panel loads when a button is pressed: kernels, clock, and the timing lab's rules (`timingRules`,
// which Python puts in front: see browser_rules.py).
import { flashSource, unfusedSources } from "./flash_wgsl.js";
import { startSweep } from "./gpu_bench.js";

export const rules = timingRules;
/** The text of the fused kernel for a width, or of the three unfused ones. */
export const source = (width, dtype) => (width ? flashSource(width, dtype) : Object.values(unfusedSources(dtype)).join("\n"));
export const sweep = startSweep;
