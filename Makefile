# The two commands a newcomer needs: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check unit docs mutants trial clean
setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "altmin needs Python 3.11 or newer; run make with PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch setuptools
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/altmin compare --data mnist --model mlp-2x100 --methods am-adam,am-mem,adam --epochs 2 --batch-size 200 --plot demo.png --json demo.json

test: check unit

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest

docs: setup
	$(BIN)/mkdocs build --strict

mutants: setup
	$(BIN)/python -m tests.mutants

trial: setup
	$(BIN)/python -m tests.trial --json benchmarks/trial.json

clean:
	rm -rf .venv build site *.egg-info
