"""Every chapter runs as a notebook from a plain copy of book/, is cut into short cells, and says true shapes."""

from __future__ import annotations

import ast
import dataclasses
import io
import os
import re
import runpy
import shutil
import statistics
import tokenize
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
import splitheads.timing
from conftest import ROOT, pages
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

WHERE = "import splitheads, sys\nprint(splitheads.__file__)"


def chapters() -> list[str]:
    """Pages that have a kernel: "book/index" and so on."""
    return [name for name in pages() if re.search(r"^kernelspec:", (ROOT / f"{name}.md").read_text("utf8"), flags=re.M)]


def test_there_are_chapters():
    assert {"book/index", "book/partition-rule"} <= set(chapters())


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project's book/, its chapters exported: what a reader has who installed nothing of ours."""
    folder = tmp_path_factory.mktemp("chapters") / "book"
    shutil.copytree(
        ROOT / "book", folder, ignore=shutil.ignore_patterns("*.ipynb", "__pycache__", ".ipynb_checkpoints")
    )
    export = runpy.run_path(str(ROOT / "scripts" / "export_notebooks.py"))["export"]
    for name in chapters():
        assert export(folder.parent / f"{name}.md") == "written"
    return folder


def cells_of(copy: Path, name: str) -> list[nbformat.NotebookNode]:
    notebook = nbformat.read(copy.parent / f"{name}.ipynb", as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def lesson(cell: nbformat.NotebookNode) -> bool:
    return "raises-exception" in cell.metadata.get("tags", [])


# Running


@pytest.fixture(scope="session", params=chapters())
def executed(request: pytest.FixtureRequest, copy: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A chapter run to its end, errors or not, in a kernel of this Python with the copy as current folder."""
    notebook = nbformat.read(copy.parent / f"{request.param}.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(WHERE))
    kernel = KernelManager(kernel_name="python3")
    kernel.kernel_spec_manager.kernel_dirs = []  # this Python's own kernel, whatever else the machine calls python3
    client = NotebookClient(
        notebook, timeout=300, allow_errors=True, km=kernel, resources={"metadata": {"path": str(copy)}}
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    client.execute(env={**kept, "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython"))})
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return SimpleNamespace(name=request.param, cells=code[:-1], where=code[-1])


def errors(cell: nbformat.NotebookNode) -> list[str]:
    return [f"{output.ename}: {output.evalue}" for output in cell.outputs if output.output_type == "error"]


def test_a_chapter_runs_and_raises_only_where_it_says_so(executed):
    assert executed.cells
    for cell in executed.cells:
        raised = errors(cell)
        if lesson(cell):
            assert raised, f"{executed.name}: this cell is tagged raises-exception and raises nothing:\n{cell.source}"
        else:
            assert raised == [], (
                f"{executed.name}: this cell raises, and is not tagged raises-exception:\n{cell.source}"
            )


def test_an_error_that_is_a_lesson_is_the_lesson(executed):
    """Not a missing import or a name from a cell that has gone: those are accidents."""
    for cell in executed.cells:
        for raised in errors(cell):
            assert not re.match(
                r"(NameError|ImportError|ModuleNotFoundError|SyntaxError|FileNotFoundError)\b", raised
            ), cell.source


PROFILER_TRACE = r"^USDT:.* profiler_(start|stop)\n?"
"""Lines that PyTorch's profiler writes to file descriptor 2; a cell that says so may have them."""


def test_a_chapter_warns_of_nothing(executed):
    for cell in executed.cells:
        said = "".join(
            output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stderr"
        )
        if "remove-stderr" in cell.metadata.get("tags", []):
            said = re.sub(PROFILER_TRACE, "", said, flags=re.M)
        assert said == "", f"{executed.name}: {cell.source}"


def test_the_code_is_that_beside_the_chapter(executed, copy):
    """Found from the current folder alone, whether or not the package is installed as well."""
    assert errors(executed.where) == []
    printed = "".join(output.text for output in executed.where.outputs if output.output_type == "stream")
    assert Path(printed.strip()).resolve() == (copy / "splitheads" / "__init__.py").resolve()


# Cells


@pytest.mark.parametrize("name", chapters())
def test_cells_are_short(copy, name):
    lengths = {
        cell.source: sum(bool(line.strip()) for line in cell.source.splitlines()) for cell in cells_of(copy, name)
    }
    for source, length in lengths.items():
        assert 0 < length <= 25, f"{length} lines in one cell:\n{source}"
    assert statistics.median(lengths.values()) < 6


# Shapes

SHAPE = re.compile(r"#\s*\[([^\]]+)\]")
FRESH = {"randn", "rand", "zeros", "ones", "empty", "full", "arange", "randint", "tensor"}


class Wrong(AssertionError):
    pass


class Letters:
    """What each letter of one cell's shape comments stands for.

    A letter is the chapter's variable of that name. A tensor made from bare numbers, as
    `torch.randn(2, 5, 32)  # [B, T, h*d]`, begins an example of its own: from there to the end of
    the cell its letters are the sizes of that tensor, and a letter that only occurs in a product
    (h, d) is settled by the first line that has it alone; the products must then come out.
    """

    def __init__(self, chapter: dict[str, Any]) -> None:
        self.chapter = chapter
        self.own: dict[str, int] = {}
        self.open: set[str] = set()
        self.products: list[tuple[str, int]] = []

    def value(self, letter: str) -> int | None:
        if letter in self.own:
            return self.own[letter]
        known = self.chapter.get(letter)
        return known if letter not in self.open and isinstance(known, int) else None

    def entry(self, text: str) -> int | None:
        """The size that an entry promises, None where one of its letters is not settled yet."""
        tree = ast.parse(text.strip().replace("×", "*"), mode="eval")
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        values = {letter: self.value(letter) for letter in names}
        if None in values.values():
            return None
        return eval(compile(tree, "<shape>", "eval"), {"__builtins__": {}}, values)

    def check(self, comment: str, shape: tuple[int, ...], bare: bool, used: set[str]) -> bool:
        """Hold one comment against one shape. True if every entry was known beforehand and is right."""
        entries = [part.strip() for part in comment.split(",")]
        if len(entries) != len(shape):
            raise Wrong(f"[{comment}] has {len(entries)} axes, the tensor {len(shape)}: {list(shape)}")
        if bare:
            begun = {letter for text in entries for letter in re.findall(r"[A-Za-z_]\w*", text)} - used
            self.open |= begun
            self.own = {letter: size for letter, size in self.own.items() if letter not in begun}
            self.products = []
        promised = [self.entry(text) for text in entries]
        for text, size, real in zip(entries, promised, shape, strict=True):
            if size is None and text.isidentifier():
                size = self.own.setdefault(text, real)  # the same letter twice must be the same size
            elif size is None:
                self.products.append((text, real))
            if size is not None and size != real:
                raise Wrong(f"[{comment}]: {text} is {size}, the tensor is {list(shape)}")
        for text, real in self.products:
            size = self.entry(text)
            if size is not None and size != real:
                raise Wrong(f"[{comment}]: with {self.own}, {text} would be {size}, and is {real}")
        return None not in promised


def commented(source: str) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a cell, each with the shape that its last line promises ("" for none)."""
    lines = {
        token.start[0]: match[1]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and (match := SHAPE.match(token.string))
    }
    for statement in ast.parse(source).body:
        yield statement, lines.get(statement.end_lineno, "")


def told(statement: ast.stmt, namespace: dict[str, Any]) -> list[Any]:
    """The values that a shape comment behind `statement` speaks of; it has been executed."""
    if isinstance(statement, ast.Assign):
        target = statement.targets[-1]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        return [eval(ast.unparse(name), namespace) for name in names]
    if isinstance(statement, ast.Expr):
        shown = statement.value
        if isinstance(shown, ast.Call) and isinstance(shown.func, ast.Name) and shown.func.id == "print":
            shown = shown.args[0] if len(shown.args) == 1 else None
        return [eval(ast.unparse(shown), namespace)] if shown is not None else []
    return []


def is_bare(statement: ast.stmt) -> bool:
    """Does it make a tensor from bare numbers?"""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in FRESH
        and isinstance(node.func.value, ast.Name)
        and any(isinstance(number, ast.Constant) for argument in node.args for number in ast.walk(argument))
        for node in ast.walk(statement)
    )


def walk(cells: list[nbformat.NotebookNode]) -> list[str]:
    """Run cells one statement after the other; the shape comments that were really checked."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    checked = []
    last = max((i for i, cell in enumerate(cells) if SHAPE.search(cell.source)), default=-1)
    for cell in cells[: last + 1]:  # no comment waits for what comes after
        source = "\n".join("" if line.startswith(("%", "!")) else line for line in cell.source.splitlines())
        letters = Letters(namespace)
        try:
            for statement, comment in commented(source):
                with redirect_stdout(io.StringIO()):
                    exec(compile(ast.Module([statement], []), "<cell>", "exec"), namespace)
                    values = told(statement, namespace) if comment else []
                for value in values:
                    line = ast.unparse(statement)
                    if not hasattr(value, "shape"):
                        raise Wrong(f"{line}  # [{comment}]: this is no tensor, but {type(value).__name__}")
                    used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
                    try:
                        if letters.check(comment, tuple(value.shape), is_bare(statement), used):
                            checked.append(f"{line}  # [{comment}]")
                    except Wrong as wrong:
                        raise Wrong(f"{line}\n{wrong}") from None
        except Wrong:
            raise
        except Exception:
            if not lesson(cell):
                raise
    return checked


@pytest.fixture(scope="session")
def shapes(copy: Path) -> dict[str, list[str]]:
    """Filled by the test below, chapter by chapter."""
    return {}


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chapter's measurements get a quarter of their time: no shape depends on it, and `executed` gives all that they ask."""
    run = splitheads.timing.run
    monkeypatch.setattr(
        splitheads.timing, "run", lambda plan: run(dataclasses.replace(plan, budget_s=max(1, plan.budget_s / 4)))
    )


@pytest.mark.parametrize("name", chapters())
def test_shape_comments_are_true(copy, shapes, briefly, name, monkeypatch):
    monkeypatch.chdir(copy)
    shapes[name] = walk(cells_of(copy, name))


def test_enough_shape_comments_were_really_checked(copy, shapes, briefly, monkeypatch):
    monkeypatch.chdir(copy)
    for name in chapters():
        if name not in shapes:
            shapes[name] = walk(cells_of(copy, name))
    assert sum(map(len, shapes.values())) >= 10, shapes


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("x = torch.zeros(B, T, h * d)  # [B, T, h*d]", ""),
        ("x = torch.zeros(B, T, h * d)  # [B, T, d]", "d is 3"),
        ("x = torch.zeros(B, T, h * d)  # [B, h*d]", "2 axes"),
        ("x = torch.zeros(B, T, h * d)\ny = x.view(B, T, h, d).transpose(1, 2)  # [B, T, h, d]", "T is 4"),
        ("x = torch.zeros(7, T)  # [n, T]\ny = x.T  # [T, n]", ""),
        ("x = torch.zeros(7, T)  # [n, T]\ny = x  # [T, n]", "T is 4"),
        ("x = torch.zeros(2, 5, 32)  # [B, T, h*d]\ny = x.view(2, 5, 4, 8)  # [B, T, h, d]", ""),
        (
            "x = torch.zeros(2, 5, 32)  # [B, T, h*d]\ny = x.view(2, 5, 4, 8)[..., :3]  # [B, T, h, d]",
            "h*d would be 12",
        ),
        ("x = torch.zeros(8, 8, 9)  # [h, d, d]", "d is 8"),
        ("x, y = torch.zeros(B), torch.zeros(T)  # [B]", "B is 1"),
        ("print(torch.zeros(T, d)[0])  # [T]", "T is 4"),
        ("x = 5  # [B]", "no tensor"),
    ],
)
def test_the_check_of_shapes_itself(source, wrong):
    head = nbformat.v4.new_code_cell("import torch\nB, T, h, d = 1, 4, 2, 3")
    cells = [head, nbformat.v4.new_code_cell(source)]
    if wrong:
        with pytest.raises(Wrong, match=re.escape(wrong)):
            walk(cells)
    else:
        walk(cells)
