#!/bin/sh
# See that there is a browser for the tests: one that is here, else Debian's, else Playwright's own.
set -eu
cd "$(dirname "$0")/.."

found() { .venv/bin/python -c 'import sys; sys.path.insert(0, "tests"); import browser; sys.exit(browser.executable() is None)'; }

if [ -n "${CHROMIUM:-}" ] && [ ! -f "$CHROMIUM" ]; then
    printf '\n%s\n' "CHROMIUM=$CHROMIUM is no file: give the path of a Chromium or Google Chrome, or leave CHROMIUM out." >&2
    exit 1
fi
if found; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Chromium (Debian package) ..."
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null || true
    if found; then exit 0; fi
fi
echo "Installing Playwright's own Chromium ..."
.venv/bin/python -m playwright install chromium || true
if found; then exit 0; fi
printf '\n%s\n' "The tests need a Chromium and none could be installed: install Debian's package 'chromium' (or Google Chrome), or set CHROMIUM=/path/to/chromium, and run 'make test' again." >&2
exit 1
