"""The page's attention kernels and the bench that times them, in a Chromium whose WebGPU adapter is SwiftShader."""

from __future__ import annotations

import struct

import pytest
from splitheads.panels.browser_gpu import MOST, POLICIES, widths
from splitheads.panels.kit import esm
from splitheads.timing.analyse import PADDING_STEP, analyse, order_statistics
from splitheads.timing.record import validate

MODULE = (
    esm("gpu_bench", "gpu_absent", "flash_wgsl")
    + "\nexport { flashSource, unfusedSources, workgroupBytes, GROUPS, BINDINGS, ROWS, gpuAbsent };"
)
TABLE = {str(n): order_statistics(n, 0.95) for n in range(1, 3000)}
SIZES = list(range(16, 129, 16))

LOAD = """async ([text, table]) => {
    window.bench = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    window.sweep = (plan) => {
        window.news = [];
        window.run = bench.startSweep({ ...plan, order_statistics: (n) => table[n] }, (one) => news.push(structuredClone(one)));
        window.recording = null;
        window.ended = run.promise.then((recording) => { window.recording = recording; return recording; });
    };
}"""


@pytest.fixture
def bench(gpu_page):
    """bench(*init scripts, module=...) -> a page that has the bench as `bench` and starts a sweep by `sweep(plan)`."""

    def start(*scripts: str, module: str = MODULE, **options):
        page = gpu_page(*scripts, **options)
        page.evaluate(LOAD, [module, TABLE])
        return page

    return start


def plan(**changes) -> dict:
    """A short sweep of three kernels."""
    asked = {
        "d_heads": [16, 24, 32],
        "series": ["buckets", "exact"],
        "widths": widths(),
        "dtype": "fp32",
        "budget_s": 6,
        "seed": 1,
        "seq_len": 64,
        "n_heads": 1,
        "version": "1.0",
        "command": "test",
    }
    return asked | changes


def swept(page, **changes) -> dict:
    """The recording of a whole sweep, checked where there is one."""
    page.evaluate("plan => { sweep(plan) }", plan(**changes))
    recording = page.evaluate("() => ended")
    if recording:
        validate(recording)
    return recording


def briefly(page, **changes) -> dict:
    """The same, with time enough on any machine: stopped when all that can be measured has a few samples."""
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=90, **changes))
    page.wait_for_function(
        """() => recording || news.some(({ points, total }) =>
            points.length === total && points.every(({ status, repeats }) => status !== "ok" || repeats > 4))"""
    )
    page.evaluate("() => run.stop()")
    recording = page.evaluate("() => ended")
    validate(recording)
    return recording


def quiet(page, clear, **changes) -> dict:
    """A whole sweep; while the machine is too noisy for the picture to be `clear`, a longer one."""
    for budget_s in (30, 60, 120):
        recording = swept(page, budget_s=budget_s, seq_len=256, **changes)
        if clear(recording):
            break
    return recording


def last(page) -> dict:
    return page.evaluate("() => news.at(-1)")


def until(page, condition: str) -> None:
    page.wait_for_function(condition, polling=20)


# The kernels --------------------------------------------------------------------------------------


def test_each_head_size_is_right_in_each_policy_at_two_odd_lengths(bench):
    """Against 64 bits: all of 37 rows, of one head or two, and rows at the edges of tiles and workgroups of 131."""
    pairs = sorted({(rule(d), d) for rule in POLICIES.values() for d in range(1, MOST + 1)})
    assert {width for width, _ in pairs} == set(range(16, 257, 16))
    assert len(pairs) > 500
    page = bench()
    found = page.evaluate(
        """async (pairs) => {
            const { device } = await bench.openGpu();
            const every = Array.from({ length: 37 }, (_, i) => i);
            const found = [];
            const look = async (kernel, width, d, shape) => {
                const one = await bench.checkKernel(device, kernel, d, "fp32", shape);
                if (!one.ok || one.worst > 2e-6) found.push([width, d, shape.tokens, one]);
                window.worst = Math.max(window.worst ?? 0, one.worst);
            };
            const kernels = new Map();
            let going = [];
            for (const [width, d] of [...pairs, ...Array.from({ length: 256 }, (_, i) => [0, i + 1])]) {
                const texts = width ? { fused: bench.flashSource(width, "fp32") } : bench.unfusedSources("fp32");
                if (!kernels.has(width)) kernels.set(width, await bench.compileKernel(device, texts));
                going.push(look(kernels.get(width), width, d, { tokens: 37, heads: 2 - (d % 2), rows: every }));
                going.push(look(kernels.get(width), width, d, { tokens: 131, heads: 1, rows: [0, 32, 127, 128, 130] }));
                if (going.length < 12) continue;
                await Promise.all(going);
                going = [];
            }
            await Promise.all(going);
            return found;
        }""",
        pairs,
    )
    assert found == []
    assert 0 < page.evaluate("() => worst") < 2e-6
    assert page.complaints == []


