# Two commands on a fresh machine: `make serve` and `make test`.
# Both make .venv first, with the versions pinned in constraints.txt; a second run is quick.
# To serve takes less than to test: no Triton server, no tools.

# The first Python that can make a virtual environment; PYTHON=... overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import venv, ensurepip' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
SERVER := $(VENV)/.server
ALL := $(VENV)/.all
INSTALL := PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check

# Tests start many processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv serve triton quick test test-clients test-ray kernels recipes lint pins bench clean

venv: $(ALL)

$(SERVER): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "cosyserve needs Python 3.11 to 3.14 with the venv module." \
		"Install one (Debian: apt-get install python3-venv) or pass PYTHON=/path/to/python."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	$(INSTALL) --editable '.[server]'
	@touch $@

$(ALL): $(SERVER)
	$(INSTALL) --editable '.[server,triton,bench,dev]'
	@touch $@

serve: $(SERVER)
	$(BIN)/cosyserve serve

triton: $(ALL)
	$(BIN)/cosyserve serve --triton

# No process, no socket, no interpreted kernel: to run while you write.
quick: $(ALL)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m unit

# Three processes share the cores, file by file: many tests wait. Kernels and recipes that have passed are left out.
# What fails is tried once more, by itself: a machine may be too busy for a time limit, once.
test: $(ALL)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder || \
		{ test $$? = 1 && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none; }

# The field's own clients, each in an environment of its own, for they want different versions of the
# same packages. One that can't be installed is left out, and its test is skipped.
# Packages of one client are joined by `+`.
CLIENTS := cartesia:cartesia[websockets]==4.2.0 dashscope:dashscope==2.0.2 litellm:litellm==1.106.2 livekit:livekit-plugins-openai==1.8.9+livekit-plugins-cartesia==1.8.9+livekit-plugins-elevenlabs==1.8.9+livekit-plugins-deepgram==1.8.9 pipecat:pipecat-ai[cartesia,deepgram,elevenlabs]==1.14.0 realtimetts:realtimetts==0.8.10+openai==3.49.0

test-clients: $(ALL)
	@for client in $(CLIENTS); do venv=.venv-clients/$${client%%:*}; packages=$$(echo $${client#*:} | tr + ' '); \
		test "$$(cat $$venv/packages 2>/dev/null)" = "$$packages" || { $(PYTHON) -m venv $$venv && \
		$$venv/bin/pip install --quiet --disable-pip-version-check $$packages && \
		echo "$$packages" > $$venv/packages; } || \
		{ echo "$$packages can't be installed: its test is skipped"; rm -rf $$venv; }; done
	$(BIN)/python -m pytest -rs tests/clients

# Ray is large, so that only this installs it; `make test` leaves these tests out without it.
test-ray: $(ALL)
	$(INSTALL) --editable '.[ray]'
	$(BIN)/python -m pytest tests/ray

# Minutes of interpreting, or of training: after a change of networks, kernels, recipes or their tests.
kernels recipes: $(ALL)
	PROVE=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m $@ \
		-o timeout=0 -o faulthandler_timeout=0
	$(BIN)/python -m tests.proven $@

lint: $(ALL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Whether what is pinned goes together elsewhere: of some packages, other machines get other builds, which want other versions.
PLATFORMS := x86_64-manylinux_2_35 aarch64-manylinux_2_35 aarch64-apple-darwin
EXTRAS := server triton bench dev

pins: $(ALL)
	@for platform in $(PLATFORMS); do for python in 3.11 3.12 3.13 3.14; do \
		MACOSX_DEPLOYMENT_TARGET=14.0 $(BIN)/uv pip compile --quiet --no-config pyproject.toml $(EXTRAS:%=--extra %) \
			--constraints constraints.txt --python-platform $$platform --python-version $$python --output-file /dev/null || \
			case $$? in 2) echo "not looked at: the package index can't be reached"; exit 0;; \
				*) echo "constraints.txt can't be installed on $$platform with Python $$python"; exit 1;; esac; \
	done; done

bench: $(ALL)
	$(BIN)/python -m benchmarks.models

clean:
	rm -rf $(VENV) .venv-clients .pytest_cache .mypy_cache .ruff_cache .hypothesis
