"""The figure of heads on ranks: accessible like every figure, and true to what `shard` deals out."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from conftest import ROOT
from splitheads.figures import head_shards
from splitheads.figures.style import INK, QUIET
from splitheads.palette import head_colour
from splitheads.sharding import ShardError, shard, tp_sizes

CASES = [(h, kv, tp) for h, kv in [(4, 2), (4, 4), (8, 2), (12, 4), (16, 1)] for tp in tp_sizes(h, kv) if tp <= 4]


@pytest.mark.parametrize(("n_heads", "n_kv_heads", "tp"), CASES)
def test_every_rank_shows_its_heads_and_no_others(n_heads, n_kv_heads, tp):
    figure = head_shards(n_heads, n_kv_heads, tp)
    held = shard(n_heads, n_kv_heads, tp)
    root = ElementTree.fromstring(figure.svg)
    words = ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [word for word in words if word.startswith("rank")] == [f"rank {rank}" for rank in range(tp)]
    for head in range(n_heads):
        queries = 2  # its columns in q_proj, its rows in o_proj
        copies = 2 * held.replicas if head < n_kv_heads else 0  # in k_proj and v_proj, on so many ranks
        assert words.count(str(head)) == queries + copies
    svg = figure.svg.lower()
    filled = {head_colour(head).lower() for head in range(n_kv_heads)}
    assert all(colour in svg for colour in filled)
    assert not any(head_colour(head).lower() in svg for head in range(n_kv_heads, 8)), "a colour is a key/value head"


@pytest.mark.parametrize(("n_heads", "n_kv_heads", "tp"), CASES[:6])
def test_it_is_said_in_words(n_heads, n_kv_heads, tp):
    figure = head_shards(n_heads, n_kv_heads, tp)
    root = ElementTree.fromstring(figure.svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == figure.alt
    assert all(f"rank {rank} holds" in figure.alt for rank in range(tp))
    assert re.search(rf"\b{n_heads} heads over {n_kv_heads} key/value head", figure.alt)
    assert "currentColor" in figure.svg
    assert not [one for one in (INK, QUIET) if one in figure.svg.lower()]
    assert figure.svg == head_shards(n_heads, n_kv_heads, tp).svg, "the same in every build"


def test_copies_are_named_on_every_rank_that_has_one():
    alt = head_shards(8, 2, 4).alt
    assert "rank 0 holds the columns of query heads 0 and 1 in q_proj, of key/value head 0 in" in alt
    assert "rank 1 holds the columns of query heads 2 and 3 in q_proj, of key/value head 0 in" in alt


def test_what_cannot_be_dealt_out_is_not_drawn():
    with pytest.raises(ShardError, match="tp = 3"):
        head_shards(4, 2, 3)
    for case in ((32, 8, 2), (16, 16, 8)):
        with pytest.raises(ValueError, match="up to 16 heads on up to 4 ranks"):
            head_shards(*case)


@pytest.mark.parametrize(("n_heads", "n_kv_heads", "tp"), CASES)
def test_it_is_drawn_to_be_read_at_its_own_size(n_heads, n_kv_heads, tp):
    figure = head_shards(n_heads, n_kv_heads, tp)
    root = ElementTree.fromstring(figure.svg)
    _, _, wide, tall = map(float, root.get("viewBox").split())
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        size = re.search(r"font-size: ([\d.]+)px", text.get("style"))
        assert float(size[1]) * 4 / 3 >= 10, f"{text.text}: its pixels are points"
        x, y = float(text.get("x")), float(text.get("y"))
        assert 0 <= x <= wide
        assert 0 <= y <= tall


def test_the_chapters_figure_is_seen_whole_on_a_phone():
    """A page 390 wide leaves 334 to a figure, and a figure is never stretched or shrunk below its own width there."""
    calls = re.findall(r"^head_shards\(.*\)$", (ROOT / "book/sharding.md").read_text("utf8"), flags=re.M)
    assert calls
    for call in calls:
        figure = eval(call, {"head_shards": head_shards})
        assert int(re.search(r"max-width:(\d+)px", figure.svg)[1]) <= 334
