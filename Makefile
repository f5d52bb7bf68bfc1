# Two commands are all a newcomer needs; each makes the virtual environment by itself:
#   make demo     rendezvous, three members and a chat on this machine (ONCE=1: end after one answer)
#   make test     lint, types, import contracts, tests

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-peers lint natlab goldens clean

demo: .venv/.run
	$(BIN)/kafila demo $(if $(ONCE),--once)

test: lint
	$(BIN)/python -m pytest

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Compares with transformers itself; installs torch (gigabytes) into its own environment.
test-peers: .venv-peers/.ready
	.venv-peers/bin/python -m pytest -m peers

# Real NATs in network namespaces (Linux, root, nftables); rewrites the tables in docs/nat.md.
natlab: .venv/.dev
	$(BIN)/python -m tools.natlab

goldens: .venv-peers/.ready
	.venv-peers/bin/python -m tools.make_goldens

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.run: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install -c constraints.txt -e .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ .venv/.run

.venv-peers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip --quiet install -c constraints.txt -e '.[dev]' 'torch>=2.6' 'transformers>=4.51' 'accelerate>=1.0'
	@touch $@

clean:
	rm -rf .venv .venv-peers build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
