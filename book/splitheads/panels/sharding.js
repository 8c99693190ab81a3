// Heads dealt out to GPUs: one box for each, the query heads in it, and the key/value heads that they read.
// `sharding` is Python's own code, translated (translate.py): this view asks it, and decides nothing.
import { el, assign, say, opening, settle, linkState, growOnly } from "./kit.js";

const TRAITS = ["num_heads", "n_kv_heads", "tp", "stack"];
/** So many heads are drawn in one box, and in all: more are counted in words. */
const IN_A_BOX = 32;
const IN_ALL = 64;
const BOXES = 16;
const GROUPS = 16;
const PIECES = 5;

const counted = (n, noun) => (n === 1 ? `1 ${noun}` : `${n} ${noun}s`);

function render({ model, el: host }) {
  host.classList.add("sh-view", "sh-shard");
  const limits = model.get("limits");
  const presets = model.get("presets");
  const stacks = model.get("stacks"); // the names, in the order of the menu
  const colours = model.get("palette");
  const asked = opening(model);

  const status = el("p", { role: "status", class: "sh-status" });
  const short = el("strong");
  const long = el("span");
  status.append(short, long);
  const moves = el("div", { class: "sh-chips", role: "group", "aria-label": "Sizes that work" });
  const boxes = el("div", { class: "sh-boxes", role: "img" });
  const key = el("p", { class: "sh-label sh-key" });
  const picture = el("div", { class: "sh-result" }, boxes, key);
  const columns = el("div", { class: "sh-shares", role: "img" });
  const flat = el("p", { class: "sh-label" });
  const head = el("p", { class: "sh-head" });
  const chart = el("div", { class: "sh-result" }, head, columns, flat);
  const source = el("p", { class: "sh-label sh-from" });
  const shelf = el("div", { class: "sh-chips sh-shelf", role: "group", "aria-label": "Presets" },
    el("span", { class: "sh-label" }, "Models and bug reports:"));
  const chips = presets.map((preset) => el("button", { type: "button", class: "sh-chip", "data-preset": preset.name,
    onclick: () => assign(model, preset.state) }, preset.name));
  shelf.append(...chips);
  const note = el("p", { class: "sh-label sh-note" });
  host.append(shelf, note, status, moves, picture, chart, source);
  if (asked) host.prepend(asked);

  // ---- the boxes ----

  const colour = (kv) => `background-color: ${colours[kv % colours.length]}`;
  const cell = (i, kv) => el("span", { class: "sh-q", style: colour(kv) }, String(i));
  const more = (words) => el("span", { class: "sh-more" }, words);

  /** Query heads, [kv head, first, count] by [kv head, first, count], at most `room` of them, in rows of equal length. */
  function cells(runs, room, [wide, slim]) {
    const found = runs.flatMap(([kv, first, count]) => Array.from({ length: count }, (_, i) => [first + i, kv]));
    const drawn = found.length > room ? found.slice(0, room - 2) : found;
    return el("div", { class: "sh-qs", style: `--wide: ${Math.min(drawn.length, wide)}; --slim: ${Math.min(drawn.length, slim)}` },
      ...drawn.map(([i, kv]) => cell(i, kv)), ...(drawn.length < found.length ? [more(`+ ${found.length - drawn.length}`)] : []));
  }

  /** A key/value head, whole or a part of it, and how many GPUs hold a copy. */
  function held([kv, part, whole], copies) {
    const words = part === whole ? `kv ${kv}` : `${part}/${whole} of kv ${kv}`;
    return el("span", { class: part === whole ? "sh-kv" : "sh-kv sh-cut", style: part === whole ? colour(kv) : null, "data-copies": copies > 1 ? copies : null },
      el("span", { class: "sh-kv-name" }, words), ...(copies > 1 ? [el("span", { class: "sh-copies" }, `×${copies}`)] : []));
  }

  function box(name, { heads, kv }, copies, aligned, rows) {
    const inside = [];
    if (aligned) {
      // Each key/value head under the query heads that read it.
      let room = IN_A_BOX;
      let groups = 0;
      for (const [i, run] of heads.entries()) {
        if (room < Math.min(run[2], 4) || groups === GROUPS) break;
        inside.push(el("div", { class: "sh-group" }, cells([run], room, rows), held(kv[i], copies)));
        room -= run[2];
        groups += 1;
      }
      const rest = heads.slice(groups).reduce((sum, run) => sum + run[2], 0);
      if (rest) inside.push(more(`+ ${counted(rest, "head")}, ${heads.length - groups} kv`));
    } else {
      const shown = kv.length > PIECES ? [...kv.slice(0, PIECES - 2), null, kv.at(-1)] : kv;
      inside.push(el("div", { class: "sh-group" }, cells(heads, IN_A_BOX, rows),
        ...shown.map((piece) => (piece ? held(piece, copies) : more(`+ ${kv.length - PIECES + 1} kv`)))));
    }
    return el("div", { class: "sh-box" }, el("div", { class: "sh-box-name" }, name), el("div", { class: "sh-groups" }, ...inside));
  }

  function draw(found) {
    const { ranks, left, copies, aligned, unit } = found;
    const size = ranks.length ? ranks[0].heads.reduce((sum, run) => sum + run[2], 0) : 1;
    const most = Math.min(BOXES, Math.max(2, Math.floor(IN_ALL / Math.min(size, IN_A_BOX))));
    const rows = ranks.length > 2 ? [8, 4] : [16, 8];
    const make = (i) => box(`${unit} ${i}`, ranks[i], copies, aligned, rows);
    const few = Math.min(most, 8);
    const shown = ranks.length <= most + 1 ? ranks.map((_, i) => make(i))
      : [...Array.from({ length: few - 1 }, (_, i) => make(i)),
        el("div", { class: "sh-box sh-others" }, `and ${ranks.length - few} more ${unit === "kv" ? "kv heads" : "GPUs"}${aligned ? " alike" : ""}`),
        make(ranks.length - 1)];
    if (left.length) {
      const [first, count] = left;
      const drawn = count > 24 ? 22 : count;
      shown.push(el("div", { class: "sh-box sh-left" }, el("div", { class: "sh-box-name" }, `${counted(count, "head")} left over`),
        el("div", { class: "sh-qs", style: `--wide: ${Math.min(drawn, 8)}; --slim: ${Math.min(drawn, 8)}` },
          ...Array.from({ length: drawn }, (_, i) => el("span", { class: "sh-q sh-cut" }, el("span", {}, String(first + i)))),
          ...(drawn < count ? [more(`+ ${count - drawn}`)] : []))));
    }
    boxes.replaceChildren(...shown);
    boxes.setAttribute("aria-label", found.picture);
    say(key, found.key);
  }

  // ---- the shares ----

  function drawShares(found, tp) {
    chart.hidden = found.shares.length === 0;
    columns.replaceChildren(el("span", { class: "sh-axis" }, "tp"), ...found.shares.map(([size, parts, copies]) =>
      el("div", { class: "sh-share", "data-tp": size, "data-parts": parts, "data-copies": copies, "data-now": String(size === tp) },
        el("span", { class: "sh-part" }, ...(parts === 1 ? ["all"] : [el("span", { class: "sh-over" }, "1"), el("span", {}, String(parts))])),
        el("span", { class: copies > 1 ? "sh-column sh-copied" : "sh-column", style: `height: ${(90 / parts).toFixed(2)}px` }),
        el("span", { class: "sh-size" }, String(size)))));
    columns.setAttribute("aria-label", found.chart);
    say(head, found.head);
    say(flat, found.flat);
  }

  let offered = "";
  function update() {
    const [numHeads, nKvHeads, tp, stack] = TRAITS.map((name) => model.get(name));
    const found = sharding.spread(numHeads, nKvHeads, tp, stack);
    say(short, found.short);
    say(long, found.long);
    Object.assign(host.dataset, { verdict: found.verdict, rule: found.rule, sizes: found.sizes.join() });
    draw(found);
    drawShares(found, tp);
    say(source, found.source);
    // Rebuild the buttons only when they differ, so that a focused one survives other changes.
    const wanted = JSON.stringify([found.offer, found.moves]);
    if (wanted !== offered) {
      offered = wanted;
      const hadFocus = moves.contains(document.activeElement);
      moves.replaceChildren(el("span", { class: "sh-label" }, found.offer), ...found.moves.map(([name, value]) =>
        el("button", { type: "button", class: "sh-chip", "data-move": JSON.stringify({ [name]: value }), "aria-label": `${name} = ${value}`, onclick: () => assign(model, { [name]: value }) }, String(value))));
      if (hadFocus) (moves.querySelector("button") ?? chips[0]).focus();
    }
    for (const button of moves.querySelectorAll("button")) {
      const [[name, value]] = Object.entries(JSON.parse(button.dataset.move));
      button.setAttribute("aria-pressed", String(model.get(name) === value));
    }
    const current = presets.find(({ state }) => TRAITS.every((name) => state[name] === model.get(name)));
    chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(presets[i] === current)));
    say(note, current ? current.note : "");
  }

  // The menu shares its place with the page, the address says the stack by name: each follows the other.
  const named = () => assign(model, { stack_at: stacks.indexOf(model.get("stack")) });
  const placed = () => { if (model.get("stack_at") in stacks) assign(model, { stack: stacks[model.get("stack_at")] }); };
  model.on("change:stack", named);
  model.on("change:stack_at", placed);
  // Once for however many traits change together: half of a preset is no state to tell.
  let due = false;
  const later = () => {
    if (!due) queueMicrotask(() => { due = false; update(); });
    due = true;
  };
  const events = TRAITS.map((name) => `change:${name}`).join(" ");
  model.on(events, later);
  const unGrow = growOnly(status, moves, picture, chart, source, note);
  update();
  let unLink = () => {};
  settle(host, "sharding", asked).then((root) => {
    unLink = linkState(model, "sharding", { num_heads: "int", n_kv_heads: "int", tp: "int", stack: stacks }, limits, root);
  });
  return () => {
    model.off(events, later);
    model.off("change:stack", named);
    model.off("change:stack_at", placed);
    unGrow();
    unLink();
    asked?.remove();
  };
}

export default { render };
