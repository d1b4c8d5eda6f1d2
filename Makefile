# One command for each habit, the same for people and for CI.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.PHONY: check venv format lint types imports fast test corpus bench

check: lint types imports fast  ## what to run before a commit

venv:  ## a development environment in .venv, with this checkout installed in place
	python3 -m venv .venv
	.venv/bin/python -m pip install -c constraints.txt -e '.[test]'

format:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

imports:
	$(PYTHON) -c 'from importlinter.cli import lint_imports_command as lint; lint()'

fast:  ## unit and property tests; compiles nothing
	$(PYTHON) -m pytest -n 2 -m "not slow and not gpu"

test:  ## all tests
	$(PYTHON) -m pytest -n 2

corpus:  ## reduce every case of the corpus and print the table
	$(PYTHON) scripts/corpus_table.py

bench:  ## against PyTorch's own minifier
	$(PYTHON) scripts/bench_reduction.py
