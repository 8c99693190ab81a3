"""Setting up, serving and finding a browser: what a reader meets on a machine that is not ours.

Most of it runs with small stand-ins for Python, in a folder of its own and with nothing else on the
PATH; one test makes a real .venv with the real pip, from a package that needs no download.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT

TOOLS = ("sh", "cat", "cp", "dirname", "grep", "head", "id", "mkdir", "rm")

PYPROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["backend"]

[project]
name = "stub"
version = "0"
"""

BACKEND = '''"""A build backend of its own: the smallest editable wheel, so that pip has nothing to fetch."""

import zipfile
from pathlib import Path


def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(Path(folder) / "stub-0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("stub.pth", str(Path.cwd() / "book"))
        wheel.writestr("stub-0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: stub\\nVersion: 0\\n")
        wheel.writestr("stub-0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("stub-0.dist-info/entry_points.txt", "[console_scripts]\\nstub = stub:main\\n")
        wheel.writestr("stub-0.dist-info/RECORD", "")
    return "stub-0-py3-none-any.whl"
'''

FAKE = """#!/bin/sh
# Stands in for Python {version}: its own version, a .venv of stand-ins, a pip that only writes down what it was asked.
if [ "$1" = --version ]; then echo "Python {version}"; exit 0; fi
if [ "$1" = -c ]; then exec '{real}' -c "import sys
sys.version_info = tuple(map(int, '{version}'.split('.')))
sys.modules['pip'] = sys
{without}
$2"; fi
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "#!$(pwd -P)/$3/bin/python" > "$3/bin/pip"; exit 0
fi
if [ "$1 $2" = "-m pip" ]; then echo "$*" >> pip.log; [ ! -e pip-fails ]; exit $?; fi
exit 97
"""


