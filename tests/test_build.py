"""The build itself, on a book of three pages: what stops it, what it repeats, and what its pages carry.

The little book has this project's configuration, Sphinx extension, templates and static files; its
package is a stub. All builds run in one folder, one after the other, because most of the questions
are about what a build does after another one; each test puts back what it changed.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import FRONT_MATTER, ROOT

TOC = """format: jb-book
root: book/index
chapters:
  - file: book/chapter
  - file: book/prose
"""

INDEX = """# A book

A formula, $d_\\text{head} = \\frac{d_\\text{model}}{n_\\text{heads}}$, a {doc}`chapter` and a source {cite:p}`known`.

$$
\\sum_{i=1}^{n} i
$$

```{bibliography}
```
"""

CHAPTER = (
    FRONT_MATTER
    + """
# A chapter

The first wording.

```{code-cell} ipython3
import splitheads

splitheads.ran()
print("the answer is", splitheads.ANSWER)
```

```{code-cell} ipython3
:tags: [raises-exception]

raise ValueError("on purpose")
```
"""
)

PACKAGE = '''"""A stub of the book's package."""

import os
from pathlib import Path

ANSWER = 64


def ran():
    """Leave a mark each time a chapter is executed."""
    with Path(os.environ["SPLITHEADS_TEST_RUNS"]).open("a") as file:
        file.write("x")
