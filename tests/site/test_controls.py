"""The controls themselves, under keys, fingers and other people's colours: what the runtime adds to them.

What the book's own panels do not hold (floats, ranges, vertical sliders, what cannot be drawn) is
tried on small pages of its own, made of the same runtime and served at the site's address.
"""

from __future__ import annotations

import io
import json

import anywidget
import ipywidgets
import pytest
from ipywidgets.embed import dependency_state
from PIL import Image
from playwright.sync_api import expect

PANEL = "[data-panel=partition]"
CHAPTER = "book/partition-rule.html"


def value(slider) -> float:
    return float(slider.get_attribute("aria-valuenow"))


@pytest.fixture
def panel(visit, address):
    return visit().open(f"{address}/{CHAPTER}").locator(PANEL)


@pytest.fixture
def draw(visit, address):
    """draw(widget, ..., change=None, before=None, **context options) -> Visit of a page with these widgets.

    `change` may edit the widget state, `before` is a script that runs before all others.
    """

    def start(*widgets: ipywidgets.Widget, change=None, before: str = "", **options):
        state = dependency_state(widgets, drop_defaults=False)
        if change:
            for model in state.values():
                change(model)
        kind = "application/vnd.jupyter.widget"
        scripts = [
            f'<script type="{kind}-state+json">{json.dumps({"version_major": 2, "version_minor": 0, "state": state})}</script>'
        ]
        scripts += [f'<script type="{kind}-view+json">{json.dumps({"model_id": w.model_id})}</script>' for w in widgets]
        html = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Controls</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<body style="height: 4000px">{"".join(scripts)}<script src="_static/widgets/runtime.js"></script>'
        )
        seen = visit(**options)
        seen.page.route(f"{address}/controls.html", lambda route: route.fulfill(body=html, content_type="text/html"))
        if before:
            seen.page.add_init_script(before)
        seen.open(f"{address}/controls.html", live=False)
        seen.page.evaluate("window.__splitheads.ready.then(() => null)")
        return seen

    return start


def held(page, widget: ipywidgets.Widget, trait: str = "value"):
    """What the widget's model holds in the page: the readout may round it."""
    return page.evaluate(
        "([id, trait]) => window.__splitheads.manager.get_model(id).then((model) => model.get(trait))",
        [widget.model_id, trait],
    )


# ---- numbers that are typed -------------------------------------------------------------------

ACCEPTED = [
    ("1600", 1600),
    ("1,600", 1600),
    ("1 600", 1600),
    ("1\N{NO-BREAK SPACE}600", 1600),
    ("1\N{THIN SPACE}600", 1600),
    ("1\N{NARROW NO-BREAK SPACE}600", 1600),
    ("1_600", 1600),
    ("1'600", 1600),
    ("1\N{RIGHT SINGLE QUOTATION MARK}600", 1600),
    ("16,384", 16384),
    ("  1600 ", 1600),
    ("01600", 1600),
    ("+5", 5),
    ("-3", 1),
    ("\N{MINUS SIGN}3", 1),
    ("0", 1),
    ("99999999", 16384),
    ("1,000,000", 16384),
    ("9" * 400, 16384),
]
REFUSED = [
    *(
        "1e3",
        "16 00",
        "12.7",
        "1600abc",
        "abc",
        "",
        " ",
        "1,60",
        "1,600,00",
        "16,00,000",
        "1,600 000",
        "1,,600",
        ",600",
    ),
    *("0,768", "1600.", "1600.0", "0x10", "Infinity", "NaN", "--3", "3-5", "1600 1600", "50%", "²", "1\n600\n1"),
]


def type_in(page, text: str, leave: str = "Enter") -> str:
    """Type into the page's first readout, leave it with a key, and return what it says then."""
    readout = page.locator(".widget-readout").first
    readout.fill(text)
    readout.press(leave)
    return readout.inner_text()


@pytest.mark.parametrize("leave", ["Enter", "Tab"])
def test_a_well_formed_number_counts(panel, leave):
    for typed, wanted in ACCEPTED:
        type_in(panel, "7")
        assert type_in(panel, typed, leave) == str(wanted), typed
        assert value(panel.get_by_role("slider", name="d_model")) == wanted, typed


