// Known before a GPU is asked for, and without what asks.

/** Why this page can have no GPU, as [kind, sentence for readers]; null if it may ask for one. */
export function gpuAbsent() {
  if (!globalThis.isSecureContext) {
    return ["insecure", `Browsers let a page use the GPU only if it came by https or from your own computer, and this one came from ${location.origin}: open it by https, or build the book yourself.`];
  }
  if (navigator.gpu) return null;
  return ["absent", location.protocol === "file:"
    ? "This browser gives WebGPU to no page that was opened from a file, or has none: “make serve” shows the same page over http; or take a current version of Chrome, Edge, Safari or Firefox."
    : "This browser has no WebGPU, or it is switched off: a current version of Chrome, Edge, Safari or Firefox has it on most systems."];
}
