"""The project as a whole: pinned, licensed, speaking only of itself, and true in what it says of itself."""

from __future__ import annotations

import csv
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, pages
from splitheads.partition import HeadSplit


def lines(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text("utf8").splitlines() if line.strip() and not line.startswith("#")]


def tracked() -> list[Path]:
    """Files that belong to the project: what git tracks or would add; all files where there is no git."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode == 0:
        return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]
    skip = {".venv", "_build", "node_modules", "__pycache__", ".pytest_cache", ".ruff_cache", ".git"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not skip & set(path.parts)]


@pytest.mark.parametrize("name", ["requirements.txt", "constraints.txt", "tests/requirements.txt"])
def test_every_requirement_is_pinned_exactly(name):
    for line in lines(name):
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+]+", line), line


def test_jupyter_book_stays_below_two_and_torch_is_the_one_we_checked():
    assert "jupyter-book==1.0.4.post1" in lines("requirements.txt")
    assert "torch==2.13.0" in lines("requirements.txt")


def test_constraints_leave_torch_and_its_cuda_packages_alone():
    for line in lines("constraints.txt"):
        assert not re.match(r"(torch|nvidia|triton|cuda)", line, flags=re.I), line


def test_what_is_installed_is_what_the_lists_say():
    from importlib.metadata import version

    for line in lines("requirements.txt") + lines("tests/requirements.txt") + lines("constraints.txt"):
        name, wanted = line.split("==")
        assert version(name).split("+")[0] == wanted, name


def test_the_two_configuration_files_parse_and_name_real_chapters():
    assert yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))["title"] == "Splitting Heads"
    for name in pages():
        assert (ROOT / f"{name}.md").is_file()
    written = {f"book/{path.stem}" for path in (ROOT / "book").glob("*.md")}
    assert written == set(pages()), "a chapter that _toc.yml does not name is read by nobody"


def test_the_licences_are_there_and_say_which_is_for_what():
    assert "MIT License" in (ROOT / "LICENSE").read_text("utf8")
    content = (ROOT / "LICENSE-CONTENT").read_text("utf8")
    assert "Creative Commons Attribution 4.0" in content
    assert (ROOT / "book/_static/widgets/THIRD-PARTY-LICENSES.txt").stat().st_size > 5000


def test_the_project_names_no_machine_and_no_package_host():
    # Spelled in pieces, so that this file does not contain what it looks for.
    words = [
        "py" + "pi.org",
        "python" + "hosted",
        "registry." + "npmjs",
        "deb." + "debian.org",
        "/wo" + "rk/",
        "/ro" + "ot/",
        ".." + "/shared",
    ]
    found = []
    for path in tracked():
        try:
            text = path.read_text("utf8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {word}" for word in words if word in text]
    assert found == []


def test_readme_names_the_two_commands_and_its_picture_exists():
    text = (ROOT / "README.md").read_text("utf8")
    assert "make book" in text
    assert "make test" in text
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", text)
    assert pictures, "README shows the book"
    for alt, target in pictures:
        assert len(alt) > 20
        assert (ROOT / target).is_file(), target
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_what_the_readme_shows_python_saying_is_what_it_says():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf8"), flags=re.S)
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest("".join(blocks), {}, "README.md", "README.md", 0))
    assert runner.tries >= 3
    assert runner.failures == 0


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf8"), flags=re.M))
    for page in ("README.md", "CONTRIBUTING.md", *(f"{name}.md" for name in pages())):
        for target in re.findall(r"`make ([a-z]+)", (ROOT / page).read_text("utf8")):
            assert target in targets, f"{page} names `make {target}`"


def test_continuous_integration_runs_the_one_test_command():
    run = ROOT / ".ci/run"
    assert run.stat().st_mode & 0o111
    assert "make test" in run.read_text("utf8")


def test_the_theme_override_still_matches_the_theme():
    """book/_templates repeats a generated file of the theme, less its icon script."""
    import pydata_sphinx_theme

    theirs = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static/webpack-macros.html"
    ours = ROOT / "book/_templates/static/webpack-macros.html"

    def facts(path: Path) -> list[str]:
        text = path.read_text("utf8")
        return re.findall(r"macro \w+\(\)|_static/[\w/.-]+", re.sub(r"\{#.*?#\}", "", text, flags=re.S))

    assert facts(ours) == [fact for fact in facts(theirs) if "fontawesome" not in fact]


def test_every_icon_that_the_site_uses_is_drawn(site):
    drawn = set(re.findall(r"\.(fa-[a-z-]+)", (ROOT / "book/_static/house.css").read_text("utf8")))
    used = set()
    for path in site.glob("**/*.html"):
        for classes in re.findall(r'class="([^"]*\bfa[srb]?\b[^"]*|[^"]*\bfa-[^"]*)"', path.read_text("utf8")):
            used |= {name for name in classes.split() if name.startswith("fa-")}
    sizes_and_styles = {"fa-solid", "fa-regular", "fa-lg", "fa-fw", "fa-sm", "fa-xs"}
    assert used - sizes_and_styles <= drawn
    assert used


def test_models_table_agrees_with_itself(models):
    assert len(models) == 120
    for name, row in models.items():
        d_model, n_heads, n_kv_heads, d_head = (int(row[key]) for key in ("d_model", "n_heads", "n_kv_heads", "d_head"))
        split = HeadSplit(d_model, n_heads, n_kv_heads, d_head)
        assert split.follows_rule == (row["partition_rule"] == "yes"), name
        assert row["source"], name


def test_ruff_finds_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "."], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_all_chapters_have_the_skeleton_of_a_chapter():
    for name in pages():
        text = (ROOT / f"{name}.md").read_text("utf8")
        if name.split("/")[-1] in ("index", "glossary", "references"):
            continue
        for part in (
            "After this chapter you can answer:",
            "{admonition} Takeaway",
            "## Check yourself",
            "{dropdown}",
            "## Sources",
        ):
            assert part in text, f"{name} lacks {part!r}"


def test_every_source_in_the_bibliography_is_cited_and_has_an_address():
    bib = (ROOT / "book/references.bib").read_text("utf8")
    keys = re.findall(r"^@\w+\{(\w+),", bib, flags=re.M)
    assert len(keys) == len(set(keys)) > 10
    assert len(re.findall(r"^  url = \{https://", bib, flags=re.M)) == len(keys)
    cited = set()
    for name in pages():
        for group in re.findall(r"\{cite:\w\}`([^`]+)`", (ROOT / f"{name}.md").read_text("utf8")):
            cited |= set(group.split(","))
    assert cited == set(keys)


def test_the_models_file_is_read_with_the_standard_library():
    with (ROOT / "book/data/models.csv").open(encoding="utf8", newline="") as file:
        assert next(csv.reader(file))[:3] == ["model", "family", "year"]