@pytest.mark.parametrize("leave", ["Enter", "Tab"])
def test_whatever_else_is_typed_changes_nothing(panel, leave):
    slider = panel.get_by_role("slider", name="d_model")
    slider.press("ArrowRight")
    for typed in REFUSED:
        assert type_in(panel, typed, leave) == "769", typed
        assert value(slider) == 769, typed


def test_what_the_panel_prints_can_be_typed_back(panel):
    """The status line groups by threes: "1,600". What can be read there must be good to type here."""
    type_in(panel, "1600")
    panel.get_by_role("slider", name="num_heads").press("ArrowRight")
    printed = panel.locator("p[role=status]").inner_text().split("no whole d_head: ")[1].split(" = ")[0]
    assert printed == "1,600"
    assert type_in(panel, "5") == "5"
    assert type_in(panel, printed) == "1600"


def test_escape_takes_back_what_was_typed(panel):
    readout = panel.locator(".widget-readout").first
    readout.fill("1600")
    readout.press("Escape")
    assert readout.inner_text() == "768"
    assert not readout.evaluate("(el) => el === document.activeElement")
    assert value(panel.get_by_role("slider", name="d_model")) == 768


def test_tab_selects_and_leaving_commits(panel):
    page = panel.page
    panel.get_by_role("slider", name="d_model").focus()
    page.keyboard.press("Tab")
    page.keyboard.type("1,024")
    page.keyboard.press("Enter")
    page.keyboard.type("1,600")
    page.keyboard.press("Tab")
    assert panel.locator(".widget-readout").first.inner_text() == "1600"
    assert value(panel.get_by_role("slider", name="d_model")) == 1600
    assert page.evaluate("getSelection().toString()") == ""


def test_a_paste_brings_plain_text(visit, address):
    seen = visit(permissions=["clipboard-read", "clipboard-write"])
    panel = seen.open(f"{address}/{CHAPTER}").locator(PANEL)
    readout = panel.locator(".widget-readout").first
    readout.focus()
    seen.page.evaluate(
        """() => navigator.clipboard.write([new ClipboardItem({
            "text/html": new Blob(["<h1>1,<b>600</b></h1><p></p>"], {type: "text/html"}),
            "text/plain": new Blob(["1,600\\n"], {type: "text/plain"}),
        })])"""
    )
    seen.page.keyboard.press("Control+V")
    assert readout.evaluate("(el) => el.innerHTML") == "1,600"
    readout.press("Enter")
    assert value(panel.get_by_role("slider", name="d_model")) == 1600


def test_a_readout_says_what_it_takes(draw):
    whole = ipywidgets.IntSlider(5, 1, 10)
    signed = ipywidgets.IntSlider(5, -10, 10)
    real = ipywidgets.FloatSlider(0.5, min=0, max=1)
    both = ipywidgets.IntRangeSlider(value=(2, 5), min=0, max=10)
    off = ipywidgets.IntSlider(5, 1, 10, disabled=True)
    page = draw(whole, signed, real, both, off).page
    readouts = page.locator(".widget-readout")
    told = readouts.evaluate_all("(all) => all.map((el) => [el.inputMode, el.getAttribute('contenteditable')])")
    free = "plaintext-only"
    # Keypads for numbers have no minus and no dash.
    assert told == [["numeric", free], ["text", free], ["decimal", free], ["text", free], ["numeric", "false"]]
    assert type_in(page, "7") == "7"
    assert readouts.first.get_attribute("contenteditable") == free, "the official view sets its own on each change"


def put(page, widget: ipywidgets.Widget, value) -> None:
    page.evaluate(
        "([id, value]) => window.__splitheads.manager.get_model(id).then((model) => model.set('value', value))",
        [widget.model_id, value],
    )


def test_a_float_takes_decimals_and_exponents(draw):
    slider = ipywidgets.FloatSlider(0.75, min=-2, max=1000, step=0.25)
    page = draw(slider).page
    for typed, wanted in (
        *(
            ("0.5", 0.5),
            (".25", 0.25),
            ("5e-1", 0.5),
            ("1E2", 100),
            ("-1.5", -1.5),
            ("\N{MINUS SIGN}1.5", -1.5),
            ("50%", 0.5),
        ),
        *(("1,000.5", 1000), ("1e999", 1000), ("-1e999", -2), ("5.", 5), ("1 000", 1000)),
        *((wrong, 0.75) for wrong in ("12,5", "0.5x", ".", "e5", "1.2.3", "1.000,5", "Infinity", "")),
    ):
        put(page, slider, 0.75)
        assert type_in(page, typed) == f"{wanted:.2f}".replace("-", "\N{MINUS SIGN}"), typed
        assert held(page, slider) == pytest.approx(wanted, abs=1e-9), typed


