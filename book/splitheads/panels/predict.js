// A prediction alone: a question, its options, and what each of them means once one is chosen.
import { question, settle } from "./kit.js";

function render({ model, el: host }) {
  host.classList.add("sh-view");
  const asked = question(model.get("question"));
  // Here the verdict is the panel's result, so it is the status line too.
  asked.querySelector(".sh-verdict").setAttribute("role", "status");
  host.append(asked);
  settle(host, "predict");
}

export default { render };
