"""Write each chapter as an .ipynb beside the package, and never over a reader's own edits.

A notebook remembers the text it was exported with. Where its cells still say that text, a newer
chapter replaces it; where the reader has changed a cell, the notebook is kept and named.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jupytext
import nbformat

BOOK = Path(__file__).resolve().parent.parent / "book"


def digest(notebook: nbformat.NotebookNode) -> str:
    """SHA-256 of the cells' kinds and texts; outputs do not count."""
    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def export(chapter: Path) -> str:
    """Export one chapter. Returns "written", "unchanged" or "kept" (the reader has edited it)."""
    target = chapter.with_suffix(".ipynb")
    fresh = jupytext.read(chapter)
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