def test_looking_at_a_number_does_not_round_it(draw):
    slider = ipywidgets.FloatSlider(0.123456, min=0, max=1, step=0.000001)
    page = draw(slider).page
    readout = page.locator(".widget-readout")
    assert readout.inner_text() == "0.12"
    readout.focus()
    readout.press("Enter")
    readout.press("Tab")
    assert held(page, slider) == 0.123456


def test_a_range_takes_two_numbers(draw):
    slider = ipywidgets.IntRangeSlider(value=(10, 20), min=0, max=9000)
    page = draw(slider).page
    for typed, wanted in (
        *(("1,000 – 2,000", [1000, 2000]), ("3-5", [3, 5]), ("3:5", [3, 5]), ("-4 – 99999", [0, 9000])),
        *((wrong, [10, 20]) for wrong in ("5-3", "3", "3-", "1.5-3", "1e1-30", "")),
    ):
        put(page, slider, [10, 20])
        assert type_in(page, typed) == " – ".join(map(str, wanted)), typed
        assert held(page, slider) == wanted, typed


def test_a_logarithmic_slider_takes_its_value(draw):
    slider = ipywidgets.FloatLogSlider(10, min=0, max=4)
    page = draw(slider).page
    for typed, wanted in (("1,000", 1000), ("1e2", 100), ("0", 1), ("-5", 1), ("1e9", 10000), ("x", 10)):
        put(page, slider, 10)
        type_in(page, typed)
        assert held(page, slider) == pytest.approx(wanted), typed


def test_a_slider_that_waits_holds_what_it_shows(draw):
    slider = ipywidgets.IntSlider(10, 0, 100, 5, continuous_update=False)
    page = draw(slider).page
    assert type_in(page, "33") == "35", "the slider goes in steps of 5"
    assert held(page, slider) == 35
    assert value(page.get_by_role("slider")) == 35


def test_a_number_box_does_not_mangle_either(draw):
    box = ipywidgets.BoundedIntText(5, min=0, max=200)
    page = draw(box).page
    for typed, wanted in (("12.7", 5), ("1e2", 100), ("42", 42), ("-1", 0), ("999", 200), ("", 5)):
        put(page, box, 5)
        page.locator("input").focus()
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.keyboard.type(typed)
        page.keyboard.press("Tab")
        assert held(page, box) == wanted, typed
        assert float(page.locator("input").input_value()) == wanted, typed


# ---- fingers ----------------------------------------------------------------------------------


