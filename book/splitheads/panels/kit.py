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


def esm(name: str, *shared: str) -> str:
    """The view `name`.js with the kit (and the `shared` modules) in front of it, as one self-contained ES module.

    The imports from `./kit.js` and from the shared modules are dropped and what these export become
    plain declarations, because a widget's module is loaded from a blob: there is no file beside it.
    """
    return "\n".join([*(_plain(_text(part), part) for part in ("kit", *shared)), _bare(_text(name), name)])


EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) )", flags=re.M)
NEEDS_NO_KIT = ("kit", "gpu_absent", "flash_wgsl")
"""Modules that draw nothing."""


def _text(name: str) -> str:
    return (HERE / f"{name}.js").read_text("utf8")


def _bare(text: str, name: str) -> str:
    """A module without its imports from the modules beside it."""
    text, imports = re.subn(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', "", text, flags=re.M)
    if imports == 0 and name not in NEEDS_NO_KIT:
        raise ValueError(f"{name}.js imports nothing from ./kit.js: is that its place?")
    return text


def _plain(text: str, name: str) -> str:
    return EXPORT.sub("", _bare(text, name))


def exported(name: str) -> list[str]:
    """What `name`.js exports."""
    return re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", _text(name), flags=re.M)


def part(name: str, *shared: str, before: str = "") -> str:
    """What a `LazyView` loads later: a classic script, because a page that was opened from a file may load no module.

    It leaves `splitheadsParts[name]`, a function that takes the kit, which the view has already, and gives what
    `name`.js exports. `before` is put in front of the modules.
    """
    modules = "\n".join(_plain(_text(module), module) for module in (*shared, name))
    return (
        f'(globalThis.splitheadsParts ??= {{}})["{name}"] = ({{ {", ".join(exported("kit"))} }}) => {{\n'
        f"{before}{modules}\nreturn {{ {', '.join(exported(name))} }};\n}};\n"
    )


def css(*names: str) -> str:
    """The kit's style sheet, followed by each `name`.css where the view has one of its own."""
    files = [HERE / "kit.css", *(path for name in names if (path := HERE / f"{name}.css").exists())]
    return "".join(path.read_text("utf8") for path in files)


class View(anywidget.AnyWidget):
    """Base of all views: the palette, and the opening question (see `question`)."""

    palette = traitlets.List(list(HEADS)).tag(sync=True)
    on_head = traitlets.Unicode(ON_HEAD).tag(sync=True)
    question = traitlets.Dict({}).tag(sync=True)


class LazyView(View):
    """A view that draws little until the reader comes to it, and then loads a `part` (see `loadPart` in kit.js).

    In a notebook the texts of its parts travel with the view. For the site they are taken out of the page and become
    files, which `later_files` names (see _ext/splitheads_site.py).
    """

    later = traitlets.Dict({}).tag(sync=True)
    later_files = traitlets.Dict({}).tag(sync=True)


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

    `controls` are reachable as attributes by their description: `panel.num_heads.value`. A box among
    them (see `choices`) is a row: what it holds are the controls.
    """

    def __init__(self, name: str, controls: list[ipywidgets.Widget], view: View, twin: str) -> None:
        super().__init__(children=[*controls, view])
        self.add_class("sh-panel")
        self.view = view
        flat = [one for c in controls for one in (c.children if isinstance(c, ipywidgets.Box) else [c])]
        self._named = {c.description: c for c in flat if getattr(c, "description", "")}
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


def choices(*controls: ipywidgets.Widget) -> ipywidgets.Box:
    """A row of selection controls that wraps, each with its name above it: little room, also on a phone."""
    for control in controls:
        control.layout = ipywidgets.Layout(width="auto", flex="1 1 7.2rem")
    row = ipywidgets.Box(controls, layout=ipywidgets.Layout(display="flex", flex_flow="row wrap", width="100%"))
    row.add_class("sh-choices")
    return row


def link(control: ipywidgets.Widget, view: View, trait: str, of: str = "value") -> None:
    """Join a control's value to a view's trait in the page, both ways, kernel or not.

    Selection controls keep their value in Python; what they share with the page is `of="index"`.
    """
    start = getattr(control, of)
    if getattr(view, trait) != start:
        raise ValueError(f"{trait}: the control starts at {start!r}, the view at {getattr(view, trait)!r}")
    ipywidgets.jslink((control, of), (view, trait))