BROKEN = {
    "the result does not shrink when a larger score comes": ("o0 *= shrink;", ""),
    "the sum of weights does not shrink": ("total *= shrink;", ""),
    "keys beyond the last token count": ("select(LOWEST, sum, first + k < shape.tokens)", "sum"),
    "a lane's part is left out": (" + parts[at + 1u]", ""),
    "one column too few": ("dots += q1 *", "dots += 0.0 * q1 *"),
    "no scale": ("let factor = shape.scale *", "let factor ="),
    "the wrong head's values": ("loaded = value[base + ", "loaded = value["),
    "the last tile is left out": ("first < shape.tokens; first", "first + KEYS <= shape.tokens; first"),
}


def test_the_check_catches_broken_kernels(bench):
    """Each of them compiles and runs; it must be the check of the sweep itself, at its own shape, that refuses it."""
    found = bench().evaluate(
        """async (broken) => {
            const { device } = await bench.openGpu();
            const good = bench.flashSource(32, "fp32");
            const parts = bench.unfusedSources("fp32");
            const verdicts = {};
            const look = async (name, texts) => {
                verdicts[name] = await bench.checkKernel(device, await bench.compileKernel(device, texts), 31, "fp32");
            };
            await look("good", { fused: good });
            for (const [name, [old, changed]] of Object.entries(broken)) {
                if (!good.includes(old)) throw new Error(`nothing to break: ${old}`);
                await look(name, { fused: good.replaceAll(old, changed) });
            }
            await look("good, unfused", parts);
            await look("unfused: not divided", { ...parts, softmax: parts.softmax.replace(" / total)", ")") });
            await look("unfused: columns left out", { ...parts, scores: parts.scores.replace("c < 4u; c++", "c < 3u; c++") });
            await look("unfused: rows left out", { ...parts, values: parts.values.replace("i < 4u; i++) { sums", "i < 1u; i++) { sums") });
            return verdicts;
        }""",
        BROKEN,
    )
    assert len(found) == len(BROKEN) + 5
    wrong = {name for name, verdict in found.items() if not verdict["ok"]}
    assert set(found) - wrong == {"good", "good, unfused"}
    assert all(found[name]["worst"] > 1e-3 and found[name]["at"] for name in wrong)


def test_workgroup_memory_fits_what_every_webgpu_promises(bench):
    """And the number is that of the text: what it declares, added up."""
    told = bench().evaluate(
        """() => [16, 32, 64, 96, 128, 144, 192, 240, 256].flatMap((width) => ["fp32", "fp16"].map((dtype) => {
            const declared = [...bench.flashSource(width, dtype).matchAll(/var<workgroup> (\\w+): array<(\\w+), (\\d+)>/g)]
                .reduce((sum, [, , kind, n]) => sum + Number(n) * (kind === "Item" ? (dtype === "fp16" ? 8 : 16) : 4), 0);
            return [bench.workgroupBytes(width, dtype), declared];
        }))"""
    )
    assert all(bytes_ == declared <= 16384 for bytes_, declared in told)


def test_half_precision_is_rounded_as_ieee_says(bench):
    values = [0.0, 1.0, -1.0, 1 / 3, -2.7182, 65504.0, 1e-4, 0.1, 2049.0, 2051.0, 1.00048828125, 5.96e-8]
    bits, back = bench().evaluate("v => [v.map(bench.toHalf), v.map((x) => bench.fromHalf(bench.toHalf(x)))]", values)
    for value, found, again in zip(values, bits, back, strict=True):
        due = struct.unpack("<H", struct.pack("<e", value))[0]
        if abs(value) > 6.2e-5 or value == 0:
            assert found == due, value
            assert again == struct.unpack("<e", struct.pack("<e", value))[0]
        else:
            assert found == 0