class Finger:
    """Real touches, which the browser turns into scrolling where it may."""

    def __init__(self, page) -> None:
        self.page = page
        self.cdp = page.context.new_cdp_session(page)

    def send(self, kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        self.cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    def swipe(self, x: float, y: float, dx: float, dy: float, steps: int = 12, lift: bool = True) -> None:
        self.send("touchStart", (x, y))
        for i in range(1, steps + 1):
            self.send("touchMove", (x + dx * i / steps, y + dy * i / steps))
            self.page.wait_for_timeout(16)
        if lift:
            self.send("touchEnd")
            self.page.wait_for_timeout(100)


@pytest.fixture
def phone(visit, address):
    page = visit(width=390, height=844, has_touch=True, is_mobile=True).open(f"{address}/{CHAPTER}")
    page.locator(f"{PANEL} .slider-container").first.evaluate("(el) => el.scrollIntoView({block: 'center'})")
    page.evaluate(
        """() => {
            window.heard = [];
            for (const el of document.querySelectorAll("[data-panel=partition] [role=slider]"))
                new MutationObserver(() => heard.push(el.getAttribute("aria-valuenow")))
                    .observe(el, { attributes: true, attributeFilter: ["aria-valuenow"] });
        }"""
    )
    page.wait_for_timeout(100)
    return page


def track(page, nth: int = 0) -> dict[str, float]:
    return page.locator(f"{PANEL} .noUi-target").nth(nth).bounding_box()


@pytest.mark.parametrize(
    ("where", "dx", "dy"),
    [("track", 0, -250), ("track", 25, 250), ("track", -60, -250), ("handle", 0, 250), ("handle", 60, -250)],
)
def test_a_swipe_across_a_slider_scrolls_the_page(phone, where, dx, dy):
    box = track(phone)
    if where == "track":
        x, y = box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2
    else:
        dot = phone.locator(f"{PANEL} .noUi-handle").first.bounding_box()
        x, y = dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2
    before = phone.evaluate("scrollY")
    Finger(phone).swipe(x, y, dx, dy)
    assert (phone.evaluate("scrollY") - before) * dy < -100 * abs(dy), "the page must follow the finger"
    assert phone.evaluate("heard") == [], "no value may even flicker"
    assert value(phone.get_by_role("slider", name="d_model")) == 768


def test_a_horizontal_drag_moves_the_handle(phone):
    dot = phone.locator(f"{PANEL} .noUi-handle").first.bounding_box()
    box = track(phone)
    before = phone.evaluate("scrollY")
    Finger(phone).swipe(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2, box["width"] / 2, 10)
    slider = phone.locator(PANEL).get_by_role("slider", name="d_model")
    assert value(slider) == pytest.approx(768 + 16383 / 2, abs=150)
    assert phone.evaluate("scrollY") == before
    assert len(phone.evaluate("heard")) > 5, "the view moves along with the finger"
    assert f"{int(value(slider)):,}" in phone.locator(f"{PANEL} p[role=status]").inner_text()


def test_a_drag_that_starts_on_the_track_takes_the_handle_along(phone):
    box = track(phone)
    Finger(phone).swipe(box["x"] + box["width"] * 0.9, box["y"] + 3, -box["width"] * 0.4, 0)
    assert value(phone.get_by_role("slider", name="d_model")) == pytest.approx(1 + 16383 / 2, abs=150)


@pytest.mark.parametrize("off", [0, -11, 11])
def test_a_tap_on_the_track_moves_the_handle(phone, off):
    box = track(phone, 1)
    phone.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + off)
    phone.wait_for_timeout(400)
    assert value(phone.get_by_role("slider", name="num_heads")) == pytest.approx(128, abs=2)


def test_a_tap_on_the_handle_changes_nothing_and_the_mouse_still_works(phone):
    dot = phone.locator(f"{PANEL} .noUi-handle").first.bounding_box()
    phone.touchscreen.tap(dot["x"] + 4, dot["y"] + dot["height"] / 2)
    phone.wait_for_timeout(400)
    assert phone.evaluate("heard") == []
    box = track(phone)
    phone.mouse.click(box["x"] + box["width"] / 2, box["y"] + 3)
    assert value(phone.get_by_role("slider", name="d_model")) == pytest.approx(8192, abs=150)


def test_a_second_finger_or_a_cancelled_touch_puts_the_value_back(phone):
    dot = phone.locator(f"{PANEL} .noUi-handle").first.bounding_box()
    x, y = dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2
    finger = Finger(phone)
    slider = phone.get_by_role("slider", name="d_model")
    finger.swipe(x, y, 80, 0, lift=False)
    assert value(slider) > 2000
    finger.send("touchCancel")
    phone.wait_for_timeout(100)
    assert value(slider) == 768
    finger.swipe(x, y, 80, 0, lift=False)
    assert value(slider) > 2000
    finger.send("touchStart", (x + 80, y), (x + 100, y))
    assert value(slider) == 768
    finger.send("touchEnd")
    phone.wait_for_timeout(100)
    assert value(slider) == 768
    finger.swipe(x, y, 80, 0)
    assert value(slider) > 2000, "the slider is not stuck afterwards"


