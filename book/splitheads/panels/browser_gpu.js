// The browser-GPU panel until the reader comes to it: the question, the widths in words, and room for the rest.
import { el, say, percent, opening, settle, linkState, loadPart } from "./kit.js";

const NAMES = { buckets: "in buckets", "power of two": "as a power of two" };

/** What compiling for certain widths does to this head size, in words: it is known before anything is measured. */
const predicted = (widths, d) => Object.entries(widths).map(([name, table]) =>
  `${table[d - 1]} ${NAMES[name] ?? name} (${percent(d / table[d - 1])} useful)`).join(", ");

function render({ model, el: host }) {
  host.classList.add("sh-view", "sh-webgpu");
  const [head, rest] = [el("strong"), el("span")];
  const status = el("p", { role: "status", class: "sh-status" }, head, rest);
  const waiting = el("p", { class: "sh-waiting sh-label" }, "The chart and the kernels are loaded when you come here.");
  const stage = el("div", { class: "sh-stage" }, waiting);
  const asked = opening(model);
  host.append(status, stage);
  if (asked) host.prepend(asked);

  function update() {
    const d = model.get("d_head");
    say(head, `d_head = ${d}: `);
    say(rest, `compiled width ${predicted(model.get("widths"), d)}.`);
  }
  model.on("change:d_head", update);
  update();

  const again = el("button", { type: "button", class: "sh-chip", onclick: load }, "Try again");
  let running = null; // what the later part has given
  let wanted = false;
  let left = false;
  const events = ["focusin", "pointerdown"];
  const room = new IntersectionObserver((entries) => { if (entries.some(({ isIntersecting }) => isIntersecting)) load(); }, { rootMargin: "250px" });
  function load(event) {
    if (wanted) return;
    const pressed = event?.currentTarget === again; // the keyboard's place is not lost with this button
    wanted = true;
    room.disconnect();
    loadPart(model, "browser_gpu_part", KIT).then(({ stageView }) => {
      if (left) return;
      waiting.remove();
      running = stageView(model, stage, () => loadPart(model, "browser_gpu_bench", KIT));
      host.dataset.loaded = "";
      if (pressed) stage.querySelector("button")?.focus({ preventScroll: true });
    }, (error) => {
      wanted = false;
      waiting.replaceChildren(`${error.message} The widths above need nothing else. `, again);
      if (pressed) again.focus({ preventScroll: true });
    });
  }
  let root = null;
  let unLink = () => {};
  settle(host, "webgpu", asked).then((found) => {
    if (left) return;
    root = found;
    const menus = ["sizes", "kernels", "seq_len", "dtype", "seconds"];
    const places = Object.fromEntries([...menus.map((name) => [name, [0, model.get("menus")[name].length - 1]]), ["plot", [0, model.get("plots").length - 1]]]);
    unLink = linkState(model, "webgpu", { d_head: "int", ...Object.fromEntries(Object.keys(places).map((name) => [name, "index"])) },
      { d_head: [1, model.get("widths").buckets.length], ...places }, root);
    events.forEach((event) => root.addEventListener(event, load));
    room.observe(stage);
    addEventListener("beforeprint", load);
  });
  return () => {
    left = true;
    model.off("change:d_head", update);
    room.disconnect();
    events.forEach((event) => root?.removeEventListener(event, load));
    removeEventListener("beforeprint", load);
    running?.stop();
    unLink();
    asked?.remove();
  };
}

export default { render };
