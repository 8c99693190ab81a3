"""Serve the built site on loopback: the port named by $PORT (8000), or the next free one."""

from __future__ import annotations

import functools
import http.server
import os
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent.parent / "_build" / "html"


def main() -> None:
    wanted = os.environ.get("PORT") or "8000"
    if not (wanted.isascii() and wanted.isdecimal() and len(wanted) <= 5 and 0 < int(wanted) < 65536):
        sys.exit(f"PORT={wanted[:40]} is not a port: give a number from 1 to 65535, for example PORT=8001.")
    if not (SITE / "index.html").is_file():
        sys.exit("There is no built book yet: run `make book` first.")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    last = min(int(wanted) + 19, 65535)
    for port in range(int(wanted), last + 1):
        try:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        except OSError:
            continue
        print(f"Serving the book at http://127.0.0.1:{port}/ (Ctrl-C stops it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        return
    sys.exit(f"Ports {wanted} to {last} are all taken: name a free one, for example `make serve PORT=9000`.")


if __name__ == "__main__":
    main()
