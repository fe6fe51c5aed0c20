# Each target sets itself up: a virtual environment in .venv, renewed when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench clean

demo: .venv/demo.stamp
	$(BIN)/python -m experiments run update-cancellation

test: .venv/test.stamp lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/test.stamp
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find simfloat experiments tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

.venv/demo.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[experiments]'
	$(BIN)/python -m compileall -q simfloat experiments
	touch $@

# torch is named by itself first: its pinned wheel is the CPU build.
.venv/test.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable '.[test,oracles,lint]'
	$(BIN)/python -m compileall -q simfloat experiments
	touch $@
