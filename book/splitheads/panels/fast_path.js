// One call: which kernel PyTorch selects, why not another, and how much of a compiled width is padding.
import { el, svg, grouped, percent, neighbours, assign, say, opening, settle, linkState, growOnly } from "./kit.js";

/** "8:3 264:5;4:3;1:4" -> three lanes of [first, number]: multiples of 8, other multiples of 4, the rest. */
export const pattern = (text) => text.split(";").map((lane) => lane.split(" ").map((run) => run.split(":").map(Number)));

/** The number that a pattern gives for a head size. */
export function numberAt(lanes, d) {
  return lanes[d % 8 === 0 ? 0 : d % 4 === 0 ? 1 : 2].findLast(([first]) => first <= d)[1];
}

/** The width in a list that a head of d columns gets: the first that holds it; null where none does. */
export function widthOf(kernel, d, torch, device) {
  const [first, last] = kernel.not_taken?.[device] ?? [0, 0];
  if (first <= d && d <= last) return null;
  if (kernel.every) return d <= kernel.most ? kernel.every * Math.ceil(d / kernel.every) : null;
  return (kernel.lists[torch] ?? kernel.lists[0]).find((width) => width >= d) ?? null;
}


function render({ model, el: host }) {
  host.classList.add("sh-view", "sh-fastpath");
  const { limits, table, options, presets, evidence, colours, unpadded, footnote } =
    Object.fromEntries(["limits", "table", "options", "presets", "evidence", "colours", "unpadded", "footnote"].map((name) => [name, model.get(name)]));
  // Named, because a page that was built from a stored notebook has the keys of its dictionaries sorted.
  const traits = ["d_model", "num_heads", "device", "torch", "dtype", "mask", "mode"];
  const devices = table.devices;
  const patterns = table.patterns.map(pattern);
  const asked = opening(model);
  const id = `f${Math.random().toString(36).slice(2)}`;

  /** Python's answer for one head size: chosen backend, refusals of the others in order, notes. */
  function answer(d, { device, torch, dtype, mask, mode }) {
    const at = (((torch * options.device.length + device) * options.dtype.length + dtype) * options.mask.length + mask) * options.mode.length + mode;
    const [answers, notes, ...sets] = table.situations[table.series[at]].map((i) => numberAt(patterns[i], d));
    const [chosen, pads, others] = table.answers[answers];
    const backend = table.names[chosen];
    const width = pads ? 8 * Math.ceil(d / 8) : d;
    const fill = (text) => text.replaceAll("{d}", d).replaceAll("{k}", width).replaceAll("{t}", options.dtype[dtype])
      .replaceAll("{c}", table.capabilities[device]).replaceAll("{b}", backend);
    return {
      backend, width,
      bucket: pads ? widthOf(table.widths[0], width, torch, device) : null,
      checked: table.checked[at] === "1" && table.sizes.some(([first, last]) => first <= d && d <= last),
      notes: table.notes[notes].map((i) => fill(table.texts[i])),
      others: others.map((i) => ({
        name: table.names[i],
        refusals: table.sets[sets[i]].map((j) => {
          const [text, source, versions, ranked] = table.refusals[j];
          return { reason: fill(table.texts[text]), source: table.sources[source], versions: table.versions[versions], ranked };
        }),
      })),
    };
  }

  const status = el("p", { role: "status", class: "sh-status" });
  const short = el("strong");
  const long = el("span");
  status.append(short, long);
  const notes = el("p", { class: "sh-label sh-notes" });
  const misfit = el("div", { class: "sh-error", hidden: true });
  const moves = el("div", { class: "sh-chips", role: "group", "aria-label": "Head counts and widths that divide" });
  const fit = el("div", { class: "sh-result" }, misfit, moves);

  // Zeros are hatched, and what is compiled but not even loaded is left open: three grounds, with or without colour.
  const hatch = svg("svg", { width: 0, height: 0, "aria-hidden": "true", class: "sh-defs" }, svg("defs", {},
    svg("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 5, height: 5, class: "sh-paper" }), svg("rect", { width: 2.5, height: 5, class: "sh-lines" }))));
  const swatch = (kind, colour) => svg("svg", { width: 22, height: 14, class: "sh-swatch", "aria-hidden": "true" },
    svg("rect", { x: 0.5, y: 0.5, width: 21, height: 13, class: `sh-part sh-${kind}`, ...(kind === "useful" && colour ? { style: `fill: ${colour}` } : {}), ...(kind === "zeros" ? { fill: `url(#${id})` } : {}) }));
  const bars = el("div", { class: "sh-bars" });
  const key = el("p", { class: "sh-label sh-parts" }, swatch("useful"), " d_head: useful  ", swatch("zeros"), " zeros up to a multiple of 8, copied in  ", swatch("rest"), " the rest of the kernel’s width");
  const aside = el("p", { class: "sh-label" }, footnote);
  const chart = el("div", { class: "sh-result" }, el("p", { class: "sh-head" }, "Columns that a kernel works on, for one head"), bars, key, notes, aside);
  const reasons = el("ul", { class: "sh-reasons" });
  const why = el("div", { class: "sh-result" }, el("p", { class: "sh-head" }, "Why not another kernel"), reasons);
  const proof = el("p", { class: "sh-label" });
  const shelf = el("div", { class: "sh-chips", role: "group", "aria-label": "Presets" }, el("span", { class: "sh-label" }, "Models and cases:"));
  const chips = presets.map((preset) => el("button", { type: "button", class: "sh-chip", "data-preset": preset.name,
    onclick: () => assign(model, preset.state) }, preset.name));
  shelf.append(...chips);
  const note = el("p", { class: "sh-label sh-note" });
  host.append(hatch, status, fit, chart, why, proof, shelf, note);
  if (asked) host.prepend(asked);

  let offered = "";

  /** One bar: useful columns, zeros up to the padded size, the rest of the compiled width. */
  function bar({ label, d, padded, width, most, colour, told, runs }) {
    const part = (kind, from, to) => svg("rect", { x: `${(100 * from) / most}%`, y: 0, width: `${(100 * (to - from)) / most}%`, height: "100%",
      class: `sh-part sh-${kind}`, ...(kind === "useful" && colour ? { style: `fill: ${colour}` } : {}), ...(kind === "zeros" ? { fill: `url(#${id})` } : {}) });
    const parts = [];
    if (width) {
      if (width > padded) parts.push(part("rest", padded, width));
      if (padded > d) parts.push(part("zeros", d, padded));
      parts.push(part("useful", 0, d));
    }
    return el("div", { class: "sh-bar", "data-runs": runs, "data-label": label, "data-width": width ?? "" },
      el("span", { class: "sh-bar-name" }, ...(runs ? [el("strong", {}, runs), " ", label] : [label])),
      svg("svg", { class: "sh-columns", "aria-hidden": "true" }, ...parts),
      el("span", { class: "sh-bar-told" }, told));
  }

  /** A source: what can be looked up as a link, what else is said of it as it is. */
  function cite(text, address) {
    const [name, ...more] = text.split("; ");
    return address ? [el("a", { href: address }, name), ...more.map((words) => `; ${words}`)] : [text];
  }

  function nearest(d_model, num_heads) {
    const { below, above } = neighbours(d_model, num_heads, limits.num_heads[1]);
    const left = d_model % num_heads;
    return [
      ...[below, above].filter((n) => n !== null).map((n) => ({ num_heads: n })),
      ...[d_model - left, d_model - left + num_heads].filter((n) => n >= 1 && n <= limits.d_model[1]).map((n) => ({ d_model: n })),
    ];
  }

  function update() {
    const now = Object.fromEntries(traits.map((name) => [name, model.get(name)]));
    const { d_model, num_heads } = now;
    const d = Math.floor(d_model / num_heads);
    const left = d_model - d * num_heads;
    const where = ["torch", "device", "dtype", "mask", "mode"].map((name) => `${name === "torch" ? "torch " : ""}${options[name][now[name]]}`).join(", ");

    misfit.hidden = left === 0;
    const ways = left === 0 ? [] : nearest(d_model, num_heads);
    const wanted = JSON.stringify(ways);
    if (left) {
      say(misfit, d
        ? `No whole d_head: ${grouped(d_model)} = ${num_heads} × ${grouped(d)} + ${left}. What follows is for d_head = ${grouped(d)}, with ${left === 1 ? "1 column" : `${left} columns`} left over.`
        : `No d_head: ${d_model === 1 ? "1 column" : `${grouped(d_model)} columns`} cannot give ${num_heads} heads even one column each.`);
    }
    if (wanted !== offered) {
      offered = wanted;
      const hadFocus = moves.contains(document.activeElement);
      moves.replaceChildren(...(ways.length ? [el("span", { class: "sh-label" }, "Nearest that divide:")] : []), ...ways.map((values) => {
        const [[name, value]] = Object.entries(values);
        return el("button", { type: "button", class: "sh-chip", "data-move": JSON.stringify(values), onclick: () => assign(model, values) }, `${name} = ${value}`);
      }));
      if (hadFocus) (moves.querySelector("button") ?? chips[0]).focus();
    }
    moves.hidden = ways.length === 0;

    const found = d ? answer(d, now) : null;
    chart.hidden = why.hidden = proof.hidden = !found;
    Object.assign(host.dataset, { dHead: d, backend: found?.backend ?? "", dKernel: found?.width ?? "", bucket: found?.bucket ?? "", evidence: !found ? "" : found.checked ? "table" : "rules" });
    if (found) {
      const { backend, bucket } = found;
      const device = devices[now.device];
      const kind = device === "mps" || (device === "cpu" && backend === "FLASH") ? device : backend;
      say(short, `${backend} is selected for d_head = ${grouped(d)}${left ? `, the whole part of ${grouped(d_model)} / ${num_heads}` : ""}: `);
      say(long, `${bucket
        ? bucket === d ? `its kernel is compiled for exactly ${d} columns, nothing is padding.` : `its kernel is compiled for ${bucket} columns, ${percent(d / bucket)} of them useful.`
        : unpadded[kind].status} ${where}.`);
      say(notes, found.notes.join(" "));

      const entries = table.widths.map((kernel) => ({ ...kernel, width: widthOf(kernel, d, now.torch, now.device) }));
      const most = Math.max(d, ...entries.map((entry) => entry.width ?? 0));
      const colour = colours[backend];
      const rows = [];
      if (!bucket) rows.push(bar({ label: "as it is selected", d, padded: d, width: d, most, colour, told: unpadded[kind].bar, runs: backend }));
      for (const { name, label, width: own } of entries) {
        const runs = name === "FA2" && bucket !== null ? backend : null;
        rows.push(bar({
          label: runs ? `in torch ${options.torch[now.torch]}` : label.replace("{torch}", options.torch[now.torch]), d, padded: name === "FA2" ? Math.min(8 * Math.ceil(d / 8), own ?? d) : d, width: own, most, runs,
          colour: runs ? colour : null,
          told: own === null ? "does not take it" : own === d ? `${grouped(own)}: exact` : `${grouped(d)} of ${grouped(own)}: ${percent(d / own)}`,
        }));
      }
      bars.replaceChildren(...rows);

      reasons.replaceChildren(
        el("li", { "data-backend": backend, class: "sh-chosen" }, el("strong", {}, `✓ ${backend}`), " is the first in PyTorch’s list that accepts the call."),
        ...found.others.map(({ name, refusals }) => el("li", { "data-backend": name },
          el("strong", {}, `${refusals.every(({ ranked }) => ranked) ? "–" : "✗"} ${name}`), ": ",
          ...refusals.map(({ reason, source: [text, address], versions }) => el("span", { class: "sh-because" },
            el("span", { class: "sh-why" }, reason), " ",
            el("span", { class: "sh-source" }, ...cite(text, address), versions ? ` (torch ${versions.replace("torch ", "")})` : ""))))));
      say(proof, evidence[found.checked ? "table" : "rules"]);
    } else {
      say(short, `No d_head, no kernel: `);
      say(long, `${grouped(d_model)} / ${num_heads} is less than one column.`);
    }
    const current = presets.find((preset) => Object.entries(preset.state).every(([name, value]) => now[name] === value));
    chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(presets[i] === current)));
    say(note, current ? current.note : "");
  }

  const events = traits.map((name) => `change:${name}`).join(" ");
  model.on(events, update);
  const unGrow = growOnly(status, fit, chart, why, note);
  update();
  let unLink = () => {};
  settle(host, "fastpath", asked).then((root) => {
    unLink = linkState(model, "fastpath", Object.fromEntries(traits.map((name) => [name, name in options ? "index" : "int"])), limits, root);
  });
  return () => {
    model.off(events, update);
    unGrow();
    unLink();
    asked?.remove();
  };
}

export default { render };