@pytest.mark.parametrize("waits", [False, True])
def test_range_vertical_and_disabled_sliders_under_a_finger(draw, waits):
    own = {"continuous_update": not waits}
    both = ipywidgets.IntRangeSlider(value=(20, 40), min=0, max=100, **own)
    tall = ipywidgets.IntSlider(50, 0, 100, orientation="vertical", **own)
    word = ipywidgets.SelectionSlider(options=list("abcdefghijk"), **own)
    off = ipywidgets.IntSlider(50, 0, 100, disabled=True, **own)
    page = draw(both, word, off, tall, width=390, height=844, has_touch=True, is_mobile=True).page
    finger = Finger(page)
    boxes = [target.bounding_box() for target in page.locator(".noUi-target").all()]

    def along(nth: int, start: float, end: float, **how) -> None:
        box = boxes[nth]
        finger.swipe(box["x"] + box["width"] * start, box["y"] + 3, box["width"] * (end - start), 0, **how)

    along(0, 0.2, 0.9)
    assert held(page, both) == [40, 40], "a handle stops at the other one"
    along(0, 0.4, 0.7)
    assert held(page, both) == [40, 70], "two handles on one spot: the one that can move does"
    along(0, 0.55, 0.95)
    assert held(page, both) == [70, 100], "between them, both move, as far as there is room"
    along(1, 0.0, 0.5)
    assert held(page, word, "index") == 5
    along(2, 0.5, 0.9)
    assert held(page, off) == 50
    box = boxes[3]
    finger.swipe(box["x"] + 3, box["y"] + box["height"] / 2, 0, -box["height"] / 4)
    assert held(page, tall) == pytest.approx(75, abs=2)
    assert page.evaluate("scrollY") == 0
    actions = page.locator(".noUi-handle").evaluate_all("(all) => all.map((el) => getComputedStyle(el).touchAction)")
    assert actions == ["pan-y pinch-zoom"] * 4 + ["pan-x pinch-zoom"]


# ---- keys -------------------------------------------------------------------------------------


def test_page_keys_are_a_sixteenth_of_the_way(panel):
    for name, step, least, most in (("d_model", 1024, 1, 16384), ("num_heads", 16, 1, 256)):
        slider = panel.get_by_role("slider", name=name)
        start = value(slider)
        for key, wanted in (
            *(("PageUp", start + step), ("PageDown", start), ("ArrowRight", start + 1), ("ArrowDown", start)),
            *(("End", most), ("PageUp", most), ("PageDown", most - step), ("Home", least), ("PageDown", least)),
            *(("PageUp", least + step), ("ArrowLeft", least + step - 1)),
        ):
            slider.press(key)
            assert value(slider) == wanted, (name, key)
        assert str(int(value(slider))) == panel.locator(".widget-readout").nth(int(name == "num_heads")).inner_text()


@pytest.mark.parametrize(
    ("slider", "wanted"),
    [
        (ipywidgets.IntSlider(3, 1, 6), 4),
        (ipywidgets.IntSlider(0, 0, 100, 10), 10),
        (ipywidgets.IntSlider(0, 0, 4096, 64), 256),
        (ipywidgets.FloatSlider(0, min=0, max=1, step=0.01), 0.04),
        (ipywidgets.IntSlider(0, 0, 511, continuous_update=False), 32),
        (ipywidgets.IntSlider(0, 0, 511, orientation="vertical"), 32),
    ],
)
def test_page_keys_on_other_scales(draw, slider, wanted):
    page = draw(slider).page
    page.get_by_role("slider").press("PageUp")
    assert held(page, slider) == pytest.approx(wanted)
    page.get_by_role("slider").press("PageDown")
    assert held(page, slider) == pytest.approx(slider.value)


def test_home_and_end_know_a_changed_range(draw):
    slider = ipywidgets.IntSlider(5, 1, 10)
    page = draw(slider).page
    page.evaluate(
        "(id) => window.__splitheads.manager.get_model(id).then((m) => m.set({min: 2, max: 40}))", slider.model_id
    )
    for key, wanted in (("End", 40), ("Home", 2)):
        page.get_by_role("slider").press(key)
        assert held(page, slider) == wanted


def test_keys_of_the_browser_stay_with_the_browser(panel):
    slider = panel.get_by_role("slider", name="d_model")
    for key in ("Alt+ArrowLeft", "Control+PageUp", "Meta+ArrowRight"):
        slider.press(key)
        assert value(slider) == 768


# ---- other people's colours, and paper --------------------------------------------------------


def picture(page, target) -> Image.Image:
    page.wait_for_timeout(100)
    return Image.open(io.BytesIO(target.screenshot())).convert("RGB")


