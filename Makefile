# The two commands a newcomer needs: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check unit docs trial build smoke clean
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
	$(BIN)/python -m pytest -q --numprocesses auto

docs: setup
	$(BIN)/mkdocs build --strict

trial: setup
	$(BIN)/python -m tests.trial --json benchmarks/trial.json

build: setup
	rm -rf build dist altmin.egg-info
	$(BIN)/python -m build --no-isolation

# The wheel alone, in an environment of its own. SMOKE_PYTHON=python3.13 tries another Python.
SMOKE_PYTHON ?= $(PYTHON)
smoke: build
	rm -rf build/smoke && $(SMOKE_PYTHON) -m venv build/smoke/env && mkdir build/smoke/empty
	build/smoke/env/bin/pip install --quiet $(shell grep ^torch== constraints.txt) dist/*.whl
	cd build/smoke/empty && ../env/bin/python ../../../tests/smoke.py

clean:
	rm -rf .venv build dist site *.egg-info
