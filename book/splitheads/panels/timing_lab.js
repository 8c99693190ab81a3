// The timing lab's panel: the shared view, the opening question, and the state in the address.
import { el, opening, settle, linkState, onSite } from "./kit.js";
import { timingView } from "./timing_view.js";

function render({ model, el: host }) {
  const site = onSite();
  const told = (parts) => parts.map(([kind, text]) => (kind === "code" ? el("code", {}, text) : text));
  const view = timingView(model, host, {
    measures: !site,
    none: site ? model.get("none") : "Press Run to measure on this machine.",
    silent: "the kernel is in a long call, or gone. What has arrived stays.",
    how: site
      ? ["This page has no Python, so it cannot measure: Run, Stop and Save are in the notebook. ", ...told(model.get("how"))]
      : ["Without a notebook: ", ...told(model.get("how").slice(-2))],
  });
  const asked = opening(model);
  if (asked) host.prepend(asked);
  let unLink = () => {};
  settle(host, "timing", asked).then((root) => { unLink = linkState(view.address, "timing", view.kinds, {}, root); });
  return () => {
    view.stop();
    unLink();
    asked?.remove();
  };
}

export default { render };
