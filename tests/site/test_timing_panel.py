"""Panel *timing lab* in a real browser, without a kernel: every number, the keys, the address, paper, other colours.

The pages here are made of the site's own runtime and of made-up recordings in which every case occurs.
"""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from types import SimpleNamespace

import pytest
from axe_playwright_python.sync_playwright import Axe
from ipywidgets.embed import dependency_state
from playwright.sync_api import expect
from splitheads.palette import BACKENDS
from splitheads.panels import timing_lab
from splitheads.panels.kit import esm
from splitheads.panels.recorded import NO_GPU, NONE, short
from splitheads.panels.timing_lab import PLOTS
from splitheads.timing.analyse import staircase
from splitheads.timing.record import FOLDER, agreement
from test_panels_timing import made_up

PANEL = "[data-panel=timing]"
GPU = made_up(
    *(
        "cuda",
        (*range(8, 289, 8), 65, 100, 512),
        ("plain",),
        ("auto", "FLASH", "MATH"),
        ("forward", "forward+backward"),
    ),
    (512, 2048),
    dtype="bf16",
)
CPU = made_up()


@pytest.fixture
def lab(visit, address):
    """lab(recordings=[CPU, GPU], fragment="", panel=..., **context options): a page with the panel alone, live."""

    def start(recordings=(CPU, GPU), fragment: str = "", panel=None, live: bool = True, **options) -> SimpleNamespace:
        theme = options.pop("theme", "light")
        panel = panel or timing_lab(list(recordings))
        kind = "application/vnd.jupyter.widget"
        state = {"version_major": 2, "version_minor": 0, "state": dependency_state([panel], drop_defaults=False)}
        # A script's text must not hold "</": JSON may say it otherwise.
        text = json.dumps(state).replace("</", "<\\/")
        html = (
            f'<!doctype html><html lang="en" data-theme="{theme}"><meta charset="utf-8"><title>Timing</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="stylesheet" href="_static/kit.css">'
            f'<body style="margin: 0; font-family: sans-serif"><main><h1>Timing</h1><div class="cell_output">{panel._twin}'
            f'<script type="{kind}-view+json">{json.dumps({"model_id": panel.model_id})}</script></div>'
            f'<p id="below">Below.</p></main><script type="{kind}-state+json">{text}</script>'
            '<script src="_static/widgets/runtime.js"></script>'
        )
        seen = visit(theme=None, **options)
        seen.page.route(
            re.compile(f"{re.escape(address)}/timing.html"),
            lambda route: route.fulfill(body=html, content_type="text/html"),
        )
        page = seen.open(f"{address}/timing.html{fragment}", live=live)
        return SimpleNamespace(page=page, seen=seen, panel=page.locator(PANEL), lab=panel)

    return start


def status(panel) -> str:
    return panel.locator("[role=status]").first.inner_text()


def readout(panel) -> str:
    return panel.locator(".sh-readout").inner_text()


def digits(value: float) -> float:
    """Three digits, of the four that the page is given; halves go up, as the page rounds."""
    return float(Context(3, ROUND_HALF_UP).create_decimal(Decimal(short(value))))


def test_the_default_state_is_told_and_drawn(lab):
    site = lab([CPU])
    panel = site.panel
    most = digits(max(p["flops"] / p["median_s"] for p in CPU["points"]) / 1e9)
    assert status(panel).startswith(f"Throughput, forward, T = 512: highest {most:g} GFLOP/s (")
    assert status(panel).endswith("Found: 2 backend changes.")
    points = panel.locator(".sh-chart .sh-point")
    assert points.count() == len(CPU["points"]) == 44
    kinds = [point.get_attribute("data-kind") for point in points.all()]
    assert [kinds.count(kind) for kind in ("FLASH", "MATH")] == [22, 22]
    for point in points.all():
        assert BACKENDS[point.get_attribute("data-kind")] in point.get_attribute("style")
    names = panel.locator(".sh-chart .sh-name").all_text_contents()
    assert sorted(names) == ["causal", "dropout", "plain", "value_width"]
    assert panel.locator(".sh-chart :is(.sh-found, .sh-step)").count() == 0, "two lines are two lines anyway"
    assert panel.locator("ol.sh-steps").first.locator("li").count() == 2
    assert "44 of 44 kernels as predicted" in panel.locator(".sh-source").inner_text()
    assert panel.locator(".sh-notes").inner_text() == NO_GPU
    assert site.seen.complaints == []
    assert site.seen.foreign == []


