"""Panel *browser GPU* in a Chromium with WebGPU (SwiftShader computes): before, during and after a sweep; all that can fail."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import Visit
from playwright.sync_api import expect
from splitheads.panels.browser_gpu import CAVEAT, KERNELS, LENGTHS, PLOTS, SECONDS, SIZES, widths
from splitheads.timing.analyse import analyse
from splitheads.timing.record import FOLDER, load

PAGE = "book/browser-gpu.html"
PANEL = "[data-panel=webgpu]"
QUICK = f"sizes={list(SIZES).index('64 and yours only')}&kernels={list(KERNELS).index('buckets, exact')}&seq_len={LENGTHS.index('64')}"
# Time enough on a busy machine: such a run is stopped when it has shown what it is asked for.
LONG = f"{QUICK}&seconds={SECONDS.index('40')}"
STORED = sorted((FOLDER / "browser").glob("*.json"))


@pytest.fixture
def gpu(gpu_chrome, address):
    """gpu(fragment="d_head=80", script="", scheme="http", **context options): the chapter, its panel loaded."""
    contexts = []

    def start(
        state: str = LONG, script: str = "", url: str = "", width: int = 1280, theme: str = "light", **options
    ) -> SimpleNamespace:
        context = gpu_chrome.new_context(viewport={"width": width, "height": 900}, accept_downloads=True, **options)
        contexts.append(context)
        context.add_init_script(f"try {{ localStorage.theme = localStorage.mode = '{theme}' }} catch {{}}")
        if script:
            context.add_init_script(script)
        context.set_default_timeout(60_000)
        seen = Visit(context.new_page())
        page = seen.open(f"{url or address}/{PAGE}{f'#webgpu?{state}' if state else ''}")
        panel = page.locator(PANEL)
        panel.locator(".sh-webgpu[data-loaded]").wait_for(state="attached")
        return SimpleNamespace(page=page, seen=seen, panel=panel, context=context)

    yield start
    for context in contexts:
        context.close()


def button(site, name: str):
    return site.panel.get_by_role("button", name=name, exact=True)


def news(site):
    return site.panel.locator(".sh-progress")


def until(site, state: str) -> None:
    site.page.wait_for_function(
        "([panel, state]) => document.querySelector(`${panel} .sh-progress`).dataset.state === state",
        arg=[PANEL, state],
    )


def measured(site) -> None:
    """Until the first points are on show."""
    site.page.wait_for_function(
        "(panel) => { const { live, points } = document.querySelector(`${panel} .sh-timing`).dataset; return live === 'true' && points > 0; }",
        arg=PANEL,
    )


def briefly(site) -> None:
    """A run that ends once there is something to show."""
    button(site, "Time my GPU").click()
    measured(site)
    button(site, "Stop").click()
    until(site, "done")


def shown(site) -> str:
    return site.panel.locator(".sh-timing .sh-status").inner_text()


def heard(site):
    """What a screen reader says of a run."""
    return site.panel.locator(".sh-timing p.sh-heard[role=status]")


def chips(site) -> list[str]:
    """The recordings to choose from; the one that is pressed with a star."""
    return site.panel.locator("[aria-label='Recording shown'] button").evaluate_all(
        "(all) => all.map((b) => b.textContent + (b.getAttribute('aria-pressed') === 'true' ? '*' : ''))"
    )


def exported(site, tmp_path: Path) -> dict:
    with site.page.expect_download() as waiting:
        button(site, "Export").click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return load(path)


# Before --------------------------------------------------------------------------------------------


def test_before_anything_is_measured_the_recorded_sweep_is_shown_and_the_widths_are_told(gpu):
    site = gpu("d_head=65")
    recording = load(STORED[0])
    assert site.panel.locator("[role=status]").first.inner_text() == (
        "d_head = 65: compiled width 96 in buckets (68\u00a0% useful), 128 as a power of two (51\u00a0% useful), 80 exact (81\u00a0% useful)."
    )
    assert site.panel.locator(".sh-chart .sh-point").count() == len(recording["points"])
    assert f"Measured {recording['created'][:10]} on {recording['device']['name']}" in site.panel.inner_text()
    assert "software adapter: the CPU computes" in site.panel.inner_text()
    assert CAVEAT in site.panel.inner_text()
    assert len(site.panel.locator("ol.sh-steps li").all()) == len(
        {
            (s.before["d_head"], s.after["d_head"], s.before["bucket"], s.after["bucket"])
            for s in analyse(recording).steps
        }
    )
    assert button(site, "Time my GPU").is_enabled()
    assert button(site, "Stop").is_disabled()
    assert button(site, "Export").is_disabled()
    assert button(site, "Go on").count() == 0
    assert news(site).inner_text().startswith("Ready.")
    assert heard(site).inner_text() == ""
    assert site.seen.complaints == []
    assert site.seen.foreign == []


def test_every_width_that_the_page_tells_is_pythons(gpu):
    site = gpu("")
    told = site.page.evaluate(
        """async (panel) => {
            const root = document.querySelector(panel);
            const slider = root.querySelector("[role=slider]");
            const said = [];
            slider.focus();
            for (const key of ["Home", ...Array(255).fill("ArrowRight")]) {
                slider.dispatchEvent(new KeyboardEvent("keydown", { key, code: key, keyCode: { Home: 36, ArrowRight: 39 }[key], bubbles: true }));
                await new Promise((done) => requestAnimationFrame(done));
                said.push(root.querySelector("[role=status]").textContent);
            }
            return said;
        }""",
        PANEL,
    )
    table = widths()
    for d, text in enumerate(told, 1):
        numbers = [int(n) for n in re.findall(r"(?:width |, )(\d+) ", text)]
        assert text.startswith(f"d_head = {d}: ")
        assert numbers == [table[name][d - 1] for name in ("buckets", "power of two", "exact")], text


def weigh(site: Path) -> dict[str, int]:
    """Bytes of the panel, gzipped: what the page carries for it, and what it loads later."""
    html = (site / PAGE).read_text("utf8")
    state = re.search(r'<script type="application/vnd.jupyter.widget-state\+json">(.*?)</script>', html, re.S)[1]
    models = json.loads(state)["state"]
    (view,) = (model for model in models.values() if model["state"].get("later_files"))
    later = view["state"]["later_files"]
    twin = re.search(r'<div class="sh-twin" data-twin="webgpu">.*?</svg>', html, re.S)[0]
    return {
        "page": len(gzip.compress((state + twin).encode(), 9)),
        **{
            name: len(gzip.compress((site / PAGE).parent.joinpath(file).read_bytes(), 9))
            for name, file in later.items()
        },
    }


def test_the_panel_is_light_and_what_is_heavy_waits(gpu, site):
    """What comes with the page and on arrival stays under 40 KB; kernels, clock and rules come with the button."""
    weights = weigh(site)
    assert weights["page"] + weights["browser_gpu_part"] < 30_000, weights
    assert weights["browser_gpu_bench"] < 38_000, weights
    asked: list[str] = []
    live = gpu(script="window.away = true")
    live.page.close()
    page = live.context.new_page()
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[-1].split("-")[0]))
    page.set_viewport_size({"width": 1280, "height": 200})
    page.route(
        "**/browser-gpu.html",
        lambda route: route.fulfill(
            body=(site / PAGE)
            .read_text("utf8")
            .replace('<div class="cell_output', '<div style="height: 4000px"></div><div class="cell_output', 1),
            content_type="text/html",
        ),
    )
    page.goto(live.page.url.split("#")[0] if live.page.url.startswith("http") else "")
    page.locator(PANEL + "[data-live]").wait_for(state="attached")
    page.wait_for_timeout(500)
    assert [name for name in asked if name.startswith("browser_gpu_")] == []
    page.locator(PANEL).scroll_into_view_if_needed()
    page.locator(".sh-webgpu[data-loaded]").wait_for(state="attached")
    assert [name for name in asked if name.startswith("browser_gpu_")] == ["browser_gpu_part"]
    page.get_by_role("button", name="Time my GPU").click()
    page.wait_for_function("() => globalThis.splitheadsParts.browser_gpu_bench")
    assert [name for name in asked if name.startswith("browser_gpu_")] == ["browser_gpu_part", "browser_gpu_bench"]


def test_a_part_that_does_not_come_says_so_and_can_be_asked_for_again(gpu):
    site = gpu()
    site.context.set_offline(True)
    button(site, "Time my GPU").click()
    expect(site.panel.locator(".sh-error")).to_have_text(
        "The rest of this panel could not be loaded: is the connection gone?"
    )
    assert button(site, "Time my GPU").is_enabled()
    expect(button(site, "Time my GPU")).to_be_focused()  # as before it was pressed
    site.context.set_offline(False)
    briefly(site)
    assert not site.panel.locator(".sh-error").is_visible()


# A run ----------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_a_run_measures_shows_and_can_be_exported_and_imported(gpu, tmp_path):
    site = gpu(QUICK + "&d_head=65")
    button(site, "Time my GPU").click()
    expect(button(site, "Stop")).to_be_enabled()
    assert button(site, "Import").is_disabled()
    measured(site)
    assert site.panel.locator(".sh-chart .sh-point").count() > 0
    assert "Measuring" in shown(site)
    until(site, "done")
    expect(site.panel.locator(".sh-news")).to_contain_text("Done")
    expect(heard(site)).to_contain_text("Done")
    expect(site.panel.locator(".sh-timing .sh-status")).to_contain_text("Time, forward, T = 64: longest ")
    assert (
        "on google swiftshader, in the browser, software adapter: the CPU computes; fp32, batch 1, "
        in site.panel.inner_text()
    )
    assert [b.inner_text() for b in site.panel.locator("[aria-label='Recording shown'] button").all()][1:] == ["yours"]
    recording = exported(site, tmp_path)
    assert (recording["device"]["type"], recording["device"]["name"]) == ("webgpu", "google swiftshader")
    assert [(p["backend"], p["d_head"], p["bucket"]) for p in recording["points"]] == [
        ("buckets", 64, 64), ("buckets", 65, 96), ("exact", 64, 64), ("exact", 65, 80)
    ]  # fmt: skip
    assert all(p["status"] == "ok" for p in recording["points"])
    file = next(tmp_path.iterdir())
    assert re.fullmatch(r"google-swiftshader-\d{4}-\d\d-\d\d\.json", file.name)
    told = site.panel.locator(".sh-timing").inner_text()

    other = gpu("")
    other.panel.locator("input[type=file]").set_input_files(file)
    expect(other.panel.locator(".sh-news")).to_have_text(f"Imported {file.name}.")
    assert other.panel.get_by_role("button", name=file.name).get_attribute("aria-pressed") == "true"
    expect(other.panel.locator(".sh-timing .sh-status")).to_contain_text("T = 64")  # it is drawn with the next frame
    drawn = other.panel.locator(".sh-timing").inner_text()
    run = re.compile(r"^.*?(?=Time, forward)|(Done|Imported)[^\n]*$", re.S)
    assert run.sub("", drawn) == run.sub("", told) != "", "the same chart, steps and facts"
    assert exported(other, tmp_path / "again") == recording if (tmp_path / "again").mkdir() is None else True
    assert site.seen.complaints == other.seen.complaints == []
    assert site.seen.foreign == other.seen.foreign == []


@pytest.mark.alone
def test_the_default_sweep_ends_in_about_ten_seconds(gpu):
    site = gpu("")
    took = site.page.evaluate(
        """(panel) => new Promise((done) => {
            const [root, begin] = [document.querySelector(panel), performance.now()];
            [...root.querySelectorAll("button")].find((b) => b.textContent === "Time my GPU").click();
            const look = () => root.querySelector(".sh-progress").dataset.state === "done" ? done(performance.now() - begin) : setTimeout(look, 20);
            look();
        })""",
        PANEL,
    )
    assert 8_000 < took < 12_000
    assert SECONDS[0] == "10"
    assert site.panel.locator(".sh-chart .sh-point").count() == 3 * len(SIZES[next(iter(SIZES))])


def test_stop_keeps_what_was_measured(gpu, tmp_path):
    site = gpu(f"seconds=2&kernels=1&seq_len={LENGTHS.index('64')}")
    button(site, "Time my GPU").click()
    measured(site)
    button(site, "Stop").click()
    until(site, "done")
    expect(site.panel.locator(".sh-news")).to_contain_text("Stopped")
    recording = exported(site, tmp_path)
    assert recording["ended"] == "interrupted"
    assert any(p["status"] == "ok" for p in recording["points"])
    assert site.panel.locator(".sh-chart .sh-point").count() == sum(p["status"] == "ok" for p in recording["points"])
    button(site, "Time my GPU").click()
    button(site, "Stop").click()
    until(site, "done")
    assert [b.inner_text() for b in site.panel.locator("[aria-label='Recording shown'] button").all()][1] == "yours"


LOSE = """
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...given) { return (window.device = await request.apply(this, given)); };
"""


def test_a_lost_device_keeps_the_points_and_goes_on(gpu, tmp_path):
    site = gpu(LONG, script=LOSE)
    button(site, "Time my GPU").click()
    measured(site)
    site.page.evaluate("device.destroy()")
    until(site, "lost")
    expect(heard(site)).to_contain_text("lost")
    assert "lost" in news(site).inner_text()
    expect(site.panel.locator(".sh-timing .sh-status")).to_contain_text("Waiting: ")
    kept = site.panel.locator(".sh-chart .sh-point").count()
    button(site, "Go on").click()
    until(site, "running")
    button(site, "Stop").click()
    until(site, "done")
    assert sum(p["status"] == "ok" for p in exported(site, tmp_path)["points"]) >= kept > 0
    assert site.seen.complaints == []


def test_a_lost_device_and_stop(gpu):
    site = gpu(LONG, script=LOSE)
    button(site, "Time my GPU").click()
    measured(site)
    site.page.evaluate("device.destroy()")
    until(site, "lost")
    button(site, "Stop").click()
    until(site, "done")
    expect(button(site, "Go on")).to_have_count(0)
    assert site.panel.locator(".sh-chart .sh-point").count() > 0


def test_a_hidden_tab_waits_and_says_so(gpu):
    hide = "Object.defineProperty(document, 'hidden', { get: () => window.isHidden ?? false, configurable: true });"
    site = gpu(LONG, script=hide)
    button(site, "Time my GPU").click()
    measured(site)
    site.page.evaluate("() => { window.isHidden = true; document.dispatchEvent(new Event('visibilitychange')); }")
    until(site, "paused")
    assert "background" in site.panel.locator(".sh-news").inner_text()
    assert "Press “Go on”" in site.panel.locator(".sh-news").inner_text()
    expect(site.panel.locator(".sh-timing .sh-status")).to_contain_text("Waiting: ")
    site.page.evaluate("() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }")
    button(site, "Go on").click()
    until(site, "running")
    button(site, "Stop").click()
    until(site, "done")


def test_a_tab_that_hides_while_the_kernels_are_loaded_waits_too(gpu):
    hide = "Object.defineProperty(document, 'hidden', { get: () => window.isHidden ?? false, configurable: true });"
    site = gpu(LONG, script=hide)
    site.page.evaluate("() => { window.isHidden = true; }")  # the event came before there was a run
    button(site, "Time my GPU").click()
    until(site, "paused")
    button(site, "Stop").click()
    expect(button(site, "Time my GPU")).to_be_enabled()


def test_two_panels_do_not_measure_at_once(gpu):
    site = gpu(LONG)
    site.page.evaluate("() => { globalThis.splitheadsMeasures = true; }")
    button(site, "Time my GPU").click()
    expect(site.panel.locator(".sh-error")).to_contain_text("Another panel of this page is measuring")
    site.page.evaluate("() => { globalThis.splitheadsMeasures = false; }")
    briefly(site)
    assert not site.panel.locator(".sh-error").is_visible()
    briefly(site)  # and the first run has left the place free


REFUSALS = {
    "no WebGPU": ("delete Navigator.prototype.gpu;", "This browser has no WebGPU"),
    "no adapter": ("if (navigator.gpu) GPU.prototype.requestAdapter = async () => null;", "gives this page no GPU"),
    "no device": (
        "if (navigator.gpu) GPUAdapter.prototype.requestDevice = async () => { throw new Error('all taken'); };",
        "could not open it (all taken)",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_without_a_gpu_one_sentence_says_why_and_the_recorded_sweep_stays(gpu, name):
    script, words = REFUSALS[name]
    site = gpu("", script=script)
    button(site, "Time my GPU").click()
    until(site, "refused")
    said = site.panel.locator(".sh-news")
    assert words in said.inner_text()
    assert heard(site).inner_text() == said.inner_text()
    assert site.panel.locator(".sh-chart .sh-point").count() == len(load(STORED[0])["points"])
    assert button(site, "Time my GPU").is_enabled()
    assert button(site, "Import").is_enabled()
    assert site.seen.complaints == []


def test_where_there_is_no_webgpu_it_is_said_at_once(gpu):
    site = gpu("", script=REFUSALS["no WebGPU"][0])
    expect(site.panel.locator(".sh-news")).to_contain_text("This browser has no WebGPU")
    site.panel.locator("input[type=file]").set_input_files(
        {"name": "cut.json", "mimeType": "application/json", "buffer": b'{"kind":'}
    )
    expect(site.panel.locator(".sh-error")).to_contain_text("cut.json")
    expect(site.panel.locator(".sh-news")).to_contain_text("This browser has no WebGPU")


def test_from_a_file_it_works_or_says_that_it_does_not(gpu, site, tmp_path):
    live = gpu(LONG, url=site.as_uri())
    if live.page.evaluate("Boolean(navigator.gpu)"):
        briefly(live)
        exported(live, tmp_path)
    else:
        expect(live.panel.locator(".sh-news")).to_contain_text("file")
    assert live.seen.complaints == []


def test_fp16_is_refused_by_name_where_the_gpu_has_none(gpu):
    site = gpu(LONG + "&dtype=1")
    button(site, "Time my GPU").click()
    until(site, "refused")
    assert "fp16" in site.panel.locator(".sh-news").inner_text()


def test_a_wrong_kernel_is_shown_and_not_timed(gpu):
    spoil = """
    const make = GPUDevice.prototype.createShaderModule;
    GPUDevice.prototype.createShaderModule = function (given) {
        return make.call(this, { ...given, code: given.code.replace("o0 *= shrink;", "") });
    };"""
    site = gpu(LONG, script=spoil)
    button(site, "Time my GPU").click()
    site.page.wait_for_function(
        "(panel) => ['failed', 'done'].includes(document.querySelector(`${panel} .sh-progress`).dataset.state)",
        arg=PANEL,
    )
    assert re.search(r"check|wrong|differ|off", site.panel.locator(".sh-news").inner_text())
    assert "yours" not in site.panel.locator("[aria-label='Recording shown']").inner_text()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("cut.json", lambda text: text[: len(text) // 2], "ends in the middle"),
        ("other.json", lambda text: '{"kind": "other"}', "no recording of the timing lab"),
        ("table.csv", lambda text: "d,t\n1,2\n", "is not JSON"),
        ("newer.json", lambda text: text.replace('"schema": 1', '"schema": 2'), "newer version"),
        ("edited.json", lambda text: re.sub(r'"median_s": [\d.e-]+', '"median_s": -1', text, count=1), "median_s = -1"),
        ("empty.json", lambda text: "", "is empty"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_one_sentence(gpu, tmp_path, name, text, words):
    site = gpu("")
    before = site.panel.locator(".sh-timing").inner_text()
    file = tmp_path / name
    file.write_text(text(STORED[0].read_text("utf8")), "utf8")
    site.panel.locator("input[type=file]").set_input_files(file)
    error = site.panel.locator(".sh-error")
    expect(error).to_be_visible()
    assert words in error.inner_text()
    assert error.get_attribute("role") == "alert"
    assert error.inner_text().startswith(name)
    assert site.panel.locator(".sh-timing").inner_text() == before
    assert site.seen.complaints == []


def test_a_recording_of_the_timing_lab_can_be_imported(gpu):
    site = gpu("")
    file = sorted(FOLDER.glob("*.json"))[0]
    site.panel.locator("input[type=file]").set_input_files(file)
    expect(site.panel.get_by_role("button", name=file.name)).to_have_attribute("aria-pressed", "true")
    assert not site.panel.locator(".sh-caveat").is_visible(), "PyTorch's kernels are no teaching kernel"
    expect(site.panel.locator(".sh-chart .sh-point").first).to_have_attribute("data-kind", re.compile("^(FLASH|MATH)$"))


def test_a_file_twice_is_one_recording_and_what_is_refused_leaves_no_praise(gpu, tmp_path):
    site = gpu("")
    text = STORED[0].read_text("utf8")
    (tmp_path / "a").mkdir()
    names = [tmp_path / "one.json", tmp_path / "a" / "one.json", tmp_path / "cut.json"]
    names[0].write_text(text, "utf8")
    names[1].write_text(text.replace('"seed": ', '"seed": 1'), "utf8")
    names[2].write_text(text[:99], "utf8")
    for file, due in (
        (0, ["one.json*"]),
        (0, ["one.json*"]),
        (1, ["one.json", "one.json (2)*"]),
        (0, ["one.json*", "one.json (2)"]),
    ):
        site.panel.locator("input[type=file]").set_input_files(names[file])
        expect(site.panel.locator("[aria-label='Recording shown'] button")).to_have_count(1 + len(due))
        site.page.wait_for_function("(panel) => !document.querySelector(`${panel} input[type=file]`).value", arg=PANEL)
        expect(button(site, due[[d[-1] for d in due].index("*")][:-1])).to_have_attribute("aria-pressed", "true")
        assert chips(site)[1:] == due
    expect(news(site)).to_contain_text("Imported one.json.")
    site.panel.locator("input[type=file]").set_input_files(names[2])
    expect(site.panel.locator(".sh-error")).to_contain_text("cut.json")
    assert news(site).inner_text().startswith("Ready.")


def test_the_answer_for_80_in_place_of_64_is_the_recordings(gpu):
    site = gpu("d_head=80")
    at = {(p["backend"], p["d_head"]): p for p in load(STORED[0])["points"]}
    told = []
    for name, table in widths().items():
        one, other = at[name, 64], at[name, 80]
        ratio = other["median_s"] / 80 / (one["median_s"] / 64)
        low = other["interval_s"][0] / 80 / (one["interval_s"][1] / 64)
        high = other["interval_s"][1] / 80 / (one["interval_s"][0] / 64)
        told.append(
            f"{name} × {ratio:.2f} ({low:.2f} to {high:.2f}; by width alone {table[79] / 80 / (table[63] / 64):.2f})"
        )
    answer = site.panel.locator(".sh-answer")
    due = f"d_head 80 in place of 64, time of a useful operation: {', '.join(told)}."
    numbers = r"\d+\.\d\d"
    assert re.sub(numbers, "", answer.inner_text()) == re.sub(numbers, "", due)
    for got, expected in zip(re.findall(numbers, answer.inner_text()), re.findall(numbers, due), strict=True):
        assert abs(float(got) - float(expected)) < 0.0101  # the page has four digits of each time
    other = gpu("d_head=72")
    assert "not in this recording" in other.panel.locator(".sh-answer").inner_text()
    same = gpu("d_head=64")
    assert "another d_head than 64" in same.panel.locator(".sh-answer").inner_text()


def test_a_reader_who_looks_at_another_recording_stays_there(gpu):
    site = gpu(LONG)
    button(site, "Time my GPU").click()
    measured(site)
    assert chips(site)[1:] == ["yours*"]
    site.panel.locator("[aria-label='Recording shown'] button").first.click()
    button(site, "Stop").click()
    until(site, "done")
    expect(button(site, "Time my GPU")).to_be_enabled()
    assert [chip[-1] == "*" for chip in chips(site)] == [True, False]
    assert shown(site).startswith("Time, forward, T = 256")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_chart_stays_where_it_is_when_a_run_begins_and_ends(gpu, width):
    site = gpu(LONG, width=width)
    site.page.wait_for_timeout(200)
    top = "(panel) => document.querySelector(`${panel} .sh-chart`).getBoundingClientRect().top + scrollY"
    before = site.page.evaluate(top, PANEL)
    button(site, "Time my GPU").click()
    places = set()
    measured(site)
    places.add(round(site.page.evaluate(top, PANEL) - before))
    button(site, "Stop").click()
    until(site, "done")
    site.page.wait_for_timeout(200)
    places.add(round(site.page.evaluate(top, PANEL) - before))
    assert max(map(abs, places)) <= (0 if width > 500 else 40), places  # a second chip takes a second row on a phone


def test_memory_has_no_padding_steps_and_a_sample_is_called_one(gpu):
    site = gpu(f"plot={PLOTS.index('memory')}")
    assert site.panel.locator(".sh-chart").get_by_text("padding step").count() == 0
    assert "memory" not in site.panel.locator("ol.sh-steps").first.inner_text()
    other = gpu("")
    assert other.panel.locator(".sh-chart").get_by_text("padding step").count() > 0
    other.panel.locator(".sh-chart").focus()
    other.page.keyboard.press("Home")
    assert re.search(r"median of \d+ samples;", other.panel.locator(".sh-readout").inner_text())


def test_the_keyboard_alone_runs_stops_and_walks_the_chart(gpu):
    site = gpu(LONG)
    button(site, "Time my GPU").focus()
    site.page.keyboard.press("Enter")
    expect(button(site, "Stop")).to_be_focused()
    measured(site)
    site.page.keyboard.press("Space")
    until(site, "done")
    expect(button(site, "Time my GPU")).to_be_focused()
    site.panel.locator(".sh-chart").focus()
    site.page.keyboard.press("Home")
    assert "d_head 64" in site.panel.locator(".sh-readout").inner_text()
    assert "FUSED ran" in site.panel.locator(".sh-readout").inner_text()


def test_the_kernel_can_be_read_for_the_width_that_the_head_gets(gpu):
    site = gpu("d_head=80")
    fold = site.panel.locator(".sh-kernel")
    fold.locator("summary").click()
    expect(fold.locator("code")).to_contain_text("compiled for heads of up to 96 columns")
    assert fold.locator("summary").inner_text() == "The kernel in WGSL, as it is compiled for width 96, fp32"
    assert "//" in fold.locator("code").inner_text(), "the comments are for readers"
    assert len(fold.locator("code").inner_text().splitlines()) > 60
    assert [b.inner_text() for b in fold.get_by_role("button").all()] == [
        "buckets: 96", "power of two: 128", "exact: 80", "unfused"
    ]  # fmt: skip
    fold.get_by_role("button", name="power of two").click()
    expect(fold.locator("code")).to_contain_text("compiled for heads of up to 128 columns")
    expect(fold.get_by_role("button", name="power of two")).to_be_focused()
    fold.get_by_role("button", name="unfused").click()
    expect(fold.locator("code")).to_contain_text("Softmax of four rows of scores")
    site.panel.get_by_label("dtype").select_option("fp16")
    expect(fold.locator("code")).to_contain_text("enable f16;")
    assert fold.locator("summary").inner_text() == "The kernel in WGSL, unfused, fp16"


def test_the_state_is_in_the_address(gpu):
    site = gpu("d_head=33&sizes=1&kernels=3&seq_len=2&dtype=0&seconds=1&plot=1")
    assert site.panel.get_by_label("kernels").evaluate("(s) => s.selectedIndex") == 3
    assert site.panel.locator("[role=status]").first.inner_text().startswith("d_head = 33: compiled width 64")
    site.panel.get_by_label("T", exact=True).select_option("128")
    site.page.wait_for_function(f"() => location.hash.includes('seq_len={LENGTHS.index('128')}')")
    assert site.panel.locator(".sh-timing").get_attribute("data-plot") == "throughput"


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1280)])
def test_axe_and_a_phone_are_content_after_a_run(gpu, theme, width):
    site = gpu(LONG, theme=theme, width=width)
    briefly(site)
    site.panel.locator(".sh-kernel summary").click()
    expect(site.panel.locator(".sh-kernel code")).to_contain_text("compute")
    serious = [
        f"{v['id']}: {[n['html'][:160] for n in v['nodes']][:3]}"
        for v in Axe().run(site.page, context=PANEL).response["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert site.page.evaluate("document.scrollingElement.scrollWidth") == width
    small = site.page.evaluate(
        """(panel) => [...document.querySelectorAll(`${panel} :is(button, select, summary)`)]
            .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24).map((e) => e.outerHTML.slice(0, 80))""",
        PANEL,
    )
    assert small == []
