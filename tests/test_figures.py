"""Figures: one palette, readable in both modes, said in words, and drawn from computed numbers."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from splitheads.figures import memory_order, parameters_by_heads
from splitheads.figures.style import INK, QUIET, Figure, canvas
from splitheads.palette import HEADS, ON_HEAD, contrast, head_colour

FIGURES = {"parameters_by_heads": parameters_by_heads, "memory_order": memory_order}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_accessible_and_follows_the_page(name):
    figure = FIGURES[name]()
    assert figure.name == name, "a figure is named for the function that draws it"
    root = ElementTree.fromstring(figure.svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == figure.alt
    assert re.search(r"\d", figure.alt), "the text alternative gives the figure's numbers"
    assert "currentColor" in figure.svg
    for placeholder in (INK, QUIET):
        assert placeholder not in figure.svg.lower()
    assert "DejaVu" not in figure.svg, "text is set in the page's own font"
    assert "<dc:date>" not in figure.svg


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_in_every_build(name):
    assert FIGURES[name]().svg == FIGURES[name]().svg


def test_a_figure_without_words_is_refused():
    with canvas() as figure, pytest.raises(ValueError, match="'blank' needs alternative text"):
        Figure(figure, "blank", "  ")


def test_ids_of_two_figures_on_one_page_do_not_collide():
    ids = [set(re.findall(r'id="(\w+)"', draw().svg)) for draw in FIGURES.values()]
    shared = ids[0] & ids[1]
    used = {name for draw in FIGURES.values() for name in re.findall(r'(?:url\(#|href="#)(\w+)', draw().svg)}
    assert not shared & used


def test_parameters_by_heads_says_the_count_that_torch_counts():
    from torch import nn

    count = sum(p.numel() for p in nn.MultiheadAttention(768, 12).parameters())
    assert f"{count / 1e6:.2f} million for every head count from 1 to 48" in parameters_by_heads(768).alt


def test_memory_order_names_the_cells_that_torch_reads():
    import torch

    q = torch.arange(24).view(1, 4, 6)
    right = q.view(1, 4, 2, 3).transpose(1, 2)[0, 0].flatten().tolist()
    wrong = q.view(1, 2, 4, 3)[0, 0].flatten().tolist()
    alt = memory_order(4, 2, 3).alt
    assert f"After the right split head 0 reads cells {', '.join(map(str, right))}:" in alt
    assert f"After the direct view it reads cells {wrong[0]} to {wrong[-1]}:" in alt


@pytest.mark.parametrize(
    ("sizes", "named"), [((1, 2, 3), "tokens = 1"), ((4, 1, 3), "n_heads = 1"), ((0, 2, 3), "tokens = 0")]
)
def test_memory_order_is_not_drawn_where_there_is_no_difference(sizes, named):
    with pytest.raises(ValueError, match=named):
        memory_order(*sizes)


def test_text_on_every_head_colour_is_legible():
    for colour in HEADS:
        assert contrast(colour, ON_HEAD) >= 7


def simulate(colour: str, kind: str) -> tuple[float, float, float]:
    """The colour as a dichromat sees it (Viénot, Brettel & Mollon 1999, linear RGB matrices)."""
    linear = [((int(colour[i : i + 2], 16) / 255 + 0.055) / 1.055) ** 2.4 for i in (1, 3, 5)]
    matrix = {
        "protan": [(0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)],
        "deutan": [(0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)],
    }[kind]
    seen = [max(0.0, sum(a * b for a, b in zip(row, linear, strict=True))) for row in matrix]
    return tuple(1.055 * c ** (1 / 2.4) - 0.055 for c in seen)


@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_neighbouring_heads_differ_for_colour_blind_readers(kind):
    for head in range(len(HEADS)):
        one, other = (simulate(head_colour(h), kind) for h in (head, head + 1))
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 0.1, (head, kind)


def test_head_colours_are_distinct_and_repeat():
    assert all(a != b for a, b in combinations(HEADS, 2))
    assert head_colour(8) == head_colour(0) == HEADS[0]
    with pytest.raises(ValueError, match="-1"):
        head_colour(-1)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
