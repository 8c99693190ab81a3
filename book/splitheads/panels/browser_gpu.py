"""Panel *browser GPU*: what each head size costs on the reader's own GPU, measured by the page itself through WebGPU.

Python gives the widths, the words and the recordings; the kernels and the clock are JavaScript, because a page has
nothing else. The view comes in three: `browser_gpu.js` is in the page; `browser_gpu_part.js`, the chart, is loaded when the
reader comes to it; `browser_gpu_bench.js`, when they press a button: the kernels (`flash_wgsl.js`), the clock (`gpu_bench.js`), and
the timing lab's own rules by which steps are found and recordings checked, translated (`browser_rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import ipywidgets
import traitlets

from .. import __version__
from ..backends import TORCH_VERSIONS, flash_bucket, power_of_two
from ..palette import BACKEND_UNKNOWN, BACKENDS, SHAPES
from ..timing.record import FOLDER
from .kit import LazyView, Panel, choices, css, esm, exported, link, part
from .kit import question as opening
from .recorded import LOOKS, summary, twin
from .timing_lab import gathered

MOST = 256
"""The widest head that a kernel is compiled for."""

POLICIES = {
    "buckets": lambda d: flash_bucket(d, TORCH_VERSIONS[-1]),
    "power of two": lambda d: max(16, power_of_two(d)),
    "exact": lambda d: -(-d // 16) * 16,
}
"""Compiled width for a head of d columns, d from 1 to `MOST`: as FlashAttention-2 in current PyTorch wheels; as
block-based compilers (a Triton block is a power of two, 16 at the least in a matrix product); the next multiple of 16."""

KERNELS = {
    "all widths, fused": ["buckets", "power of two", "exact"],
    "buckets, exact": ["buckets", "exact"],
    "buckets, unfused": ["buckets", "unfused"],
    "all four": ["buckets", "power of two", "exact", "unfused"],
}

SIZES = {
    "around the edges": [16, 32, 33, 48, 64, 65, 80, 96, 97, 112, 128],
    "16 to 128 by 16": list(range(16, 129, 16)),
    "16 to 256": [*range(16, 129, 16), 129, 160, 192, 193, 224, 256],
    "64 and yours only": [64],
}
"""Sweeps; the slider's head size is added to each. Between multiples of 16, "exact" pads, too."""

LENGTHS = ["as fits", "64", "128", "256", "512", "1024", "2048", "4096"]
DTYPES = ["fp32", "fp16"]
SECONDS = ["10", "20", "40"]
PLOTS = ["time", "throughput", "memory"]
"""Time first: in it a staircase looks like one."""

CAVEAT = (
    "This is the book’s own teaching kernel on a browser’s GPU, without tensor cores; it is not the CUDA library, and "
    "its speed says nothing about PyTorch’s. What carries over: a compiled width is paid for in full."
)

QUESTION = opening(
    "You pick d_head = 80 in place of 64, in a kernel compiled for the widths 32, 64, 96, 128, 192 and 256. If its time "
    "follows the compiled width, how much more of it does each useful operation take?",
    {
        "none": "It would, if a kernel of width 80 were compiled. This one rounds up to 96.",
        "about 1.2 times": "80 runs in the 96-wide kernel, and 96 / 80 = 1.2: a sixth of the work is done on zeros. A cost, and no "
        "cliff. Work that does not grow with the width, such as the softmax, makes it less: measure it below.",
        "about 1.5 times": "96 / 64 = 1.5 is what the whole call takes; but it does 80 / 64 times the useful work.",
        "about 1.6 times": "128 / 80 = 1.6 is what a kernel pays that rounds up to a power of two.",
    },
    answer="about 1.2 times",
)


def widths() -> dict[str, list[int]]:
    """Compiled width for each d_head from 1 to `MOST`, by policy."""
    return {name: [rule(d) for d in range(1, MOST + 1)] for name, rule in POLICIES.items()}


@cache
def later() -> dict[str, str]:
    """What the view loads when the reader comes to it, and what when they press a button."""
    from .browser_rules import rules

    return {
        "browser_gpu_part": part("browser_gpu_part", "chart", "timing_view", "gpu_absent"),
        "browser_gpu_bench": part("browser_gpu_bench", "gpu_absent", "flash_wgsl", "gpu_bench", before=rules()),
    }