# A sweep ------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_the_steps_that_are_found_are_the_edges_of_the_widths(bench):
    """Flat within a width, a step above the noise where the next one begins."""
    page = bench()
    edges = {32: 33, 64: 65, 96: 97}
    sizes = sorted([16, 48, 80, 112, 128, *edges, *edges.values()])

    def a_staircase(recording: dict) -> bool:
        times = {p["d_head"]: p["median_s"] for p in recording["points"]}
        return (
            {step.before["d_head"]: step.after["d_head"] for step in analyse(recording).steps} == edges
            and all(
                max(times[d] for d in inside) < 1.06 * min(times[d] for d in inside)
                for inside in ((16, 32), (33, 48, 64), (65, 80, 96), (97, 112, 128))
            )
            and all(times[after] > 1.15 * times[before] for before, after in edges.items())
        )

    recording = quiet(page, a_staircase, d_heads=sizes, series=["buckets"])
    found = analyse(recording)
    assert all(point["status"] == "ok" and point["observed"] == "FUSED" for point in recording["points"])
    assert a_staircase(recording), (found.steps, [(p["d_head"], p["median_s"]) for p in recording["points"]])
    assert {step.kind for step in found.steps} == {PADDING_STEP}
    assert found.changes == found.gains == ()
    told = page.evaluate("() => news")
    assert [state for i, state in enumerate(n["state"] for n in told) if i == 0 or told[i - 1]["state"] != state] == [
        "opening",
        "checking",
        "calibrating",
        "measuring",
        "done",
    ]
    assert len(told[-1]["checked"]) == 4
    assert all(one["ok"] for one in told[-1]["checked"].values())
    assert page.complaints == []


@pytest.mark.alone
def test_no_step_is_found_where_the_width_follows_the_head(bench):
    """Multiples of 16, each with a kernel of its own: a wider head takes more time, and no more of it per useful operation."""
    page = bench()

    def a_ramp(recording: dict) -> bool:
        times = [p["median_s"] for p in recording["points"]]
        return times == sorted(times) and analyse(recording).steps == ()

    recording = quiet(page, a_ramp, d_heads=SIZES, series=["exact"])
    assert a_ramp(recording), [(p["d_head"], p["median_s"]) for p in recording["points"]]
    assert all(p["bucket"] == p["d_head"] and p["status"] == "ok" for p in recording["points"])
    assert page.complaints == []


@pytest.mark.alone
def test_unfused_is_slower_and_heavier_at_a_long_T(bench):
    recording = swept(bench(), d_heads=[16], series=["exact", "unfused"], seq_len=384, budget_s=12)
    fused, unfused = recording["points"]
    assert unfused["interval_s"][0] > 1.1 * fused["interval_s"][1]
    assert fused["peak_bytes"] == 4 * 384 * 16 * 4
    assert unfused["peak_bytes"] == fused["peak_bytes"] + 384 * 384 * 4
    (change,) = analyse(recording).changes
    assert change.after["backend"] == "unfused"
    assert change.memory_ratio == unfused["peak_bytes"] / fused["peak_bytes"]
    assert (fused["observed"], fused["bucket"]) == ("FUSED", 16)
    assert (unfused["observed"], unfused["bucket"]) == ("UNFUSED", None)


@pytest.mark.alone
def test_a_sweep_keeps_to_its_time_and_leaves_the_page_alone(bench):
    page = bench()
    page.evaluate(
        """() => {
            window.gap = 0;
            let before = performance.now();
            setInterval(() => { const now = performance.now(); gap = Math.max(gap, now - before); before = now; }, 1);
        }"""
    )
    began = page.evaluate("() => performance.now()")
    recording = swept(page, budget_s=5, seq_len=0, n_heads=0)
    seconds = (page.evaluate("() => performance.now()") - began) / 1e3
    assert recording["ended"] in ("budget", "complete")
    assert seconds < 5.5
    if recording["ended"] == "budget":
        assert seconds > 4.5
    assert page.evaluate("() => gap") < 120, "30 ms are its own limit; the machine is slow and shared"
    times = page.evaluate("() => news.filter(({ state }) => state === 'measuring').map(({ done_s }) => done_s)")
    assert len(times) <= 5 * seconds + 2
    assert recording["plan"]["seq_lens"][0] in (64, 128, 256, 512, 1024, 2048, 4096)
    assert recording["duration_s"] == pytest.approx(seconds, abs=1.2)


