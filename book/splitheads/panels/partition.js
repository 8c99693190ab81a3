// The width cut into heads: one bar of d_model columns, each head in its colour, leftovers hatched.
import { el, grouped, neighbours, assign, say, opening, settle, linkState, perFrame, onTheme, growOnly } from "./kit.js";

/** The arithmetic that every frame needs. Python's HeadSplit decides the same; a test walks both. */
export function split(dModel, numHeads) {
  const whole = Math.floor(dModel / numHeads);
  return { whole, left: dModel - whole * numHeads, legal: dModel % numHeads === 0 };
}

/** The result in words: what it is first, then why. */
export function sentence(dModel, numHeads) {
  const { whole, left, legal } = split(dModel, numHeads);
  const d = grouped(dModel);
  const heads = numHeads === 1 ? "1 head" : `${numHeads} heads`;
  const columns = (n) => (n === 1 ? "1 column" : `${grouped(n)} columns`);
  if (legal) return [`d_head = ${grouped(whole)}`, `${columns(dModel)} cut into ${heads} of ${columns(whole)} each.`];
  if (whole === 0) return ["no d_head", `${columns(dModel)} cannot give ${heads} even one column each.`];
  return ["no whole d_head", `${d} = ${numHeads} × ${grouped(whole)} + ${left}, so ${columns(left)} would be left over.`];
}

function bar(canvas, dModel, numHeads, colours, onHead) {
  const { whole, left } = split(dModel, numHeads);
  const style = getComputedStyle(canvas);
  const [ink, quiet, paper, bad] = ["ink", "quiet", "paper", "bad"].map((name) => style.getPropertyValue(`--sh-${name}`).trim());
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  const top = 22;
  const tall = height - 46;
  const at = (column) => 1 + (column / dModel) * (width - 2);
  const font = (size, weight = 400) => `${weight} ${size}px ${style.fontFamily}`;
  g.textBaseline = "middle";
  g.textAlign = "center";
  const chunk = ((width - 2) * whole) / dModel;
  for (let head = 0; whole > 0 && head < numHeads; head++) {
    const x = at(head * whole);
    g.fillStyle = colours[head % colours.length];
    g.fillRect(x, top, chunk, tall);
    if (chunk >= 18) {
      g.fillStyle = onHead;
      g.font = font(Math.min(15, chunk / 1.6), 600);
      g.fillText(String(head), x + chunk / 2, top + tall / 2 - (chunk >= 46 ? 9 : 0));
      if (chunk >= 46) {
        g.font = font(12);
        g.fillText(chunk >= 84 ? `${grouped(whole)} columns` : grouped(whole), x + chunk / 2, top + tall / 2 + 10);
      }
    }
  }
  if (chunk > 3) {
    // All cuts in one path: a stroke for each of 256 heads would cost most of a frame.
    g.beginPath();
    for (let cut = 1; cut <= numHeads; cut++) {
      g.moveTo(at(cut * whole), top);
      g.lineTo(at(cut * whole), top + tall);
    }
    g.strokeStyle = onHead;
    g.lineWidth = 1;
    g.stroke();
  }
  if (left > 0) {
    const x = at(dModel - left);
    const w = Math.max(at(dModel) - x, 2);
    g.save();
    g.beginPath();
    g.rect(x, top - 6, w, tall + 12);
    g.fillStyle = paper;
    g.fill();
    g.clip();
    g.strokeStyle = bad;
    g.lineWidth = 2;
    for (let s = x - tall; s < x + w + 12; s += 7) {
      g.beginPath();
      g.moveTo(s, top + tall + 6);
      g.lineTo(s + tall + 12, top - 6);
      g.stroke();
    }
    g.restore();
    g.strokeStyle = bad;
    g.lineWidth = 2;
    g.strokeRect(x, top - 5, w - 1, tall + 10);
    g.fillStyle = bad;
    g.font = font(12, 600);
    const words = `${grouped(left)} left over`;
    const half = g.measureText(words).width / 2;
    g.fillText(words, Math.max(half, Math.min(width - half, x + w / 2)), 8);
  }
  // Column numbers under the cuts, as many as fit, at even steps; the width itself at the end.
  g.fillStyle = quiet;
  g.font = font(12);
  const last = grouped(dModel);
  const wide = g.measureText(last).width;
  const every = Math.ceil((wide + 8) / chunk);
  g.textAlign = "right";
  g.fillText(last, width, height - 10);
  g.textAlign = "left";
  if (whole > 0) g.fillText("0", 0, height - 10);
  g.textAlign = "center";
  for (let cut = every; whole > 0 && at(cut * whole) + wide / 2 < width - wide - 8; cut += every) {
    g.fillText(grouped(cut * whole), at(cut * whole), height - 10);
  }
  g.strokeStyle = ink;
  g.lineWidth = 1;
  g.strokeRect(0.5, top - 0.5, width - 1, tall + 1);
}

