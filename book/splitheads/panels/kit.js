// What every panel shares: elements, the opening question, the status line, state in the URL.
// `panels/kit.py` puts this text in front of each view, so a view stays one self-contained module
// (a widget's `_esm` is loaded from a blob, where a relative import has nothing to be relative to).

/** True on the built site, false in a notebook (the site's widget runtime sets the flag). */
export const onSite = () => document.documentElement.hasAttribute("data-splitheads-site");

/** el("p", {class: "x", onclick: f}, "text", child) */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

/** svg("rect", {x: 0}): the same for drawings; event listeners are added by hand. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) if (value != null) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** 16384 -> "16,384": long numbers are read in threes. */
export const grouped = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** A share in whole per cent, halves to the even number as Python rounds, the sign kept beside it: 0.625 -> "62 %". */
export function percent(share) {
  const [value, half] = [100 * share, Math.floor(100 * share) + 0.5];
  return `${value === half ? 2 * Math.round(value / 2) : Math.round(value)}\u00a0%`;
}

/** The nearest legal head counts strictly below and above, at most `max`; null where there is none. */
export function neighbours(dModel, numHeads, max) {
  let below = null;
  let above = null;
  for (let h = Math.min(numHeads - 1, dModel); h >= 1 && below === null; h--) if (dModel % h === 0) below = h;
  for (let h = numHeads + 1; h <= Math.min(dModel, max) && above === null; h++) if (dModel % h === 0) above = h;
  return { below, above };
}

/** Set traits from the page; the kernel hears of it where there is one. */
export function assign(model, values) {
  for (const [key, value] of Object.entries(values)) model.set(key, value);
  model.save_changes();
}

/** Replace a node's text only if it differs, so that a live region does not repeat itself. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * The opening question. Choosing an option locks it; the choice, the outcome and the reason for
 * every option then stay on screen. Nothing waits for it: a reader may skip it.
 *
 * spec: {prompt, options: [{label, why, right?}], outcome?: {trait: value}}
 */
export function question(spec, onLock = () => {}) {
  const verdict = el("div", { class: "sh-verdict", "aria-live": "polite" });
  const right = spec.options.find((option) => option.right);
  const buttons = spec.options.map((option) =>
    el("button", { type: "button", class: "sh-option", onclick: () => lock(option) }, option.label));
  function lock(chosen) {
    if (node.hasAttribute("data-locked")) return;
    node.setAttribute("data-locked", chosen.right ? "right" : "wrong");
    buttons.forEach((button, i) => {
      const option = spec.options[i];
      button.setAttribute("aria-disabled", "true");
      if (option.right) button.append(el("span", { class: "sh-mark" }, " ✓ right"));
      else if (option === chosen) button.append(el("span", { class: "sh-mark" }, " ✗"));
      if (option === chosen) button.setAttribute("aria-pressed", "true");
    });
    const head = chosen.right
      ? `You said “${chosen.label}”, and so it is. `
      : `You said “${chosen.label}”; it is “${right.label}”. `;
    verdict.append(el("p", {}, el("strong", {}, head), chosen.why));
    const others = spec.options.filter((option) => option !== chosen);
    verdict.append(el("ul", {}, ...others.map((option) =>
      el("li", {}, el("strong", {}, `${option.label}: `), option.why))));
    onLock(chosen);
  }
  const node = el("div", { class: "sh-question", role: "group", "aria-label": "Predict first" },
    el("p", { class: "sh-prompt" }, el("span", { class: "sh-tag" }, "Predict first"), " ", spec.prompt),
    el("div", { class: "sh-options" }, ...buttons), verdict);
  return node;
}

/** A panel's opening question, from its trait; null where it asks none. Locked, it sets the outcome's state, or hands it to `show`. */
export function opening(model, show = (outcome) => assign(model, outcome)) {
  const spec = model.get("question");
  return spec.prompt ? question(spec, () => spec.outcome && show(spec.outcome)) : null;
}

/**
 * Mark the panel's outermost box once it is on the page, and put the question above its controls.
 * Returns the box, or the view's own element where the view is shown alone.
 */
export function settle(host, name, asked) {
  const place = () => {
    const root = host.closest(".sh-panel") ?? host;
    root.dataset.panel = name;
    if (asked) root.prepend(asked);
    // The printed default state has done its work once the live panel stands beside it.
    const area = root.closest(".cell_output, .jp-OutputArea, .cell-output-ipywidget-background");
    area?.querySelectorAll(`.sh-twin[data-twin="${name}"]`).forEach((twin) => { twin.hidden = true; });
    root.dataset.live = "";
    return root;
  };
  if (host.isConnected) return Promise.resolve(place());
  return new Promise((resolve) => {
    const wait = () => (host.isConnected ? resolve(place()) : requestAnimationFrame(wait));
    requestAnimationFrame(wait);
  });
}

/** Characters of a text that an address may carry: programs that pass links on cut longer ones. */
export const TEXT_LIMIT = 3000;

/** "#partition?d_model=768&num_heads=12" -> {d_model: 768, num_heads: 12}; null if not for `name`. Names of texts too long go to `lost`. */
export function readFragment(name, kinds, hash = location.hash, lost = []) {
  // Some programs that pass links on write the question mark as %3F, and what follows it likewise.
  if (/^#[a-z]+%3F/i.test(hash)) {
    hash = hash.replace(/%3F/i, "?").replace(/(\?|&|%26)(\w+)(?:=|%3D)/gi, (all, mark, key) => (key in kinds ? `${mark === "?" ? "?" : "&"}${key}=` : all));
  }
  if (hash === `#${name}`) return {};
  if (!hash.startsWith(`#${name}?`)) return null;
  const values = {};
  for (const [key, raw] of new URLSearchParams(hash.slice(name.length + 2))) {
    const kind = kinds[key];
    if ((kind === "int" || kind === "index") && /^\d{1,9}$/.test(raw)) values[key] = Number(raw);
    else if (Array.isArray(kind) && kind.includes(raw)) values[key] = raw;
    else if (kind === "text" && raw.length <= TEXT_LIMIT) values[key] = raw;
    else if (kind === "text") lost.push(key);
  }
  return values;
}