@pytest.mark.alone
def test_no_submission_is_longer_than_the_limit_says(bench):
    """Of the GPU's own clock: no pass of the whole sweep, calibration included, may come near what resets a driver."""
    page = bench()
    page.evaluate(
        """() => {
            window.passes = [];
            const { pass } = Object.getPrototypeOf(bench.startSweep({ series: [], d_heads: [], seed: 1, widths: {} })).constructor.prototype;
            window.watch = (run) => { run.pass = async (...given) => { const s = await pass.apply(run, given); passes.push([given[1], s]); return s; }; };
        }"""
    )
    page.evaluate("plan => { sweep(plan); watch(run); }", plan(d_heads=[16, 64], seq_len=0, n_heads=0, budget_s=7))
    page.evaluate("() => ended")
    passes = page.evaluate("() => passes")
    assert len(passes) > 20
    assert sorted(seconds for _, seconds in passes)[int(0.9 * len(passes))] < 0.06


def test_a_T_that_would_take_too_long_is_refused_for_its_points_and_not_run(bench):
    page = bench()
    recording = swept(page, d_heads=[16, 128], series=["exact", "unfused"], seq_len=2048, n_heads=4, budget_s=60)
    assert {point["status"] for point in recording["points"]} == {"skipped"}
    for point in recording["points"]:
        assert "at T = 2048 with 4 heads would take about" in point["reason"]
        assert "50 ms" in point["reason"]
    assert last(page)["state"] == "failed"
    assert "Nothing could be timed" in last(page)["text"]


def test_three_lines_of_one_kernel_are_timed_once(bench):
    """And the recording, where its times stand three times, still adds up to its duration."""
    page = bench()
    recording = briefly(
        page,
        d_heads=[16],
        series=["buckets", "power of two", "exact"],
        widths={name: [16] * MOST for name in widths()},
        seq_len=128,
    )
    assert len({tuple(p["interval_s"]) for p in recording["points"]}) == 1
    assert page.evaluate("() => run.tasks.size") == 1


# What can go wrong --------------------------------------------------------------------------------

MEASURING = "() => news.some(({ state, points }) => state === 'measuring' && points.length === 6)"


def test_stop_keeps_what_was_measured(bench):
    page = bench()
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=60))
    until(page, MEASURING)
    page.evaluate("() => run.stop()")
    recording = page.evaluate("() => ended")
    validate(recording)
    assert recording["ended"] == "interrupted"
    assert [point["status"] for point in recording["points"]] == ["ok"] * 6
    assert last(page)["state"] == "stopped"
    assert page.evaluate("() => run.state") == "stopped"


def test_stop_while_kernels_are_compiled(bench):
    page = bench()
    page.evaluate("plan => { sweep(plan) }", plan(d_heads=[250], budget_s=60))
    until(page, "() => news.some(({ state }) => state === 'checking')")
    page.evaluate("() => run.stop()")
    recording = page.evaluate("() => ended")
    validate(recording)
    assert {point["reason"] for point in recording["points"]} == {"interrupted before this point was measured"}


@pytest.mark.alone
def test_a_sweep_that_is_all_compiling_ends_in_time(bench):
    page = bench(
        """const make = GPUDevice.prototype.createComputePipelineAsync;
        GPUDevice.prototype.createComputePipelineAsync = async function (given) {
            await new Promise((done) => setTimeout(done, 4000));
            return make.call(this, given);
        };"""
    )
    began = page.evaluate("() => performance.now()")
    recording = swept(page, budget_s=1)
    assert page.evaluate("() => performance.now()") - began < 3000
    assert recording["ended"] == "budget"
    assert {point["status"] for point in recording["points"]} == {"skipped"}
    assert "the time was over" in last(page)["text"]


