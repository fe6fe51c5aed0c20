# Each target sets itself up: a virtual environment in .venv, renewed when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin

# The first import of a module stores its bytecode, for the processes that tests start. The other nine tenths of what
# pip installs here are never imported: to compile all of it in advance took 50 seconds of processor time.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test suite lint bench docs wheel release-check clean

demo: .venv/demo.stamp
	$(BIN)/python -m experiments run update-cancellation --seeds 5

test: .venv/test.stamp
	$(MAKE) --jobs 2 lint suite

# Assertions that say what they compared take each worker 15 seconds to prepare: what fails runs again with them.
suite: .venv/test.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal --assert=plain \
		|| { test $$? -ne 1 || $(BIN)/python -m pytest --last-failed; false; }

lint: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/test.stamp
	$(BIN)/python -m benchmarks

# The site below build/docs: every page, every docstring, and the notebooks, run.
docs: .venv/docs.stamp
	$(BIN)/python -m sphinx -W --keep-going -c docs . build/docs

# A wheel that holds the compiled kernels of a first session, for the levels of processors that this machine has.
wheel: .venv/release.stamp
	rm -rf build/kernels
	$(BIN)/simfloat warmup --first-session --level all --into $(CURDIR)/build/kernels
	SIMFLOAT_KERNELS=$(CURDIR)/build/kernels $(BIN)/python -m build --wheel

# Builds the sdist, the wheel out of it, and tries the wheel where there is nothing else.
release-check: .venv/release.stamp
	rm -rf dist build/release
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/release
	build/release/bin/pip install --quiet dist/*.whl
	cd build/release && bin/simfloat info && bin/simfloat selftest

clean:
	rm -rf .venv build dist results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find simfloat experiments tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# pip 25 or newer installs the packages of the tests in 48 seconds of processor time. The pip of Python 3.11 takes 102.
NEWER_PIP := pip install --quiet --upgrade 'pip>=25'

.venv/demo.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	-$(BIN)/$(NEWER_PIP)
	$(BIN)/pip install --quiet --no-compile --editable '.[experiments]'
	touch $@

# The pinned wheel of torch is the CPU build. pip uses one core for more than a minute; beside it, the kernels are compiled.
# The workers of pytest would compile twice what kernels have in common: 17 min 21 s in all, in place of 13 min 51 s (AMD
# Zen 3).
.venv/test.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	-$(BIN)/$(NEWER_PIP)
	$(BIN)/pip install --quiet --no-compile numpy numba
	$(BIN)/python -m simfloat warmup & \
		$(BIN)/pip install --quiet --no-compile torch==2.13.0 --editable '.[test,oracles,lint]' && wait
	touch $@

.venv/docs.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

.venv/release.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[release]'
	touch $@