def luminance(colour: tuple[int, int, int]) -> float:
    parts = [c / 255 for c in colour]
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(image: Image.Image) -> float:
    """The best contrast with the top left corner that covers more than a few pixels."""
    back = luminance(image.getpixel((0, 0)))
    found = [luminance(colour) for n, colour in image.getcolors(1 << 24) if n > 8]
    return max((max(x, back) + 0.05) / (min(x, back) + 0.05) for x in found)


def parts(page, row) -> dict[str, Image.Image]:
    """Pictures of a slider's track (without its handle), handle and readout."""
    whole = picture(page, row)
    at = row.bounding_box()

    def cut(box: dict[str, float], left: float = 0) -> Image.Image:
        x, y = box["x"] - at["x"], box["y"] - at["y"]
        return whole.crop(
            (int(x + left) - 2, max(int(y) - 4, 0), int(x + box["width"]) + 2, int(y + box["height"]) + 4)
        )

    target = row.locator(".noUi-target").bounding_box()
    return {
        "track": cut(target, target["width"] / 2),
        "handle": cut(row.locator(".noUi-handle").bounding_box()),
        "readout": cut(row.locator(".widget-readout").bounding_box()),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forced_colours_keep_every_part_in_sight(visit, address, scheme):
    page = visit(forced_colors="active", color_scheme=scheme, theme=scheme).open(f"{address}/{CHAPTER}")
    panel = page.locator(PANEL)
    row = panel.locator(".widget-hslider").first
    for name, image in parts(page, row).items():
        assert contrast(image) >= 3, name
    plain = picture(page, row)
    page.keyboard.press("Tab")
    row.locator(".noUi-handle").focus()
    assert row.locator(".noUi-handle").evaluate("(el) => getComputedStyle(el).outlineStyle") == "solid"
    assert contrast(parts(page, row)["handle"]) >= 3
    assert picture(page, row).tobytes() != plain.tobytes()
    chip = panel.locator("[data-preset]").nth(1)
    before = picture(page, chip)
    chip.click()
    page.mouse.move(0, 0)
    after = picture(page, chip)
    assert chip.get_attribute("aria-pressed") == "true"
    assert before.tobytes() != after.tobytes()


def test_forced_colours_show_what_is_pressed_and_what_is_off(draw):
    def toggles(**more):
        return [ipywidgets.ToggleButton(value=on, description="pressed or not", **more) for on in (False, True)]

    group = ipywidgets.ToggleButtons(options=["pressed", "not"])
    bar = ipywidgets.IntProgress(50)
    slider, off = (ipywidgets.IntSlider(50, 0, 100, disabled=no) for no in (False, True))
    page = draw(*toggles(), group, bar, slider, off, forced_colors="active").page
    unpressed, pressed, first, second = (picture(page, page.locator("button").nth(i)) for i in range(4))
    corner = (6, 6)
    assert unpressed.getpixel(corner) == second.getpixel(corner)
    assert pressed.getpixel(corner) == first.getpixel(corner)
    assert unpressed.getpixel(corner) != pressed.getpixel(corner)
    assert contrast(pressed.crop((4, 4, pressed.width - 4, pressed.height - 4))) >= 3, "the word on a pressed button"
    done = picture(page, page.locator(".progress"))
    assert done.getpixel((10, done.height // 2)) != done.getpixel((done.width - 10, done.height // 2))
    on, no = (parts(page, page.locator(".widget-hslider").nth(i)) for i in range(2))
    assert {name: contrast(image) >= 3 for name, image in on.items()} == dict.fromkeys(on, True)
    assert no["handle"].tobytes() != on["handle"].tobytes()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_shows_the_sliders_in_light_colours(visit, address, theme):
    page = visit(theme=theme, color_scheme=theme).open(f"{address}/{CHAPTER}")
    row = page.locator(f"{PANEL} .widget-hslider").first
    page.emulate_media(media="print")
    for name, image in parts(page, row).items():
        assert contrast(image) >= 3, name
    colours = row.locator(".widget-readout").evaluate(
        "(el) => [getComputedStyle(el).color, getComputedStyle(el).backgroundColor]"
    )
    assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_needs_no_backgrounds(draw, theme):
    """Browsers print without backgrounds unless they are told otherwise: outlines and borders remain."""
    page = draw(
        ipywidgets.IntSlider(50, 0, 100, description="width"),
        theme=theme,
        before=f"document.documentElement.dataset.theme = '{theme}'",
    ).page
    page.emulate_media(media="print")
    page.add_style_tag(content="* { background: none !important }")
    for name, image in parts(page, page.locator(".widget-hslider")).items():
        assert luminance(image.getpixel((0, 0))) > 0.9
        assert contrast(image) >= 3, name


# ---- nothing of ours is thrown ----------------------------------------------------------------

DENIED = """for (const name of ["localStorage", "sessionStorage", "indexedDB"])
    Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });"""


@pytest.mark.parametrize("name", ["index", "partition-rule", "reshape"])
def test_without_storage_the_panels_live(visit, address, name):
    seen = visit()
    seen.page.add_init_script(DENIED)
    seen.page.add_init_script(
        """window.ours = [];
        addEventListener("error", (e) => { if (/widgets.runtime|^blob:/.test(e.filename)) ours.push(e.message); });
        addEventListener("unhandledrejection", (e) => ours.push(String(e.reason?.stack ?? e.reason)));"""
    )
    page = seen.open(f"{address}/book/{name}.html")
    slider = page.get_by_role("slider").first
    if slider.count():
        before = value(slider)
        slider.press("ArrowRight")
        assert value(slider) == before + 1
    page.wait_for_timeout(2500)  # anywidget gives a module two seconds
    assert page.evaluate("ours") == []


class Fine(anywidget.AnyWidget):
    _esm = "export default { render({ el }) { el.textContent = 'drawn'; } };"


def module(text: str) -> ipywidgets.Widget:
    return type("Broken", (anywidget.AnyWidget,), {"_esm": text})()


BROKEN = {
    "render throws": "export default { render() { throw new Error('broken'); } };",
    "render rejects": "export default { async render() { await null; throw new Error('broken'); } };",
    "render throws a string": "export default { render() { throw 'broken'; } };",
    "initialize throws": "export default { initialize() { throw new Error('broken'); }, render() {} };",
    "not JavaScript": "export default { render( ",
    "nothing exported": "export const nothing = 0;",
}


@pytest.mark.parametrize("nested", [False, True])
def test_a_view_that_fails_says_so_in_its_place(draw, nested):
    broken, slider, fine = [module(text) for text in BROKEN.values()], ipywidgets.IntSlider(5, 1, 10), Fine()
    seen = draw(*([ipywidgets.VBox([*broken, slider, fine])] if nested else [*broken, slider, fine]))
    page = seen.page
    expect(page.locator(".splitheads-notice")).to_have_count(len(broken))
    page.wait_for_timeout(2500)  # anywidget gives a module two seconds
    assert page.locator(".splitheads-notice").all_inner_texts() == [
        "This control needs a running notebook: it could not be drawn on this page."
    ] * len(broken)
    page.get_by_role("slider").press("ArrowRight")
    assert held(page, slider) == 6
    assert page.get_by_text("drawn", exact=True).is_visible()
    assert [c for c in seen.complaints if c.startswith("uncaught")] == []
    assert sum("console warning" in c for c in seen.complaints) == len(broken), "the console has the reasons"


def unknown(model: dict) -> None:
    if model["model_name"] == "FloatSliderModel":
        model["model_module"] = model["state"]["_view_module"] = "elsewhere"


def senseless(model: dict) -> None:
    if model["model_name"] == "FloatSliderModel":
        model["state"] |= {"min": "x", "max": None}


def homeless(model: dict) -> None:
    if model["model_name"] == "FloatSliderModel":
        model["state"]["layout"] = "IPY_MODEL_nowhere"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("change", [unknown, senseless, homeless])
def test_a_model_that_fails_leaves_the_others_alone(draw, change, nested):
    broken, slider = ipywidgets.FloatSlider(5), ipywidgets.IntSlider(5, 1, 10)
    seen = draw(*([ipywidgets.VBox([broken, slider])] if nested else [broken, slider]), change=change)
    notice = seen.page.locator(".splitheads-notice").all_inner_texts()
    assert len(notice) == 1
    assert "undefined" not in notice[0]
    seen.page.get_by_role("slider").press("ArrowRight")
    assert held(seen.page, slider) == 6
    assert [c for c in seen.complaints if c.startswith("uncaught")] == []