KEEP_DEVICE = """
    const ask = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (...given) {
        window.devices = [...(window.devices ?? []), await ask.apply(this, given)];
        return devices.at(-1);
    };
"""

SLOW_COMPILER = """const make = GPUDevice.prototype.createComputePipelineAsync;
GPUDevice.prototype.createComputePipelineAsync = async function (given) {
    await new Promise((done) => setTimeout(done, 6000));
    return make.call(this, given);
};"""


def test_stop_is_heard_at_once_whatever_is_waited_for(bench):
    page = bench("if (navigator.gpu) GPU.prototype.requestAdapter = () => new Promise(() => {});")
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=60))
    until(page, "() => news.some(({ state }) => state === 'opening')")
    page.evaluate("() => run.stop()")
    assert page.evaluate("() => ended") is None
    assert last(page)["text"] == "Stopped before anything was measured."

    page = bench(SLOW_COMPILER)
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=60))
    until(page, "() => news.some(({ state }) => state === 'checking')")
    took = page.evaluate(
        """async () => {
            run.pause();
            run.goOn();
            const begin = performance.now();
            run.stop();
            await ended;
            return performance.now() - begin;
        }"""
    )
    assert took < 2000
    assert last(page)["state"] == "stopped"


@pytest.mark.alone
def test_compiling_in_a_pause_costs_no_time(bench):
    page = bench(SLOW_COMPILER.replace("6000", "2500"))
    page.evaluate("plan => { sweep(plan) }", plan(d_heads=[16], series=["exact"], budget_s=2))
    until(page, "() => news.some(({ state }) => state === 'checking')")
    page.evaluate("() => run.pause()")
    page.wait_for_timeout(3500)
    assert page.evaluate("() => [run.state, recording]") == ["paused", None]
    page.evaluate("() => run.goOn()")
    validate(page.evaluate("() => ended"))


def test_a_GPU_that_is_lost_in_a_pause_is_told_at_once(bench):
    page = bench(KEEP_DEVICE)
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=60))
    until(page, MEASURING)
    page.evaluate("() => run.pause('hidden')")
    page.wait_for_timeout(300)
    page.evaluate("() => devices[0].destroy()")
    until(page, "() => run.state === 'lost'")
    page.evaluate("() => { window.before = news.length; run.goOn(); }")
    until(page, MEASURING.replace("news.some", "news.slice(before).some"))
    page.evaluate("() => run.stop()")
    validate(page.evaluate("() => ended"))
    assert page.evaluate("() => devices.length") == 2


@pytest.mark.alone
def test_a_pause_costs_no_time_and_no_sample(bench):
    page = bench()
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=5))
    until(page, MEASURING)
    page.evaluate("() => run.pause('hidden')")
    assert last(page)["state"] == "paused"
    assert "background" in last(page)["text"]
    page.wait_for_timeout(300)
    before = page.evaluate(
        "() => [run.elapsed(), news.length, [...run.tasks.values()].map(({ samples }) => samples.length)]"
    )
    page.wait_for_timeout(1500)
    assert (
        page.evaluate(
            "() => [run.elapsed(), news.length, [...run.tasks.values()].map(({ samples }) => samples.length)]"
        )
        == before
    )
    assert page.evaluate("() => run.state") == "paused"
    page.evaluate("() => run.goOn()")
    recording = page.evaluate("() => ended")
    validate(recording)
    assert last(page)["state"] == "done"
    assert recording["duration_s"] <= 6
    assert {point["status"] for point in recording["points"]} == {"ok"}


def test_stop_ends_a_pause(bench):
    page = bench()
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=30))
    until(page, MEASURING)
    page.evaluate("() => { run.pause(); run.stop(); }")
    assert page.evaluate("() => ended")["ended"] == "interrupted"


