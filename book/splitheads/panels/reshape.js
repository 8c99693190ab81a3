// One tensor, cell by cell, through the reshape: what moves on the page, and what moves in memory.
import { el, assign, say, opening, settle, linkState } from "./kit.js";

/** One stage of Python's table: "shape..., strides..., contiguous, new memory". */
export function layoutOf(text) {
  const row = text.split(",").map(Number);
  const axes = (row.length - 2) / 2;
  return {
    shape: row.slice(0, axes),
    strides: row.slice(axes, 2 * axes),
    contiguous: row.at(-2) === 1,
    fresh: row.at(-1) === 1,
  };
}

/** All cells of a tensor as [index, offset], last index fastest. */
export function walk({ shape, strides }) {
  let cells = [[[], 0]];
  shape.forEach((size, axis) => {
    cells = cells.flatMap(([index, offset]) =>
      Array.from({ length: size }, (_, i) => [[...index, i], offset + i * strides[axis]]));
  });
  return cells;
}

/**
 * The tensors of a variant, step by step, with the buffer that each one looks at:
 * buffer.storage[offset] is the place that the value had in the projected tensor.
 */
export function trace(stages, layouts) {
  let before = null;
  let buffer = null;
  return layouts.map((layout, step) => {
    if (!before) {
      buffer = { name: "A", storage: walk(layout).map(([, offset]) => offset) };
    } else if (layout.fresh) {
      const swap = ([a, b, c, e]) => [a, c, b, e];
      // Only the merge transposes before it writes.
      const read = stages[step] === "merge" ? { shape: swap(before.shape), strides: swap(before.strides) } : before;
      const old = buffer;
      buffer = { name: String.fromCharCode(old.name.charCodeAt(0) + 1), storage: walk(read).map(([, offset]) => old.storage[offset]) };
    }
    before = layout;
    const here = buffer;
    const cells = walk(layout).map(([index, offset]) => ({ index, offset, origin: here.storage[offset] }));
    return { ...layout, stage: stages[step], buffer, cells };
  });
}

const count = (n, one) => (n === 1 ? `1 ${one}` : `${n} ${one}s`);
const every = (n) => (n === 1 ? "the one" : `all ${n}`);
const listed = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0]);

/** What some cells hold, in words: "all 6 features of token 0 and 3 of the 6 of token 1". */
export function hold(cells, width) {
  const counts = new Map();
  for (const { origin } of cells) {
    const token = Math.floor(origin / width);
    counts.set(token, (counts.get(token) ?? 0) + 1);
  }
  const tokens = (n) => {
    const names = [...counts].filter(([, count]) => count === n).map(([token]) => `token ${token}`);
    return `${n < width && names.length > 1 ? "each of " : ""}${listed(names)}`;
  };
  const amounts = [...new Set(counts.values())].sort((a, b) => b - a);
  return listed(amounts.map((n, i) => `${n === width ? every(n) : `${n} of the ${width}`}${i ? "" : width === 1 ? " feature" : " features"} of ${tokens(n)}`));
}

/** What a step does to memory, in two words. */
export const memory = (step, { fresh }) => (fresh ? (step === "merge" ? "copied" : "new memory") : "no copy");

/** A cell's place in its buffer, by the strides: "12 × head + 3 × token + column". */
export function placeOf({ shape, strides, stage }, row) {
  const axes = shape.length === 3 ? [row, "column"] : stage === "view" ? [row, "head", "column"] : ["head", row, "column"];
  return axes.map((axis, i) => (strides[i + 1] === 1 ? axis : `${strides[i + 1]}\u00a0×\u00a0${axis}`)).join(" + ");
}

/** What the number in a cell means, and how the strides find the cell in memory. */
export function numbers(tensor, row, input) {
  return tensor.buffer.name === "A"
    ? `A cell's number is its place in buffer A, the ${input ? "input" : "projected tensor"}: ${placeOf(tensor, row)}.`
    : `A cell's number is still its place in buffer A, where it came from. In buffer ${tensor.buffer.name}, the strip below, it lies at ${placeOf(tensor, row)}.`;
}

