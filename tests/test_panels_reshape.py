"""The reshape panel against torch itself: every size on its sliders, every variant, every step."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import product

import ipywidgets
import numpy as np
import pytest
import torch
from splitheads.attention import (
    merge_heads,
    merge_heads_without_transpose,
    shares_memory,
    slice_input_then_project,
    split_heads,
    split_heads_by_direct_view,
)
from splitheads.panels.reshape import (
    FREE,
    FUSED,
    MAX_D_HEAD,
    MAX_N_HEADS,
    MAX_T,
    PRESETS,
    STAGES,
    STEPS,
    VARIANTS,
    VIEW_ERROR,
    ReshapeView,
    every_mistake,
    every_size,
    hold,
    is_contiguous,
    layouts,
    opening_question,
    reshape,
    row_major,
    rows_of,
    view_strides,
    wrong_from,
)
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SIZES = list(product(range(1, MAX_T + 1), range(1, MAX_N_HEADS + 1), range(1, MAX_D_HEAD + 1)))
NAMES = [variant["name"] for variant in VARIANTS]


def each_token_itself(x: Tensor) -> Tensor:
    """`weights @ x` with every token looking at itself alone: a new tensor with the same values."""
    return torch.eye(x.shape[2]).expand(1, x.shape[1], -1, -1) @ x


def tensors(variant: str, T: int, h: int, d: int) -> list[Tensor]:
    """What torch makes of each step, where the value of a cell is its offset in the projected tensor."""
    x = torch.arange(T * h * d, dtype=torch.float32).view(1, T, h * d)
    if variant == "direct view":
        view = split = split_heads_by_direct_view(x, h)
    else:
        view, split = x.view(1, T, h, d), split_heads(x, h)
    attended = each_token_itself(split)
    merge = merge_heads_without_transpose if variant == "merge without transpose" else merge_heads
    return [x, view, split, attended, merge(attended)]


@pytest.mark.parametrize("variant", NAMES)
def test_every_row_of_the_table_is_what_torch_says(variant):
    table = every_size()
    stages = next(v["stages"] for v in VARIANTS if v["name"] == variant)
    for T, h, d in SIZES:
        rows = [[int(n) for n in row.split(",")] for row in table[f"{T},{h},{d}"].split(";")]
        before = None
        for step, (stage, x) in enumerate(zip(stages, tensors(variant, T, h, d), strict=True)):
            new = before is None or not shares_memory(x, before)
            want = [*x.shape, *x.stride(), int(x.is_contiguous()), int(new)]
            assert rows[STAGES.index(stage)] == want, (T, h, d, STEPS[step])
            before = x


@pytest.mark.parametrize("variant", NAMES)
def test_offsets_follow_from_the_strides(variant):
    """What the view draws: shape and strides over the buffer that the last copying step wrote."""
    stages = next(v["stages"] for v in VARIANTS if v["name"] == variant)
    for T, h, d in SIZES:
        found = layouts(T, h, d)
        buffer, last = torch.arange(T * h * d, dtype=torch.float32), None
        for stage, x in zip(stages, tensors(variant, T, h, d), strict=True):
            layout = found[stage]
            if layout.new_memory and last is not None:
                read = last.transpose(1, 2) if stage == "merge" else last
                buffer = read.flatten().clone()
            last = torch.as_strided(buffer, layout.shape, layout.strides)
            assert torch.equal(last, x), (T, h, d, stage)


def test_mistakes_are_called_wrong_exactly_where_the_numbers_differ():
    mistakes = every_mistake()
    for T, h, d in SIZES:
        correct = dict(zip(STEPS, tensors("correct", T, h, d), strict=True))
        for i, name in enumerate(NAMES[:3]):
            differs = [
                # The direct view has the shape of the finished split from its first line on.
                not torch.equal(x, correct["transpose" if name == "direct view" and step == "view" else step])
                for step, x in zip(STEPS, tensors(name, T, h, d), strict=True)
            ]
            want = differs.index(True) if True in differs else None
            assert mistakes[f"{T},{h}"][i] == wrong_from(name, T, h) == want, (name, T, h, d)
            assert want is None or all(differs[want:]), (name, T, h, d)


def test_slicing_the_input_is_wrong_unless_there_is_one_head():
    torch.manual_seed(0)
    for T, h, d in SIZES:
        x, weight = torch.randn(1, T, h * d), torch.randn(h, d, d)
        sliced = slice_input_then_project(x, weight)
        assert sliced.shape == (1, h, T, d)
        # What head 0 makes of the token is blind to what lies outside its slice.
        x[..., d:] += 1
        blind = torch.equal(sliced[:, 0], slice_input_then_project(x, weight)[:, 0])
        assert blind
        assert (wrong_from("slice the input first", T, h) is None) == (weight.numel() == (h * d) ** 2) == (h == 1)


def test_view_raises_where_the_merge_copies_and_nowhere_else():
    for T, h, d in SIZES:
        x = torch.zeros(1, h, T, d).transpose(1, 2)
        if layouts(T, h, d)["merge"].new_memory:
            with pytest.raises(RuntimeError) as error:
                x.view(1, T, h * d)
            assert str(error.value) == VIEW_ERROR
        else:
            x.view(1, T, h * d)


def test_stride_arithmetic_agrees_with_torch_beyond_the_sliders():
    shapes = [
        (2, 3, 4),
        (1, 3, 2, 2),
        (2, 1, 3, 1),
        (4, 3),
        (6, 1, 2),
        (12,),
        (3, 4),
        (2, 6),
        (1, 12, 1),
        (2, 2, 3),
        (4, 6),
        (3, 8),
    ]
    seen = set()
    for shape in shapes:
        x = torch.zeros(shape)
        assert row_major(shape) == x.stride()
        for order in ([*range(x.dim())], [*reversed(range(x.dim()))], [1, 0, *range(2, x.dim())][: x.dim()]):
            if sorted(order) != list(range(x.dim())):
                continue
            y = x.permute(order)
            assert is_contiguous(tuple(y.shape), y.stride()) == y.is_contiguous()
            for new in shapes:
                if torch.Size(new).numel() != y.numel():
                    continue
                try:
                    want = y.view(new).stride()
                except RuntimeError:
                    want = None
                assert view_strides(tuple(y.shape), y.stride(), new) == want, (shape, order, new)
                seen.add(want is None)
    assert seen == {True, False}


def test_attention_writes_where_the_panel_says():
    for T, h, d in SIZES:
        v = split_heads(torch.randn(1, T, h * d), h)
        weights = torch.softmax(torch.randn(1, h, T, T), dim=-1)
        assert (weights @ v).stride() == layouts(T, h, d)["attend"].strides


def said(parts: list[list[str]]) -> str:
    return "".join(text for text, _ in parts)


def test_the_fused_kernel_follows_the_strides_of_q_and_nothing_else_does():
    """What `FUSED` claims, case by case, and `FREE` where every merge is free."""
    words = said(FUSED)
    for claim in (
        "On a CPU, the fused kernel of F.scaled_dot_product_attention keeps the stride order of q",
        "for a transposed view the merge copies nothing",
        "for a contiguous q, as after torch.cat, it copies, whatever k and v are",
        "With dropout_p > 0 or SDPBackend.MATH it copies for any q",
    ):
        assert claim in words
    assert "no order of writing would make the merge copy" in said(FREE)
    for T, h, d in [*SIZES, (5, 4, 8)]:
        q, k, v = (split_heads(torch.randn(1, T, h * d), h) for _ in range(3))
        whole = q.contiguous()
        joined = torch.cat([q[..., : d // 2], q[..., d // 2 :]], dim=-1)
        free = {1} & {T, h, d} != set()

        def copies(q: Tensor, k: Tensor, v: Tensor, **options) -> bool:
            out = scaled_dot_product_attention(q, k, v, **options)
            return not shares_memory(merge_heads(out), out)

        for key, value in ((k, v), (k.contiguous(), v.contiguous())):
            where = (T, h, d, key.stride())
            assert not copies(q, key, value), where
            assert copies(whole, key, value) == copies(joined, key, value) == (not free), where
            for any_q in (q, whole, joined):
                assert copies(any_q, key, value, dropout_p=0.1) == (not free), where
                with sdpa_kernel(SDPBackend.MATH):
                    assert copies(any_q, key, value) == (not free), where
    token_after_token, head_after_head = (160, 8, 32, 1), (160, 40, 8, 1)
    assert scaled_dot_product_attention(q, k, v).stride() == token_after_token
    assert scaled_dot_product_attention(whole, k, v).stride() == head_after_head
    assert scaled_dot_product_attention(q, k, v, dropout_p=0.1).stride() == head_after_head


def test_the_threads_are_told_as_they_are():
    """Each address with the words that its thread holds; a thread that is added needs its words here."""
    threads = {
        "harvardnlp/annotated-transformer/issues/17": "should be view(nbatches, h, -1, d_k)",
        "hyunwoongko/transformer/issues/15": "asks whether it can be done without the transpose",
        "zhouhaoyi/Informer2020/issues/59": "asks why view and not permute",
        "jsbaan/transformer-from-scratch/pull/6": "“probably because the copy task is too easy”",
        "MarcoMeter/episodic-transformer-memory-ppo/pull/22": "“the same projection” for all heads",
    }
    found = []
    for variant in VARIANTS:
        words = said(variant["seen"])
        for text, address in variant["seen"]:
            if address:
                thread = address.removeprefix("https://github.com/")
                assert threads[thread] in words, thread
                repository, _, number = thread.rsplit("/", 2)
                assert text == f"{repository} #{number}"
                found.append(thread)
    assert sorted(found) == sorted(threads)


def test_the_lines_of_code_do_what_the_table_says():
    """Run each variant's lines, as they are printed, and compare with the functions above."""
    for variant, (T, h, d) in product(VARIANTS, [(4, 2, 3), (6, 3, 4), (1, 2, 3), (5, 1, 2)]):
        start = torch.arange(T * h * d, dtype=torch.float32).view(1, T, h * d)
        names = {
            "B": 1, "T": T, "h": h, "d": d, "x": start, "v_proj": lambda x: x,
            "weights": torch.eye(T).expand(1, h, -1, -1), "w_v": torch.eye(d).expand(h, -1, -1),
        }  # fmt: skip
        for line, want in zip(variant["lines"], tensors(variant["name"], T, h, d), strict=True):
            exec(line, {}, names)
            assert torch.equal(names["x"], want), (variant["name"], line)
            comment = line.rsplit("# ", 1)[1]
            if "[B, " in comment:
                assert names["x"].dim() == comment[comment.rindex("[") :].count(",") + 1


