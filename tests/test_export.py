"""`make export` writes chapters as notebooks, renews what nobody touched, and keeps what a reader wrote."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml
from conftest import FRONT_MATTER, ROOT, pages

SCRIPT = ROOT / "scripts" / "export_notebooks.py"
EXPORTER = runpy.run_path(str(SCRIPT))

CHAPTER = (
    FRONT_MATTER
    + """
# A chapter

Some prose with $d_\\text{head}$ × umlauts: ä ö ü.

```{code-cell} ipython3
:tags: [raises-exception]

1 / 0
```

```{code-cell} ipython3
:tags: [remove-input, hide-output]

print(64)
```
"""
)


@pytest.fixture
def chapter(tmp_path: Path) -> Path:
    path = tmp_path / "chapter.md"
    path.write_text(CHAPTER, "utf8")
    return path


def export(chapter: Path) -> str:
    return EXPORTER["export"](chapter)


def change(chapter: Path) -> None:
    chapter.write_text(chapter.read_text("utf8").replace("print(64)", "print(128)"), "utf8")


def read(chapter: Path) -> nbformat.NotebookNode:
    return nbformat.read(chapter.with_suffix(".ipynb"), as_version=4)


def run_by_the_reader(chapter: Path) -> None:
    """What JupyterLab writes after "run all" and "save": outputs, counts, and some metadata of its own."""
    notebook = read(chapter)
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        cell.execution_count = count
        cell.outputs = [nbformat.v4.new_output("stream", text="64\n")]
        cell.metadata["execution"] = {"iopub.status.idle": "2026-01-01T00:00:00Z"}
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    nbformat.write(notebook, chapter.with_suffix(".ipynb"))


def test_the_first_export_writes_a_valid_notebook_with_no_outputs(chapter):
    assert export(chapter) == "written"
    notebook = read(chapter)
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code"]
    assert notebook.cells[0].source.startswith("# A chapter\n\nSome prose with $d_\\text{head}$ × umlauts: ä ö ü.")
    assert [cell.source for cell in notebook.cells[1:]] == ["1 / 0", "print(64)"]
    for cell in notebook.cells[1:]:
        assert cell.outputs == []
        assert cell.execution_count is None


def test_kernelspec_and_tags_survive(chapter):
    export(chapter)
    notebook = read(chapter)
    assert dict(notebook.metadata.kernelspec) == {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert [cell.metadata.get("tags", []) for cell in notebook.cells] == [
        [],
        ["raises-exception"],
        ["remove-input", "hide-output"],
    ]


def test_a_second_export_leaves_the_file_alone(chapter):
    export(chapter)
    target = chapter.with_suffix(".ipynb")
    before = target.read_bytes(), target.stat().st_mtime_ns
    assert export(chapter) == "unchanged"
    assert (target.read_bytes(), target.stat().st_mtime_ns) == before


def test_a_chapter_that_changed_replaces_an_untouched_notebook(chapter):
    export(chapter)
    change(chapter)
    assert export(chapter) == "written"
    assert read(chapter).cells[-1].source == "print(128)"
    assert export(chapter) == "unchanged"


def test_outputs_are_no_edits(chapter):
    export(chapter)
    run_by_the_reader(chapter)
    run = chapter.with_suffix(".ipynb").read_bytes()
    assert export(chapter) == "unchanged"
    assert chapter.with_suffix(".ipynb").read_bytes() == run, (
        "the reader's outputs went away although the chapter is the same"
    )
    change(chapter)
    assert export(chapter) == "written"
    assert read(chapter).cells[-1].source == "print(128)"
    assert read(chapter).cells[-1].outputs == []


def set_source(notebook: nbformat.NotebookNode) -> None:
    notebook.cells[2].source = "print(65)"


def edit_prose(notebook: nbformat.NotebookNode) -> None:
    notebook.cells[0].source += "\n\nMy note."


def add_cell(notebook: nbformat.NotebookNode) -> None:
    notebook.cells.append(nbformat.v4.new_code_cell("my = 'own'"))


def delete_cell(notebook: nbformat.NotebookNode) -> None:
    del notebook.cells[1]


def swap_cells(notebook: nbformat.NotebookNode) -> None:
    notebook.cells[1], notebook.cells[2] = notebook.cells[2], notebook.cells[1]


def change_kind(notebook: nbformat.NotebookNode) -> None:
    notebook.cells[1] = nbformat.v4.new_markdown_cell(notebook.cells[1].source)


@pytest.mark.parametrize("newer", [False, True], ids=["same chapter", "newer chapter"])
@pytest.mark.parametrize("edit", [set_source, edit_prose, add_cell, delete_cell, swap_cells, change_kind])
def test_what_the_reader_edited_is_kept_byte_for_byte(chapter, edit, newer):
    export(chapter)
    target = chapter.with_suffix(".ipynb")
    notebook = read(chapter)
    edit(notebook)
    nbformat.write(notebook, target)
    mine = target.read_bytes()
    if newer:
        change(chapter)
    assert export(chapter) == "kept"
    assert target.read_bytes() == mine


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a notebook",
        b"{}",
        b"[1, 2]",
        b"\xff\xfe\x00",
        b'{"nbformat": 99}',
        b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    ],
    ids=["empty", "text", "object", "list", "bytes", "future format", "a notebook of the reader's own"],
)
def test_a_file_that_is_not_ours_is_kept(chapter, content):
    target = chapter.with_suffix(".ipynb")
    target.write_bytes(content)
    assert export(chapter) == "kept"
    assert target.read_bytes() == content


def test_a_folder_in_the_way_is_kept(chapter):
    chapter.with_suffix(".ipynb").mkdir()
    assert export(chapter) == "kept"


def test_nothing_but_the_notebook_is_left_beside_the_chapter(chapter):
    export(chapter)
    change(chapter)
    export(chapter)
    assert sorted(path.name for path in chapter.parent.iterdir()) == ["chapter.ipynb", "chapter.md"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The script in a project of its own, with the real chapters."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "book").mkdir()
    for chapter in (ROOT / "book").glob("*.md"):
        shutil.copy(chapter, tmp_path / "book")
    return tmp_path


def run(project: Path) -> str:
    """The script as `make export` runs it, from another folder: it must find the book by itself."""
    done = subprocess.run(
        [sys.executable, str(project / "scripts" / SCRIPT.name)],
        cwd=project.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_command_exports_every_chapter_and_says_what_it_did(project):
    said = run(project)
    for name in pages():
        assert f"{name}.ipynb written" in said.splitlines()
        nbformat.validate(nbformat.read(project / f"{name}.ipynb", as_version=4))
    assert run(project) == "", "a second run has nothing to do, and nothing to say"

    mine = project / "book" / "index.ipynb"
    notebook = nbformat.read(mine, as_version=4)
    notebook.cells[0].source += "\n\nMy note."
    nbformat.write(notebook, mine)
    kept = mine.read_bytes()
    said = run(project)
    assert len(said.splitlines()) == 1
    assert said.startswith("book/index.ipynb kept: you have changed it. ")
    assert mine.read_bytes() == kept


@pytest.mark.parametrize("name", pages())
def test_a_real_chapter_keeps_its_cells_and_tags(tmp_path, name):
    """Counted in the Markdown by hand, so that a cell that jupytext dropped would be missed."""
    chapter = tmp_path / Path(f"{name}.md").name
    shutil.copy(ROOT / f"{name}.md", chapter)
    export(chapter)
    text = chapter.read_text("utf8")
    code = [cell for cell in read(chapter).cells if cell.cell_type == "code"]
    assert len(code) == sum(line.startswith("```{code-cell}") for line in text.splitlines())
    tags = [yaml.safe_load(line.removeprefix(":tags:")) for line in text.splitlines() if line.startswith(":tags:")]
    assert [cell.metadata.tags for cell in code if cell.metadata.get("tags")] == tags


@pytest.mark.parametrize("name", pages())
def test_an_exported_chapter_leaves_nothing_for_the_rest_of_the_book_to_resolve(name):
    chapter = ROOT / f"{name}.md"
    notebook = jupytext.read(chapter)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = EXPORTER["alone"](cell.source, chapter.parent)
            assert not re.search(r"\{(cite|doc|ref|term|numref|bibliography)[:}]", text), text
            for target in re.findall(r"\]\(([\w-]+)\.ipynb", text):
                assert (chapter.parent / f"{target}.md").exists(), target


def test_roles_become_links():
    alone = EXPORTER["alone"]
    book = ROOT / "book"
    paper = "https://arxiv.org/abs/1706.03762"
    assert alone("as in {cite:p}`vaswani2017`.", book) == f"as in ([Vaswani et al., 2017]({paper}))."
    assert alone("{cite:t}`vaswani2017`, 3.2", book) == f"[Vaswani et al., 2017]({paper}), 3.2"
    assert alone("see {doc}`reshape`", book) == "see [The reshape](reshape.ipynb)"
    assert alone("{ref}`The count <parameters>`", book) == "[The count](partition-rule.ipynb#parameters)"
    for unknown in ("{cite:p}`nobody1999`", "{doc}`nowhere`", "{ref}`there <nowhere>`"):
        assert alone(unknown, book) == unknown
