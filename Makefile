# Two commands set everything up: `make run` for the main job, `make test` for the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PROMPT ?= What is the capital of France?
MODEL ?= smollm2-135m-instruct

.PHONY: run test lint bench clean

run: $(VENV)/.bench
	$(BIN)/linnet run $(MODEL) "$(PROMPT)" --compare

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/.bench
	$(BIN)/linnet bench $(MODEL) --prompt 512 --new 128 --runs 5 --warmup 1 --out bench.json

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.bench $(VENV)/.test $(VENV)/.dev: $(VENV)/.%: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
