#!/bin/sh
# Make .venv hold exactly what is asked for, and do nothing where it already does.
#   scripts/setup.sh         what building and reading the book needs
#   scripts/setup.sh test    that, and what the tests need
# PYTHON=/path/to/python chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."

stop() { printf '\n%s\n' "$1" >&2; exit 1; }
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
version() { "$1" --version 2>&1 | head -n 1; }
minor() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

named=${PYTHON:-}
if [ -n "$named" ]; then
    command -v "$PYTHON" >/dev/null || stop "PYTHON=$PYTHON cannot be run; Splitting Heads needs Python 3.11, 3.12 or 3.13: give the path of one."
    fits "$PYTHON" || stop "PYTHON=$PYTHON is $(version "$PYTHON"); Splitting Heads needs Python 3.11, 3.12 or 3.13: give the path of one."
else
    for name in python3 python3.13 python3.12 python3.11; do
        if fits "$name"; then PYTHON=$name; break; fi
    done
    if [ -z "${PYTHON:-}" ]; then
        if command -v python3 >/dev/null; then here="'python3' here is $(version python3)"; else here="there is no 'python3' here"; fi
        stop "Splitting Heads needs Python 3.11, 3.12 or 3.13, and $here: install one of them, or name it: make book PYTHON=/path/to/python3.11"
    fi
fi

# A .venv that was moved (its commands name the folder they were made for), whose Python is gone or
# does not fit, or that another Python made than the one now named, is made anew.
usable() {
    fits .venv/bin/python && .venv/bin/python -c 'import pip' 2>/dev/null &&
        grep -qF "$(pwd -P)/.venv/bin/" .venv/bin/pip 2>/dev/null &&
        { [ -z "$named" ] || [ "$(minor "$PYTHON")" = "$(minor .venv/bin/python)" ]; }
}
if ! usable; then
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        stop "$(version "$PYTHON") has no 'venv' module: on Debian or Ubuntu, 'apt install python3-venv' brings it; then run the same command again."
    echo "Making .venv with $(version "$PYTHON") ..."
    rm -rf .venv
    "$PYTHON" -m venv .venv
fi

lists="requirements.txt"
[ "${1:-}" != test ] || lists="requirements.txt tests/requirements.txt"
# The stamp is the very text of what was installed, so any edit to a list installs again.
wanted=$(cat $lists constraints.txt pyproject.toml; pwd -P)
stamp=".venv/installed-${1:-book}.txt"
if [ "$wanted" = "$(cat "$stamp" 2>/dev/null)" ]; then exit 0; fi

echo "Installing $lists into .venv (the first time takes some minutes) ..."
rm -f "$stamp"  # whatever happens from here on, the old state is gone
arguments=""
for list in $lists; do arguments="$arguments -r $list"; done
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $arguments ||
    stop "The packages could not be installed (see above). Nothing outside .venv was changed; run the same command again when the cause is mended."
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e . ||
    stop "The package in book/ could not be installed (see above)."
printf '%s' "$wanted" > "$stamp"
