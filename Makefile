# Two commands on a fresh machine: `make serve` and `make test`.
# Both make .venv first, with the versions pinned in constraints.txt; a second run is quick.

# The first Python that can make a virtual environment; PYTHON=... overrides.
PYTHON ?= $(shell for p in python3.11 python3.12; do \
	$$p -c 'import venv, ensurepip' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: venv serve triton test lint bench clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "cosyserve needs Python 3.11 or 3.12 with the venv module." \
		"Install one (Debian: apt-get install python3-venv) or pass PYTHON=/path/to/python."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check \
		--editable '.[server,triton,bench,dev]'
	@touch $@

serve: $(STAMP)
	$(BIN)/cosyserve serve

triton: $(STAMP)
	$(BIN)/cosyserve serve --triton

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks.models

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
