# The two that matter: `make lab` and `make test`. `make help` lists the rest.
PYTHON ?= python3
PY := .venv/bin/python
LAB_ARGS ?=
BENCH_ARGS ?=
PYTEST_ARGS ?=
.DEFAULT_GOAL := help
.PHONY: fuzz mutants lab test setup check format notebooks architecture bench bench-http lock help

lab: setup ## open JupyterLab on the first notebook (LAB_ARGS="--no-browser" on a server)
	@$(PY) -m labkit lab $(LAB_ARGS)

test: setup ## run everything: unit, laws, theory, live, notebooks and browser (PYTEST_ARGS="-x")
	@$(PY) -m pytest tests notebooks --nbval --nbval-current-env --nbval-cell-timeout=60 $(PYTEST_ARGS) \
	  || { code=$$?; [ $$code -ne 5 ] || echo "pytest found no test to run" >&2; exit $$code; }

setup: ## make .venv and install what is pinned; does nothing when nothing has changed
	@$(PYTHON) -m labkit.bootstrap setup

check: setup ## lint, format, types and the direction of imports, in under 30 seconds
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@$(PY) -c "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"

format: setup ## let ruff mend what it can
	@$(PY) -m ruff check --fix
	@$(PY) -m ruff format

notebooks: setup ## build the notebooks from notebooks/src, execute them and keep their outputs
	@$(PY) -m labkit notebooks build

architecture: setup ## write the code map of ARCHITECTURE.md from the docstrings
	@$(PY) tools/architecture.py

bench: setup ## measure our simulator and live dispatch against their peers, in one run
	@$(PY) -m labkit bench sim $(BENCH_ARGS)
	@$(PY) -m labkit bench live $(BENCH_ARGS)

bench-http: setup ## our HTTP server beside four batching servers, in a quarter of an hour
	@$(PY) -m labkit bench http $(BENCH_ARGS)

mutants: setup ## ask of every small change to the core whether a test notices it
	@$(PY) tools/mutants.py $(MUTANTS_ARGS)

fuzz: setup ## throw bad input at the front door (FUZZ_ARGS="--minutes 30 --seed 7")
	@$(PY) tools/fuzz.py $(FUZZ_ARGS)

lock: ## pin in requirements.txt what is installed in .venv and needed by pyproject.toml
	@$(PY) tools/lock.py

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