def test_no_dead_button_and_one_sentence_why(lab):
    panel = lab().panel
    for name in ("Run", "Stop", "Save"):
        assert panel.get_by_role("button", name=name, exact=True).count() == 0
    assert panel.locator(".sh-kernel-only").count() == 1
    assert not panel.locator(".sh-kernel-only").is_visible()
    assert panel.locator("input[type=checkbox]:visible, input[type=number]:visible").count() == 0
    assert panel.locator(".sh-how").inner_text().startswith("This page has no Python, so it cannot measure")
    assert "python -m splitheads time --device auto --budget 60 --json my.json" in panel.locator(".sh-how").inner_text()
    assert not panel.locator(".sh-progress").is_visible()


def expected(point: dict) -> list[str]:
    """What the readout must say of a point."""
    told = [
        f"d_head {point['d_head']}",
        f"{digits(1e3 * point['median_s']):g} ms ({digits(1e3 * point['interval_s'][0]):g} to {digits(1e3 * point['interval_s'][1]):g})",
        f"median of {point['repeats']} calls",
        f"{point['observed']} ran, as predicted",
        f"peak memory {digits(point['peak_bytes'] / 1e6):g} MB",
    ]
    if point["d_head_v"] != point["d_head"]:
        told.append(f"(values {point['d_head_v']})")
    if point["bucket"]:
        told.append(
            f"compiled width {point['bucket']}, {point['d_head'] / point['bucket']:.0%} of it useful".replace(
                "%", "\u00a0%"
            )
        )
    return told


def test_the_keys_reach_every_point_and_its_numbers_are_those_of_the_recording(lab):
    site = lab([CPU])
    chart = site.panel.locator(".sh-chart")
    chart.focus()
    keys = site.page.keyboard
    by_name = {(p["case"], p["d_head"]): p for p in CPU["points"]}
    said = set()
    keys.press("Home")
    for _ in range(11):
        for _ in range(4):
            keys.press("ArrowUp")
        for _ in range(4):
            text = readout(site.panel)
            name, d = re.match(r"(\w+), d_head (\d+)", text).groups()
            for words in expected(by_name[name, int(d)]):
                assert words in text
            said.add((name, int(d)))
            keys.press("ArrowDown")
        keys.press("ArrowRight")
    keys.press("Home")
    assert "d_head 16" in readout(site.panel)
    keys.press("End")
    assert "d_head 128" in readout(site.panel)
    keys.press("ArrowLeft")
    assert "d_head 112" in readout(site.panel)
    assert said == set(by_name)
    assert site.panel.locator(".sh-ring").get_attribute("visibility") == "visible"


def test_a_pointer_and_a_finger_find_the_nearest_point(lab):
    site = lab([CPU], has_touch=True)
    box = site.panel.locator(".sh-chart .sh-point[data-x='128'][data-series='3']").bounding_box()
    site.page.mouse.move(box["x"] + box["width"] / 2 + 6, box["y"] + box["height"] / 2 + 9)
    assert re.match(r"(dropout|value_width), d_head 128", readout(site.panel))
    box = site.panel.locator(".sh-chart .sh-point[data-x='16'][data-series='0']").bounding_box()
    site.page.touchscreen.tap(box["x"] + 2, box["y"] + 2)
    assert re.match(r"(plain|causal), d_head 16", readout(site.panel))


FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
TOP = "() => document.querySelector('#below').getBoundingClientRect().top + scrollY"


@pytest.mark.parametrize("width", [390, 1280])
def test_what_lies_below_stays_where_it_is_while_points_are_read(lab, width):
    site = lab([CPU, GPU], width=width, fragment="#timing?recording=recording-2&plot=time")
    site.panel.locator(".sh-chart").focus()
    site.page.keyboard.press("ArrowRight")
    site.page.evaluate(FRAMES)
    before = site.page.evaluate(TOP)
    for _ in range(31):
        site.page.keyboard.press("ArrowRight")
        site.page.evaluate(FRAMES)
        assert (site.page.evaluate(TOP), readout(site.panel)) == (before, readout(site.panel))


def test_a_box_that_grew_once_does_not_go_on_growing(lab):
    """This page, like JupyterLab, sets no box-sizing: paddings were added to the room kept, frame after frame."""
    site = lab([CPU], width=390)
    box = site.panel.locator(".sh-readout")
    box.evaluate("(box) => { box.textContent = 'word '.repeat(200); }")
    site.page.evaluate(FRAMES)
    grown = box.bounding_box()["height"]
    box.evaluate("(box) => { box.textContent = 'word '; }")
    for _ in range(5):
        site.page.evaluate(FRAMES)
        assert box.bounding_box()["height"] == grown > 200


@pytest.mark.parametrize("plot", PLOTS)
def test_every_mark_stands_where_its_number_belongs(lab, plot):
    """Heights are compared with each other, over all points: a straight line through zero, and no other."""
    site = lab([CPU])
    site.panel.get_by_role("radio", name=plot, exact=True).check()
    site.page.wait_for_function("(plot) => document.querySelector('.sh-timing').dataset.plot === plot", arg=plot)
    drawn = site.page.evaluate(
        """() => {
            const base = Math.max(...[...document.querySelectorAll(".sh-chart line.sh-axis")].map((l) => Number(l.getAttribute("y1"))));
            return [...document.querySelectorAll(".sh-chart .sh-point")].map((p) => {
                const y = Number(p.getAttribute("transform").match(/ ([\\d.]+)\\)/)[1]);
                return [Number(p.dataset.series), Number(p.dataset.x), base - y];
            });
        }"""
    )
    cases = list(dict.fromkeys(p["case"] for p in CPU["points"]))
    value = {
        "throughput": lambda p: p["flops"] / p["median_s"],
        "% of ceiling": lambda p: p["flops"] / p["median_s"],
        "time": lambda p: p["median_s"],
        "memory": lambda p: p["peak_bytes"],
    }[plot]
    wanted = {(cases.index(p["case"]), p["d_head"]): value(p) for p in CPU["points"]}
    assert len(drawn) == len(wanted) == 44
    most = max(wanted.values())
    scale = max(height for _, _, height in drawn) / most
    for series, d, height in drawn:
        assert height == pytest.approx(wanted[series, d] * scale, abs=0.5), (plot, series, d)
    unit = site.panel.locator(".sh-chart .sh-unit").first.text_content()
    assert (
        unit
        == {"throughput": "GFLOP/s", "time": "ms per call", "% of ceiling": "% of the matrix product", "memory": "MB"}[
            plot
        ]
    )