/** The result in words: what the tensor is first, then what that means. */
export function sentence({ T, h, d, step, variant, tensor, wrongFrom, wrongStep }) {
  const width = h * d;
  const wrong = wrongFrom !== null && wrongStep;
  const input = variant === "slice the input first" && step === "projected";
  const short = `shape [${tensor.shape.join(", ")}], strides (${tensor.strides.join(", ")}): ` +
    `${tensor.contiguous ? "contiguous" : "not contiguous"}, ${input ? "the input" : memory(step, tensor)}.`;
  const rights = {
    projected: `The projection wrote ${count(T, "token")} of ${count(width, "column")}, and each ${d === 1 ? "column" : `run of ${d} columns`} belongs to one head.`,
    view: `The ${count(width, "column")} of a token ${width === 1 ? "is" : "are"} now counted as ${h} × ${d}. Nothing moves.`,
    transpose: "Two sizes change places, and so do their strides; memory is left alone. " + (tensor.contiguous
      ? "It still counts as contiguous, because an axis of size 1 is never stepped along."
      : `Each head can now be read as a matrix of ${T} × ${d}.`),
    attend: "Attention runs in each head by itself and writes a new tensor, head after head. " +
      "A cell keeps its head, token and column, and so its number here, though not its value.",
    merge: h === 1
      ? "With n_heads = 1 a token's columns never lay apart, so reshape copies nothing and .view would do."
      : "The transpose makes the heads of a token neighbours again by index; " + (tensor.fresh
        ? "in memory they lie apart, so reshape copies, where .view would raise."
        : `${d === 1 && T > 1 ? "with d_head = 1 one stride reaches them all" : "here they are neighbours in memory too"}, ` +
          "so reshape copies nothing and .view would do."),
  };
  if (variant === "correct") return [short, rights[step]];
  if (variant === "slice the input first") {
    if (wrongFrom === null) {
      return [short, "With n_heads = 1 the one slice is the whole input: a test with one head cannot see the mistake."];
    }
    const weights = `${h} × ${d} × ${d} = ${count(h * d * d, "weight")} per projection instead of ${width} × ${width} = ${width * width}`;
    return [short, {
      projected: "These cells are the input itself. Cut now, before any projection, each head gets only a slice of it.",
      view: `Every number is in its place, but these are the input's: head i gets ${d} of its ${width} features, where it should read all ${width}.`,
      transpose: `Every number is in its place, but these are the input's: head i gets ${d} of its ${width} features, where it should read all ${width}.`,
      attend: `Each head projects its own slice and nothing else: ${weights}, ${h} times fewer.`,
      merge: `The layout is right; what the heads could read was not: ${d} of ${width} features each, ${weights}.`,
    }[step]];
  }
  const hidden = h === 1 ? "n_heads = 1" : "T = 1";
  if (wrongFrom === null) {
    const affected = variant === "direct view" ? step !== "projected" : step === "merge";
    return [short, affected
      ? `With ${hidden} this is the same tensor: a test with ${h === 1 ? "one head" : "one token"} cannot see the mistake.`
      : rights[step]];
  }
  if (!wrong) return [short, variant === "direct view" ? rights[step] : `${rights[step]} The mistake comes with the merge.`];
  const first = (index) => tensor.cells.filter((cell) => cell.index[1] === index);
  if (step === "merge") {
    return [short, `Row 0, which should be all ${width} features of token 0, holds ${hold(first(0), width)}.` +
      (variant === "direct view" ? " The merge is right and cannot repair the split." : " There was nothing to copy, so not even .view would have raised.")];
  }
  const met = new Set(first(0).map(({ origin }) => Math.floor(origin / width)));
  const missed = Array.from({ length: T }, (_, t) => t).filter((t) => !met.has(t));
  return [short, step === "attend"
    ? `Head 0 holds ${hold(first(0), width)}, and nothing else: its attention never meets ` +
      `${missed.length === 1 ? `token ${missed[0]}` : `tokens ${missed[0]} ${missed.length === 2 ? "and" : "to"} ${missed.at(-1)}`}.`
    : `The shape is right, the order is not: head 0 holds ${hold(first(0), width)}. It should hold ${count(d, "feature")} of each of the ${T} tokens.`];
}

