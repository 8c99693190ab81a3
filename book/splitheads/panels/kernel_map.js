// One strip per card, from d_head 1 to 320: which kernel PyTorch's own selector picks, and where that changes.
import { el, svg, assign, say, opening, settle, linkState, growOnly } from "./kit.js";

const LANES = ["×8", "×4", "other"];
const LANE_WORDS = ["multiples of 8", "other multiples of 4", "other sizes"];
/** Distance from a lane's first value to the start of its block of eight: 8, 4 and 1 all begin at 0. */
const STEP = [8, 4, 1];

/** The lane of a head size: multiples of 8, of 4, and the rest choose separately. */
export const laneOf = (d) => (d % 8 === 0 ? 0 : d % 4 === 0 ? 1 : 2);

/** "F8 E264;F4 M260;F1 M257" -> three lanes of [letter, first d]. */
export const lanesOf = (pattern) => pattern.split(";").map((lane) => lane.split(" ").map((run) => [run[0], Number(run.slice(1))]));

/** The letter that a lane table gives for one head size. */
export function letterAt(lanes, d) {
  return lanes[laneOf(d)].findLast(([, first]) => first <= d)[0];
}

/** A lane as drawn blocks: [{letter, first, last, start, end}] on the axis from 0 to most. */
export function blocks(lanes, lane, most) {
  const step = STEP[lane];
  const grid = [8, 8, 1][lane];
  return lanes[lane].map(([letter, first], i, all) => {
    const next = all[i + 1]?.[1];
    const last = next === undefined ? null : next - grid;
    return { letter, first, last, start: first - step, end: next === undefined ? most : next - step };
  });
}

/** A lane in words: "FLASH to 192, EFFICIENT from 200 to 224, FLASH from 232". */
export function laneInWords(lanes, lane, most, names) {
  const runs = blocks(lanes, lane, most);
  if (runs.length === 1) return `${names[runs[0].letter]} throughout`;
  return runs.map(({ letter, first, last }, i) =>
    `${names[letter]} ${i === 0 ? `to ${last}` : last === null ? `from ${first}` : first === last ? `at ${first}` : `from ${first} to ${last}`}`).join(", ");
}

const listed = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0]);

