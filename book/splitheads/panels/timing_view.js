// Recordings of timings, or a run in progress, as one chart over head size, with the numbers in words. Shared by
// all panels that measure; each has its own bench, and says by `options` what its run is called and needs.
import { el, assign, say, percent, perFrame, growOnly } from "./kit.js";
import { chart, mark } from "./chart.js";

const HINT = "Point at a mark, tap it, or walk along the marks with the arrow keys: its numbers stand here.";
/** So many found steps are told at once, the rest when asked for. */
const FEW = 4;
const BUSY = ["starting", "running", "stopping"];
/** News that a screen reader says whole; those of a run in progress come too often, and are said once a phase. */
const SAID = ["refused", "failed", "saved", "done", "paused", "lost"];
/** After so many seconds without news a run is not believed any more. */
const SILENCE = 25;

/** Three digits, and no more zeros than that needs: 0.0123, 56.1, 1230. */
export const digits = (value) => String(Number(value.toPrecision(3)));

/** What the largest number of a plot is. */
const MOST = { time: "longest", memory: "most" };

const one = (column, i) => (Array.isArray(column) ? column[i] : column);
const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** A unit that suits the largest value: [factor, name]. */
function unit(name, most) {
  if (name === "throughput") return most >= 2000 ? [1e-3, "TFLOP/s"] : [1, "GFLOP/s"];
  if (name === "time") return most < 1 ? [1e3, "µs per call"] : most >= 5000 ? [1e-3, "s per call"] : [1, "ms per call"];
  if (name === "memory") return most >= 2000 ? [1e-3, "GB"] : [1, "MB"];
  return [100, "% of the matrix product"];
}

/** What is plotted of point i of a line, with its interval; null where there is no such number. */
export function measured(plot, line, i, ceiling) {
  const [t, low, high, work] = [line.t[i], line.lo[i], line.hi[i], line.f[i]];
  const rate = (time) => (work / time) * 1e3; // GFLOP per ms -> GFLOP/s
  if (plot === "time") return { y: t, low, high };
  if (plot === "throughput") return { y: rate(t), low: rate(high), high: rate(low) };
  if (plot === "% of ceiling") {
    return ceiling ? { y: rate(t) / ceiling.gflops, low: rate(high) / ceiling.gflops, high: rate(low) / ceiling.gflops } : null;
  }
  return line.m?.[i] == null ? null : { y: line.m[i], low: null, high: null };
}

/**
 * The staircase that compiled widths predict, through the fastest point of a line: throughput as
 * d_head / width, time as width. Between two widths it turns at the edge, not at the points beside it.
 */
export function staircase(plot, line, ceiling) {
  if (!line.b || plot === "memory") return [];
  const known = line.d.map((d, i) => ({ d, width: line.b[i], at: measured(plot, line, i, ceiling)?.y, rate: line.f[i] / line.t[i] }))
    .filter(({ width, at }) => width && at != null);
  if (known.length < 2) return [];
  const best = known.reduce((a, b) => (b.rate > a.rate ? b : a));
  const share = (d, width) => (plot === "time" ? width : d / width);
  const scale = best.at / share(best.d, best.width);
  const steps = [];
  known.forEach(({ d, width }, i) => {
    const before = known[i - 1];
    if (before && before.width < width && before.width > before.d) steps.push([before.width, scale * share(before.width, before.width)]);
    if (before && before.width < width) steps.push([before.width, scale * share(before.width, width)]);
    steps.push([d, scale * share(d, width)]);
  });
  return steps;
}

/**
 * timingView(model, host, options) -> {address, kinds, stop()}: draws into `host` what the model's traits say (see
 * timing_lab.py), now and whenever they change.
 *
 * options: {
 *   measures,        // can a run be started here?
 *   none,            // what to say where there is no recording
 *   how,             // nodes for the last line: how to measure elsewhere
 *   silent,          // what to say after so many seconds without news (a kernel may be gone); null: never
 *   idle,            // what stands in the place of progress before a run, so that the chart stays where it is; null: nothing
 * }
 * `address` and `kinds` are for kit's `linkState`: the state of the view that belongs into a link.
 */