class Project:
    """A copy of what scripts/setup.sh needs, and a PATH that holds the tools above and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a project"  # a space: readers have them
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name in TOOLS:
            found = shutil.which(name)
            assert found, f"these tests need the usual tools of a shell, and {name!r} is missing"
            (self.bin / name).symlink_to(found)
        (self.folder / "scripts").mkdir(parents=True)
        for script in (ROOT / "scripts").iterdir():
            if script.is_file():
                shutil.copy(script, self.folder / "scripts")
        (self.folder / "tests").mkdir()
        for name in ("requirements.txt", "tests/requirements.txt", "constraints.txt"):
            (self.folder / name).write_text("# nothing\n", "utf8")
        (self.folder / "pyproject.toml").write_text(PYPROJECT, "utf8")

    def python(self, name: str, version: str, without: str = "") -> Path:
        """Put a stand-in on the PATH. `without` names a module that it lacks."""
        path = self.bin / name
        lacks = f"sys.modules[{without!r}] = None" if without else ""
        executable(path, FAKE.format(version=version, real=sys.executable, without=lacks))
        return path

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the project from another folder: the scripts must find their own."""
        return subprocess.run(
            [str(self.folder / command[0]), *command[1:]],
            cwd=self.folder.parent,
            env={"PATH": str(self.bin), "HOME": str(self.folder.parent), "LC_ALL": "C.UTF-8", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("scripts/setup.sh", *arguments, **environment)

    def pip(self) -> list[str]:
        """What pip was asked for since the last time."""
        log = self.folder / "pip.log"
        asked = log.read_text("utf8").splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return asked

    @property
    def venv(self) -> Path:
        return self.folder / ".venv"

    def stamps(self) -> list[str]:
        return sorted(path.name for path in self.venv.glob("installed-*"))


def executable(path: Path, text: str) -> None:
    path.write_text(text, "utf8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The only line that a failed command has to say."""
    assert done.returncode != 0, f"it should have failed, and said: {done.stdout}{done.stderr}"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert len(lines) == 1, f"one sentence was wanted, and this came: {lines}"
    assert "Traceback" not in lines[0]
    return lines[0]


# Which Python


@pytest.mark.parametrize("version", ["2.7.18", "3.8.20", "3.10.14", "3.14.0"])
def test_a_python_that_does_not_fit_is_named_and_the_way_out_too(project, version):
    project.python("python3", version)
    said = one_sentence(project.setup())
    assert f"Python {version}" in said
    assert "Python 3.11, 3.12 or 3.13" in said
    assert "PYTHON=/path/to/python3.11" in said
    assert not project.venv.exists()


@pytest.mark.parametrize("version", ["3.11.0", "3.12.7", "3.13.1"])
def test_a_python_that_fits_is_taken(project, version):
    project.python("python3", version)
    done = project.setup()
    assert done.returncode == 0, done.stderr
    assert f"Making .venv with Python {version}" in done.stdout


def test_another_python_that_fits_is_found_beside_one_that_does_not(project):
    project.python("python3", "3.9.2")
    project.python("python3.12", "3.12.7")
    done = project.setup()
    assert done.returncode == 0, done.stderr
    assert "Making .venv with Python 3.12.7" in done.stdout


def test_no_python_at_all(project):
    said = one_sentence(project.setup())
    assert "there is no 'python3' here" in said
    assert "Python 3.11, 3.12 or 3.13" in said
    assert "not found" not in said, "the shell's own words are of no use to a reader"


def test_a_named_python_that_is_not_there(project):
    project.python("python3", "3.12.7")
    said = one_sentence(project.setup(PYTHON="/nonexistent"))
    assert said.startswith("PYTHON=/nonexistent cannot be run;")
    assert "Python 3.11, 3.12 or 3.13" in said
    assert not project.venv.exists(), "another Python was taken in place of the one that was named"


def test_a_named_python_that_does_not_fit(project):
    project.python("python3", "3.12.7")
    old = project.python("old", "3.8.20")
    said = one_sentence(project.setup(PYTHON=str(old)))
    assert f"PYTHON={old} is Python 3.8.20;" in said
    assert "Python 3.11, 3.12 or 3.13" in said


def test_a_named_python_is_taken_before_the_usual_one(project):
    project.python("python3", "3.12.7")
    own = project.python("own", "3.13.1")
    assert "Making .venv with Python 3.13.1" in project.setup(PYTHON=str(own)).stdout


def test_a_python_named_later_makes_venv_anew(project):
    project.python("python3", "3.12.7")
    own = project.python("own", "3.13.1")
    project.setup()
    assert "Making .venv with Python 3.13.1" in project.setup(PYTHON=str(own)).stdout
    assert project.setup(PYTHON=str(own)).stdout == ""
    assert project.setup().stdout == "", "a plain run afterwards keeps what the reader chose"


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv(project, module):
    project.python("python3", "3.12.7", without=module)
    said = one_sentence(project.setup())
    assert said.startswith("Python 3.12.7 has no 'venv' module:")
    assert "apt install python3-venv" in said
    assert not project.venv.exists()


# What is installed, and when


def test_the_first_run_installs_and_the_second_does_nothing(project):
    project.python("python3", "3.12.7")
    assert project.setup().returncode == 0
    asked = project.pip()
    assert len(asked) == 2
    assert "-c constraints.txt -r requirements.txt" in asked[0]
    assert "tests/requirements.txt" not in asked[0]
    assert asked[1].endswith("--no-deps -e .")
    before = {path: path.stat().st_mtime_ns for path in project.venv.rglob("*")}
    again = project.setup()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert project.pip() == []
    assert {path: path.stat().st_mtime_ns for path in project.venv.rglob("*")} == before


def test_the_tests_need_more_and_have_a_stamp_of_their_own(project):
    project.python("python3", "3.12.7")
    project.setup()
    project.pip()
    assert project.setup("test").returncode == 0
    assert "-r requirements.txt -r tests/requirements.txt" in project.pip()[0]
    project.setup()
    project.setup("test")
    assert project.pip() == [], "`make book` and `make test` in turn must not install again each time"


@pytest.mark.parametrize("name", ["requirements.txt", "constraints.txt", "pyproject.toml"])
def test_a_changed_list_installs_again(project, name):
    project.python("python3", "3.12.7")
    project.setup()
    project.pip()
    with (project.folder / name).open("a", encoding="utf8") as file:
        file.write("# a change\n")
    done = project.setup()
    assert "Installing requirements.txt" in done.stdout
    assert "Making .venv" not in done.stdout
    assert len(project.pip()) == 2
    project.setup()
    assert project.pip() == []


def test_a_changed_list_of_the_tests_concerns_the_tests_alone(project):
    project.python("python3", "3.12.7")
    project.setup()
    project.setup("test")
    project.pip()
    (project.folder / "tests" / "requirements.txt").write_text("# changed\n", "utf8")
    project.setup()
    assert project.pip() == []
    project.setup("test")
    assert len(project.pip()) == 2


def test_a_failing_install_says_so_and_is_tried_again(project):
    project.python("python3", "3.12.7")
    (project.folder / "pip-fails").touch()
    done = project.setup()
    assert done.returncode != 0
    assert "The packages could not be installed (see above)." in done.stderr
    assert project.stamps() == []
    (project.folder / "pip-fails").unlink()
    project.pip()
    assert project.setup().returncode == 0
    assert len(project.pip()) == 2
    assert project.stamps() == ["installed-book.txt"]


def test_a_failing_update_forgets_the_state_before_it(project):
    """pip may have replaced half of the packages: going back to the old list must install it again."""
    project.python("python3", "3.12.7")
    project.setup()
    (project.folder / "requirements.txt").write_text("# new\n", "utf8")
    (project.folder / "pip-fails").touch()
    assert project.setup().returncode != 0
    assert project.stamps() == []
    (project.folder / "requirements.txt").write_text("# nothing\n", "utf8")
    (project.folder / "pip-fails").unlink()
    project.pip()
    project.setup()
    assert len(project.pip()) == 2


def test_a_moved_folder_gets_a_new_venv(project):
    project.python("python3", "3.12.7")
    project.setup()
    project.folder = project.folder.rename(project.folder.with_name("elsewhere"))
    project.pip()
    assert "Making .venv" in project.setup().stdout
    assert len(project.pip()) == 2


@pytest.mark.parametrize("version", ["3.10.14", "3.14.0"])
def test_a_venv_of_a_python_that_does_not_fit_is_made_anew(project, version):
    project.python("python3", "3.12.7")
    project.setup()
    executable(project.venv / "bin" / "python", FAKE.format(version=version, real=sys.executable, without=""))
    assert "Making .venv with Python 3.12.7" in project.setup().stdout


def test_a_venv_whose_python_is_gone_is_made_anew(project):
    project.python("python3", "3.12.7")
    project.setup()
    python = project.venv / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python3.12")
    done = project.setup()
    assert done.stderr == ""
    assert "Making .venv with Python 3.12.7" in done.stdout


def test_a_real_venv_works_survives_a_second_run_and_a_move(project):
    """The real Python, venv and pip; the index is off, so whatever would be fetched fails."""
    offline = {"PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
    (project.folder / "backend").mkdir()
    (project.folder / "backend" / "backend.py").write_text(BACKEND, "utf8")
    (project.folder / "book").mkdir()
    (project.folder / "book" / "stub.py").write_text("def main():\n    print('it works')\n", "utf8")

    done = project.setup(**offline)
    assert done.returncode == 0, done.stderr
    assert project.run(".venv/bin/stub").stdout == "it works\n"
    again = project.setup(**offline)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    project.folder = project.folder.rename(project.folder.with_name("elsewhere"))
    (project.folder / "requirements.txt").write_text("a-package-that-is-nowhere==1\n", "utf8")
    done = project.setup(**offline)
    assert "Making .venv" in done.stdout
    assert done.returncode != 0
    assert done.stderr.strip().endswith("run the same command again when the cause is mended.")
    assert project.stamps() == []

    (project.folder / "requirements.txt").write_text("# nothing\n", "utf8")
    done = project.setup(**offline)
    assert done.returncode == 0, done.stderr
    assert "Making .venv" not in done.stdout
    assert project.run(".venv/bin/stub").stdout == "it works\n", "the commands in .venv do not run after the move"


# make


@pytest.fixture
def make(project: Project) -> Callable[..., subprocess.CompletedProcess[str]]:
    found = shutil.which("make")
    assert found, "the tests are run by make, and there is none on the PATH"
    (project.bin / "make").symlink_to(found)
    for name in ("echo",):
        (project.bin / name).symlink_to(shutil.which(name))
    shutil.copy(ROOT / "Makefile", project.folder)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments],
            cwd=project.folder,
            env={"PATH": str(project.bin), "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_make_alone_lists_what_it_can_do_and_does_nothing(make, project):
    before = sorted(path.name for path in project.folder.iterdir())
    done = make()
    assert done.returncode == 0, done.stderr
    assert done.stdout == make("help").stdout
    listed = re.findall(r"^make (\w+) ", done.stdout, flags=re.M)
    assert {"book", "test", "lab", "serve", "clean"} <= set(listed)
    for target in listed:
        done = make("-n", target)
        assert done.returncode == 0, f"make help lists {target!r}: {done.stderr}"
    assert sorted(path.name for path in project.folder.iterdir()) == before


def test_every_target_is_phony_and_has_a_recipe(make, project):
    """A file that happens to be called `book` or `test`, as the folder book/ is, must stop no target."""
    text = (ROOT / "Makefile").read_text("utf8")
    targets = re.findall(r"^([a-z]+):", text, flags=re.M)
    phony = re.search(r"^\.PHONY: (.+)$", text, flags=re.M)[1].split()
    assert sorted(targets) == sorted(phony)
    for target in targets:
        (project.folder / target).touch()
        done = make("-n", target)
        assert done.returncode == 0, done.stderr
        assert "up to date" not in done.stdout, target
        assert done.stdout.strip(), f"make {target} does nothing"


def test_make_test_builds_the_book_before_it_tests_it(make):
    steps = make("-n", "test").stdout
    order = ["scripts/setup.sh", "jupyter-book build", "scripts/setup.sh test", "scripts/chromium.sh", "-m pytest"]
    at = [steps.find(step) for step in order]
    assert -1 not in at, steps
    assert at == sorted(at), steps


PYTEST = """#!/bin/sh
# Stands in for the Python of .venv: writes down how pytest was called, and ends as the files `others` and `alone` say.
[ "$1 $2" = "-m pytest" ] || exit 0
echo "$*" >> pytest.log
case "$*" in *"-m alone"*) exit "$(cat alone)";; *) exit "$(cat others)";; esac
"""


@pytest.mark.parametrize(
    ("others", "alone", "arguments", "passes"),
    [
        (0, 0, "", True),
        (1, 0, "", False),
        (0, 1, "", False),
        (2, 3, "", False),
        (0, 5, "", False),  # 5: nothing was collected. Without arguments that means that a half has been lost.
        (5, 0, "", False),
        (0, 0, "-k 'a or b'", True),
        (0, 5, "-k 'a or b'", True),
        (5, 0, "-k 'a or b'", True),
        (5, 5, "-k 'a or b'", False),
        (1, 5, "-k 'a or b'", False),
    ],
)
def test_make_test_runs_both_halves_and_fails_with_either(make, project, others, alone, arguments, passes):
    (project.venv / "bin").mkdir(parents=True)
    for path, text in (
        (project.venv / "bin" / "python", PYTEST),
        (project.venv / "bin" / "jupyter-book", "#!/bin/sh\n"),
        (project.folder / "scripts" / "setup.sh", "#!/bin/sh\n"),
        (project.folder / "scripts" / "chromium.sh", "#!/bin/sh\n"),
    ):
        executable(path, text)
    (project.folder / "others").write_text(f"{others}\n", "utf8")
    (project.folder / "alone").write_text(f"{alone}\n", "utf8")
    done = make("test", *([f"PYTEST_ARGS={arguments}"] if arguments else []))
    first, second = (project.folder / "pytest.log").read_text("utf8").splitlines()
    assert "-m not alone -n auto " in first
    assert second.startswith("-m pytest -m alone")
    assert first.endswith(arguments.replace("'", ""))
    assert second.endswith(arguments.replace("'", ""))
    assert (done.returncode == 0) == passes, done.stdout + done.stderr
    assert ("All tests passed" in done.stdout) == passes
    assert ("Tests failed" in done.stderr) == (not passes)


def test_make_hands_its_python_on_and_stops_where_it_does_not_fit(make):
    done = make("book", "PYTHON=/nonexistent")
    assert done.returncode != 0
    assert "PYTHON=/nonexistent cannot be run;" in done.stderr
    assert "jupyter-book" not in done.stderr, "the build went on without a Python"


def test_make_clean_keeps_venv_and_notebooks(make, project):
    for name in ("_build/html/index.html", ".venv/bin/python", "book/index.ipynb"):
        (project.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (project.folder / name).touch()
    assert make("clean").returncode == 0
    assert not (project.folder / "_build").exists()
    assert (project.folder / ".venv/bin/python").exists()
    assert (project.folder / "book/index.ipynb").exists()


# scripts/serve.py


@pytest.fixture
def served(project: Project) -> Project:
    (project.folder / "_build" / "html").mkdir(parents=True)
    (project.folder / "_build" / "html" / "index.html").write_text("<title>A book</title>", "utf8")
    return project


def serve(project: Project, **environment: str) -> subprocess.CompletedProcess[str]:
    """scripts/serve.py where it is expected to end by itself."""
    return subprocess.run(
        [sys.executable, str(project.folder / "scripts" / "serve.py")],
        cwd=project.folder.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=20,
    )


@pytest.fixture
def start(served: Project) -> Iterator[Callable[[int], tuple[subprocess.Popen, int]]]:
    """start(port) -> (process, the port it says it serves at)."""
    running: list[subprocess.Popen] = []

    def begin(port: int) -> tuple[subprocess.Popen, int]:
        process = subprocess.Popen(
            [sys.executable, str(served.folder / "scripts" / "serve.py")],
            cwd=served.folder.parent,
            env={**os.environ, "PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that runs the tests in the background has them, and so this, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        running.append(process)
        said = process.stdout.readline()
        told = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        assert told, f"it does not say where it serves: {said!r}{process.stderr.read()!r}"
        return process, int(told[1])

    yield begin
    for process in running:
        process.kill()
        process.communicate(timeout=30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return min(probe.getsockname()[1], 65000)


@pytest.mark.parametrize(
    "port", ["9" * 5000, "0", "-1", "65536", "99999999999999999999", "eight", "80.5", "8000 ", "0x50", "²", "8_000"]
)
def test_a_port_that_is_none(served, port):
    said = one_sentence(serve(served, PORT=port))
    assert said.startswith(f"PORT={port[:40]} is not a port:")
    assert "1 to 65535" in said


def test_there_is_no_book_yet(project):
    said = one_sentence(serve(project, PORT=str(free_port())))
    assert "run `make book` first" in said


def test_the_book_is_served(start):
    process, port = start(free_port())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
        assert answer.read() == b"<title>A book</title>"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0, "Ctrl-C is the way to stop it, not an error"
    assert "Traceback" not in process.stderr.read()


def test_nothing_outside_the_site_is_served(start):
    _, port = start(free_port())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/../../pyproject.toml")
    assert connection.getresponse().status == 404


def test_a_busy_port_takes_the_next_one(start):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", free_port()))
        busy.listen()
        taken = busy.getsockname()[1]
        _, port = start(taken)
        assert taken < port < taken + 20


def test_ports_that_are_all_busy(served):
    """The last port alone, so that "the next twenty" is one: nothing above 65535 is tried or named."""
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", 65535))
        busy.listen()
        said = one_sentence(serve(served, PORT="65535"))
    assert "65535" in said
    assert "taken" in said
    assert "65536" not in said
    assert "65554" not in said


def test_only_this_machine_can_ask(start):
    """127.0.0.2 is this machine too, but not the address that the server is bound to."""
    _, port = start(free_port())
    with socket.socket() as other:
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", port)) != 0


# scripts/chromium.sh


@pytest.fixture
def browserless(project: Project) -> Project:
    """Nobody has a Chromium until the stand-in for the installer named in `brings` has run."""
    (project.venv / "bin").mkdir(parents=True)
    executable(
        project.venv / "bin" / "python",
        """#!/bin/sh
if [ "$1" = -c ]; then [ -e chromium ]; exit $?; fi
echo "$*" >> asked.log
[ "$(cat brings)" = playwright ] || { echo "cannot fetch it" >&2; exit 1; }
echo > chromium
""",
    )
    executable(
        project.bin / "apt-get",
        """#!/bin/sh
echo "apt-get $*" >> asked.log
[ "$(cat brings)" = apt-get ] || { echo "cannot fetch it" >&2; exit 100; }
case "$*" in *install*) echo > chromium;; esac
""",
    )
    root(project, True)
    (project.folder / "brings").write_text("nothing", "utf8")
    return project


def root(project: Project, yes: bool) -> None:
    (project.bin / "id").unlink()
    executable(project.bin / "id", f"#!/bin/sh\necho {0 if yes else 1000}\n")


def asked(project: Project) -> str:
    log = project.folder / "asked.log"
    return log.read_text("utf8") if log.exists() else ""


def test_a_browser_that_is_here_is_enough(browserless):
    (browserless.folder / "chromium").touch()
    done = browserless.run("scripts/chromium.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert asked(browserless) == ""


def test_root_gets_the_package_of_the_system(browserless):
    (browserless.folder / "brings").write_text("apt-get", "utf8")
    done = browserless.run("scripts/chromium.sh")
    assert done.returncode == 0, done.stderr
    assert "install" in asked(browserless)
    assert "playwright" not in asked(browserless)


@pytest.mark.parametrize("is_root", [True, False])
def test_playwright_brings_its_own_where_the_system_does_not(browserless, is_root):
    root(browserless, is_root)
    (browserless.folder / "brings").write_text("playwright", "utf8")
    done = browserless.run("scripts/chromium.sh")
    assert done.returncode == 0, done.stderr
    assert ("apt-get" in asked(browserless)) == is_root, "only root can install packages"
    assert "-m playwright install chromium" in asked(browserless)


@pytest.mark.parametrize("is_root", [True, False])
def test_no_browser_to_be_had(browserless, is_root):
    root(browserless, is_root)
    done = browserless.run("scripts/chromium.sh")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("The tests need a Chromium and none could be installed:")
    assert "'chromium'" in last
    assert "CHROMIUM=/path/to/chromium" in last
    assert "Traceback" not in done.stderr


def test_a_named_browser_that_is_not_there(browserless):
    said = one_sentence(browserless.run("scripts/chromium.sh", CHROMIUM="/nonexistent"))
    assert said.startswith("CHROMIUM=/nonexistent is no file:")
    assert asked(browserless) == "", "installing another browser does not mend the name"


def test_the_search_knows_the_usual_names(tmp_path, monkeypatch):
    import browser

    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in reversed(browser.NAMES):
        executable(tmp_path / name, "#!/bin/sh\n")
        assert browser.executable() == str(tmp_path / name)
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "google-chrome"))
    assert browser.executable() == str(tmp_path / "google-chrome")
    monkeypatch.setenv("CHROMIUM", "/nonexistent")
    assert browser.executable() is None
