// The browser-GPU panel once the reader is there: the chart, buttons, a run, recordings in and out, the kernel's text.
import { el, say, perFrame } from "./kit.js";
import { timingView } from "./timing_view.js";
import { gpuAbsent } from "./gpu_absent.js";

const MEGABYTES = 50;
/** What the bench is doing, as the shared view calls it. */
const VIEWED = { opening: "starting", checking: "starting", calibrating: "starting", measuring: "running", stopped: "done" };
const OVER = ["done", "stopped", "failed", "refused"];

/** Traits that live in this page alone, with the part of a widget model's manners that the shared view uses. */
function store(traits) {
  const heard = new Map();
  return {
    get: (key) => traits[key],
    set(key, value) {
      traits[key] = value;
      heard.get(`change:${key}`)?.forEach((tell) => tell());
    },
    on: (events, tell) => events.split(" ").forEach((event) => heard.set(event, [...(heard.get(event) ?? []), tell])),
    off: (events, tell) => events.split(" ").forEach((event) => heard.set(event, (heard.get(event) ?? []).filter((one) => one !== tell))),
    save_changes() {},
  };
}

/** JSON with one line per key and one per point, as the timing lab writes it. */
function layout(recording) {
  const rows = Object.entries(recording).map(([key, value]) =>
    ` ${JSON.stringify(key)}: ${key === "points" && value.length ? `[\n  ${value.map((point) => JSON.stringify(point)).join(",\n  ")}\n ]` : JSON.stringify(value)}`);
  return `{\n${rows.join(",\n")}\n}\n`;
}

