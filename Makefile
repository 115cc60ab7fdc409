# Two commands do everything on a fresh machine with Python 3.11 and make: `make drill` and `make test`.
# The torch package and pip's arguments for it can be set, for example:
#   make drill TORCH="torch==2.13.0" TORCH_ARGS="--find-links /my/wheels"
# A plain install of torch from a public index may take a CUDA build of several GB; TORCH_ARGS is where to say otherwise.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_ARGS ?=
BIN := $(VENV)/bin
FAULTS ?= all
SEED ?= 7

.PHONY: drill test test-pure check bench sim grafana env env-dev requirements clean

drill: env
	$(BIN)/outrider drill --fault $(FAULTS) --seed $(SEED)

# Pure tests side by side, then those that start real processes, one at a time so that they do not starve one another. A test that
# fails is looked at once more, alone: servers and training jobs on a busy machine miss deadlines; a fault fails twice.
AGAIN := echo "make: some tests failed (see above); once more, those alone"; \
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none
test: env-dev
	$(BIN)/python -m pytest -m "not real" -n 2 || { $(AGAIN) -m "not real"; }
	$(BIN)/python -m pytest -m real || { $(AGAIN) -m real; }

test-pure: env-dev
	$(BIN)/python -m pytest -m "not real" -n 2

check: env-dev
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: env-dev
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

sim: env
	$(BIN)/outrider simulate --seed $(SEED)

# Makes the Grafana dashboards' JSON anew from their Python sources, in an environment of its own.
grafana: $(VENV)-grafana/.grafana
	$(VENV)-grafana/bin/python -m dashboards.grafana.build

$(VENV)-grafana/.grafana: requirements/grafana.txt
	$(PYTHON) -m venv $(VENV)-grafana
	$(VENV)-grafana/bin/pip install --disable-pip-version-check -q -r requirements/grafana.txt
	@touch $@

env: $(VENV)/.drills
env-dev: $(VENV)/.dev

$(VENV)/bin/python:
	@echo "Making the environment in $(VENV) with $(PYTHON) .."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than Python 3.11; set PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: | $(VENV)/bin/python
	@echo "Installing $(TORCH) (about 200 MB for the CPU build; set TORCH and TORCH_ARGS to choose another) .."
	$(BIN)/pip install --disable-pip-version-check --progress-bar on "$(TORCH)" $(TORCH_ARGS)
	@touch $@

$(VENV)/.drills: requirements/drills.txt pyproject.toml $(VENV)/.torch
	@echo "Installing Outrider and what its rooms need .."
	$(BIN)/pip install --disable-pip-version-check -q -r requirements/drills.txt
	$(BIN)/pip install --disable-pip-version-check -q --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.drills
	$(BIN)/pip install --disable-pip-version-check -q -r requirements/dev.txt
	@touch $@

# Exact versions come from the floors in pyproject.toml; torch is a step of its own and stands in none of these files.
requirements: env-dev
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra agent --extra dcgm pyproject.toml -o requirements/agent.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra witness pyproject.toml -o requirements/witness.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra drills --extra dcgm --extra fast pyproject.toml -o requirements/drills.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --group dev --extra drills --extra dcgm --extra fast pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra grafana pyproject.toml -o requirements/grafana.txt

clean:
	rm -rf $(VENV) $(VENV)-grafana out build dist