@pytest.mark.parametrize("moment", ["checking", "calibrating", "measuring"])
def test_a_lost_GPU_keeps_the_points_and_can_be_opened_again(bench, moment):
    page = bench(KEEP_DEVICE)
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=90))
    until(page, MEASURING if moment == "measuring" else f"() => news.some(({{ state }}) => state === '{moment}')")
    page.evaluate("() => devices[0].destroy()")
    until(page, "() => run.state === 'lost'")
    told = last(page)
    assert "lost the GPU" in told["text"]
    assert len(told["points"]) == (6 if moment == "measuring" else len(told["points"]))
    kept = page.evaluate(
        "() => [...run.tasks.values()].map(({ samples }) => samples.slice(0, 1)).filter((s) => s.length)"
    )
    page.evaluate("() => { window.before = news.length; run.goOn(); }")
    until(page, MEASURING.replace("news.some", "news.slice(before).some"))
    page.evaluate("() => run.stop()")
    recording = page.evaluate("() => ended")
    validate(recording)
    assert page.evaluate("() => devices.length") == 2
    assert {point["status"] for point in recording["points"]} == {"ok"}
    samples = page.evaluate("() => [...run.tasks.values()].map(({ samples }) => samples)")
    assert all(any(one[0] in many for many in samples) for one in kept)
    assert not [line for line in page.complaints if "uncaught" in line]


def test_a_GPU_that_does_not_come_back_can_be_asked_for_again(bench):
    page = bench(KEEP_DEVICE)
    page.evaluate("plan => { sweep(plan) }", plan(budget_s=90))
    until(page, MEASURING)
    page.evaluate(
        """() => {
            window.give = GPU.prototype.requestAdapter;
            GPU.prototype.requestAdapter = async () => null;
            devices[0].destroy();
        }"""
    )
    until(page, "() => run.state === 'lost'")
    page.evaluate("() => { run.goOn(); }")
    until(page, "() => run.state === 'lost' && /gives this page no GPU/.test(news.at(-1).text)")
    page.evaluate("() => { window.before = news.length; GPU.prototype.requestAdapter = give; run.goOn(); }")
    until(page, MEASURING.replace("news.some", "news.slice(before).some"))
    page.evaluate("() => run.stop()")
    validate(page.evaluate("() => ended"))


def test_buffers_larger_than_the_limits_are_not_asked_for(bench):
    """The scores of unfused attention are too large for this GPU, the rest is not."""
    page = bench(
        """for (const name of ["maxStorageBufferBindingSize", "maxBufferSize"]) {
            Object.defineProperty(GPUSupportedLimits.prototype, name, { get: () => 50000 });
        }
        const ask = GPUAdapter.prototype.requestDevice;
        GPUAdapter.prototype.requestDevice = function ({ requiredFeatures }) { return ask.call(this, { requiredFeatures }); };"""
    )
    recording = briefly(page, d_heads=[16, 32], series=["exact", "unfused"], seq_len=128)
    by = {(p["backend"], p["d_head"]): p for p in recording["points"]}
    assert by["exact", 16]["status"] == by["exact", 32]["status"] == "ok"
    for d in (16, 32):
        assert by["unfused", d]["status"] == "skipped"
        assert "memory" in by["unfused", d]["reason"]
        assert "65,536" in by["unfused", d]["reason"]


def test_out_of_memory_skips_what_needs_most_and_goes_on(bench):
    """A driver says so only when the buffers are made."""
    page = bench(
        """const make = GPUDevice.prototype.createBuffer;
        const pop = GPUDevice.prototype.popErrorScope;
        let short = 0;
        GPUDevice.prototype.createBuffer = function (given) {
            if (given.size === 256 * 64 * 4) short = 3;
            return make.call(this, given);
        };
        GPUDevice.prototype.popErrorScope = async function () {
            const found = await pop.call(this);
            return short-- > 0 ? new GPUOutOfMemoryError("no room") : found;
        };"""
    )
    recording = briefly(page, d_heads=[32, 64], series=["exact"], seq_len=256)
    small, large = recording["points"]
    assert small["status"] == "ok"
    assert large["status"] == "skipped"
    assert "262,144 bytes" in large["reason"]


def test_a_kernel_that_fails_its_check_is_shown_and_not_timed(bench):
    broken = MODULE.replace("let factor = shape.scale *", "let factor = ${width === 32 ? '' : 'shape.scale *'}")
    assert broken != MODULE
    page = bench(module=broken)
    recording = briefly(page)
    by = {(p["backend"], p["d_head"]): p for p in recording["points"]}
    assert by["exact", 16]["status"] == "ok"
    for point in (by["buckets", 16], by["buckets", 24], by["exact", 32]):
        assert point["status"] == "failed"
        assert "failed its check: off by" in point["reason"]
        assert "is due" in point["reason"]
    told = last(page)
    assert told["state"] in ("done", "stopped")
    assert "Not timed, because the check failed: width 32: off by" in told["text"]
    assert told["checked"]["width 32"]["ok"] is False