function render({ model, el: host }) {
  host.classList.add("sh-view", "sh-kernels");
  const limits = model.get("limits");
  const table = model.get("table");
  const { versions, dtypes, scenarios, cards, kernels } = table;
  const presets = model.get("presets");
  const most = limits.d_head[1];
  const patterns = table.patterns.map(lanesOf);
  const names = Object.fromEntries(kernels.map(({ letter, name }) => [letter, name]));
  const colours = Object.fromEntries(kernels.map(({ letter, colour }) => [letter, colour]));
  const asked = opening(model);
  const id = `k${Math.random().toString(36).slice(2)}`;

  /** The lanes of one strip. */
  const strip = (version, dtype, scenario, card) =>
    patterns[table.series.charCodeAt(((version * dtypes.length + dtype) * scenarios.length + scenario) * cards.length + card) - 65];

  const status = el("p", { role: "status", class: "sh-status" });
  const short = el("strong");
  const rest = el("span");
  const against = el("span");
  status.append(short, rest, against);

  // The hatch of MATH: a hole in the strip for readers who see no colours, or choose their own.
  const hatch = svg("svg", { width: 0, height: 0, "aria-hidden": "true", class: "sh-defs" }, svg("defs", {},
    svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 6, height: 6, class: "sh-paper" }), svg("rect", { width: 2, height: 6, fill: colours.M }))));
  const fill = (letter) => (letter === "M" ? `url(#${id})` : colours[letter]);
  const swatch = (letter) => svg("svg", { class: "sh-swatch", width: 22, height: 16, "aria-hidden": "true" },
    svg("rect", { x: 0.5, y: 0.5, width: 21, height: 15, fill: fill(letter), class: "sh-edge" }),
    svg("text", { x: 11, y: 12, class: letter === "M" ? "sh-on-hole" : "sh-on-run" }, letter));

  const rows = cards.map((card, i) => {
    const name = el("button", { type: "button", class: "sh-card", onclick: () => read(i), onfocus: () => read(i), onpointerenter: () => read(i), onpointerleave: restReading },
      el("strong", {}, card.name), " ", el("span", { class: "sh-label" }, card.key));
    const drawn = svg("svg", { role: "img", class: "sh-strip" });
    drawn.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") read(i, place(event, drawn)); });
    drawn.addEventListener("pointerleave", restReading);
    drawn.addEventListener("click", (event) => assign(model, { d_head: place(event, drawn) }));
    const result = el("span", { class: "sh-answer" });
    return { node: el("div", { class: "sh-row", "data-card": card.key }, name, drawn, result), name, drawn, result };
  });
  const axis = (end) => el("div", { class: `sh-row sh-axis sh-axis-${end}` }, el("span"), svg("svg", { class: "sh-strip", "aria-hidden": "true" }), el("span"));
  const top = axis("top");
  const bottom = axis("bottom");
  const chart = el("div", { class: "sh-chart" }, top, ...rows.map(({ node }) => node), bottom);
  const reading = el("p", { class: "sh-reading", "aria-live": "polite" });
  const legend = el("dl", { class: "sh-key" }, ...kernels.flatMap(({ letter, name, what }) =>
    [el("dt", {}, swatch(letter), " ", name), el("dd", {}, what)]));
  const evidence = el("p", { class: "sh-label" }, model.get("evidence"));
  const note = el("p", { class: "sh-label sh-note" });
  const shelf = el("div", { class: "sh-chips", role: "group", "aria-label": "Findings worth a look" }, el("span", { class: "sh-label" }, "Findings:"));
  const chips = presets.map((preset) => el("button", { type: "button", class: "sh-chip", "data-preset": preset.name,
    onclick: () => assign(model, preset.state) }, preset.name));
  shelf.append(...chips);
  host.append(hatch, status, chart, reading, shelf, note, legend, evidence);
  if (asked) host.prepend(asked);

  let shown = null; // what is drawn now: {state, width, lanes, x, tops, ...}

  const state = () => Object.fromEntries(["torch", "dtype", "scenario", "compare", "d_head"].map((key) => [key, model.get(key)]));

  /** The compared series: [version, scenario] of the other side, and its name; null for none. */
  function other({ torch, scenario, compare }) {
    if (compare === 0) return null;
    if (compare <= versions.length) return { version: compare - 1, scenario, name: `torch ${versions[compare - 1]}`, brief: versions[compare - 1] };
    const chosen = compare - 1 - versions.length;
    return { version: torch, scenario: chosen, name: scenarios[chosen].text, brief: scenarios[chosen].brief };
  }

  /** The head size under a pointer: its lane decides which of eight neighbours is meant. */
  function place(event, drawn) {
    const box = drawn.getBoundingClientRect();
    const { scale, left, four } = shown;
    const bands = shown.bands[rows.findIndex((row) => row.drawn === drawn)];
    const at = Math.min(Math.max((event.clientX - box.left - left) / scale, 0), most - 0.001);
    const y = event.clientY - box.top;
    const band = bands.findLast(({ top }) => y >= top - 2) ?? bands[0];
    const eight = 8 * Math.floor(at / 8);
    if (band.lane === 0) return eight + 8;
    if (band.lane === 1) return eight + 4;
    const d = Math.floor(at) + 1;
    if (d % 8 === 0) return d - 1;
    return four && d % 4 === 0 ? d - 1 : d;
  }

  /** All lanes of a strip in words. */
  const spoken = (lanes) => (shown.four ? [0, 1, 2] : [0, 2]).map((lane) => `${LANE_WORDS[lane]}: ${laneInWords(lanes, lane, most, names)}`).join("; ");

  function read(i, d) {
    const { lanes, others, against: compared } = shown;
    const card = cards[i];
    if (d === undefined) {
      say(reading, `${card.name} (${card.words}), ${spoken(lanes[i])}.`);
      return;
    }
    const now = names[letterAt(lanes[i], d)];
    const then = compared && names[letterAt(others[i], d)];
    say(reading, `${card.name}, d_head = ${d}: ${now}${!compared ? "" : then === now ? `, and the same with ${compared.name}` : `; with ${compared.name}: ${then}`}.`);
  }

  function restReading() {
    say(reading, "Point at a strip to read one size, or at a card’s name for its strip in words; a tap moves the marker.");
  }

  /** Strips and axes: redrawn when the series or the width change, not when the marker moves. */
  function draw(now) {
    const width = rows[0].drawn.clientWidth || 300;
    const key = [now.torch, now.dtype, now.scenario, now.compare, width].join();
    if (shown?.key === key) return;
    const compared = other(now);
    const lanes = cards.map((_, i) => strip(now.torch, now.dtype, now.scenario, i));
    const others = compared && cards.map((_, i) => strip(compared.version, now.dtype, compared.scenario, i));
    const same = (one, two) => JSON.stringify(one.map(({ letter, start }) => [letter, start])) === JSON.stringify(two.map(({ letter, start }) => [letter, start]));
    // Multiples of 4 have a lane of their own only where one of the strips treats them apart.
    const four = [...lanes, ...(others ?? [])].some((found) => !same(blocks(found, 1, most), blocks(found, 2, most)));
    const left = 38;
    const scale = (width - left - 1) / most;
    const tall = 17;
    const small = 13;
    const x = (d) => left + d * scale;
    const drawnLanes = four ? [0, 1, 2] : [0, 2];
    /** The word in a block: the name where there is room for it, its letter where there is room for that. */
    const word = (letter, start, end, y, size) => {
      const wide = (end - start) * scale;
      const whole = wide >= names[letter].length * size * 0.72 + 8;
      if (!whole && wide < 9) return [];
      return [svg("text", { x: whole ? x(start) + 5 : x(start) + wide / 2, y, "text-anchor": whole ? "start" : "middle",
        class: `sh-word ${letter === "M" ? "sh-on-hole" : "sh-on-run"}`, "font-size": size, ...(whole ? { "data-from": x(start) + 5, "data-to": x(end) } : {}) }, whole ? names[letter] : letter)];
    };
    const block = (letter, start, end, y, high, data) =>
      svg("rect", { x: x(start), y, width: (end - start) * scale, height: high, fill: fill(letter), class: "sh-edge", ...data });
    shown = { key, lanes, others, against: compared, four, left, scale, tall, x, bands: [], heights: [] };
    rows.forEach(({ drawn, node }, i) => {
      const grounds = [];
      const words = [];
      const bands = [];
      let y = 3;
      let differs = false;
      for (const lane of drawnLanes) {
        bands.push({ lane, top: y });
        words.push(svg("text", { x: left - 5, y: y + 13, class: "sh-lane" }, LANES[lane]));
        for (const { letter, start, end, first } of blocks(lanes[i], lane, most)) {
          grounds.push(block(letter, start, end, y, tall, { "data-kernel": letter, "data-first": first, "data-lane": lane }));
          words.push(...word(letter, start, end, y + 12.5, 11));
        }
        y += tall + 1;
        // Below, the other side, and only where it differs: what is the same takes no room.
        const changed = compared ? differences(lanes[i], others[i], lane) : [];
        for (const { letter, start, end } of changed) {
          grounds.push(
            block(letter, start, end, y + 1, small, { "data-differs": letter, "data-lane": lane }),
            svg("line", { x1: x(start), x2: x(end), y1: y, y2: y, class: "sh-differs" }));
          words.push(...word(letter, start, end, y + 11, 10));
        }
        if (changed.length) {
          differs = true;
          y += small + 4;
        }
      }
      const height = y + 4;
      const ticks = [];
      for (let tick = 64; tick < most; tick += 64) ticks.push(svg("line", { x1: x(tick), x2: x(tick), y1: 0, y2: height, class: "sh-tick" }));
      shown.bands.push(bands);
      shown.heights.push(height);
      drawn.setAttribute("height", height);
      drawn.style.height = `${height}px`;
      drawn.replaceChildren(...grounds, ...ticks, ...words, svg("g", { class: "sh-marker" }));
      drawn.setAttribute("aria-label", `${cards[i].name}: ${spoken(lanes[i])}.${compared ? differs ? ` With ${compared.name}: ${spoken(others[i])}.` : ` The same with ${compared.name}.` : ""}`);
      node.dataset.differs = differs;
    });
    for (const [node, at] of [[top, 26], [bottom, 14]]) {
      const drawn = node.querySelector("svg");
      drawn.setAttribute("height", node === top ? 32 : 18);
      drawn.style.height = `${node === top ? 32 : 18}px`;
      const ticks = [0, 64, 128, 192, 256, 320].filter((tick) => tick <= most);
      drawn.replaceChildren(...ticks.map((tick) =>
        svg("text", { x: x(tick), y: at, class: "sh-tick-name", "text-anchor": tick === most ? "end" : "middle" }, String(tick))),
      svg("g", { class: "sh-marker" }));
    }
  }

  /** Where the other side of a comparison differs in one lane: blocks with its letter. */
  function differences(lanes, theirs, lane) {
    const cuts = [...new Set([...blocks(lanes, lane, most), ...blocks(theirs, lane, most)].map(({ start }) => start))].sort((a, b) => a - b);
    const found = [];
    cuts.forEach((start, i) => {
      const d = start + STEP[lane];
      const mine = lanes[lane].findLast(([, first]) => first <= d)[0];
      const letter = theirs[lane].findLast(([, first]) => first <= d)[0];
      if (mine === letter) return;
      const end = cuts[i + 1] ?? most;
      if (found.at(-1)?.letter === letter && found.at(-1).end === start) found.at(-1).end = end;
      else found.push({ letter, start, end });
    });
    return found;
  }

  function mark(now) {
    const { x, bands, tall, heights, lanes, others, against: compared, four, scale } = shown;
    const d = now.d_head;
    const lane = laneOf(d) === 1 && !four ? 2 : laneOf(d);
    const at = x(d - 0.5);
    rows.forEach(({ drawn, result }, i) => {
      const letter = letterAt(lanes[i], d);
      const then = compared && letterAt(others[i], d);
      drawn.querySelector(".sh-marker").replaceChildren(
        svg("line", { x1: at, x2: at, y1: 0, y2: heights[i] }),
        svg("rect", { x: at - Math.max(scale, 5) / 2 - 1.5, y: bands[i].find((band) => band.lane === lane).top - 1, width: Math.max(scale, 5) + 3, height: tall + 2, rx: 2 }));
      result.replaceChildren(swatch(letter), " ", el("span", {}, names[letter]),
        ...(!compared ? [] : [el("span", { class: "sh-label sh-then" }, then === letter ? "same" : `${compared.brief}: ${names[then]}`)]));
      result.dataset.kernel = names[letter];
    });
    // A name that the marker would strike out makes way, where its block has the room.
    for (const name of chart.querySelectorAll("[data-from]")) {
      const from = Number(name.dataset.from);
      const wide = name.textContent.length * Number(name.getAttribute("font-size")) * 0.72;
      const struck = at > from - 8 && at < from + wide + 2 && at + 8 + wide < Number(name.dataset.to);
      name.setAttribute("x", struck ? at + 8 : from);
    }
    const label = `d_head = ${d}`;
    const drawn = top.querySelector("svg");
    const wide = label.length * 6.6;
    const middle = Math.min(Math.max(at, wide / 2), x(most) - wide / 2);
    drawn.querySelector(".sh-marker").replaceChildren(
      svg("text", { x: middle, y: 11, class: "sh-here" }, label),
      svg("line", { x1: at, x2: at, y1: 14, y2: 32 }));
    // The axis number that the marker would cross gives way.
    drawn.querySelectorAll(".sh-tick-name").forEach((node) => node.classList.toggle("sh-away", Math.abs(Number(node.getAttribute("x")) - at) < 16));
    bottom.querySelector(".sh-marker").replaceChildren(svg("line", { x1: at, x2: at, y1: 0, y2: 4 }));
  }

  function update() {
    const now = state();
    draw(now);
    mark(now);
    const { lanes, others, against: compared } = shown;
    const d = now.d_head;
    const groups = kernels.map(({ letter, name }) => [name, cards.filter((_, i) => letterAt(lanes[i], d) === letter).map((card) => card.name)])
      .filter(([, on]) => on.length);
    say(short, `d_head = ${d}: ${groups.map(([name, on]) => `${name} on ${on.length === cards.length ? "every card" : listed(on)}`).join("; ")}. `);
    say(rest, `torch ${versions[now.torch]}, ${dtypes[now.dtype]}, ${scenarios[now.scenario].text}.`);
    if (compared && compared.version === now.torch && compared.scenario === now.scenario) {
      say(against, ` That is the same ${now.compare <= versions.length ? "version" : "scenario"}.`);
    } else if (compared) {
      // Cards that differ at equally many sizes are named together.
      const counts = new Map();
      cards.forEach((card, i) => {
        let count = 0;
        for (let size = 1; size <= most; size++) if (letterAt(lanes[i], size) !== letterAt(others[i], size)) count += 1;
        counts.set(count, [...(counts.get(count) ?? []), card.name]);
      });
      const changed = [...counts].filter(([count]) => count).sort(([one], [two]) => two - one);
      say(against, changed.length
        ? ` With ${compared.name} the kernel differs at ${changed.map(([count, on], i) => `${count}${i ? "" : ` of ${most} sizes`} on ${listed(on)}`).join(", ")}${counts.has(0) ? ", nowhere else" : ""}.`
        : ` With ${compared.name}: the same kernel at every size on every card.`);
    } else say(against, "");
    Object.assign(host.dataset, { kernels: cards.map((_, i) => letterAt(lanes[i], d)).join(""), others: compared ? cards.map((_, i) => letterAt(others[i], d)).join("") : "" });
    const current = presets.find((preset) => Object.entries(preset.state).every(([name, value]) => now[name] === value));
    chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(presets[i] === current)));
    say(note, current ? current.note : "");
    if (!reading.matches(":hover") && !chart.matches(":hover") && !chart.contains(document.activeElement)) restReading();
  }

  const events = "change:torch change:dtype change:scenario change:compare change:d_head";
  model.on(events, update);
  const sizes = new ResizeObserver(() => { if (rows[0].drawn.clientWidth && !shown?.key.endsWith(`,${rows[0].drawn.clientWidth}`)) update(); });
  sizes.observe(host);
  const unGrow = growOnly(status, reading, note);
  update();
  let unLink = () => {};
  settle(host, "kernels", asked).then((root) => {
    unLink = linkState(model, "kernels", { torch: "index", dtype: "index", scenario: "index", compare: "index", d_head: "int" }, limits, root);
  });
  return () => {
    model.off(events, update);
    sizes.disconnect();
    unGrow();
    unLink();
    asked?.remove();
  };
}

export default { render };
