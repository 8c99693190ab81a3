"""The Sphinx side of the site: mathematics without scripts, no other host, an honest cache.

- `$...$` becomes MathML at build time, so that formulas need no script, font or host.
- A chapter's stored output is thrown away when the code it ran with has changed, not only when
  the chapter has: the cache itself looks at the chapter alone.
- What the theme would load and the book does not use is taken out of every page.
- What a panel loads later is taken out of the page and becomes a file; scripts that travel in a page travel slim.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import shutil
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexer import inherit
from pygments.lexers import CssLexer, JavascriptLexer
from pygments.token import Comment, Operator, Punctuation, Text, Whitespace
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

log = logging.getLogger(__name__)
BOOK = Path(__file__).resolve().parent.parent
CODE = {".py", ".js", ".css", ".csv", ".json", ".gz"}


def files_digest(book: Path, files: list[Path]) -> str:
    """SHA-256 over the names and contents of `files`, compiled ones left out."""
    digest = hashlib.sha256()
    for path in files:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(book.parent).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def code_digest(book: Path = BOOK) -> str:
    """Over all that a chapter's output depends on besides the chapter itself."""
    files = [book.parent / "requirements.txt"]
    for folder in ("splitheads", "data", "recordings"):
        files += sorted(p for p in (book / folder).rglob("*") if p.suffix in CODE)
    return files_digest(book, files)


def dress_digest(book: Path = BOOK) -> str:
    """Over what every page wears: style sheets, scripts, templates, and this extension."""
    return files_digest(
        book, [p for folder in ("_static", "_templates", "_ext") for p in sorted((book / folder).rglob("*"))]
    )


def choose_cache(app: Sphinx, config: Config) -> None:
    """Give each state of the code its own execution cache, and drop the caches of older states."""
    config.splitheads_code = code_digest()
    config.splitheads_dress = dress_digest()
    caches = Path(app.outdir).parent / ".jupyter_cache"
    ours = caches / config.splitheads_code[:16]
    if caches.is_dir():
        for old in caches.iterdir():
            if old != ours:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
    config.nb_execution_cache_path = str(ours)