export function timingView(model, host, { measures, none, how, silent = null, idle = null }) {
  host.classList.add("sh-view", "sh-timing");
  const plots = model.get("plots");
  const cases = model.get("cases");

  const bar = el("progress", { max: "1", "aria-label": "Progress of the run" });
  const news = el("p", { class: "sh-news" });
  const said = el("p", { class: "sh-heard", role: "status" });
  const running = el("div", { class: "sh-progress", "data-kept": idle != null, hidden: true }, bar, news);
  const head = el("strong");
  const rest = el("span");
  const status = el("p", { role: "status", class: "sh-status" }, head, rest);
  const pickers = el("div", { class: "sh-pickers" });
  const readout = el("p", { class: "sh-readout", "aria-live": "polite" }, HINT);
  const picture = chart((s, i) => say(readout, s == null ? HINT : tell(shown.lines[s], i)));
  const legend = el("p", { class: "sh-legend sh-label" });
  const found = el("ol", { class: "sh-steps" });
  const further = el("ol", { class: "sh-steps" });
  const others = el("details", { class: "sh-fold" }, el("summary"), further);
  const source = el("p", { class: "sh-label sh-source" });
  const rows = el("div", { class: "sh-rows", tabindex: "0", role: "region", "aria-label": "Table of all points" });
  const table = el("details", { class: "sh-fold" }, el("summary", {}, "The same as a table"), rows);
  const facts = el("dl", { class: "sh-facts" });
  const method = el("details", { class: "sh-fold" }, el("summary", {}, "How it was measured, and what counts as a step"), facts);
  const notes = el("div", { class: "sh-notes" }, ...model.get("notes").map((note) => el("p", {}, note)));
  const last = el("p", { class: "sh-label sh-how" }, ...how);
  host.append(running, status, pickers, picture.node, readout, legend, found, others, source, table, method, notes, last, said);

  let shown = { lines: [], plot: "throughput", ceiling: null, sample: "call" };

  /** The recording on show; a run in progress stands in for its own. */
  function current() {
    const recording = model.get("recordings")[model.get("recording")];
    const live = model.get("live");
    if (recording && live.name === recording.name) return { ...recording, ...live };
    return recording?.lines ? recording : null;
  }

  /** Direction and T: the reader's where this recording has them, else its first. */
  function chosen(recording) {
    const lines = recording?.lines ?? [];
    const directions = [...new Set(lines.map(({ direction }) => direction))];
    const direction = directions.includes(model.get("direction")) ? model.get("direction") : directions[0] ?? "";
    const lengths = [...new Set(lines.filter((line) => line.direction === direction).map(({ seq_len }) => seq_len))].sort((a, b) => a - b);
    const seq_len = lengths.includes(model.get("seq_len")) ? model.get("seq_len") : lengths[0] ?? 0;
    return { directions, direction, lengths, seq_len };
  }

  /** Everything about one point, in words. */
  function tell(line, i) {
    const d = line.d[i];
    const value = line.v && line.v[i] !== d ? ` (values ${line.v[i]})` : "";
    const rate = (line.f[i] / line.t[i]) * 1e3;
    const [factor, name] = unit("throughput", rate);
    const [ran, due] = [one(line.o, i), one(line.p, i)];
    const parts = [
      `${digits(line.t[i])} ms (${digits(line.lo[i])} to ${digits(line.hi[i])}), median of ${count(line.n[i], shown.sample)}`,
      `${digits(rate * factor)} ${name}${shown.ceiling ? `, ${digits((100 * rate) / shown.ceiling.gflops)} % of the ceiling` : ""}`,
      !ran ? "the kernel was not observed" : `${ran} ran${!due ? "" : due === ran ? ", as predicted" : `, ${due} was predicted`}`,
    ];
    if (line.b?.[i]) parts.push(`compiled width ${line.b[i]}, ${percent(d / line.b[i])} of it useful`);
    if (line.m?.[i] != null) parts.push(`peak memory ${digits(line.m[i])} MB`);
    if (line.g?.[i]) parts.push(line.g[i].join(", "));
    return `${line.name}, d_head ${d}${value}: ${parts.join("; ")}.`;
  }

  function choices(name, label, values, value, words) {
    if (values.length < 2) return [];
    return [el("div", { class: "sh-chips", role: "group", "aria-label": label }, el("span", { class: "sh-label" }, `${label}:`),
      ...values.map((v) => el("button", { type: "button", class: "sh-chip", "aria-pressed": String(v === value), "data-value": v,
        onclick: () => assign(model, { [name]: v }) }, words(v))))];
  }

  // A mark tells which kernel ran; where one kernel is compiled in several ways, which of these.
  const series_of = model.get("series");
  const kind_of = (line, i) => (series_of[line.backend] ? line.backend : one(line.o, i) ?? "not observed");
  const style = (kind) => series_of[kind] ?? model.get("kinds")[kind] ?? model.get("unknown");
  let built = "";

  function update() {
    const recording = current();
    const { directions, direction, lengths, seq_len } = chosen(recording);
    const plot = plots[model.get("plot")];
    const ceiling = recording?.ceiling ?? null;
    const lines = (recording?.lines ?? []).filter((line) => line.direction === direction && line.seq_len === seq_len);
    shown = { lines, plot, ceiling, sample: recording?.device === "webgpu" ? "sample" : "call" }; // a page's sample is several calls
    const live = recording && model.get("live").name === recording.name;

    const key = JSON.stringify([directions, direction, lengths, seq_len]);
    if (key !== built) {
      built = key;
      const focused = pickers.contains(document.activeElement) ? document.activeElement.dataset.value : null;
      pickers.replaceChildren(...choices("direction", "direction", directions, direction, String),
        ...choices("seq_len", "T", lengths, seq_len, String));
      if (focused) pickers.querySelector(`[data-value="${focused}"]`)?.focus();
    }

    // Values first in the recording's own units, then in the one that suits the largest.
    const raw = lines.map((line) => line.d.map((d, i) => {
      const at = measured(plot, line, i, ceiling);
      return at && { x: d, ...at, kind: kind_of(line, i) };
    }));
    const every = raw.flat().filter(Boolean);
    const [factor, name] = unit(plot, Math.max(0, ...every.map(({ y }) => y)));
    const scaled = raw.map((points) => points.map((p) => p && { ...p, y: p.y * factor, low: p.low && p.low * factor, high: p.high && p.high * factor }));
    const kinds = Object.fromEntries([...new Set(every.map(({ kind }) => kind))].map((kind) => [kind, style(kind)]));
    const letters = "abcdefghijklmnopqrstuvwxyz";
    const series = lines.map((line, i) => ({ name: line.name, tag: letters[i] ?? String(i + 1), points: scaled[i] }));
    // One staircase is enough: that of the fastest line which runs kernels of compiled widths; of a page's own, the first.
    const rated = lines.filter((line) => line.b);
    if (recording?.device !== "webgpu") rated.sort((a, b) => Math.max(...b.f.map((f, i) => f / b.t[i])) - Math.max(...a.f.map((f, i) => f / a.t[i])));
    const stairs = rated.slice(0, 1).map((line) => ({ name: line.name, points: staircase(plot, line, ceiling).map(([x, y]) => [x, y * factor]) }))
      .filter(({ points }) => points.length);
    const all = recording?.lines ?? [];
    const steps = (recording?.steps ?? []).filter(({ ends }) => lines.includes(all[ends[1][0]])).map((step, i) => ({ ...step, number: i + 1 }));
    // Padding is time; what it does to memory, if anything, is no step.
    const marks = steps.filter(({ unmarked, kind }) => !unmarked && !(plot === "memory" && kind === "padding step")).map(({ number, kind, ends }) => {
      const [from, to] = ends.map(([line, i]) => scaled[lines.indexOf(all[line])][i]);
      return from && to && { number, words: kind, x: to.x, y: to.y, fromX: from.x, fromY: from.y };
    }).filter(Boolean);
    const limit = plot === "throughput" && ceiling
      ? { y: ceiling.gflops * factor, words: `matrix product, same run: ${digits(ceiling.gflops * factor)}` }
      : plot === "% of ceiling" && ceiling ? { y: 100, words: "matrix product, same run" } : null;
    const best = every.length ? every.reduce((a, b) => (b.y > a.y ? b : a)) : null;
    const where = [plot, direction, `T = ${seq_len}`].join(", ");
    picture.draw({
      summary: best
        ? `Chart of ${where}, against head size: ${count(series.length, "line")}, ${count(every.length, "point")}. Arrow keys walk from point to point; a table follows.`
        : "Empty chart.",
      x: { label: "head size d_head", values: recording?.d_heads }, y: { label: name, format: (v) => v.toLocaleString("en") },
      kinds, series, stairs, ceiling: limit, marks,
      small: !recording,
      empty: !recording ? "No recording yet." : live ? "The first points are on their way."
        : plot === "% of ceiling" && !ceiling ? "This recording has no ceiling to compare with."
        : plot === "memory" ? "The device of this recording did not report memory." : "No point here has a time.",
    });

    if (!recording) {
      say(head, "Nothing measured yet. ");
      say(rest, none);
    } else if (live && ["paused", "lost"].includes(model.get("progress").state)) {
      say(head, "Waiting: ");
      say(rest, "what was measured stays; press Go on, or Stop.");
    } else if (live) {
      say(head, "Measuring: ");
      say(rest, "the chart fills as points arrive; steps are looked for when the run is over.");
    } else {
      say(head, `${where[0].toUpperCase()}${where.slice(1)}: `);
      const top = best && lines[scaled.findIndex((points) => points.some((p) => p && p.x === best.x && Math.abs(p.y - best.y * factor) < 1e-9 * best.y * factor))];
      const said = !best ? "no such number in this recording." : `${MOST[plot] ?? "highest"} ${digits(best.y * factor)} ${name} (${top.name}, d_head ${best.x}${best.kind === top.name ? "" : `, ${best.kind}`}).`;
      const tally = new Map();
      for (const { kind, along } of steps) if (along !== "backend") tally.set(kind, (tally.get(kind) ?? 0) + 1);
      const words = [...tally].map(([kind, n]) => (kind === "unexplained" ? count(n, "unexplained fall") : count(n, kind)));
      say(rest, `${said} Found: ${words.length ? words.join(", ") : "no step beyond the noise"}.`);
    }

    // The run's own controls are elsewhere; these tests and styles look for:
    Object.assign(host.dataset, { points: every.length, lines: series.length, plot, steps: steps.length, live: String(Boolean(live)) });
    if (!host.dataset.name || host.dataset.name !== (recording?.name ?? "")) picture.pick(null);
    host.dataset.name = recording?.name ?? "";

    legend.replaceChildren(...Object.entries(kinds).map(([kind, look]) => el("span", { class: "sh-key" }, mark(look), ` ${kind}`)));
    if (stairs.length) legend.append(el("span", { class: "sh-key" }, el("span", { class: "sh-dash", "aria-hidden": "true" }), ` predicted from compiled widths, through the fastest point of ${stairs[0].name}`));
    for (const { name: line, tag } of series) legend.append(el("span", { class: "sh-key sh-letter" }, el("strong", {}, tag), ` ${line}`));
    const told = [...new Set(lines.map((line) => line.case))].filter((name) => name !== "plain" && cases[name]);
    if (told.length) legend.append(el("span", { class: "sh-key sh-cases" }, told.map((name) => `${name}: ${cases[name]}`).join("; ")));

    const items = steps.map(({ number, text, unmarked }) => el("li", { value: number, "data-unmarked": Boolean(unmarked) }, text));
    found.replaceChildren(...items.slice(0, FEW));
    further.replaceChildren(...items.slice(FEW));
    found.hidden = !items.length && !live; // while a run goes on, its room is kept
    others.hidden = items.length <= FEW;
    say(others.firstChild, `${items.length - FEW} more`);
    const pairs = (list) => list.map(([term, text], i) => el("div", {}, el("dt", {}, term === list[i - 1]?.[0] ? "" : term), el("dd", {}, term === "command" ? el("code", {}, text) : text)));
    say(source, live ? "What it is measured on, and how, is told when the run is over." : recording?.source ?? "");
    if (!live) {
      facts.replaceChildren(...pairs(recording?.facts ?? []));
    }
    method.hidden = live || !recording?.facts.length;
    readout.hidden = !every.length;
    readout.setAttribute("aria-live", live ? "off" : "polite"); // numbers that still change would be read out for ever
    table.hidden = !lines.length;
    if (table.open) fill();
  }

  /** The table is long, and read by few: made when it is opened, or printed. */
  function fill() {
    const { lines, ceiling } = shown;
    const wide = lines.some((line) => line.b);
    const chosen = shown.sample === "call"; // nothing chooses a kernel in a page
    const heads = ["line", "d_head", "time, ms", "95 % interval", "GFLOP/s", ...(ceiling ? ["% of ceiling"] : []), ...(chosen ? ["ran", "predicted"] : []), ...(wide ? ["width"] : []), "peak MB", `${shown.sample}s`];
    const body = lines.flatMap((line) => [
      ...line.d.map((d, i) => {
        const rate = (line.f[i] / line.t[i]) * 1e3;
        return [line.name, line.v && line.v[i] !== d ? `${d} (values ${line.v[i]})` : d, digits(line.t[i]), `${digits(line.lo[i])} to ${digits(line.hi[i])}`,
          digits(rate), ...(ceiling ? [digits((100 * rate) / ceiling.gflops)] : []), ...(chosen ? [one(line.o, i) ?? "–", one(line.p, i) ?? "–"] : []),
          ...(wide ? [line.b?.[i] ?? "–"] : []), line.m?.[i] == null ? "–" : digits(line.m[i]), line.n[i]];
      }),
      ...(line.gaps ?? []).map(([d, what, why]) => [line.name, d, `${what}: ${why}`]),
    ]);
    rows.replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...body.map(([name, d, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, String(d)),
        ...(cells.length === 1 ? [el("td", { colspan: heads.length - 2 }, cells[0])] : cells.map((cell) => el("td", {}, String(cell)))))))));
  }

  let heard = Date.now();
  let heardOf = "";
  let gone = "";
  function progress() {
    const now = model.get("progress");
    const busy = BUSY.includes(now.state) && !gone;
    const quiet = (Date.now() - heard) / 1e3;
    const waits = now.state === "idle";
    running.hidden = !measures || (waits && idle == null);
    running.dataset.state = gone ? "gone" : now.state;
    bar.hidden = !busy;
    const whole = (now.done ?? 0) + (now.left ?? 0);
    if (whole > 0) bar.value = Math.min(1, now.done / whole);
    else bar.removeAttribute("value");
    let text = waits ? idle ?? "" : now.text ?? "";
    if (now.state === "running" && now.points != null) {
      text = `${now.points} of ${count(now.total, "point")} seen${now.left == null ? "" : `, about ${Math.ceil(now.left)} s left`}${text ? `: ${text}` : ""}`;
    }
    if (busy && silent && quiet > SILENCE) text += ` No news for ${Math.round(quiet)} s: ${silent}`;
    if (gone && BUSY.includes(now.state)) text = gone;
    say(news, text);
    const phase = `${now.state} ${now.phase ?? ""}`;
    if (SAID.includes(running.dataset.state) || running.dataset.state === "gone") say(said, text);
    else if (phase !== heardOf) say(said, waits ? "" : now.state === "running" ? "Measuring." : text.replace(/:.*/, "."));
    heardOf = phase;
  }
  function arrived() { heard = Date.now(); progress(); }
  function lost() {
    gone = "The kernel that measured is gone: this run has ended. What had arrived is shown; run the cell again for a new one.";
    progress();
  }
  // A notebook that was saved in the middle of a run still says "running" when it is opened again.
  const at = model.get("progress").at;
  if (at) heard = Math.min(heard, at * 1e3);
  const watch = setInterval(() => { if (!running.hidden && !bar.hidden) progress(); }, 3000);

  const redraw = perFrame(update);
  const events = "change:recordings change:recording change:plot change:direction change:seq_len change:live";
  model.on(events, redraw);
  let known = model.get("progress").state;
  const turned = () => { if (known !== (known = model.get("progress").state)) redraw(); };
  model.on("change:progress", arrived);
  model.on("change:progress", turned);
  model.on("comm:close comm_live_update destroy", lost);
  table.addEventListener("toggle", () => { if (table.open) fill(); });
  const print = () => fill();
  addEventListener("beforeprint", print);
  const unGrow = growOnly(status, readout, found, source, ...(idle == null ? [] : [running]));
  update();
  progress();

  // In the address a recording has its name, not its place: another one may come before it.
  const names = model.get("recordings").map(({ name }) => name);
  const address = {
    get: (key) => (key === "recording" ? names[model.get("recording")] ?? "" : key === "plot" ? plots[model.get("plot")] : chosen(current())[key]),
    set: (key, value) => model.set(key, key === "recording" ? names.indexOf(value) : key === "plot" ? plots.indexOf(value) : value),
    save_changes: () => model.save_changes(),
    on: (names, heard) => model.on(names, heard),
    off: (names, heard) => model.off(names, heard),
  };
  const directions = [...new Set(model.get("recordings").flatMap(({ lines }) => lines?.map(({ direction }) => direction) ?? []))];
  return {
    address,
    kinds: { recording: names, plot: plots, direction: directions, seq_len: "int" },
    stop() {
      clearInterval(watch);
      model.off(events, redraw);
      model.off("change:progress", arrived);
      model.off("change:progress", turned);
      model.off("comm:close comm_live_update destroy", lost);
      removeEventListener("beforeprint", print);
      unGrow();
      picture.stop();
    },
  };
}