def test_whiskers_are_the_intervals(lab):
    loose = made_up(noise=0.2, cases=("plain", "dropout"))
    site = lab([loose], fragment="#timing?plot=time")
    drawn = site.page.evaluate(
        """() => {
            const base = Math.max(...[...document.querySelectorAll(".sh-chart line.sh-axis")].map((l) => Number(l.getAttribute("y1"))));
            return [...document.querySelectorAll(".sh-chart .sh-point")].map((p) => {
                const whisker = p.previousElementSibling?.matches(".sh-whisker") ? p.previousElementSibling.getAttribute("d") : null;
                const ends = whisker && whisker.match(/^M[\\d.]+ ([\\d.]+)V([\\d.]+)/).slice(1).map((y) => base - Number(y));
                return [Number(p.dataset.series), Number(p.dataset.x), base - Number(p.getAttribute("transform").match(/ ([\\d.]+)\\)/)[1]), ends];
            });
        }"""
    )
    points = {(["plain", "dropout"].index(p["case"]), p["d_head"]): p for p in loose["points"]}
    scale = max(height for _, _, height, _ in drawn) / max(p["median_s"] for p in points.values())
    seen = 0
    for series, d, _, ends in drawn:
        if ends:
            seen += 1
            assert ends == pytest.approx([t * scale for t in points[series, d]["interval_s"]], abs=0.6)
    assert seen >= 11, "every slow point has an interval that can be seen"


def test_padding_steps_and_the_backend_change_are_marked_and_the_staircase_is_the_predicted_one(lab):
    site = lab([GPU])
    panel = site.panel
    assert status(panel).endswith("Found: 5 padding steps, 1 backend change.")
    words = " ".join(panel.locator(".sh-chart .sh-found").all_text_contents())
    assert "padding step" in words
    assert "backend change" in words
    assert all(
        re.fullmatch(r"[\d, ]+(: [a-z ]+(; [\d, ]+: [a-z ]+)*)?", text)
        for text in panel.locator(".sh-chart .sh-found").all_text_contents()
    )
    assert re.findall(r"\d+", words) == ["1", "2", "3", "4", "5", "6"]
    assert panel.locator(".sh-chart .sh-stairs").count() == 1
    assert "predicted from compiled widths" in panel.locator(".sh-legend").inner_text()
    assert panel.locator(".sh-notes").inner_text() == ""
    told = panel.locator("ol.sh-steps").first.inner_text()
    assert "d_head 32 → 40: padding step" in told
    panel.get_by_text("3 more", exact=True).click()
    assert "d_head 256 → 264: backend change, FLASH → MATH" in panel.locator("ol.sh-steps").last.inner_text()


def test_the_staircase_of_the_page_is_pythons(lab):
    """The page's own function, over all head sizes, against `timing.analyse.staircase`."""
    site = lab([GPU])
    text = esm("timing_lab", "chart", "timing_view") + "\nexport { staircase };"
    line = next(x for x in timing_lab([GPU]).view.recordings[0]["lines"] if x["backend"] == "FLASH")
    drawn = site.page.evaluate(
        """async ([text, line]) => {
            const view = await import(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
            return ["throughput", "time"].map((plot) => view.staircase(plot, line, null));
        }""",
        [text, line],
    )
    share = staircase(line["d"], "2.13.0", "sm80")
    rates = {d: f / t * 1e3 for d, f, t in zip(line["d"], line["f"], line["t"], strict=True)}
    best = max(rates, key=rates.get)
    for d, at in drawn[0]:
        if d in share and (d, at) == next((x, y) for x, y in reversed([tuple(p) for p in drawn[0] if p[0] == d])):
            known = [
                rates[best] / share[best] * s
                for s in (share[d], d / next(w for w in (64, 96, 128, 192, 256, 512) if w > d))
            ]
            assert any(at == pytest.approx(k, rel=1e-6) for k in known), d
    # Time is flat within a compiled width, and rises only between two of them.
    levels = {}
    for d, at in drawn[1]:
        levels.setdefault(round(at, 6), []).append(d)
    assert [(min(ds), max(ds)) for _, ds in sorted(levels.items())] == [
        (8, 32),
        (32, 64),
        (64, 96),
        (96, 128),
        (128, 192),
        (192, 256),
    ]