def mathml(node: nodes.Element, display: str) -> str:
    """MathML for one formula. `display` is "inline" or "block"."""
    latex = node.astext()
    try:
        return convert(latex, display=display)
    except Exception as error:  # the converter has no common base class for what it raises
        why = str(error) or type(error).__name__
        log.warning(
            "formula %r cannot be converted to MathML: %s", latex, why, type="splitheads", subtype="math", location=node
        )
        return f"<code>{escape(latex)}</code>"


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(
        translator.starttag(node, "div", CLASS="math-block", tabindex="0", role="group", **{"aria-label": "Formula"})
    )
    translator.body.append(mathml(node, "block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def mend_roles(context: dict[str, Any]) -> None:
    """A list's children must be list items; the bibliography writer gives them a role of their own."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def trim_page(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Take out Thebe: the theme asks for it, and its script would be fetched from another host."""
    mend_roles(context)
    unused = ("THEBE_JS_URL", "sphinx-thebe")

    def used(asset: Any) -> bool:
        text = f"{getattr(asset, 'filename', asset)} {getattr(asset, 'attributes', {}).get('body', '')}"
        return not any(word in text for word in unused)

    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if used(asset)]


def trim_text(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Take out what Thebe has put at the end of the text: its settings, with a stranger's repository in them."""
    for node in list(doctree.findall(nodes.raw)):
        text = node.astext()
        if "text/x-thebe-config" in text or text.startswith("<script>kernelName"):
            node.parent.remove(node)


class Script(JavascriptLexer):
    """Pygments' lexer, which takes a / after => for a division and would lose the spaces of a regular expression."""

    tokens: ClassVar = {"root": [(r"=>", Punctuation, "slashstartsregex"), inherit]}


LEXERS = {
    "js": Script(stripnl=False, ensurenl=False),
    "css": CssLexer(stripnl=False, ensurenl=False),
}
STATE = "application/vnd.jupyter.widget-state+json"


@cache
def slim(text: str, language: str) -> str:
    """A script or style sheet without its comments, and without the spaces that only people need.

    Line ends stay, because in JavaScript one can end a statement. So do spaces beside + - and /: "a + +b" is not "a ++b".
    """
    pieces: list[tuple[bool, str]] = []  # does a space beside it say nothing? and the text
    gap = ""
    for kind, value in LEXERS[language].get_tokens(text):
        if kind in Comment and kind not in Comment.Preproc:  # which Pygments calls "!important"
            gap = "\n" if "\n" in value or gap == "\n" else gap or " "
        elif kind in Whitespace or (kind is Text and value.isspace()):
            gap = "\n" if "\n" in value or gap == "\n" else " "
        else:
            # In a style sheet, "a :hover" is not "a:hover" and "1 + 2" not "1+2": only around braces and the like.
            sign = set(value) <= set("{};,") if language == "css" else kind in Operator or kind in Punctuation
            tight = sign and not set(value) & set("+-/") and not value.isalpha()  # "in" and "typeof" are operators
            if gap == "\n" or (gap and pieces and not tight and not pieces[-1][0]):
                pieces.append((True, gap if pieces else ""))
            pieces.append((tight, value))
            gap = ""
    return "".join(text for _, text in pieces) + ("\n" if gap == "\n" else "")


def slim_state(state: dict[str, Any], folder: Path, up: str) -> None:
    """Make the scripts of a page's widgets slim, and put what a panel loads later into a file of its own.

    `folder` is where the site has its static files, `up` how the page names it.
    """
    for model in state["state"].values():
        traits = model["state"]
        for key, language in (("_esm", "js"), ("_css", "css")):
            if isinstance(traits.get(key), str):
                traits[key] = slim(traits[key], language)
        for name, text in (traits.get("later") or {}).items():
            text = slim(text, "js")
            file = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.js"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, "utf8")
            traits["later_files"][name] = f"{up}/{file}"
            traits["later"] = {}


def slim_page(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Every page's widget state; a page without panels has none."""
    for asset in context.get("script_files", []):
        given = getattr(asset, "attributes", {})
        if given.get("type") == STATE:
            state = json.loads(given["body"])
            folder = Path(app.outdir) / "_static" / "parts"
            slim_state(state, folder, posixpath.relpath("_static/parts", posixpath.dirname(pagename) or "."))
            given["body"] = json.dumps(state, separators=(",", ":")).replace("</", "<\\/")


def remove_dead_parts(app: Sphinx) -> None:
    """Files that no page loads any more."""
    folder = Path(app.outdir) / "_static" / "parts"
    pages = "".join(page.read_text("utf8") for page in Path(app.outdir).rglob("*.html")) if folder.is_dir() else ""
    for part in folder.glob("*.js"):
        if part.name not in pages:
            part.unlink()


def remove_dead_pages(app: Sphinx, error: Exception | None) -> None:
    """Sphinx never takes a page away: one whose chapter is gone would stay on the site, and in its search."""
    if error or app.builder.format != "html":
        return
    alive = {"index", "genindex", "search", app.config.root_doc, *app.env.found_docs}
    for page in Path(app.outdir).rglob("*.html"):
        name = page.relative_to(app.outdir).with_suffix("").as_posix()
        if name not in alive and not name.startswith("_"):
            page.unlink()
    remove_dead_parts(app)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("splitheads_code", "", "env")  # a change reads every chapter again
    app.add_config_value("splitheads_dress", "", "html")  # a change writes every page again
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("config-inited", choose_cache)
    app.connect("doctree-resolved", trim_text, priority=900)
    app.connect("html-page-context", trim_page, priority=900)
    app.connect("html-page-context", slim_page, priority=910)
    app.connect("build-finished", remove_dead_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
