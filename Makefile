# Two commands do everything: `make book` and `make test`. Both set up what they need, both can be
# run again at any time, and neither repeats what is already right.
#   PYTHON=/path/to/python3.12   another interpreter
#   PORT=8001                    another port for `make serve`
#   PYTEST_ARGS='-k reshape'     fewer tests for `make test`, or -n 8 for more at a time

.PHONY: help book test lab serve record export setup clean
.DEFAULT_GOAL := help

help:
	@echo 'make book    set up, execute every chapter, build the site, print where to open it'
	@echo 'make test    set up, build the book, run every test (a real browser included)'
	@echo 'make lab     open the chapters as notebooks in JupyterLab'
	@echo 'make serve   serve the built site on this machine'
	@echo 'make record  time attention over head sizes on this machine, and put the recording into the book'
	@echo 'make clean   remove what was built (.venv and your notebooks stay)'

setup:
	@scripts/setup.sh

book: setup
	@.venv/bin/jupyter-book build -W -n --keep-going .
	@.venv/bin/python scripts/address.py

test: book
	@scripts/setup.sh test
	@scripts/chromium.sh
	@trap 'exit 130' INT; \
	.venv/bin/python -m pytest -m 'not alone' -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS); others=$$?; \
	.venv/bin/python -m pytest -m alone $(PYTEST_ARGS); alone=$$?; \
	case "$$others $$alone" in \
	'0 0'$(if $(strip $(PYTEST_ARGS)),|'0 5'|'5 0')) echo 'All tests passed, side by side and alone.';; \
	*) echo "Tests failed: pytest ended with $$others where they ran side by side (the first summary), with $$alone where each ran alone (the second)." >&2; exit 1;; \
	esac

export: setup
	@.venv/bin/python scripts/export_notebooks.py

lab: export
	.venv/bin/jupyter lab $$([ "$$(id -u)" != 0 ] || echo --allow-root) --notebook-dir=book --LabApp.default_url=/lab/tree/index.ipynb

serve: book
	@.venv/bin/python scripts/serve.py

record: setup
	.venv/bin/python -m splitheads time --standard

clean:
	rm -rf _build
