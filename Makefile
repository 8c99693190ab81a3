# Two commands do everything: `make book` and `make test`. Both set up what they need, both can be
# run again at any time, and neither repeats what is already right.
#   PYTHON=/path/to/python3.12   another interpreter
#   PORT=8001                    another port for `make serve`

.PHONY: help book test lab serve export setup clean
.DEFAULT_GOAL := help

help:
	@echo 'make book    set up, execute every chapter, build the site, print where to open it'
	@echo 'make test    set up, build the book, run every test (a real browser included)'
	@echo 'make lab     open the chapters as notebooks in JupyterLab'
	@echo 'make serve   serve the built site on this machine'
	@echo 'make clean   remove what was built (.venv and your notebooks stay)'

setup:
	@scripts/setup.sh

book: setup
	@.venv/bin/jupyter-book build -W -n --keep-going .
	@.venv/bin/python scripts/address.py

test: book
	@scripts/setup.sh test
	@scripts/chromium.sh
	.venv/bin/python -m pytest

export: setup
	@.venv/bin/python scripts/export_notebooks.py

lab: export
	.venv/bin/jupyter lab $$([ "$$(id -u)" != 0 ] || echo --allow-root) --notebook-dir=book --LabApp.default_url=/lab/tree/index.ipynb

serve: book
	@.venv/bin/python scripts/serve.py

clean:
	rm -rf _build
