# Everything runs in .venv, which `make install` makes from nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CODE := src tests examples
JOBS ?= 2
# The CUDA version of `make test-gpu`: 12 or 13.
CUDA ?= 12

.PHONY: help install demo results test lint test-slow test-gpu test-oracles format clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(STAMP)  ## make .venv with the package and all that the tests need (done once)

# torch is only a dependency of stable-baselines3, whose checks our Gymnasium adapter must pass. It is named
# first, as a release that has a small CPU build where one is offered; left to itself, pip takes the newest
# one and gigabytes of CUDA libraries with it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: install  ## Nibbler and the baselines on 2 and 4 boards, live; then a table and a report page (3 minutes)
	$(BIN)/nibbler study quickstart --results results

results: install  ## figures, page, RESULTS.md and the README's blocks from the runs in results/paper (no GPU)
	$(BIN)/nibbler report results/paper --linked --markdown RESULTS.md --readme README.md

test: lint  ## lint, types, and the tests that take minutes in all
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow and not gpu"

lint: install  ## ruff and mypy alone
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

test-slow: install  ## the statistical tests, which take longer
	$(BIN)/python -m pytest -q -n $(JOBS) -m "slow and not gpu"

test-gpu: install  ## the tests that need a CUDA device (CUDA=12 or CUDA=13)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[cuda$(CUDA)]" "jax[cuda$(CUDA)]"
	$(BIN)/python -m pytest -q -m gpu

# gymnax wants an older Gymnasium than ours, so these have an environment of their own.
test-oracles: install  ## Rainbow's loss against rlax, the gymnax adapter against gymnax
	test -x $(VENV)/oracles/bin/python || $(PYTHON) -m venv $(VENV)/oracles
	$(VENV)/oracles/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[jax]" \
		pytest hypothesis gymnax rlax
	$(VENV)/oracles/bin/python -m pytest -q -rs tests/engines/jax/test_gymnax_adapter.py \
		tests/engines/jax/test_learning.py

format: install  ## let ruff rewrite the code in the project's style
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