def test_direction_and_length_are_chosen_and_live_in_the_address(lab):
    site = lab(fragment="#timing?recording=recording-2&plot=time&direction=forward%2Bbackward&seq_len=2048")
    panel = site.panel
    assert status(panel).startswith("Time, forward+backward, T = 2048: ")
    assert panel.get_by_label("recording").evaluate("(s) => s.selectedIndex") == 1
    panel.locator(".sh-chart").focus()
    site.page.keyboard.press("End")
    long = readout(panel)
    panel.get_by_role("button", name="512", exact=True).click()
    site.page.wait_for_url("**#timing?recording=recording-2&plot=time&direction=forward%2Bbackward&seq_len=512")
    assert status(panel).startswith("Time, forward+backward, T = 512: ")
    short_one = readout(panel)
    assert short_one != long, "the chosen point has other numbers now"
    assert short_one.split(":")[0] == long.split(":")[0]
    panel.get_by_role("button", name="forward", exact=True).click()
    expect(panel.locator("[role=status]").first).to_contain_text("Time, forward, T = 512: ")
    panel.get_by_label("recording").select_option(index=0)
    expect(panel.locator("[role=status]").first).to_contain_text("ms per call (")
    assert readout(panel).startswith("Point at a mark"), "another recording, another point"
    assert panel.locator(".sh-chips:visible").count() == 0, "the first recording has one direction and one T"
    site.page.wait_for_url("**#timing?recording=recording-1&*")


@pytest.mark.parametrize(
    "fragment", ["recording=nobody&plot=0&direction=up&seq_len=7", "seq_len=x", "", "plot=time&recording=%00"]
)
def test_a_broken_address_leaves_a_sound_state(lab, fragment):
    site = lab(fragment=f"#timing?{fragment}")
    assert status(site.panel).startswith(("Throughput, forward, T = 512: ", "Time, forward, T = 512: "))
    assert site.panel.locator(".sh-chart .sh-point").count() == 44
    assert site.seen.complaints == []


def test_the_table_has_every_point_and_every_reason(lab):
    panel = lab([GPU]).panel
    panel.get_by_text("The same as a table").click()
    shown = [p for p in GPU["points"] if p["direction"] == "forward" and p["seq_len"] == 512]
    rows = panel.locator(".sh-rows tbody tr")
    expect(rows).to_have_count(len(shown))
    failed = [p for p in shown if p["status"] == "failed"]
    assert len(failed) == 5
    assert panel.locator(".sh-rows").inner_text().count("failed: No available kernel.") == 5
    first = next(p for p in shown if p["backend"] == "FLASH" and p["d_head"] == 100)
    text = rows.filter(has_text=re.compile(r"^FLASH100")).first.inner_text()
    assert f"{digits(1e3 * first['median_s']):g}" in text
    assert "128" in text, "the compiled width"


def test_the_prediction_is_locked_and_stays(lab):
    panel = lab().panel
    panel.get_by_role("button", name="About 6 % more").click()
    asked = panel.locator(".sh-question")
    assert asked.get_attribute("data-locked") == "wrong"
    assert "it is “Several times as much”" in asked.inner_text()


def test_without_any_recording_the_panel_says_how_to_make_one(lab, tmp_path):
    site = lab(panel=timing_lab(folder=tmp_path))
    assert NONE in status(site.panel)
    assert site.panel.get_by_label("recording").is_disabled()
    assert site.panel.locator(".sh-chart").inner_text() == "No recording yet."
    assert not site.panel.locator(".sh-readout").is_visible()
    assert site.seen.complaints == []