def test_the_opening_question_is_true():
    asked = opening_question(4, 2, 3)
    assert asked["prompt"] == "You write x.view(B, h, T, d) directly, without the transpose. What happens?"
    error, same, different = asked["options"]
    assert [option["right"] for option in asked["options"]] == [False, False, True]
    assert len({option["why"] for option in asked["options"]}) == 3
    words = different["why"].replace("\N{NO-BREAK SPACE}", " ")
    assert "[0 1 2] [3 4 5] [6 7 8] [9 10 11]: all 6 features of token 0 and token 1" in words
    assert "It should get [0 1 2] [6 7 8] [12 13 14] [18 19 20]" in words
    assert "4 × 6 and 2 × 4 × 3 are both 24" in error["why"]
    assert "[1, 2, 4, 3]" in same["why"]
    assert asked["outcome"] == {"T": 4, "n_heads": 2, "d_head": 3, "variant": 1, "step": 1}
    limits = ReshapeView().limits
    assert all(limits[name][0] <= value <= limits[name][1] for name, value in asked["outcome"].items())
    # The outcome must show damage; where the sizes hide it there is nothing to ask.
    for T, h, d in SIZES:
        if asked := opening_question(T, h, d):
            x = torch.arange(T * h * d).view(1, T, h * d)
            assert not torch.equal(split_heads(x, h), split_heads_by_direct_view(x, h))
        else:
            assert h == 1 or T == 1