function render({ model, el: host }) {
  host.classList.add("sh-view");
  const limits = model.get("limits"); // {d_model: [low, high], num_heads: [low, high]}
  const colours = model.get("palette");
  const presets = model.get("presets");
  const asked = opening(model);

  const status = el("p", { role: "status", class: "sh-status" });
  const short = el("strong");
  const long = el("span");
  status.append(short, long);
  const canvas = el("canvas", { class: "sh-figure", role: "img", style: "height: 124px" });
  const error = el("div", { class: "sh-error", hidden: true });
  const legal = el("div", { class: "sh-chips", role: "group", "aria-label": "Head counts and widths that divide" });
  const note = el("p", { class: "sh-label" });
  const shelf = el("div", { class: "sh-chips", role: "group", "aria-label": "Presets" },
    el("span", { class: "sh-label" }, "Real models and one real bug:"));
  const chips = presets.map((preset) =>
    el("button", { type: "button", class: "sh-chip", "data-preset": preset.name,
      onclick: () => assign(model, { d_model: preset.d_model, num_heads: preset.num_heads }) },
    `${preset.name}: ${preset.d_model} / ${preset.num_heads}`));
  shelf.append(...chips);
  const result = el("div", { class: "sh-result" }, error, legal);
  host.append(status, canvas, result, shelf, note);
  if (asked) host.prepend(asked);

  const paint = perFrame(() => bar(canvas, model.get("d_model"), model.get("num_heads"), colours, model.get("on_head")));
  let shown = "";

  function move(label, values) {
    return el("button", { type: "button", class: "sh-chip", "data-move": JSON.stringify(values),
      onclick: () => assign(model, values) }, label);
  }

  function update() {
    const d = model.get("d_model");
    const h = model.get("num_heads");
    const { whole, left, legal: fits } = split(d, h);
    const [what, why] = sentence(d, h);
    say(short, `${what}: `);
    say(long, why);
    host.dataset.dHead = fits ? whole : "";
    host.dataset.leftOver = left;
    canvas.setAttribute("aria-label", fits
      ? `A bar of ${d} columns cut into ${h} equal chunks, one colour per head.`
      : `A bar of ${d} columns: ${h} chunks of ${whole}, and ${left} hatched columns left over.`);
    error.hidden = fits;
    if (!fits) {
      const fill = (text) => text.replaceAll("{d_model}", d).replaceAll("{num_heads}", h).replaceAll("{whole}", whole);
      error.replaceChildren(...model.get("errors").map(({ call, text }) =>
        el("div", {}, el("code", {}, fill(call)), " → ", el("code", {}, fill(text)))));
    }
    const { below, above } = neighbours(d, h, limits.num_heads[1]);
    const moves = [];
    if (below !== null) moves.push(move(`num_heads = ${below}`, { num_heads: below }));
    if (above !== null) moves.push(move(`num_heads = ${above}`, { num_heads: above }));
    if (!fits) {
      for (const width of [d - left, d - left + h]) {
        if (width >= limits.d_model[0] && width <= limits.d_model[1] && width > 0) {
          moves.push(move(`d_model = ${width}`, { d_model: width }));
        }
      }
    }
    // Rebuild the buttons only when they differ, so that a focused one survives other changes.
    const key = `${fits} ${moves.map((button) => button.dataset.move).join()}`;
    if (key !== shown) {
      shown = key;
      const hadFocus = legal.contains(document.activeElement);
      const words = fits ? `Next head counts that divide ${grouped(d)}:` : "Nearest that divide:";
      legal.replaceChildren(el("span", { class: "sh-label" }, words), ...moves);
      if (hadFocus) legal.querySelector("button")?.focus();
    }
    const current = presets.find((preset) => preset.d_model === d && preset.num_heads === h);
    chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(presets[i] === current)));
    say(note, current ? current.note : "");
    paint();
  }

  model.on("change:d_model change:num_heads", update);
  const unTheme = onTheme(paint);
  const unGrow = growOnly(status, result, note);
  const sizes = new ResizeObserver(paint);
  sizes.observe(canvas);
  update();
  let unLink = () => {};
  settle(host, "partition", asked).then((root) => {
    unLink = linkState(model, "partition", { d_model: "int", num_heads: "int" }, limits, root);
  });
  return () => {
    model.off("change:d_model change:num_heads", update);
    unTheme();
    unGrow();
    sizes.disconnect();
    unLink();
    asked?.remove();
  };
}

export default { render };
