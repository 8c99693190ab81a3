// A measured quantity over head size: points with intervals, one line per series, predicted steps beside
// them. It knows nothing of where the numbers come from, so that every panel that measures can use it.
import { el, svg } from "./kit.js";

/** Marks of one area, so that none looks heavier than another. A shape per kernel: colour is never alone. */
const MARKS = {
  circle: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  square: (r) => { const a = r * 0.89; return `M${-a} ${-a}H${a}V${a}H${-a}z`; },
  diamond: (r) => { const a = r * 1.25; return `M0 ${-a}L${a} 0L0 ${a}L${-a} 0z`; },
  triangle: (r) => { const a = r * 1.35; return `M0 ${-a}L${a * 0.87} ${a * 0.5}H${-a * 0.87}z`; },
  cross: (r) => `M${-r} ${-r}L${r} ${r}M${-r} ${r}L${r} ${-r}`,
};

/** A small picture of a kernel's mark, for legends and tables. */
export function mark({ colour, shape }, size = 14) {
  return svg("svg", { viewBox: "-7 -7 14 14", width: size, height: size, class: "sh-mark-icon", "aria-hidden": "true" },
    svg("path", { d: MARKS[shape](5), style: `fill: ${colour}`, class: "sh-point" }));
}

/** Round steps from zero to at least `most`: {top, ticks}. */
export function ticksTo(most, count = 5) {
  if (!(most > 0)) return { top: 1, ticks: [0, 1] };
  const raw = most / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((n) => n * power >= raw * 0.999) * power;
  const ticks = [];
  for (let i = 0; i <= Math.ceil(most / step - 1e-9); i++) ticks.push(Number((i * step).toPrecision(12)));
  return { top: ticks.at(-1), ticks };
}

/** As many of `values` as fit without touching, `room` apart on the page; the ends come first, then round numbers. */
export function thin(values, at, room) {
  const weight = (v) => [128, 64, 32, 16, 8].find((n) => v % n === 0) ?? 1;
  const order = [...values].sort((a, b) => weight(b) - weight(a) || a - b);
  const ends = values.length > 1 ? [values[0], values.at(-1)] : values;
  const kept = [];
  for (const v of [...ends, ...order]) if (kept.every((k) => Math.abs(at(k) - at(v)) >= room)) kept.push(v);
  return kept.sort((a, b) => a - b);
}

/** Move labels apart: each wants to stand at `y`, none nearer than `gap` to the next, all within [low, high]. */
export function spread(wanted, gap, low, high) {
  const order = wanted.map((y, i) => [y, i]).sort(([a], [b]) => a - b);
  const placed = new Array(wanted.length);
  let floor = low;
  for (const [y, i] of order) { placed[i] = Math.max(y, floor); floor = placed[i] + gap; }
  let ceiling = high;
  for (const [, i] of order.reverse()) { placed[i] = Math.min(placed[i], ceiling); ceiling = placed[i] - gap; }
  return placed;
}

/**
 * Head sizes on an axis from 0 to 1. A stretch that is wider than seven tenths of all the others together
 * holds no measurement: it is drawn short, with a break in the axis, so that the rest keeps its room.
 */
export function scale(xs) {
  if (xs.length === 1) return { place: (x) => 0.5 + (x - xs[0]) / 2, breaks: [] };
  const all = xs.at(-1) - xs[0];
  const widths = xs.slice(1).map((x, i) => {
    const gap = x - xs[i];
    return xs.length > 5 && gap > 0.7 * (all - gap) ? 0.15 * (all - gap) : gap;
  });
  const starts = [0];
  widths.forEach((width) => starts.push(starts.at(-1) + width));
  const place = (x) => {
    const i = Math.max(0, Math.min(xs.length - 2, xs.findLastIndex((known) => known <= x)));
    return (starts[i] + ((x - xs[i]) / (xs[i + 1] - xs[i])) * widths[i]) / starts.at(-1);
  };
  return { place, breaks: widths.flatMap((width, i) => (width < xs[i + 1] - xs[i] ? [(xs[i] + xs[i + 1]) / 2] : [])) };
}

const DASHES = [null, "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4", "6 2 1 2 1 2"];