def test_rows_and_words_for_readers_without_scripts():
    for T, h, d in SIZES:
        x = torch.arange(T * h * d).view(1, T, h * d)
        assert rows_of(T, h, d, "projected") == x[0].tolist()
        for head in range(h):
            assert rows_of(T, h, d, "transpose", head) == split_heads(x, h)[0, head].tolist()
            assert rows_of(T, h, d, "direct view", head) == split_heads_by_direct_view(x, h)[0, head].tolist()
    assert hold(list(range(12)), 2, 3) == "all 6 features of token 0 and token 1"
    assert hold(list(range(9)), 2, 3) == "all 6 features of token 0 and 3 of the 6 of token 1"
    assert hold([0, 6, 12], 2, 3) == "1 of the 6 features of each of token 0, token 1 and token 2"


def test_the_printed_twin_tells_the_story():
    twin = reshape()._twin
    for words in (
        "[1, 4, 6]",
        "[1, 2, 4, 3], strides (24, 3, 6, 1): not contiguous, no copy",
        "[1, 4, 6], strides (24, 6, 1): contiguous, copied",
        "x.transpose(1, 2).reshape(B, T, h * d)",
        "head 0 would hold all 6 features of token 0 and token 1",
        "You write x.view(B, h, T, d) directly",
    ):
        assert words in twin, words
    assert twin.count("<rect") == 48
    assert twin.count('role="img"') == 2


