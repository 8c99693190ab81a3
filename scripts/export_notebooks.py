"""Write each chapter as an .ipynb beside the package, and never over a reader's own edits.

A notebook remembers the text it was exported with. Where its cells still say that text, a newer
chapter replaces it; where the reader has changed a cell, the notebook is kept and named.

A notebook stands alone, so what only the whole book can resolve (citations, links between chapters)
becomes plain Markdown links on the way.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path

import jupytext
import nbformat
from pybtex.database import parse_file
from pybtex.richtext import Text

BOOK = Path(__file__).resolve().parent.parent / "book"


def digest(notebook: nbformat.NotebookNode) -> str:
    """SHA-256 of the cells' kinds and texts; outputs do not count."""
    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


@cache
def sources(book: Path) -> dict[str, tuple[str, str]]:
    """The bibliography: key -> ("Vaswani et al., 2017", address)."""

    def label(entry) -> str:
        names = [str(Text.from_latex(" ".join(p.last_names or p.first_names))) for p in entry.persons["author"]]
        who = names[0] if len(names) == 1 else f"{names[0]} and {names[1]}" if len(names) == 2 else f"{names[0]} et al."
        return f"{who}, {entry.fields['year']}"

    file = book / "references.bib"
    found = parse_file(file, "bibtex").entries.items() if file.exists() else ()
    return {key: (label(entry), entry.fields["url"]) for key, entry in found}


def title(chapter: Path) -> str:
    """The chapter's own heading."""
    return re.search(r"^# (.+)$", chapter.read_text("utf8"), flags=re.M)[1]


def places(book: Path) -> dict[str, str]:
    """Where each `(label)=` of the book stands: label -> chapter."""
    return {
        label: chapter.stem
        for chapter in book.glob("*.md")
        for label in re.findall(r"^\(([\w-]+)\)=$", chapter.read_text("utf8"), flags=re.M)
    }


def alone(text: str, book: Path) -> str:
    """Markdown that needs no other file of the book to be read: roles resolved to links.

    What the book does not have stays as it is written: naming it is the build's work.
    """

    def cite(match: re.Match[str]) -> str:
        keys = [key.strip() for key in match[2].split(",")]
        if not set(keys) <= set(sources(book)):
            return match[0]
        links = "; ".join("[{}]({})".format(*sources(book)[key]) for key in keys)
        return links if match[1] == "t" else f"({links})"

    def doc(match: re.Match[str]) -> str:
        chapter = book / f"{match[1]}.md"
        return f"[{title(chapter)}]({match[1]}.ipynb)" if chapter.exists() else match[0]

    def ref(match: re.Match[str]) -> str:
        place = places(book).get(match[2])
        return f"[{match[1]}]({place}.ipynb#{match[2]})" if place else match[0]

    text = re.sub(r"\{cite:([pt])\}`([^`]+)`", cite, text)
    text = re.sub(r"\{doc\}`([\w-]+)`", doc, text)
    text = re.sub(r"\{ref\}`([^`<]+?) <([\w-]+)>`", ref, text)
    text = re.sub(r"\{term\}`([^`]+)`", r"\1", text)
    text = re.sub(r"^\(([\w-]+)\)=$", r'<a id="\1"></a>', text, flags=re.M)
    listed = "\n".join(f"- {label}: <{url}>" for label, url in sorted(sources(book).values()))
    return re.sub(r"^```\{bibliography\}\n```$", lambda _: listed, text, flags=re.M)


def export(chapter: Path) -> str:
    """Export one chapter. Returns "written", "unchanged" or "kept" (the reader has edited it)."""
    target = chapter.with_suffix(".ipynb")
    fresh = jupytext.read(chapter)
    for cell in fresh.cells:
        if cell.cell_type == "markdown":
            cell.source = alone(cell.source, chapter.parent)
    fresh.metadata["splitheads"] = {"exported": digest(fresh)}
    if target.exists():
        try:
            present = nbformat.read(target, as_version=4)
            exported = present.metadata.get("splitheads", {}).get("exported")
        except Exception:  # not a notebook: then it is not ours to overwrite
            return "kept"
        if digest(present) != exported:
            return "kept"
        if exported == fresh.metadata["splitheads"]["exported"]:
            return "unchanged"
    nbformat.write(fresh, target)
    return "written"


def main() -> None:
    for chapter in sorted(BOOK.glob("*.md")):
        outcome = export(chapter)
        name = chapter.with_suffix(".ipynb").name
        if outcome == "written":
            print(f"book/{name} written")
        elif outcome == "kept":
            print(f"book/{name} kept: you have changed it. Rename or delete it to get the book's own again.")


if __name__ == "__main__":
    main()
