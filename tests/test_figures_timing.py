"""Figures of the timing lab and the kernels: drawn from computed numbers, said in words; cited data have sources."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from splitheads.backends import DEVICES, SCENARIOS, SdpaCall, choose
from splitheads.figures import head_size_sweep, kernel_strips, published_timings
from splitheads.figures.head_size_sweep import _look, _ticks
from splitheads.figures.published_timings import _LOOKS, published
from splitheads.figures.style import INK, MARKERS, QUIET
from splitheads.palette import BACKEND_UNKNOWN, BACKENDS, HEADS, ON_HEAD, SHAPES, contrast
from splitheads.timing.analyse import analyse
from test_figures import simulate
from timing.synthetic import GPU, recording, staircase_cells


def gpu_recording() -> dict:
    cells = staircase_cells([48, 64, 80, 96, 112, 128, 256])
    cells += [{"d_head": 264, "observed": "EFFICIENT", "speed": 0.2}]
    cells += [{"d_head": d, "backend": "MATH", "observed": "MATH", "speed": 0.05} for d in (64, 128)]
    return recording(cells, device=GPU, dtype="bf16", torch="2.15.0+cu130", rate=3e14)


def cpu_recording() -> dict:
    cells = []
    for d in (64, 80, 128):
        cells += [{"d_head": d}, {"d_head": d, "case": "value_width", "observed": "MATH", "speed": 0.1}]
        cells += [{"d_head": d, "backend": "MATH", "observed": "MATH", "speed": 0.11}]
        cells += [{"d_head": d, "case": "value_width", "backend": "MATH", "observed": "MATH", "speed": 0.1}]
    return recording(cells)


FIGURES = {
    "head_size_sweep": lambda: head_size_sweep(gpu_recording()),
    "kernel_strips": kernel_strips,
    "published_timings": published_timings,
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_accessible_and_follows_the_page(name):
    figure = FIGURES[name]()
    assert re.split("-", figure.name)[0] == name  # what follows tells two of a kind on one page apart
    root = ElementTree.fromstring(figure.svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == figure.alt
    assert re.search(r"\d", figure.alt)
    assert len(figure.alt) < 1500, "a text that is read aloud has to end"
    assert "currentColor" in figure.svg
    for placeholder in (INK, QUIET):
        assert placeholder not in figure.svg.lower()
    assert figure.svg == FIGURES[name]().svg, "the same in every build"
    assert len(figure.svg) < 120_000


# Colours of backends


def test_text_on_every_backend_colour_is_legible():
    for colour in (*BACKENDS.values(), BACKEND_UNKNOWN):
        assert contrast(colour, ON_HEAD) >= 4.5


def test_a_backend_is_never_coloured_as_a_head():
    assert not {c.upper() for c in (*BACKENDS.values(), BACKEND_UNKNOWN)} & {c.upper() for c in HEADS}


@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_backends_differ_for_colour_blind_readers(kind):
    colours = [*BACKENDS.values(), BACKEND_UNKNOWN]
    for i, one in enumerate(colours):
        for other in colours[i + 1 :]:
            a, b = simulate(one, kind), simulate(other, kind)
            assert sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 > 0.15, (one, other, kind)


# The sweep


def test_the_sweep_names_its_device_its_steps_and_its_numbers():
    record = gpu_recording()
    figure = head_size_sweep(record)
    assert "Example A100" in figure.alt
    assert "padding step from 64 to 80 (auto), 1.2" in figure.alt
    assert "backend change from 256 to 264 (auto)" in figure.alt
    assert "Backend change: forced MATH, FLASH to MATH" in figure.alt
    line = next(s for s in analyse(record).series if s.backend == "auto")
    assert f"auto: {line.points[0]['flops_per_s'] / 1e12:.3g} TFLOP/s at 48" in figure.alt
    assert "predicted: d_head / width" in figure.svg
    assert "padding step" in figure.svg
    for backend in ("FLASH", "EFFICIENT", "MATH"):
        assert BACKENDS[backend].lower() in figure.svg.lower()
    assert BACKENDS["CUDNN"].lower() not in figure.svg.lower(), "what did not run has no colour here"


def test_a_mark_has_the_shape_and_colour_of_its_backend_in_every_line():
    assert set(SHAPES) == set(BACKENDS)
    assert set(SHAPES.values()) < set(MARKERS)
    looks = {backend: _look(backend) for backend in (*BACKENDS, None)}
    assert len({look["marker"] for look in looks.values()}) == 5
    for backend, look in looks.items():
        assert look["color"] == (BACKENDS[backend] if backend else BACKEND_UNKNOWN)
        assert backend is None or look["marker"] == MARKERS[SHAPES[backend]]


def test_no_two_numbers_of_the_sweeps_axis_touch():
    sizes = [16, 32, 48, 64, 65, 72, 80, 96, 100, 112, 128, 160, 192, 256]
    for many in (sizes, sizes[:11], [64, 65, 128], [8, *range(96, 129, 4)]):
        shown = _ticks(many)
        assert min(b - a for a, b in pairwise(shown)) >= (shown[-1] - shown[0]) / 16
    assert not {96, 100} <= set(_ticks(sizes))


def test_the_sweep_of_a_cpu_has_no_staircase_but_its_change():
    figure = head_size_sweep(cpu_recording())
    assert "predicted" not in figure.svg
    assert "GFLOP/s" in figure.svg
    assert "No fall along d_head beyond the noise" in figure.alt
    assert re.search(
        r"Backend change: value width, FLASH to MATH, 5\.\d( to 5\.\d)? times slower at 3 head sizes", figure.alt
    )
    assert "value width forced" not in figure.svg, "what would only repeat another line is left out"


def test_the_sweep_says_what_was_not_observed():
    figure = head_size_sweep(recording([{"d_head": d, "observed": None} for d in (64, 128)]))
    assert "not observed" in figure.svg
    assert BACKEND_UNKNOWN.lower() in figure.svg.lower()


def test_the_sweep_is_drawn_for_one_point_and_one_direction_of_many():
    head_size_sweep(recording([{"d_head": 64}]))
    both = [{"d_head": d, "direction": w, "seq_len": n} for d in (64, 72) for w in ("forward", "forward+backward") for n in (256, 512)]  # fmt: skip
    record = recording(both)
    assert "forward, length 512" in head_size_sweep(record).svg
    assert "forward+backward, length 256" in head_size_sweep(record, "forward+backward", 256).svg
    with pytest.raises(ValueError, match=r"seq_len = 1024.*no point was measured.*lengths 256, 512"):
        head_size_sweep(record, seq_len=1024)
    with pytest.raises(ValueError, match="no point was measured"):
        head_size_sweep(recording([{"d_head": 64, "reason": "out of memory"}]))


# The strips


@pytest.mark.parametrize(("torch", "scenario"), [("2.15.0", "infer"), ("2.14.1", "train"), ("2.8.0", "gqa_mask")])
def test_the_strips_say_what_backends_says(torch, scenario):
    alt = kernel_strips(torch, "bf16", scenario).alt
    for device, name in DEVICES.items():
        if not device.startswith("sm"):
            continue
        words = alt[alt.index(name) + len(name) :].split(";")[0]
        for d in (1, 63, 64, 80, 136, 193, 200, 223, 224, 256, 257, 264, 319, 320):
            backend = choose(SdpaCall(d, torch, device, "bf16", **SCENARIOS[scenario].settings)).backend
            part = words if "throughout" in words else words.split("all others")[1 if d % 8 else 0]
            spans = re.findall(r"([A-Z]+) (\d+)(?: to (\d+))?", part)
            said = [b for b, first, last in spans if int(first) <= d <= int(last or first)]
            assert (said or [words.split()[1]]) == [backend], (name, d)


def test_the_strips_draw_every_head_size_once():
    from splitheads.figures.kernel_strips import WIDEST, _eights, _others

    row = ["A" if d % 3 else "B" for d in range(1, WIDEST + 1)]
    for bars in (_eights, _others):
        covered = sorted(bar for backend in "AB" for bar in bars(row, backend))
        assert covered[0][0] == 0.5
        assert sum(length for _, length in covered) == WIDEST
        for (start, length), (following, _) in pairwise(covered):
            assert start + length == following


def test_the_strips_refuse_what_they_do_not_know():
    with pytest.raises(ValueError, match=r"scenario = 'sliding' is not known\. Known: infer"):
        kernel_strips(scenario="sliding")
    with pytest.raises(ValueError, match=r"9\.9"):
        kernel_strips("9.9")


# Published figures


def test_every_published_figure_has_its_source():
    rows = published()
    assert len(rows) > 100
    for row in rows:
        assert all(str(value).strip() for value in row.values()), row
        assert re.fullmatch(r"https://github\.com/\S+", row["url"]), row
        assert row["source"].lower().split("#")[0].split(" ")[0] in row["url"].lower() or "README" in row["source"], row
        assert row["value"] > 0
        assert row["unit"] in {"TFLOP/s", "ms", "not stated"}
        assert row["causal"] in {"yes", "no", "not stated"}
        assert row["direction"] in {"forward", "backward", "forward+backward", "training step"}
        assert row["dtype"] in {"fp16", "bf16", "fp16/bf16", "not stated"}
        assert 1 <= row["d_head"] <= 576
        assert 256 <= row["seq_len"] <= 32768
        if row["unit"] == "TFLOP/s":
            assert row["value"] < (350 if "A100" in row["gpu"] else 1000), "more than the device can do"
    keys = Counter(tuple(row[k] for k in row if k not in ("value", "note")) for row in rows)
    assert max(keys.values()) == 1, "the same situation twice"


def test_no_published_row_claims_a_penalty_for_80():
    """There is no published timing of FlashAttention-2 or 3 at d_head = 80; none may slip in unsourced."""
    assert not [r for r in published() if r["d_head"] == 80 and "FlashAttention" in r["library"]]


def test_the_published_figure_is_labelled_and_shows_its_rows():
    figure = published_timings()
    assert "not measured here" in figure.alt
    assert "Published figures, not measured here" in figure.svg
    shown = [r for r in published() if r["source"].endswith("README") and r["seq_len"] == 16384 and r["causal"] == "no"]
    assert {r["d_head"] for r in shown} == {64, 128, 256}
    for row in shown:
        assert f"{row['value']:.0f} at {row['d_head']}" in figure.alt
        assert f">{row['value']:.0f}<" in figure.svg
    assert BACKENDS["EFFICIENT"].lower() not in figure.svg.lower(), "no library here is that kernel"
    two, three = _LOOKS["FlashAttention-2"], _LOOKS["FlashAttention-3"]
    assert (two["color"], two["marker"]) == (three["color"], three["marker"]) == (BACKENDS["FLASH"], "o")
    assert three["markerfacecolor"] == "none"
    with pytest.raises(ValueError, match=r"seq_len = 512 was not published for both. Known: 4096, 8192, 16384"):
        published_timings(512)