def test_controls_are_joined_to_the_view_and_named(monkeypatch):
    links = []
    monkeypatch.setattr(ipywidgets, "jslink", lambda one, other: links.append((*one, *other)))
    panel = reshape(5, 3, 2)
    assert links == [
        *((getattr(panel, name), "value", panel.view, name) for name in ("T", "n_heads", "d_head")),
        *((getattr(panel, name), "index", panel.view, name) for name in ("variant", "step")),
    ]
    assert (panel.T.value, panel.n_heads.value, panel.d_head.value) == (5, 3, 2)
    assert (panel.step.options, panel.variant.options) == (tuple(STEPS), tuple(NAMES))
    assert panel.step.value == "projected"
    assert panel.variant.value == "correct"
    view = panel.view
    assert (view.T, view.n_heads, view.d_head, view.step, view.variant) == (5, 3, 2, 0, 0)
    for name in ("T", "n_heads", "d_head"):
        control = getattr(panel, name)
        assert [control.min, control.max] == view.limits[name]
    assert view.limits["step"] == [0, len(panel.step.options) - 1]
    assert view.limits["variant"] == [0, len(panel.variant.options) - 1]
    for preset in PRESETS:
        for name in ("T", "n_heads", "d_head"):
            assert view.limits[name][0] <= preset[name] <= view.limits[name][1]
    assert reshape(4, 1, 3).view.question == {}
    assert reshape(question={}).view.question == {}


@pytest.mark.parametrize(("name", "most"), [("tokens", MAX_T), ("n_heads", MAX_N_HEADS), ("d_head", MAX_D_HEAD)])
def test_a_size_that_the_slider_does_not_have_is_refused(name, most):
    for bad in (
        0,
        -1,
        most + 1,
        10**9,
        True,
        np.True_,
        torch.tensor(True),
        2.0,
        float("nan"),
        "3",
        b"3",
        None,
        [2],
        1j,
    ):
        with pytest.raises(
            ValueError, match=re.escape(f"{name} = {bad!r}: the slider takes whole numbers from 1 to {most}")
        ):
            reshape(**{name: bad})
    for good in (1, most, np.int64(2)):
        value = getattr(reshape(**{name: good}).view, {"tokens": "T"}.get(name, name))
        assert value == good
        assert type(value) is int


MISCOUNTED = re.compile(
    r"\b1 (?:of the 1 )?(?:input )?(?:tokens|columns|features|heads|weights|rows|cells|numbers)\b"
    r"|(?<![\d.])(?!1 )\d+ (?:input )?(?:token|column|feature|head|weight)\b(?! \d)"
    r"|\ball 1\b|\bof the 1\b|\b1 \w+ (?:of a token )?are\b|\bone (?:tokens|columns|features|heads)\b|\bi \+ 0\b|\btokens \d+(?! (?:and|to) \d)"
)


def test_number_agreement_in_what_python_says():
    for good in (
        "1 token, 2 heads of 1 column",
        "all 6 features of token 0 and token 1",
        "tokens 2 to 5",
        "4 × 6 and 2",
    ):
        assert not MISCOUNTED.search(good)
    for bad in (
        "1 tokens",
        "2 head of",
        "all 1 features",
        "each of the 1 tokens",
        "The 1 column of a token are",
        "the one features of",
        "11 column,",
    ):
        assert MISCOUNTED.search(bad)
    for T, h, d in SIZES:
        asked = opening_question(T, h, d)
        texts = [re.sub(r"<[^>]+>", "\n", unescape(reshape(T, h, d, question={})._twin))]
        texts += [option["why"] for option in asked["options"]] if asked else []
        texts.append(hold([offset for row in rows_of(T, h, d, "direct view") for offset in row], h, d))
        for text in texts:
            assert not MISCOUNTED.search(text), (T, h, d, text)


def test_a_page_does_not_carry_much():
    view = ReshapeView()
    state = {key: value for key, value in view.get_state().items() if not key.startswith("_")}
    assert len(json.dumps(state)) < 25_000
    assert len(every_size()) == len(SIZES) == 96
