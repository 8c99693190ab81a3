"""What every panel is built from: real ipywidgets controls, an anywidget view, a printed twin.

A panel is an `ipywidgets.VBox`. Its controls are joined to its view by `jslink`, which lives in
the page: the same panel moves in a notebook and on the static site, where no kernel runs.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import anywidget
import ipywidgets
import traitlets
from IPython.display import HTML, display

from ..palette import HEADS, ON_HEAD

HERE = Path(__file__).parent


def esm(name: str) -> str:
    """The view `name`.js with the kit in front of it, as one self-contained ES module.

    The view's `import ... from "./kit.js"` is dropped and the kit's exports become plain
    declarations, because a widget's module is loaded from a blob: there is no file beside it.
    """
    kit = re.sub(r"^export (?=(?:const|function) )", "", (HERE / "kit.js").read_text("utf8"), flags=re.M)
    view, imports = re.subn(
        r'^import \{[^}]*\} from "\./kit\.js";\n', "", (HERE / f"{name}.js").read_text("utf8"), flags=re.M
    )
    if imports != 1:
        raise ValueError(f"{name}.js must import from ./kit.js exactly once, and does so {imports} times")
    return f"{kit}\n{view}"


def css(name: str | None = None) -> str:
    """The kit's style sheet, followed by `name`.css where the view has one of its own."""
    own = HERE / f"{name}.css" if name else None
    return (HERE / "kit.css").read_text("utf8") + (own.read_text("utf8") if own and own.exists() else "")


class View(anywidget.AnyWidget):
    """Base of all views: the palette, and the opening question (see `question`)."""

    palette = traitlets.List(list(HEADS)).tag(sync=True)
    on_head = traitlets.Unicode(ON_HEAD).tag(sync=True)
    question = traitlets.Dict({}).tag(sync=True)


def question(prompt: str, options: dict[str, str], answer: str, outcome: dict | None = None) -> dict:
    """An opening question. `options` maps each label to its explanation; `answer` is one label.

    `outcome` names the traits that the view takes on once the reader has locked a prediction.
    """
    if answer not in options:
        raise ValueError(f"answer {answer!r} is not among the options {list(options)}")
    spec: dict = {
        "prompt": prompt,
        "options": [{"label": label, "why": why, "right": label == answer} for label, why in options.items()],
    }
    if outcome:
        spec["outcome"] = outcome
    return spec


def _printed(spec: dict) -> str:
    """The opening question for readers without scripts: asked, and answered behind a native fold."""
    if not spec:
        return ""
    reasons = "".join(
        f"<li><strong>{escape(option['label'])}{' (right)' if option['right'] else ''}:</strong> {escape(option['why'])}</li>"
        for option in spec["options"]
    )
    return f"<p>{escape(spec['prompt'])}</p><details><summary>Answer</summary><ul>{reasons}</ul></details>"


class Panel(ipywidgets.VBox):
    """Controls and view in one box, with a printed twin for readers without scripts.

    `controls` are reachable as attributes by their description: `panel.num_heads.value`.
    """

    def __init__(self, name: str, controls: list[ipywidgets.Widget], view: View, twin: str) -> None:
        super().__init__(children=[*controls, view])
        self.add_class("sh-panel")
        self.view = view
        self._named = {c.description: c for c in controls if getattr(c, "description", "")}
        self._twin = f'<div class="sh-twin" data-twin="{escape(name)}">{_printed(view.question)}{twin}</div>'

    def __getattr__(self, name: str):
        named = self.__dict__.get("_named", {})
        if name in named:
            return named[name]
        raise AttributeError(
            f"this panel has no {name!r}; its controls are {', '.join(sorted(named)) or 'not made yet'}"
        )

    def _ipython_display_(self) -> None:
        display(HTML(self._twin))
        display(super()._repr_mimebundle_(), raw=True)


def link(control: ipywidgets.Widget, view: View, trait: str, of: str = "value") -> None:
    """Join a control's value to a view's trait in the page, both ways, kernel or not.

    Selection controls keep their value in Python; what they share with the page is `of="index"`.
    """
    start = getattr(control, of)
    if getattr(view, trait) != start:
        raise ValueError(f"{trait}: the control starts at {start!r}, the view at {getattr(view, trait)!r}")
    ipywidgets.jslink((control, of), (view, trait))
