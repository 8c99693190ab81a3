// The browser-GPU panel once the reader is there: the chart, buttons, a run, recordings in and out, the kernel's text.
import { el, say, perFrame, growOnly } from "./kit.js";
import { timingView } from "./timing_view.js";
import { gpuAbsent } from "./gpu_absent.js";

const MEGABYTES = 50;
/** What the bench is doing, as the shared view calls it. */
const VIEWED = { opening: "starting", checking: "starting", calibrating: "starting", measuring: "running", stopped: "done" };
/** What waits for a run stands where its progress will. */
const READY = "Ready. A run can be stopped at any time; what it has measured stays.";
const OVER = ["done", "stopped", "failed", "refused"];

const [START, HALT, ON] = ["Time my GPU", "Stop", "Go on"];

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
  let gone = false; // is the panel taken away?
  let form = "buckets"; // whose text the reader looks at

  const button = (text, does, primary) => el("button", { type: "button", class: primary ? "sh-chip sh-primary" : "sh-chip", onclick: does }, text);
  const start = button(START, begin, true);
  const halt = button(HALT, () => run?.stop());
  const on = button(ON, () => run?.goOn());
  const save = button("Export", exported);
  const file = el("input", { type: "file", accept: ".json,application/json", class: "sh-heard", tabindex: "-1", "aria-hidden": "true" });
  const open = button("Import", () => file.click());
  const buttons = el("div", { class: "sh-chips sh-does", role: "group", "aria-label": "Measure" }, start, halt, on, save, open, file);
  const choice = el("div", { class: "sh-chips", role: "group", "aria-label": "Recording shown" });
  const refused = el("p", { class: "sh-error", role: "alert", hidden: true });
  const answer = el("p", { class: "sh-answer" });
  const chart = el("div");
  const text = el("code");
  const forms = el("div", { class: "sh-chips", role: "group", "aria-label": "Kernel shown" });
  const kernel = el("details", { class: "sh-fold sh-kernel" }, el("summary"), forms, el("div", { class: "sh-wgsl", tabindex: "0", role: "region", "aria-label": "Source of the kernel" }, text));
  const caveat = el("p", { class: "sh-caveat" });
  host.append(buttons, refused, choice, answer, chart, kernel, caveat);
  const view = timingView(shown, chart, {
    measures: true,
    none: "Press “Time my GPU”.",
    idle: READY,
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
    // The keyboard goes to the button that takes the other's place, or waits for its own.
    held = [start, halt, on, save, open].includes(focused) ? focused : null;
    const free = (button) => !button.disabled && !button.hidden;
    const next = held && [held, ...({ [START]: [halt], [HALT]: [start], [ON]: [halt, start] }[held.textContent] ?? [])].find(free);
    if (next && next !== document.activeElement) next.focus({ preventScroll: true });
  }
  function complain(why = "") {
    say(refused, why);
    refused.hidden = !why;
  }

  function names() {
    const all = shown.get("recordings");
    choice.hidden = !all.length;
    choice.replaceChildren(el("span", { class: "sh-label" }, "shown:"), ...all.map(({ label, title }, i) =>
      el("button", { type: "button", class: "sh-chip", "aria-pressed": String(i === shown.get("recording")), onclick: () => show(i) }, label ?? title)));
  }
  function show(i) {
    const focused = [...choice.children].indexOf(document.activeElement);
    shown.set("recording", i);
    names();
    tellApart();
    controls();
    choice.children[focused]?.focus();
  }
  /**
   * What the recording on show says of the reader's head size: its time per useful operation over that of 64. The limits are those
   * that both intervals allow.
   */
  function tellApart() {
    const live = shown.get("live");
    const recording = live.name && live.name === current()?.name ? { ...current(), ...live } : current();
    const d = model.get("d_head");
    caveat.hidden = recording?.device !== "webgpu";
    say(caveat, recording?.name.startsWith("yours") ? model.get("caveat").replace("a browser’s", "your browser’s") : model.get("caveat"));
    const lines = recording?.lines ?? [];
    const told = lines.filter(({ direction, seq_len }) => direction === lines[0].direction && seq_len === lines[0].seq_len).map((line) => {
      const [a, b] = [line.d.indexOf(64), line.d.indexOf(d)];
      if (a < 0 || b < 0) return null;
      const of = (one, other) => ((line[one][b] / line.f[b]) / (line[other][a] / line.f[a])).toFixed(2);
      return `${line.name} × ${of("t", "t")} (${of("lo", "hi")} to ${of("hi", "lo")}${line.b?.[a] && line.b[b] ? `; by width alone ${((line.b[b] / d) / (line.b[a] / 64)).toFixed(2)}` : ""})`;
    }).filter(Boolean);
    const begins = `d_head ${d} in place of 64, time of a useful operation`;
    answer.hidden = !lines.length;
    if (d === 64) say(answer, "Choose another d_head than 64 to see what it costs in place of 64.");
    else say(answer, told.length ? `${begins}: ${told.join(", ")}.` : `${begins}: not in this recording; a run here measures it.`);
  }

  /** Put a recording on the list, or in the place of the one of that name, and show it if `turn`. */
  function put(summary, recording, turn = true) {
    const all = shown.get("recordings");
    const at = all.findIndex(({ name }) => name === summary.name);
    shown.set("recordings", at < 0 ? [...all, summary] : all.map((one, i) => (i === at ? summary : one)));
    if (recording) whole.set(summary.name, recording);
    if (turn) show(at < 0 ? all.length : at);
    else show(shown.get("recording"));
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
    if (!sweep || gone || busy()) return;
    if (globalThis.splitheadsMeasures) return complain("Another panel of this page is measuring, and two at once would slow each other down: stop that one first.");
    globalThis.splitheadsMeasures = true;
    const menu = (name) => model.get("menus")[name][model.get(name)];
    const d_heads = [...new Set([...menu("sizes"), model.get("d_head")])].sort((a, b) => a - b);
    count += 1;
    const name = `yours-${count}`;
    const others = shown.get("recordings").filter((one) => one.name.startsWith("yours-")).length; // runs that gave nothing are not counted
    const label = others ? `yours ${others + 1}` : "yours";
    let latest = null;
    let over = false;
    const draw = perFrame(() => {
      if (over) return;
      if (latest.points.some(({ status }) => status === "ok")) {
        if (!shown.get("live").name) put({ name, label, title: label });
        shown.set("live", { name, title: label, device: "webgpu", lines: rules.group(latest.points), d_heads, steps: [], ceiling: null, source: "", facts: [] });
        tellApart();
      }
      told();
    });
    const told = () => {
      const { state, text, points, total, done_s, left_s } = latest;
      shown.set("progress", { state: VIEWED[state] ?? state, phase: state, text, points: points.length, total, done: done_s, left: left_s });
      controls();
    };
    run = sweep({
      d_heads, series: menu("kernels"), widths: model.get("widths"), dtype: menu("dtype"), budget_s: menu("seconds"), seed: count,
      seq_len: menu("seq_len"), n_heads: 0, order_statistics: rules.order_statistics, version: model.get("version"),
      command: `panel browser_gpu: ${menu("kernels").join(", ")}; d_head ${d_heads.join(", ")}; ${menu("dtype")}; T ${menu("seq_len") || "as fits"}; ${menu("seconds")} s`,
    }, (news) => { latest = news; draw(); });
    controls();
    hidden(); // the page may have gone into the background while this was loaded
    const recording = await run.promise.finally(() => { globalThis.splitheadsMeasures = false; });
    over = true;
    const turn = !shown.get("live").name || current()?.name === name; // a reader who looks at another recording stays there
    shown.set("live", {});
    try {
      if (recording?.points.some(({ status }) => status === "ok")) {
        rules.validate(recording);
        put({ ...rules.summary(recording, name), label }, recording, turn);
        model.set("measured", recording);
        model.save_changes();
      }
    } catch (error) {
      complain(`What was measured contradicts itself, and is not shown: ${error.message}`);
    }
    if (!whole.has(name) && shown.get("recordings").some((one) => one.name === name)) {
      const kept = current();
      const left = shown.get("recordings").filter((one) => one.name !== name);
      shown.set("recordings", left);
      show(Math.max(0, left.indexOf(kept)));
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
      // The same file twice is one recording; another one of that name gets a number.
      const text = JSON.stringify(recording);
      const mates = [...whole].filter(([name]) => name.startsWith("file ") && name.endsWith(` ${given.name}`));
      const name = mates.find(([, one]) => JSON.stringify(one) === text)?.[0] ?? `file ${mates.length + 1} ${given.name}`;
      const number = parseInt(name.slice(5), 10);
      put({ ...rules.summary(recording, name), label: number > 1 ? `${given.name} (${number})` : given.name }, recording);
      shown.set("progress", { state: "done", text: `Imported ${given.name}.` });
    } catch (error) {
      if (shown.get("progress").state !== "refused") shown.set("progress", { state: "idle" }); // why there is no GPU stays
      complain(error.message);
    }
  }
  file.addEventListener("change", () => { take(file.files[0]); file.value = ""; });
  host.addEventListener("dragover", (event) => event.preventDefault());
  host.addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); });

  /** The kernel's text for the reader's head size and dtype, in the form that they choose. */
  async function source() {
    const [d, dtype] = [model.get("d_head"), model.get("menus").dtype[model.get("dtype")]];
    const widths = Object.entries(model.get("widths")).map(([name, table]) => [name, table[d - 1]]);
    const width = Object.fromEntries(widths)[form];
    say(kernel.firstChild, `The kernel in WGSL, ${width ? `as it is compiled for width ${width}` : "unfused"}, ${dtype}`);
    const focused = [...forms.children].indexOf(document.activeElement);
    forms.replaceChildren(...[...widths, ["unfused"]].map(([name, wide]) => el("button", { type: "button", class: "sh-chip", "aria-pressed": String(name === form),
      onclick: () => { form = name; source(); } }, wide ? `${name}: ${wide}` : name)));
    forms.children[focused]?.focus();
    if (!kernel.open) return;
    try {
      const made = await bench();
      say(text, made.source(width, dtype));
    } catch (error) {
      say(text, error.message);
    }
  }
  const plot = () => shown.set("plot", model.get("plot"));
  const hidden = () => { if (document.hidden && busy()) run?.pause("hidden"); };
  model.on("change:plot", plot);
  model.on("change:d_head change:dtype", source);
  model.on("change:d_head", tellApart);
  kernel.addEventListener("toggle", source);
  document.addEventListener("visibilitychange", hidden);
  const unGrow = growOnly(answer);
  names();
  controls();
  tellApart();
  source();
  const why = gpuAbsent();
  if (why) shown.set("progress", { state: "refused", text: why[1] });

  return {
    stop() {
      gone = true;
      run?.stop();
      model.off("change:plot", plot);
      model.off("change:d_head change:dtype", source);
      model.off("change:d_head", tellApart);
      unGrow();
      document.removeEventListener("visibilitychange", hidden);
      view.stop();
    },
  };
}