class BrowserGpuView(LazyView):
    _css = css("chart", "timing_view", "browser_gpu")
    d_head = traitlets.Int(80).tag(sync=True)
    sizes = traitlets.Int(0).tag(sync=True)
    kernels = traitlets.Int(0).tag(sync=True)
    seq_len = traitlets.Int(0).tag(sync=True)
    dtype = traitlets.Int(0).tag(sync=True)
    seconds = traitlets.Int(0).tag(sync=True)
    plot = traitlets.Int(0).tag(sync=True)
    plots = traitlets.List(PLOTS).tag(sync=True)
    menus = traitlets.Dict(
        {
            "sizes": list(SIZES.values()),
            "kernels": list(KERNELS.values()),
            "seq_len": [0, *map(int, LENGTHS[1:])],
            "dtype": DTYPES,
            "seconds": [int(s) for s in SECONDS],
        }
    ).tag(sync=True)
    widths = traitlets.Dict(widths()).tag(sync=True)
    recordings = traitlets.List([]).tag(sync=True)
    notes = traitlets.List([]).tag(sync=True)
    caveat = traitlets.Unicode(CAVEAT).tag(sync=True)
    version = traitlets.Unicode(__version__).tag(sync=True)
    kinds = traitlets.Dict({k: {"colour": BACKENDS[k], "shape": SHAPES[k]} for k in SHAPES}).tag(sync=True)
    series = traitlets.Dict(LOOKS).tag(sync=True)
    unknown = traitlets.Dict({"colour": BACKEND_UNKNOWN, "shape": "cross"}).tag(sync=True)
    measured = traitlets.Dict({}).tag(sync=True)

    @property
    def _esm(self) -> str:
        return f"{esm('browser_gpu')}\nconst KIT = {{ {', '.join(exported('kit'))} }};\n"

    def __init__(self, **traits: Any) -> None:
        super().__init__(later=later(), **traits)


class BrowserGpu(Panel):
    """The panel; `recording` is what the page has measured last."""

    @property
    def recording(self) -> dict | None:
        """The latest recording made in the page, once it has arrived here; None before."""
        return self.view.measured or None


def browser_gpu(recordings: Iterable[dict | str | Path] | None = None, question: dict | None = None) -> BrowserGpu:
    """Attention timed by the page itself, on the GPU of the browser that shows it, over head sizes.

    `recordings` are shown until the reader has measured: dicts or paths of files; by default the book's own of browsers.
    `question` is the opening question (see `kit.question`), `{}` for none. From Python: `panel.d_head.value` and so
    on; `panel.recording` is the sweep that was measured last, as `splitheads.timing.load` gives it.

    Raises:
        timing.RecordError: one of the given recordings is not in order.
    """
    found, problems = gathered(recordings, FOLDER / "browser")
    told = [summary(recording, name) for name, recording in found]
    view = BrowserGpuView(recordings=told, notes=problems, question=QUESTION if question is None else question)
    slider = ipywidgets.IntSlider(
        view.d_head, min=1, max=MOST, description="d_head", layout=ipywidgets.Layout(width="100%", max_width="640px")
    )
    menus = {
        "sizes": ("head sizes", SIZES),
        "kernels": ("kernels", KERNELS),
        "seq_len": ("T", LENGTHS),
        "dtype": ("dtype", DTYPES),
        "seconds": ("seconds", SECONDS),
    }
    made = {
        trait: ipywidgets.Dropdown(options=list(options), index=0, description=label)
        for trait, (label, options) in menus.items()
    }
    plot = ipywidgets.RadioButtons(
        options=PLOTS, index=0, description="plot", orientation="horizontal", layout=ipywidgets.Layout(width="100%")
    )
    link(slider, view, "d_head")
    for trait, control in made.items():
        link(control, view, trait, "index")
    link(plot, view, "plot", "index")
    row = choices(*made.values())
    for trait, control in made.items():
        control.layout.flex = "2 1 10.5rem" if trait in ("sizes", "kernels") else "1 1 5rem"
    panel = BrowserGpu("webgpu", [slider, row, plot], view, twin(told, [*problems, CAVEAT], PLOTS[0]))
    panel.add_class("sh-browser-gpu")
    return panel