def test_a_kernel_that_does_not_compile_names_its_line(bench):
    page = bench(module=MODULE.replace("var highest = LOWEST;", "var highest = LOWESST;"))
    recording = swept(page, d_heads=[16])
    assert {point["status"] for point in recording["points"]} == {"failed"}
    assert "does not compile it (fused, line" in recording["points"][0]["reason"]
    assert "LOWESST" in recording["points"][0]["reason"]
    assert last(page)["state"] == "failed"
    assert page.complaints == []


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("GPU.prototype.requestAdapter = async () => null;", "refused", "gives this page no GPU"),
        ("delete Navigator.prototype.gpu;", "absent", "has no WebGPU"),
        ("Object.defineProperty(globalThis, 'isSecureContext', { value: false });", "insecure", "https"),
        (
            "GPUAdapter.prototype.requestDevice = async () => { throw new Error('busy'); };",
            "device",
            "could not open it (busy)",
        ),
    ],
    ids=["refused", "absent", "insecure", "device"],
)
def test_without_a_GPU_one_sentence_says_why(bench, script, kind, words):
    page = bench(script)
    assert swept(page) is None
    assert last(page)["state"] == "refused"
    assert words in last(page)["text"]
    assert page.evaluate("() => bench.openGpu().catch((error) => [error.kind, error.message])") == [
        kind,
        last(page)["text"],
    ]
    known = page.evaluate("() => bench.gpuAbsent()?.[0] ?? null")
    assert known == (kind if kind in ("absent", "insecure") else None)
    assert page.complaints == []


def test_a_page_from_another_machine_without_https_has_no_GPU(bench):
    page = bench(origin="http://book.example")
    assert swept(page) is None
    assert "http://book.example" in last(page)["text"]


def test_half_precision_is_refused_where_the_GPU_has_none(bench):
    page = bench()
    recording = swept(page, dtype="fp16")
    assert {point["status"] for point in recording["points"]} == {"skipped"}
    assert recording["ended"] == "interrupted"
    assert {point["reason"] for point in recording["points"]} == {"interrupted before this point was measured"}
    assert last(page)["state"] == "refused"
    assert "choose fp32" in last(page)["text"]


@pytest.mark.alone
def test_without_timestamps_the_page_takes_the_time(bench):
    page = bench(
        """const { get } = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, "features");
        Object.defineProperty(GPUAdapter.prototype, "features",
            { get() { return new Set([...get.call(this)].filter((name) => name !== "timestamp-query")); } });"""
    )
    recording = briefly(page, d_heads=[16, 64], series=["exact"], seq_len=128)
    assert recording["device"]["timestamps"] is False
    assert recording["method"]["clock"].startswith("performance.now around submissions")
    small, large = recording["points"]
    assert small["status"] == large["status"] == "ok"
    assert small["median_s"] < large["median_s"]


@pytest.mark.alone
def test_timestamps_that_tell_nothing_are_given_up(bench):
    page = bench("BigUint64Array.prototype[Symbol.iterator] = function* () { yield 5n; yield 5n; };")
    recording = briefly(page, d_heads=[16], series=["exact"])
    assert recording["device"]["timestamps"] is False
    assert recording["points"][0]["status"] == "ok"


def test_what_the_browser_says_of_the_GPU(bench):
    page = bench()
    told = page.evaluate(
        "() => bench.openGpu().then(({ name, software, timestamps, f16, limits }) => ({ name, software, timestamps, f16, limits }))"
    )
    assert told["name"] == "google swiftshader"
    assert told["software"] is True
    assert told["timestamps"] is True
    assert told["limits"]["maxBufferSize"] >= 2**27
    page = bench(
        "for (const name of ['vendor', 'architecture', 'device', 'description']) Object.defineProperty(GPUAdapterInfo.prototype, name, { get: () => '' });"
    )
    assert page.evaluate("() => bench.openGpu().then(({ name }) => name)") == "unnamed GPU"
