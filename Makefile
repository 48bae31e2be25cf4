# The two commands a newcomer needs: `make demo` and `make test`. Both set up .venv first, each with what it needs.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: setup demo test test-slow check unit slow docs fuzz mutants build smoke clean
setup: .venv/.dev

.venv/.demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "altmin needs Python 3.11 or newer; run make with PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(INSTALL) torch setuptools
	$(INSTALL) --no-build-isolation --editable '.[plot]'
	touch $@

.venv/.dev: .venv/.demo
	$(INSTALL) --no-build-isolation --editable '.[dev]'
	-$(BIN)/python -m compileall -qq -j 0 .venv/lib  # once for all the processes that tests start
	touch $@

# One thread suits nets this small, and does not suffer from what else runs on the machine.
demo: .venv/.demo
	$(BIN)/altmin compare --data mnist --model mlp-2x100 --methods am-adam,am-mem,adam --epochs 2 --batch-size 200 --threads 1 --plot demo.png --json demo.json

# Everything that protects users: minutes. test-slow adds what opens a browser, fuzzers and mutants: hours.
test: setup
	$(MAKE) --jobs 2 check unit

test-slow: slow fuzz mutants

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/typed_use.py
	$(BIN)/lint-imports

unit: setup  # files in order, which ends with the doctests: many and short, so that no process is left waiting
	$(BIN)/python -m pytest -q --numprocesses auto --dist loadfile --no-loadscope-reorder

slow: setup
	$(BIN)/python -m pytest -q --numprocesses auto --dist loadfile -m slow

docs: setup
	$(BIN)/mkdocs build --strict

# Networks written at random, killed runs that are resumed, and odd uses. CASES=20000 for a long night.
CASES ?= 2000
fuzz: setup
	$(BIN)/python -m tests.fuzz networks --cases $(CASES)
	$(BIN)/python -m tests.fuzz kills
	$(BIN)/python -m tests.fuzz uses --cases $(CASES)

# Defects injected into the mathematics. ONLY="altmin/calculus/linear.py ..." takes some files, which is minutes.
mutants: setup
	$(BIN)/python -m tests.mutants $(ONLY)

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