def test_a_measure_that_a_recording_lacks_is_said(lab):
    site = lab([made_up(memory=False)], fragment="#timing?plot=memory")
    assert "did not report memory" in site.panel.locator(".sh-chart").inner_text()
    assert "no such number in this recording" in status(site.panel)


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)])
def test_axe_and_a_phone_are_content(lab, theme, width):
    site = lab(width=width, theme=theme, fragment="#timing?recording=recording-2")
    for fold in site.panel.locator("details > summary:visible").all():
        fold.click()
    serious = [
        f"{v['id']}: {[n['html'][:160] for n in v['nodes']][:3]}"
        for v in Axe().run(site.page).response["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []
    wide = site.page.evaluate(
        """() => [document.scrollingElement.scrollWidth, [...document.querySelectorAll("main *")]
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("table")).map((e) => e.outerHTML.slice(0, 80))]"""
    )
    assert wide == [width, []]
    small = site.page.evaluate(
        """() => [...document.querySelectorAll("[data-panel] :is(button, select, summary, .widget-radio-box label)")]
            .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24).map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert small == []


@pytest.mark.parametrize("width", [390, 1280])
def test_no_label_of_the_chart_covers_another_or_leaves_it(lab, width):
    for fragment in (
        "#timing?recording=recording-1",
        "#timing?recording=recording-2",
        "#timing?recording=recording-2&plot=time",
    ):
        site = lab(width=width, fragment=fragment)
        boxes = site.page.evaluate(
            """() => [...document.querySelectorAll(".sh-chart :is(.sh-tick, .sh-found, .sh-name, .sh-unit)")].map((t) => {
                const b = t.getBoundingClientRect();
                return [t.textContent, b.left, b.top + 2, b.right, b.bottom - 2];
            })"""
        )
        assert len(boxes) > 10
        frame = site.panel.locator(".sh-chart").bounding_box()
        for i, (text, left, top, right, bottom) in enumerate(boxes):
            assert frame["x"] - 1 <= left, text
            assert right <= frame["x"] + frame["width"] + 1, text
            for other, a, b, c, d in boxes[i + 1 :]:
                assert right <= a or c <= left or bottom <= b or d <= top, (
                    f"{text!r} lies on {other!r} ({fragment}, {width} px)"
                )


def test_on_paper_a_row_of_the_table_is_one_line_high(lab):
    site = lab([GPU], width=700)
    site.panel.get_by_text("The same as a table").click()
    site.panel.locator(".sh-rows tbody tr").first.wait_for()  # it is filled when the fold has told that it is open
    site.page.emulate_media(media="print")
    high = site.page.evaluate(
        """() => [...document.querySelectorAll(".sh-rows tbody tr")].filter((r) => r.children.length > 3).map((r) =>
            r.children[3].getBoundingClientRect().height / parseFloat(getComputedStyle(r.children[3]).fontSize))"""
    )
    assert len(high) > 50
    assert max(high) < 2


def test_paper_shows_the_chart_and_no_buttons(lab):
    site = lab(fragment="#timing?recording=recording-2", theme="light")
    site.page.emulate_media(media="print")
    site.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert site.panel.locator(".sh-chips:visible").count() == 0
    assert site.panel.locator(".sh-readout:visible, .sh-kernel-only:visible").count() == 0
    assert site.panel.locator(".sh-chart .sh-point:visible").count() > 100
    assert site.panel.locator(".sh-source").is_visible()


def test_own_colours_keep_the_marks_apart(lab):
    site = lab([CPU], forced_colors="active")
    fills = site.page.evaluate(
        "() => [...new Set([...document.querySelectorAll('.sh-chart .sh-point')].map((p) => getComputedStyle(p).fill))]"
    )
    assert len(fills) == 2
    line = site.page.evaluate("() => getComputedStyle(document.querySelector('.sh-chart .sh-name')).fill")
    assert line == "rgb(0, 0, 0)", "CanvasText"


def test_without_scripts_the_printed_twin_tells_it(lab):
    site = lab([CPU], live=False, java_script_enabled=False)
    twin = site.page.locator(".sh-twin")
    assert twin.is_visible()
    assert "44 of 44 kernels as predicted" in twin.inner_text()
    assert twin.locator("svg circle").count() == 22
    assert NO_GPU in twin.inner_text()


def test_on_a_phone_the_printed_chart_scrolls_in_its_own_box(visit, address):
    page = visit(width=390, height=844, java_script_enabled=False).open(f"{address}/book/timing-lab.html", live=False)
    drawn = page.locator("[data-twin=timing] .sh-plot > svg")
    assert drawn.bounding_box()["width"] >= 520
    assert page.evaluate("document.scrollingElement.scrollWidth") == 390


def test_the_charts_own_arithmetic(lab):
    """The axis keeps the order and breaks only over an empty stretch; labels keep their distance; ticks reach the top."""
    axis, plain, labels, ticks = lab([CPU]).page.evaluate(
        """async ([text, sizes]) => {
            const chart = await import(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
            const look = (xs) => { const s = chart.scale(xs); return { at: xs.map(s.place), breaks: s.breaks }; };
            const wanted = [100, 100, 101, 40, 300];
            return [look(sizes), look([16, 32, 48, 64, 96, 128]), chart.spread(wanted, 14, 20, 306),
                [0.003, 0.7, 1, 42, 99.9, 390, 12345].map((most) => chart.ticksTo(most))];
        }""",
        [esm("chart"), [*range(8, 289, 8), 512]],
    )
    assert axis["at"] == sorted(axis["at"])
    assert (axis["at"][0], axis["at"][-1]) == (0, 1)
    assert axis["breaks"] == [400]
    assert axis["at"][-2] > 0.8, "what was measured keeps its room"
    assert plain["breaks"] == []
    assert plain["at"] == pytest.approx([(x - 16) / 112 for x in (16, 32, 48, 64, 96, 128)])
    places = sorted(labels)
    assert all(b - a >= 14 - 1e-9 for a, b in pairwise(places))
    assert places[0] >= 20
    assert places[-1] <= 306
    assert labels[3] == 40
    for most, found in zip((0.003, 0.7, 1, 42, 99.9, 390, 12345), ticks, strict=True):
        assert found["ticks"][0] == 0
        assert found["ticks"][-1] == found["top"]
        assert most <= found["top"] <= 2 * most
        assert 3 <= len(found["ticks"]) <= 8


def test_a_kernel_that_was_not_predicted_or_not_seen_is_told_apart(lab):
    odd = made_up(cases=("plain",), d_heads=(16, 32, 64))
    odd["points"][1]["observed"] = "MATH"
    odd["points"][2]["observed"] = None
    odd["agreement"] = agreement(odd["points"])
    site = lab([odd])
    chart = site.panel.locator(".sh-chart")
    kinds = [point.get_attribute("data-kind") for point in chart.locator(".sh-point").all()]
    assert kinds == ["FLASH", "MATH", "not observed"]
    chart.focus()
    site.page.keyboard.press("End")
    assert "the kernel was not observed" in readout(site.panel)
    site.page.keyboard.press("ArrowLeft")
    assert "MATH ran, FLASH was predicted" in readout(site.panel)
    assert (
        "1 of 2 kernels as predicted (plain, auto, d_head 32: MATH, not FLASH)"
        in site.panel.locator(".sh-source").inner_text()
    )
    assert chart.locator(".sh-line.sh-change").count() == 2, "a line between two kernels is no kernel's"


def test_a_recording_of_a_web_page_is_shown_too_with_a_mark_for_each_way_to_compile(lab):
    site = lab([json.loads(next((FOLDER / "browser").glob("*.json")).read_text("utf8"))])
    marks = site.panel.locator(".sh-chart .sh-point")
    kinds = [mark.get_attribute("data-kind") for mark in marks.all()]
    assert set(kinds) == {"buckets", "power of two", "exact"}
    assert len(set(marks.evaluate_all("(all) => all.map((mark) => mark.style.fill)"))) == 3
    assert "software adapter: the CPU computes" in site.panel.locator(".sh-source").inner_text()
    assert site.seen.complaints == []