/** Sizes in pixels for a board `width` wide: cells as large as fit, the same at every step. */
export function measure(T, h, d, width) {
  const top = 21;
  // Heads stand below one another, as torch prints them, until that takes more than 12 rows.
  let abreast = 1;
  while (Math.ceil(h / abreast) * T > 12) abreast += 1;
  const fit = (label, gap) => ({
    label, gap, top, abreast,
    cell: Math.floor(Math.min(34, (width - label - (h - 1) * gap) / (h * d),
      (width - abreast * label - (abreast - 1) * gap) / (abreast * d), Math.max(250, 0.8 * width) / (Math.ceil(h / abreast) * T))),
  });
  const roomy = fit(58, 12);
  return roomy.cell >= 24 ? { ...roomy, words: true } : { ...fit(20, 3), words: false };
}

/** Where each cell and each label of a tensor stands on the board. */
export function place(tensor, T, h, d, sizes, misplaced) {
  const { words, label, gap, top, abreast, cell } = sizes;
  const labels = [];
  const name = (word, i, room) => (room ? `${word} ${i}` : `${word[0]}${i}`);
  const row = misplaced ? "row" : "token";
  const rows = (x, y) => {
    for (let t = 0; t < T; t++) labels.push({ text: name(row, t, words), x: x - 6, y: y + t * cell, tall: cell, end: true });
  };
  if (tensor.shape.length === 3) {
    rows(label, top);
    labels.push({ text: count(h * d, "column"), x: label, y: 0, tall: top });
    return { height: top + T * cell, labels, spot: ([, t, c]) => [label + c * cell, top + t * cell] };
  }
  if (tensor.stage === "view") {
    rows(label, top);
    for (let i = 0; i < h; i++) labels.push({ text: name("head", i, d * cell >= 46), x: label + i * (d * cell + gap), y: 0, tall: top });
    return {
      height: top + T * cell, labels,
      spot: ([, t, i, c]) => [label + i * (d * cell + gap) + c * cell, top + t * cell],
    };
  }
  const corner = (i) => [(i % abreast) * (label + d * cell + gap) + label, Math.floor(i / abreast) * (top + T * cell + 8) + top];
  for (let i = 0; i < h; i++) {
    const [x, y] = corner(i);
    rows(x, y);
    labels.push({ text: name("head", i, d * cell >= 46), x, y: y - top, tall: top });
  }
  return {
    height: Math.ceil(h / abreast) * (top + T * cell + 8) - 8, labels,
    spot: ([, i, t, c]) => [corner(i)[0] + c * cell, corner(i)[1] + t * cell],
  };
}

/** [[text, address or ""], ...] as nodes. */
const linked = (parts) => parts.map(([text, href]) => (href ? el("a", { href }, text) : text));