'''

BIB = "@misc{known, title = {A known thing}, author = {Nobody, A.}, year = {2020}}\n"


def flags() -> list[str]:
    """What `make book` adds to `jupyter-book build`, read from the Makefile."""
    found = re.search(r"jupyter-book build (.*) \.$", (ROOT / "Makefile").read_text("utf8"), flags=re.M)
    assert found, "the Makefile builds the book in another way: read its flags here from there"
    return found[1].split()


class Book:
    """The little book; `build` runs the real command in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs_file = folder.parent / "runs.txt"
        own = {
            "_toc.yml": TOC,
            "book/index.md": INDEX,
            "book/chapter.md": CHAPTER,
            "book/prose.md": "# Prose\n\nNo code.\n",
            "book/references.bib": BIB,
            "book/splitheads/__init__.py": PACKAGE,
        }
        copied = [
            "_config.yml",
            "requirements.txt",
            "book/_ext",
            "book/_templates",
            "book/_static",
            "book/splitheads/panels/kit.css",
        ]
        for name in copied:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, target)
        for name, text in own.items():
            (folder / name).write_text(text, "utf8")

    def build(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`jupyter-book build <arguments> .`, in colourless words, on one stream."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(
            [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", *arguments, "."],
            cwd=self.folder,
            env={**kept, "SPLITHEADS_TEST_RUNS": str(self.runs_file), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=170,
        )
        done.stdout = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)
        return done

    def runs(self) -> int:
        """How often the chapter has been executed, ever."""
        return self.runs_file.stat().st_size if self.runs_file.exists() else 0

    def page(self, name: str) -> str:
        return (self.folder / "_build" / "html" / "book" / f"{name}.html").read_text("utf8")

    @contextmanager
    def edited(self, name: str, change: Callable[[str], str]) -> Iterator[None]:
        """A file changed for a while."""
        path = self.folder / name
        before = path.read_text("utf8")
        after = change(before)
        assert after != before, f"nothing was changed in {name}"
        path.write_text(after, "utf8")
        try:
            yield
        finally:
            path.write_text(before, "utf8")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return Book(tmp_path_factory.mktemp("tiny") / "a book")


@pytest.fixture(scope="module")
def first(book: Book) -> subprocess.CompletedProcess[str]:
    """The first build, plain: `jupyter-book build .`"""
    return book.build()


@pytest.fixture
def built(book: Book, first: subprocess.CompletedProcess[str]) -> Book:
    """The book with every file as it was, and built at least once."""
    assert first.returncode == 0, first.stdout
    return book


def warnings(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if "WARNING:" in line or "ERROR:" in line]


def test_makefile_flags_turn_warnings_into_failures():
    assert "-W" in flags()


def test_the_plain_command_builds(first, book):
    assert first.returncode == 0, first.stdout
    assert warnings(first) == []
    assert book.runs() == 1
    assert "the answer is 64" in book.page("chapter")
    assert "ValueError" in book.page("chapter"), "a cell tagged raises-exception shows its error"


def test_the_command_of_the_makefile_builds_and_executes_nothing_again(built):
    runs = built.runs()
    done = built.build(*flags())
    assert done.returncode == 0, done.stdout
    assert "Executing notebook" not in done.stdout
    assert built.runs() == runs


def test_a_prose_edit_executes_nothing(built):
    runs = built.runs()
    with built.edited("book/chapter.md", lambda text: text.replace("first wording", "second wording")):
        done = built.build(*flags())
        assert done.returncode == 0, done.stdout
        assert "second wording" in built.page("chapter")
        assert "the answer is 64" in built.page("chapter"), "the stored output is gone"
        assert "Executing notebook" not in done.stdout
        assert built.runs() == runs


def test_a_change_in_the_package_executes_again_and_drops_the_older_store(built):
    runs = built.runs()
    with built.edited("book/splitheads/__init__.py", lambda text: text.replace("ANSWER = 64", "ANSWER = 65")):
        done = built.build(*flags())
        assert done.returncode == 0, done.stdout
        assert built.runs() == runs + 1, "the chapter was not executed with the new code"
        assert "Executing notebook" in done.stdout, "then the tests above look for words that no build says"
        assert "the answer is 65" in built.page("chapter")
        built.build(*flags())
        assert built.runs() == runs + 1, "once is enough"
    assert built.build(*flags()).returncode == 0
    assert "the answer is 64" in built.page("chapter")
    stores = [path.name for path in (built.folder / "_build" / ".jupyter_cache").iterdir()]
    assert len(stores) == 1


def test_all_that_a_chapter_runs_with_counts_and_nothing_else(tmp_path):
    """What decides whether a stored output is still good, file by file."""
    book = tmp_path / "book"
    files = ["requirements.txt", "book/splitheads/a.py", "book/splitheads/panels/a.js", "book/splitheads/panels/a.css"]
    files += ["book/data/models.csv", "book/data/deeper/rules.json", "book/recordings/one.json.gz"]
    others = [
        "book/chapter.md",
        "book/splitheads/__pycache__/a.py",
        "book/_static/house.css",
        "book/data/README.md",
        "Makefile",
    ]
    for name in files + others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before", "utf8")
    digest = runpy.run_path(str(ROOT / "book" / "_ext" / "splitheads_site.py"))["code_digest"]
    before = digest(book)
    assert digest(book) == before
    for name in files + others:
        (tmp_path / name).write_text("after", "utf8")
        assert (digest(book) != before) == (name in files), name
        (tmp_path / name).write_text("before", "utf8")
        assert digest(book) == before, name
    (book / "splitheads" / "a.py").rename(book / "splitheads" / "b.py")
    assert digest(book) != before, "a file that was renamed"


def test_a_change_of_style_reaches_the_pages_and_executes_nothing(built):
    runs = built.runs()
    sheet = re.search(r"house\.css\?v=\w+", built.page("chapter"))
    assert sheet, "the style sheet's address carries no version: a browser would keep the old one"
    with built.edited("book/_static/house.css", lambda text: f"{text}/* changed */\n"):
        done = built.build(*flags())
        assert done.returncode == 0, done.stdout
        assert sheet[0] not in built.page("chapter"), "the page still asks for the old style sheet"
        assert "/* changed */" in (built.folder / "_build" / "html" / "_static" / "house.css").read_text("utf8")
    assert built.runs() == runs


def test_a_notebook_beside_a_chapter_does_not_disturb(built):
    """`make lab` writes one there, and the reader may have run it and changed it. Nor does a reader's own note."""
    note = built.folder / "NOTE.md"
    note.write_text("# My own note\n\n{doc}`nowhere`\n", "utf8")
    beside = built.folder / "book" / "chapter.ipynb"
    beside.write_text(
        '{"cells": [{"cell_type": "code", "metadata": {}, "execution_count": null, "outputs": [], "source": "1 / 0"}],'
        ' "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}}, "nbformat": 4, "nbformat_minor": 4}',
        "utf8",
    )
    try:
        with built.edited("book/chapter.md", lambda text: text.replace("first wording", "third wording")):
            done = built.build(*flags())
        assert done.returncode == 0, done.stdout
        assert "third wording" in built.page("chapter")
        assert not list(built.folder.rglob("NOTE.html"))
    finally:
        beside.unlink()
        note.unlink()


DEFECTS = {
    "a cross-reference": ("{doc}`nowhere`", "nowhere"),
    "a place": ("{ref}`no-such-place`", "no-such-place"),
    "a term": ("{term}`no such term`", "no such term"),
    "a citation": ("{cite:p}`nobody1999`", "nobody1999"),
    "a formula": ("$a_b_c<$", "cannot be converted to MathML"),
    "a directive": ("```{nonsense}\n```", "nonsense"),
}


def with_defects(text: str) -> str:
    return text + "".join(f"\nHere is {name}:\n\n{source}\n" for name, (source, _) in DEFECTS.items())


def test_whatever_leads_nowhere_stops_the_build(built):
    with built.edited("book/prose.md", with_defects):
        done = built.build(*flags())
    found = warnings(done)
    for name, (_, word) in DEFECTS.items():
        about = [line for line in found if word in line]
        assert about, f"no warning of {name} that leads nowhere: {done.stdout}"
        assert any("prose.md" in line for line in about), f"the page is not named: {about}"
    assert done.returncode != 0, "warnings did not stop the build"


def test_without_the_flags_a_warning_is_a_warning(built):
    """So it is the flags of the Makefile that the test above has tested."""
    with built.edited("book/prose.md", with_defects):
        done = built.build()
    assert len(warnings(done)) >= len(DEFECTS)
    assert done.returncode == 0
    assert "<code>a_b_c&lt;</code>" in built.page("prose"), "a formula that fails is shown as it was typed"


def test_a_chapter_that_raises_stops_the_build_and_is_named(built):
    with built.edited("book/chapter.md", lambda text: f"{text}\n```{{code-cell}} ipython3\n1 / 0\n```\n"):
        for arguments in (flags(), []):
            done = built.build(*arguments)
            assert done.returncode != 0, f"a chapter that raises has been published with {arguments}"
            assert "ZeroDivisionError" in done.stdout, "the build does not say what was raised"
            named = [line for line in done.stdout.splitlines() if re.search(r"chapter\.md.*([Ff]ail|[Ee]rror)", line)]
            assert named, f"the build does not say in which chapter: {done.stdout}"
    mended = built.build(*flags())
    assert mended.returncode == 0, "the chapter is mended, and the build still fails: " + mended.stdout


def test_formulas_are_mathml(built):
    text = built.page("index")
    assert text.count("<math ") == 2
    assert re.search(r'<div [^>]*class="math-block"[^>]*>\s*<math ', text)
    assert re.findall(r"<script\b[^>]*mathjax", text, flags=re.I) == []


@pytest.mark.parametrize("name", ["index", "chapter", "prose"])
def test_a_page_asks_no_other_host_for_a_script_or_style(built, name):
    text = built.page(name)
    assert "thebe" not in text.lower()
    loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"([^\"]+)\"", text)
    assert any("kit.css" in url for url in loaded), "this test no longer sees what a page loads"
    assert [url for url in loaded if re.match(r"(https?:)?//", url)] == []
    inline = "".join(re.findall(r"<script\b[^>]*>(.*?)</script>", text, flags=re.S))
    assert re.findall(r"https?://(?!127\.0\.0\.1)[^\s\"']+", inline) == []