/**
 * chart(onPick) -> {node, draw(spec), pick(series, index), stop()}
 *
 * spec: {
 *   summary,                         // what a screen reader hears of the whole
 *   x: {label, values?}, y: {label, format},  // values: head sizes still to come; format(value) -> text for a tick
 *   kinds: {name: {colour, shape}},
 *   series: [{name, tag, points: [{x, y, low, high, kind}]}],   // a null among the points breaks the line
 *   stairs: [{name, points: [[x, y], ...]}],                    // predicted, drawn thin
 *   ceiling: {y, words} | null,
 *   marks: [{number, words, x, y, fromX, fromY}],               // steps that were found: what lies before and after
 *   empty, small,                    // what to say where there is no point, and whether briefly
 * }
 * Pointer and arrow keys choose a point: onPick(series, index).
 */
export function chart(onPick = () => {}) {
  const node = el("div", { class: "sh-chart", tabindex: "0", role: "group", "aria-roledescription": "chart" });
  let spec = null;
  let spots = []; // every point on the page: {series, index, px, py}
  let chosen = null; // [series, index]
  let ring = null;

  function draw(next = spec) {
    spec = next;
    const width = Math.floor(node.clientWidth);
    if (!spec || !width) return;
    const narrow = width < 560;
    const height = narrow ? 280 : 340;
    const all = spec.series.flatMap(({ points }) => points.filter(Boolean));
    node.setAttribute("aria-label", spec.summary);
    spots = [];
    ring = null;
    if (!all.length) {
      node.replaceChildren(el("p", { class: "sh-empty", style: `min-height: ${spec.small ? 90 : height}px` }, spec.empty ?? ""));
      return;
    }
    // Room on the right for the name of each line; on a phone for its letter, which the legend explains.
    const labelled = spec.series.filter(({ points }) => points.some(Boolean));
    const names = narrow ? labelled.map(({ tag }) => tag) : labelled.map(({ name }) => name);
    const longest = Math.max(...names.map((name) => name.length));
    // A point of two calls has an interval as wide as the chart: such a whisker leaves the chart, the rest keeps its room.
    const tallest = Math.max(...all.map(({ y }) => y));
    const most = Math.max(...all.map(({ y, high }) => Math.max(y, Math.min(high ?? y, 1.3 * tallest))),
      ...spec.stairs.flatMap(({ points }) => points.map(([, y]) => y)));
    const ceiling = spec.ceiling && spec.ceiling.y <= most * 1.7 ? spec.ceiling : null;
    const pad = {
      left: 46, right: narrow ? 24 : Math.min(220, 26 + longest * 6.7), bottom: 40,
      // The unit, the numbers of the steps, and what the ceiling is called, each in a row of its own.
      top: 30 + (spec.marks.length ? 16 : 0) + (spec.marks.length && ceiling ? 14 : 0),
    };
    const inner = { w: width - pad.left - pad.right, h: height - pad.top - pad.bottom };
    const xs = [...new Set([...all.map(({ x }) => x), ...(spec.x.values ?? [])])].sort((a, b) => a - b);
    const margin = Math.min(14, inner.w * 0.04);
    const { place, breaks } = scale(xs);
    const at = (x) => pad.left + margin + place(x) * (inner.w - 2 * margin);
    const { top, ticks } = ticksTo(Math.max(most * 1.02, ceiling?.y ?? 0), narrow ? 4 : 5);
    const up = (y) => pad.top + inner.h - (y / top) * inner.h;

    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    // Ground: hairlines, numbers, the unit over its axis.
    for (const tick of ticks) {
      const y = up(tick);
      root.append(svg("line", { x1: pad.left, x2: width - pad.right, y1: y, y2: y, class: tick ? "sh-grid" : "sh-axis" }));
      root.append(svg("text", { x: pad.left - 6, y: y + 4, class: "sh-tick", "text-anchor": "end" }, spec.y.format(tick)));
    }
    root.append(svg("text", { x: 2, y: 13, class: "sh-unit" }, spec.y.label));
    for (const x of xs) root.append(svg("line", { x1: at(x), x2: at(x), y1: up(0), y2: up(0) + 3, class: "sh-axis" }));
    for (const x of breaks) {
      root.append(svg("path", { d: `M${at(x) - 6} ${up(0) + 5}l4 -10M${at(x) + 2} ${up(0) + 5}l4 -10`, class: "sh-break" }));
    }
    for (const x of thin(xs, at, narrow ? 28 : 32)) {
      root.append(svg("text", { x: at(x), y: up(0) + 16, class: "sh-tick", "text-anchor": "middle" }, String(x)));
    }
    root.append(svg("text", { x: pad.left + inner.w / 2, y: height - 6, class: "sh-unit", "text-anchor": "middle" }, spec.x.label));
    if (ceiling) {
      root.append(svg("line", { x1: pad.left, x2: width - pad.right, y1: up(ceiling.y), y2: up(ceiling.y), class: "sh-ceiling" }));
      root.append(svg("text", { x: width - pad.right, y: up(ceiling.y) - 5, class: "sh-unit", "text-anchor": "end" }, ceiling.words));
    }
    for (const { points } of spec.stairs) {
      root.append(svg("polyline", { points: points.map(([x, y]) => `${at(x).toFixed(1)},${up(y).toFixed(1)}`).join(" "), class: "sh-stairs" }));
    }

    // Lines first, then points: a line never hides a mark.
    const radius = Math.max(2.6, Math.min(narrow ? 4 : 5, (0.36 * inner.w) / Math.max(xs.length, 1)));
    const lines = svg("g");
    const dots = svg("g");
    spec.series.forEach(({ points }, s) => {
      points.forEach((point, i) => {
        if (!point) return;
        const [px, py] = [at(point.x), up(point.y)];
        spots.push({ series: s, index: i, px, py });
        const style = spec.kinds[point.kind];
        const before = points[i - 1];
        if (before) {
          const same = before.kind === point.kind;
          lines.append(svg("line", {
            x1: at(before.x), y1: up(before.y), x2: px, y2: py, class: same ? "sh-line" : "sh-line sh-change",
            "stroke-dasharray": DASHES[s % DASHES.length], style: same ? `--kind: ${style.colour}` : null,
          }));
        }
        if (point.high > point.low) {
          const [low, high] = [up(point.low), Math.max(up(point.high), pad.top - 6)];
          const whole = point.high <= top;
          // An interval that its mark hides needs no whisker; the legend says so.
          if (low - high > 2 * radius) {
            const cap = radius * 0.8;
            dots.append(svg("path", { d: `M${px} ${low}V${high}M${px - cap} ${low}h${2 * cap}${whole ? `M${px - cap} ${high}h${2 * cap}` : ""}`, class: "sh-whisker", style: `--kind: ${style.colour}` }));
          }
        }
        dots.append(svg("path", {
          d: MARKS[style.shape](radius), transform: `translate(${px} ${py})`, class: "sh-point", "data-kind": point.kind,
          "data-series": s, "data-x": point.x, style: `fill: ${style.colour}`,
        }));
      });
    });
    root.append(lines, dots);

    // Each line is named where it ends.
    const ends = labelled.map((series) => {
      const point = series.points.findLast(Boolean);
      return [at(point.x), up(point.y)];
    });
    const places = spread(ends.map(([, y]) => y), narrow ? 12 : 14, pad.top - 4, up(0) + 2);
    labelled.forEach((series, i) => {
      const x = width - pad.right + 8;
      root.append(svg("path", { d: `M${ends[i][0] + radius + 2} ${ends[i][1]}L${x - 2} ${places[i]}`, class: "sh-leader" }));
      root.append(svg("text", { x, y: places[i] + 4, class: "sh-name" }, names[i]));
    });

    // Found steps along d_head: a stroke from before to after, and over the place its number, with words where there is room.
    const groups = [];
    for (const found of spec.marks.map((m) => ({ ...m, at: (at(m.x) + at(m.fromX)) / 2 })).sort((a, b) => a.at - b.at)) {
      root.append(svg("path", { d: `M${at(found.fromX)} ${up(found.fromY)}L${at(found.x)} ${up(found.y)}`, class: "sh-step" }));
      const last = groups.at(-1);
      if (last && found.at - last.at < (narrow ? 14 : 18)) last.found.push(found);
      else groups.push({ at: found.at, found: [found] });
    }
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `600 12px ${getComputedStyle(node).fontFamily}`;
    const wide = (text) => pen.measureText(text).width;
    let free = 0;
    groups.forEach((group, i) => {
      const kinds = [...new Set(group.found.map(({ words }) => words))];
      const listed = (found) => found.map(({ number }) => number).sort((a, b) => a - b).join(", ");
      const numbers = listed(group.found);
      // A colon, for a number before a word reads as how many there are.
      const text = kinds.map((kind) => `${listed(group.found.filter(({ words }) => words === kind))}: ${kind}`).join("; ");
      const [half, bare] = [wide(text) / 2, wide(numbers) / 2];
      // The next number needs its place, too; the last label ends with the chart.
      const room = groups[i + 1] ? groups[i + 1].at - wide(groups[i + 1].found.map(({ number }) => number).join(", ")) / 2 - 12 : width;
      const left = Math.max(free, Math.min(group.at - half, room - 2 * half));
      const whole = !narrow && left <= group.at && left + 2 * half >= group.at && left + 2 * half <= room;
      const middle = whole ? left + half : Math.max(group.at, free + bare);
      free = middle + (whole ? half : bare) + 12;
      const top = Math.min(...group.found.map(({ y, fromY }) => up((y + fromY) / 2)));
      root.append(svg("line", { x1: group.at, x2: group.at, y1: 37, y2: top, class: "sh-leader" }));
      root.append(svg("text", { x: middle, y: 33, class: "sh-found", "text-anchor": "middle", "data-steps": numbers }, whole ? text : numbers));
    });
    ring = svg("circle", { r: radius + 4, class: "sh-ring", visibility: "hidden" });
    root.append(ring);
    node.replaceChildren(root);
    // The chosen point may have other numbers now, or be gone.
    if (chosen) pick(...(spots.some(({ series, index }) => series === chosen[0] && index === chosen[1]) ? chosen : [null]));
  }

  function show() {
    const spot = chosen && spots.find(({ series, index }) => series === chosen[0] && index === chosen[1]);
    if (!ring) return;
    ring.setAttribute("visibility", spot ? "visible" : "hidden");
    if (spot) { ring.setAttribute("cx", spot.px); ring.setAttribute("cy", spot.py); }
  }

  function pick(series, index) {
    chosen = series == null ? null : [series, index];
    show();
    onPick(series, index);
  }

  function near({ clientX, clientY }) {
    const box = node.getBoundingClientRect();
    let best = null;
    let least = 60 ** 2;
    for (const spot of spots) {
      const far = (spot.px - clientX + box.left) ** 2 + (spot.py - clientY + box.top) ** 2;
      if (far < least) [best, least] = [spot, far];
    }
    return best;
  }

  /** Left and right along a line, up and down between the lines. */
  function step(key) {
    if (!spots.length) return false;
    const here = chosen && spots.find(({ series, index }) => series === chosen[0] && index === chosen[1]);
    const line = spots.filter(({ series }) => series === (here ?? spots[0]).series);
    if (!here) return key === "End" ? line.at(-1) : line[0];
    const at = line.indexOf(here);
    if (key === "Home") return line[0];
    if (key === "End") return line.at(-1);
    if (key === "ArrowLeft") return line[Math.max(0, at - 1)];
    if (key === "ArrowRight") return line[Math.min(line.length - 1, at + 1)];
    // Where two lines coincide, the order of the series decides, so that every point can be reached.
    const order = ({ py, series }) => py * 1000 + series;
    const others = new Map();
    for (const spot of spots) {
      const held = others.get(spot.series);
      if (!held || Math.abs(spot.px - here.px) < Math.abs(held.px - here.px)) others.set(spot.series, spot);
    }
    const column = [...others.values()].sort((a, b) => order(a) - order(b));
    const row = column.findIndex(({ series }) => series === here.series);
    return column[Math.min(column.length - 1, Math.max(0, row + (key === "ArrowUp" ? -1 : 1)))];
  }

  function take(spot) {
    if (spot && !(chosen && chosen[0] === spot.series && chosen[1] === spot.index)) pick(spot.series, spot.index);
  }
  node.addEventListener("pointermove", (event) => take(near(event)));
  node.addEventListener("pointerdown", (event) => take(near(event)));
  node.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation(); // a notebook would move to another cell
    take(step(event.key));
  });
  let shownWidth = 0;
  const sizes = new ResizeObserver(() => {
    if (node.clientWidth !== shownWidth) { shownWidth = node.clientWidth; draw(); }
  });
  sizes.observe(node);
  return { node, draw, pick, stop: () => sizes.disconnect() };
}