function render({ model, el: host }) {
  host.classList.add("sh-view", "sh-reshape");
  const limits = model.get("limits"); // {T: [low, high], ...}
  const steps = model.get("steps");
  const stages = model.get("stages");
  const variants = model.get("variants");
  const presets = model.get("presets");
  const table = model.get("table");
  const mistakes = model.get("mistakes");
  const colours = model.get("palette");
  const asked = opening(model);

  const line = el("code");
  const remark = el("span", { class: "sh-remark" });
  const status = el("p", { role: "status", class: "sh-status" });
  const verdict = el("strong", { class: "sh-wrong" });
  const short = el("strong");
  const meaning = el("span");
  status.append(verdict, short, " ", meaning);
  const board = el("div", { class: "sh-board", role: "img" });
  const meant = el("p", { class: "sh-label sh-legend sh-numbers" });
  const legend = el("p", { class: "sh-label sh-legend" },
    el("span", { class: "sh-notch", "aria-hidden": "true" }), "elsewhere in the correct variant");
  const error = el("div", { class: "sh-error", hidden: true }, "In its place: ",
    el("code", {}, "x.transpose(1, 2).view(B, T, h * d)"), " → ", el("code", {}, `RuntimeError: ${model.get("view_error")}`));
  const aside = el("p", { class: "sh-label" });
  const stripTitle = el("p", { class: "sh-label" });
  const strip = el("div", { class: "sh-strip", role: "img" });
  const rows = steps.map((step) => {
    const cells = ["shape", "strides", "contiguous", "memory"].map(() => el("td"));
    const mark = el("span", { class: "sh-wrong" });
    return { row: el("tr", {}, el("th", { scope: "row" }, step, mark), ...cells), cells, mark };
  });
  const overview = el("table", { class: "sh-steps" },
    el("thead", {}, el("tr", {},
      ...["step", "shape", "strides"].map((name) => el("th", { scope: "col" }, name)),
      el("th", { scope: "col", abbr: "contiguous" }, "contig."), el("th", { scope: "col", abbr: "buffer" }, "buf."))),
    el("tbody", {}, ...rows.map(({ row }) => row)));
  const readsTitle = el("p", { class: "sh-label" });
  const reads = el("div", { class: "sh-reads", role: "img" });
  const shelf = el("div", { class: "sh-chips", role: "group", "aria-label": "Sizes worth a look" },
    el("span", { class: "sh-label" }, "Sizes worth a look:"));
  const chips = presets.map(({ name, T, n_heads, d_head }) =>
    el("button", { type: "button", class: "sh-chip", "data-preset": name, onclick: () => assign(model, { T, n_heads, d_head }) }, name));
  shelf.append(...chips);
  const note = el("p", { class: "sh-label" });
  const seen = el("p", { class: "sh-label" });
  host.append(
    el("p", { class: "sh-code sh-line" }, line, remark), status,
    el("div", { class: "sh-stage" },
      el("div", { class: "sh-at-board" }, board, legend, meant),
      el("div", { class: "sh-at-strip" }, stripTitle, strip),
      el("div", { class: "sh-at-side" }, overview, readsTitle, reads)),
    error, aside, shelf, note, seen);
  if (asked) host.prepend(asked);

  // A locked prediction sets the state of a board that may be off the screen: say so, and lead there.
  const outcome = model.get("question").outcome;
  const jump = el("button", { type: "button", class: "sh-jump", hidden: true, onclick: () => {
    assign(model, outcome);
    const root = host.closest(".sh-panel");
    // The last control, which is the step, and the board below it fit on one screen.
    const control = [...root?.children ?? []].find((child) => child.contains(host))?.previousElementSibling ?? host;
    control.scrollIntoView({ block: "start" });
    control.querySelector("input:checked")?.focus({ preventScroll: true });
  } });
  asked?.querySelector(".sh-verdict").before(jump);
  asked?.addEventListener("click", () => { jump.hidden = !outcome || !asked.hasAttribute("data-locked"); });

  let built = "";
  let boardCells = [];
  let stripCells = [];
  let labelLayer = el("div");
  let shownWidth = 0;

  /** One box per value, kept while the sizes stay, so that it can travel. */
  function build(T, h, d) {
    const box = (origin) => {
      const head = Math.floor((origin % (h * d)) / d);
      return el("span", {
        class: "sh-cell", "data-origin": origin, "data-head": head, "data-token": Math.floor(origin / (h * d)),
        style: `background-color: ${colours[head % colours.length]}; color: ${model.get("on_head")}`,
      }, String(origin));
    };
    const origins = Array.from({ length: T * h * d }, (_, i) => i);
    boardCells = origins.map(box);
    stripCells = origins.map(box);
    labelLayer = el("div");
    board.replaceChildren(labelLayer, ...boardCells);
    strip.replaceChildren(...stripCells);
  }

  function update() {
    // Both widths before anything is written: each read after a change costs a layout of the page.
    const room = board.clientWidth || 320;
    const long = strip.clientWidth || 320;
    const [T, h, d, step, variant] = ["T", "n_heads", "d_head", "step", "variant"].map((name) => model.get(name));
    const chosen = variants[variant];
    const entry = table[`${T},${h},${d}`].split(";");
    const follow = (names) => trace(names, names.map((name) => layoutOf(entry[stages.indexOf(name)])));
    const tensors = follow(chosen.stages);
    const tensor = tensors[step];
    // A tensor is compared with the correct one that has the same shape and purpose.
    const twin = { "direct view": "transpose", "merge without transpose": "merge" }[tensor.stage] ?? tensor.stage;
    const right = follow(variants[0].stages).find(({ stage }) => stage === twin);
    const wrongFrom = mistakes[`${T},${h}`][variant];
    const wrong = (at) => wrongFrom !== null && at >= wrongFrom;
    const width = h * d;

    const [code, comment] = chosen.lines[step].split("# ");
    // A long line may break before its second call, and nowhere else.
    line.replaceChildren(...code.trim().split(/(?=\.reshape)/).map((part) => el("span", {}, part)));
    say(remark, comment ? `# ${comment}` : "");
    const [what, why] = sentence({
      T, h, d, step: steps[step], variant: chosen.name, tensor, wrongFrom, wrongStep: wrong(step),
    });
    say(verdict, wrong(step) ? "silently wrong: " : "");
    say(short, what);
    say(meaning, why);
    Object.assign(host.dataset, {
      step: steps[step], variant: chosen.name, wrong: wrong(step), shape: tensor.shape.join(), strides: tensor.strides.join(),
      contiguous: tensor.contiguous, memory: memory(steps[step], tensor), buffer: tensor.buffer.name,
    });

    // Cells travel only between steps of the same tensor; other sizes are another tensor.
    const sizes = `${T},${h},${d}`;
    const still = sizes !== built || room !== shownWidth;
    if (sizes !== built) build(T, h, d);
    built = sizes;
    shownWidth = room;
    host.classList.toggle("sh-still", still);

    if (outcome) {
      const there = Object.entries(outcome).every(([name, value]) => model.get(name) === value);
      const what = `variant “${variants[outcome.variant ?? variant].name}”, step “${steps[outcome.step ?? step]}”`;
      say(jump, there ? `The panel below now shows ${what} ↓` : `Show ${what} in the panel below again ↓`);
    }

    const misplaced = tensor.cells.filter((cell, i) => cell.origin !== right.cells[i].origin);
    const measured = measure(T, h, d, room);
    const { height, labels, spot } = place(tensor, T, h, d, measured, misplaced.length > 0);
    board.style.height = `${height}px`;
    board.style.setProperty("--cell", `${measured.cell}px`);
    labelLayer.replaceChildren(...labels.map(({ text, x, y, tall, end }) =>
      el("span", { class: end ? "sh-row-name" : "sh-block-name",
        style: `${end ? `right: calc(100% - ${x}px)` : `left: ${x}px`}; top: ${y}px; line-height: ${tall}px` }, text)));
    const astray = new Set(misplaced.map(({ origin }) => origin));
    for (const { index, offset, origin } of tensor.cells) {
      const [x, y] = spot(index);
      const cell = boardCells[origin];
      cell.style.transform = `translate(${x}px, ${y}px)`;
      cell.dataset.offset = offset;
      cell.dataset.index = index.join();
      cell.toggleAttribute("data-astray", astray.has(origin));
    }
    legend.hidden = misplaced.length === 0;
    say(meant, numbers(tensor, misplaced.length ? "row" : "token", chosen.name === "slice the input first"));
    const spoken = [];
    for (const { index, origin } of tensor.cells) {
      const where = index.slice(1, -1);
      const [a, b] = tensor.stage === "view" ? ["token", "head"] : ["head", misplaced.length ? "row" : "token"];
      const name = where.length === 1 ? `row ${where[0]}` : `${a} ${where[0]}, ${b} ${where[1]}`;
      if (index.at(-1) === 0) spoken.push(`${name}: ${origin}`);
      else spoken[spoken.length - 1] += ` ${origin}`;
    }
    board.setAttribute("aria-label", `The tensor, each cell numbered by its place in buffer A. ${spoken.join("; ")}.${misplaced.length ? ` ${misplaced.length} of ${T * width} are elsewhere in the correct variant.` : ""}`);

    const { name: buffer, storage } = tensor.buffer;
    const origins = { A: chosen.name === "slice the input first" ? "the input" : "from the projection", B: "from attention", C: "the merge's copy" };
    say(stripTitle, `Memory: buffer ${buffer}, ${origins[buffer]}`);
    const square = Math.max(20, Math.min(24, Math.floor(long / storage.length)));
    let across = Math.floor(long / square);
    across -= across >= width ? across % width : across % d;
    strip.style.height = `${Math.ceil(storage.length / across) * square}px`;
    strip.style.setProperty("--cell", `${square}px`);
    storage.forEach((origin, offset) => {
      const cell = stripCells[origin];
      cell.style.transform = `translate(${(offset % across) * square}px, ${Math.floor(offset / across) * square}px)`;
      cell.dataset.offset = offset;
    });
    strip.setAttribute("aria-label", `Buffer ${buffer} in memory order: ${storage.join(" ")}.`);

    rows.forEach(({ row, cells, mark }, at) => {
      const { shape, strides, contiguous, buffer: { name } } = tensors[at];
      const texts = [`[${shape.join(", ")}]`, `(${strides.join(", ")})`, contiguous ? "yes" : "no", name];
      cells.forEach((cell, i) => say(cell, texts[i]));
      say(mark, wrong(at) ? " ✗" : "");
      if (at === step) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    });

    error.hidden = !(tensor.stage === "merge" && tensor.fresh);
    // The layout of attention's result matters to a merge that transposes, and to no other.
    const merged = chosen.stages.at(-1) === "merge" && ["attend", "merge"].includes(tensor.stage);
    aside.replaceChildren(...linked(!merged ? [] : model.get(h > 1 && T > 1 && d > 1 ? "fused" : "free")));

    const sliced = chosen.name === "slice the input first" && h > 1;
    say(readsTitle, sliced
      ? `Who reads what: head i reads ${d} of the ${width} input features, ${h * d * d} weights per projection in all.`
      : `Who reads what: ${h === 1 ? "the one" : "every"} head reads ${every(width)} input ${width === 1 ? "feature" : "features"}, ${count(width * width, "weight")} per projection in all.`);
    reads.style.gridTemplateColumns = `auto repeat(${width}, minmax(0, 14px))`;
    reads.replaceChildren(...Array.from({ length: h }, (_, head) => [
      el("span", { class: "sh-row-name" }, `head ${head}`),
      ...Array.from({ length: width }, (_, feature) => {
        const read = !sliced || Math.floor(feature / d) === head;
        return el("span", { class: "sh-read", "data-head": head, "data-feature": feature, "data-read": String(read),
          style: read ? `background-color: ${colours[head % colours.length]}` : "" });
      }),
    ]).flat());
    reads.setAttribute("aria-label", sliced
      ? `${h} heads by ${width} input features: each head reads ${count(d, "feature")} of its own and no other.`
      : `${count(h, "head")} by ${count(width, "input feature")}: all read.`);

    const current = presets.find((preset) => preset.T === T && preset.n_heads === h && preset.d_head === d);
    chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(presets[i] === current)));
    say(note, current ? current.note : "");
    seen.replaceChildren(...linked(chosen.seen));
  }

  const events = "change:T change:n_heads change:d_head change:step change:variant";
  model.on(events, update);
  const sizes = new ResizeObserver(() => { if (board.clientWidth !== shownWidth) update(); });
  sizes.observe(host);
  update();
  let unLink = () => {};
  settle(host, "reshape", asked).then((root) => {
    unLink = linkState(model, "reshape", { T: "int", n_heads: "int", d_head: "int", step: "int", variant: "int" }, limits, root);
  });
  return () => {
    model.off(events, update);
    sizes.disconnect();
    unLink();
    asked?.remove();
  };
}

export default { render };