/** stageView(model, host, bench) -> {stop()}. `bench` loads what measures: kernels, clock and rules. */
export function stageView(model, host, bench) {
  const shown = store({
    plots: model.get("plots"), plot: model.get("plot"), cases: {}, kinds: model.get("kinds"), series: model.get("series"), unknown: model.get("unknown"), notes: model.get("notes"),
    recordings: model.get("recordings"), recording: 0, direction: "", seq_len: 0, live: {}, progress: { state: "idle" },
  });
  const whole = new Map(); // name of a recording -> the recording itself, to be exported
  let run = null;
  let loading = false;
  let count = 0;
  let held = null; // the button that had the focus, while no button can have it

  const button = (text, does, primary) => el("button", { type: "button", class: primary ? "sh-chip sh-primary" : "sh-chip", onclick: does }, text);
  const start = button("Time my GPU", begin, true);
  const halt = button("Stop", () => run?.stop());
  const on = button("Go on", () => run?.goOn());
  const save = button("Export", exported);
  const file = el("input", { type: "file", accept: ".json,application/json", class: "sh-heard", tabindex: "-1", "aria-hidden": "true" });
  const open = button("Import", () => file.click());
  const buttons = el("div", { class: "sh-chips sh-does", role: "group", "aria-label": "Measure" }, start, halt, on, save, open, file);
  const choice = el("div", { class: "sh-chips", role: "group", "aria-label": "Recording shown" });
  const refused = el("p", { class: "sh-error", role: "alert", hidden: true });
  const chart = el("div");
  const text = el("code");
  const kernel = el("details", { class: "sh-fold sh-kernel" }, el("summary"), el("div", { class: "sh-wgsl", tabindex: "0", role: "region", "aria-label": "Source of the kernel" }, text));
  host.append(buttons, refused, choice, chart, kernel, el("p", { class: "sh-caveat" }, model.get("caveat")));
  const view = timingView(shown, chart, {
    measures: true,
    none: "Press “Time my GPU”.",
    how: ["What PyTorch’s own kernels do on your machine is measured by the timing lab, in a notebook or by ", el("code", {}, "python -m splitheads time"), "."],
  });

  const current = () => shown.get("recordings")[shown.get("recording")];
  const busy = () => loading || (Boolean(run) && !OVER.includes(run.state));
  function controls() {
    const focused = document.activeElement === document.body ? held : document.activeElement;
    start.disabled = busy();
    halt.disabled = loading || !busy();
    on.hidden = !["paused", "lost"].includes(run?.state);
    save.disabled = busy() || !whole.has(current()?.name);
    open.disabled = busy();
    // The keyboard goes to the button that takes the other's place.
    held = [start, halt, on].includes(focused) ? focused : null;
    if (focused === start && start.disabled && !halt.disabled) halt.focus();
    if (focused === halt && halt.disabled && !start.disabled) start.focus();
    if (focused === on && on.hidden) (halt.disabled ? start : halt).focus();
  }
  function complain(why = "") {
    say(refused, why);
    refused.hidden = !why;
  }

  function names() {
    const all = shown.get("recordings");
    choice.hidden = all.length < 2;
    choice.replaceChildren(el("span", { class: "sh-label" }, "shown:"), ...all.map(({ label, title }, i) =>
      el("button", { type: "button", class: "sh-chip", "aria-pressed": String(i === shown.get("recording")), onclick: () => show(i) }, label ?? title)));
  }
  function show(i) {
    const focused = [...choice.children].indexOf(document.activeElement);
    shown.set("recording", i);
    names();
    controls();
    choice.children[focused]?.focus();
  }
  /** Put a recording on the list, or in the place of the one of that name, and show it. */
  function put(summary, recording) {
    const all = shown.get("recordings");
    const at = all.findIndex(({ name }) => name === summary.name);
    shown.set("recordings", at < 0 ? [...all, summary] : all.map((one, i) => (i === at ? summary : one)));
    if (recording) whole.set(summary.name, recording);
    show(at < 0 ? all.length : at);
  }

  /** The later part; what goes wrong on the way is said here. */
  async function loaded() {
    loading = true;
    controls();
    try {
      return await bench();
    } catch (error) {
      complain(error.message);
      return null;
    } finally {
      loading = false;
      controls();
    }
  }

  async function begin() {
    if (busy()) return;
    complain();
    const { rules, sweep } = (await loaded()) ?? {};
    if (!sweep || busy()) return;
    const menu = (name) => model.get("menus")[name][model.get(name)];
    const d_heads = [...new Set([...menu("sizes"), model.get("d_head")])].sort((a, b) => a - b);
    count += 1;
    const name = `yours-${count}`;
    const label = count > 1 ? `yours ${count}` : "yours";
    let latest = null;
    let over = false;
    const draw = perFrame(() => {
      if (over) return;
      if (latest.points.some(({ status }) => status === "ok")) {
        if (!shown.get("live").name) put({ name, label, title: label });
        shown.set("live", { name, title: label, device: "webgpu", lines: rules.group(latest.points), d_heads, steps: [], ceiling: null, source: "", facts: [] });
      }
      told();
    });
    const told = () => {
      const { state, text, points, total, done_s, left_s } = latest;
      shown.set("progress", { state: VIEWED[state] ?? state, text, points: points.length, total, done: done_s, left: left_s });
      controls();
    };
    run = sweep({
      d_heads, series: menu("kernels"), widths: model.get("widths"), dtype: menu("dtype"), budget_s: menu("seconds"), seed: count,
      seq_len: menu("seq_len"), n_heads: 0, order_statistics: rules.order_statistics, version: model.get("version"),
      command: `panel browser_gpu: ${menu("kernels").join(", ")}; d_head ${d_heads.join(", ")}; ${menu("dtype")}; T ${menu("seq_len") || "as fits"}; ${menu("seconds")} s`,
    }, (news) => { latest = news; draw(); });
    controls();
    const recording = await run.promise;
    over = true;
    shown.set("live", {});
    try {
      if (recording?.points.some(({ status }) => status === "ok")) {
        rules.validate(recording);
        put({ ...rules.summary(recording, name), label }, recording);
        model.set("measured", recording);
        model.save_changes();
      }
    } catch (error) {
      complain(`What was measured contradicts itself, and is not shown: ${error.message}`);
    }
    if (!whole.has(name) && shown.get("recordings").some((one) => one.name === name)) {
      shown.set("recordings", shown.get("recordings").filter((one) => one.name !== name));
      show(0);
    }
    if (latest) told();
    controls();
  }

  function exported() {
    const recording = whole.get(current()?.name);
    if (!recording) return;
    const url = URL.createObjectURL(new Blob([layout(recording)], { type: "application/json" }));
    const name = `${recording.device.name} ${recording.created.slice(0, 10)}`.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    el("a", { href: url, download: `${name}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60e3);
  }

  async function take(given) {
    if (!given || busy()) return;
    complain();
    const { rules } = (await loaded()) ?? {};
    if (!rules) return;
    try {
      if (given.size > MEGABYTES * 1e6) throw new Error(`${given.name} has more than ${MEGABYTES} MB, and no recording is that large: name the right file.`);
      const recording = rules.parse_text(await given.text(), given.name);
      const name = `file-${whole.size + 1}`;
      put({ ...rules.summary(recording, name), label: given.name }, recording);
      shown.set("progress", { state: "done", text: `Imported ${given.name}.` });
    } catch (error) {
      complain(error.message);
    }
  }
  file.addEventListener("change", () => { take(file.files[0]); file.value = ""; });
  host.addEventListener("dragover", (event) => event.preventDefault());
  host.addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); });

  const width = () => model.get("widths").buckets[model.get("d_head") - 1];
  async function source() {
    say(kernel.firstChild, `The kernel in WGSL, as it is compiled for width ${width()}`);
    if (!kernel.open) return;
    try {
      const made = await bench();
      say(text, made.source(width(), "fp32"));
    } catch (error) {
      say(text, error.message);
    }
  }
  const plot = () => shown.set("plot", model.get("plot"));
  const hidden = () => { if (document.hidden && busy()) run?.pause("hidden"); };
  model.on("change:plot", plot);
  model.on("change:d_head", source);
  kernel.addEventListener("toggle", source);
  document.addEventListener("visibilitychange", hidden);
  names();
  controls();
  source();
  const why = gpuAbsent();
  if (why) shown.set("progress", { state: "refused", text: why[1] });

  return {
    stop() {
      run?.stop();
      model.off("change:plot", plot);
      model.off("change:d_head", source);
      document.removeEventListener("visibilitychange", hidden);
      view.stop();
    },
  };
}
