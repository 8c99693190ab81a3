#!/bin/sh
# Make .venv hold exactly what is asked for, and do nothing where it already does.
#   scripts/setup.sh         what building and reading the book needs
#   scripts/setup.sh test    that, and what the tests need
# PYTHON=/path/to/python chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."

stop() { printf '\n%s\n' "$1" >&2; exit 1; }
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || stop "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 || true); Splitting Heads needs Python 3.11, 3.12 or 3.13."
else
    for name in python3 python3.13 python3.12 python3.11; do
        if fits "$name"; then PYTHON=$name; break; fi
    done
    [ -n "${PYTHON:-}" ] || stop "Splitting Heads needs Python 3.11, 3.12 or 3.13, and 'python3' here is $(python3 --version 2>&1 || true): install one of them, or name it: make book PYTHON=/path/to/python3.11"
fi

# A folder that was moved, or made by another Python that is gone, is made anew.
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        stop "$("$PYTHON" --version) has no 'venv' module: on Debian or Ubuntu, 'apt install python3-venv' brings it; then run the same command again."
    echo "Making .venv with $("$PYTHON" --version) ..."
    rm -rf .venv
    "$PYTHON" -m venv .venv
fi

lists="requirements.txt"
[ "${1:-}" != test ] || lists="requirements.txt tests/requirements.txt"
# The stamp is the very text of what was installed, so any edit to a list installs again.
wanted=$(cat $lists constraints.txt pyproject.toml; pwd)
stamp=".venv/installed-${1:-book}.txt"
if [ "$wanted" = "$(cat "$stamp" 2>/dev/null)" ]; then exit 0; fi

echo "Installing $lists into .venv (the first time takes some minutes) ..."
arguments=""
for list in $lists; do arguments="$arguments -r $list"; done
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $arguments ||
    stop "The packages could not be installed (see above). Nothing else was changed; run the same command again when the cause is mended."
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e . ||
    stop "The package in book/ could not be installed (see above)."
printf '%s' "$wanted" > "$stamp"