/** The fragment that `readFragment` reads. A text that is too long for an address is left out. */
export function fragment(model, name, kinds) {
  const values = Object.keys(kinds).map((key) => [key, String(model.get(key))])
    .filter(([key, value]) => kinds[key] !== "text" || value.length <= TEXT_LIMIT);
  return values.length ? `#${name}?${new URLSearchParams(values)}` : `#${name}`;
}

/**
 * Keep a panel's state in the URL fragment, on the site only: a notebook's address is not ours.
 * kinds: {trait: "int" | "index" | "text" | [allowed strings]}; bounds: {trait: [low, high]}. A slider's number is brought
 * within its bounds; a place in a select that has no such place is ignored. `arrived` hears of each address that has a state:
 * its values, and the names of texts in it that are too long to be read.
 */
export function linkState(model, name, kinds, bounds, root, arrived = () => {}) {
  if (!onSite()) return () => {};
  const clamp = (values) => Object.fromEntries(Object.entries(values).map(([key, value]) =>
    bounds[key] ? [key, Math.min(Math.max(value, bounds[key][0]), bounds[key][1])] : [key, value])
    .filter(([key, value]) => kinds[key] !== "index" || value === values[key]));
  const arrive = () => {
    window.splitheadsHash = location.hash;
    const lost = [];
    const values = readFragment(name, kinds, location.hash, lost);
    if (!values) return;
    assign(model, clamp(values));
    const state = Object.keys(values).length + lost.length > 0;
    if (state) arrived(values, lost);
    // Who was sent a state wants to see it: what comes first behind the opening question is shown, not the question.
    const asked = root.querySelector(":scope > .sh-question");
    if (!returning) ((state && asked?.nextElementSibling) || root).scrollIntoView({ block: "start" });
  };
  // Somebody who comes back is taken to where they were, by the browser.
  let returning = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
  let timer;
  const leave = () => {
    clearTimeout(timer);
    // Browsers limit how often a page may rewrite its address, so wait for the hand to rest.
    timer = setTimeout(() => {
      const hash = fragment(model, name, kinds);
      // An address that neither panel has seen is a reader's, on its way to `arrive`: leave it alone.
      if (hash === location.hash || location.hash !== window.splitheadsHash) return;
      // A place on the page that the reader went to stays in the history; a panel's state is rewritten.
      const place = location.hash && !/^#[a-z]+(\?|%3F)/i.test(location.hash);
      history[place ? "pushState" : "replaceState"](history.state, "", hash);
      window.splitheadsHash = hash;
    }, 300);
  };
  arrive();
  returning = false;
  // Only changes made after arrival are the reader's own.
  const events = Object.keys(kinds).map((key) => `change:${key}`).join(" ");
  model.on(events, leave);
  addEventListener("hashchange", arrive);
  return () => {
    clearTimeout(timer);
    model.off(events, leave);
    removeEventListener("hashchange", arrive);
  };
}

/** Run `draw` before the next frame, once, however many changes ask for it. */
export function perFrame(draw) {
  let asked = 0;
  return () => { asked ||= requestAnimationFrame(() => { asked = 0; draw(); }); };
}

/**
 * Let nodes grow with their contents and never shrink again at the same width: what lies below a
 * panel stays where it is while a slider moves, and the browser need not paint it anew.
 */
export function growOnly(...nodes) {
  const widths = new Map();
  const observer = new ResizeObserver((entries) => {
    for (const { target, borderBoxSize: [{ inlineSize: width, blockSize: height }] } of entries) {
      const anew = widths.get(target) !== width;
      if (anew) target.style.minHeight = "";
      target.style.minHeight = `${anew ? target.getBoundingClientRect().height : height}px`;
      widths.set(target, width);
    }
  });
  nodes.forEach((node) => {
    // The observer tells the border box: as a minimum of the content alone, paddings would add up without end.
    node.style.boxSizing = "border-box";
    observer.observe(node);
  });
  return () => observer.disconnect();
}

/** Redraw when the reader switches between light and dark, on the site or in a notebook. */
export function onTheme(redraw) {
  const observer = new MutationObserver(redraw);
  for (const node of [document.documentElement, document.body]) {
    observer.observe(node, { attributes: true, attributeFilter: ["data-theme", "data-jp-theme-name", "class"] });
  }
  return () => observer.disconnect();
}

const partsOnTheirWay = new Map();
/** A part of a lazy view that is loaded when it is needed (see `part` in kit.py): what its module exports. */
export function loadPart(model, name, kit) {
  const file = model.get("later_files")[name];
  const key = file ?? model.get("later")[name];
  if (!partsOnTheirWay.has(key)) {
    partsOnTheirWay.set(key, new Promise((done, failed) => {
      const src = file ?? URL.createObjectURL(new Blob([key], { type: "text/javascript" }));
      const script = el("script", { src, onload: () => done(globalThis.splitheadsParts[name]), onerror: () => {
        partsOnTheirWay.delete(key); // it may be there the next time
        failed(new Error("The rest of this panel could not be loaded: is the connection gone?"));
      } });
      document.head.append(script);
    }));
  }
  return partsOnTheirWay.get(key).then((start) => start(kit));
}
