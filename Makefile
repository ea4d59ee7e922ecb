# make demo   train on noisy digits and print the accuracy before and after correction
# make test   run the linter and the tests
# make bench  measure the costs and update the tables in the docs
# make long   run the long tests: dozens of crashes, ten million streamed rows, 21,841 classes, 326 architectures
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two test processes with one thread each use two cores best.
TEST_PROCESSES ?= 2

# The benchmarks in the cost table of docs/benchmarks.md; each writes a file in benchmarks/results/.
BENCHMARKS ?= corrected_loss training_step source_costs estimation import_time robust_run

.PHONY: demo test bench long lint format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[demo]"
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[test]"
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/glc-hf train

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -n $(TEST_PROCESSES)

bench: $(VENV)/.test
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[bench]"
	set -e; for name in $(BENCHMARKS); do \
		OMP_NUM_THREADS=1 $(BIN)/python benchmarks/$$name.py; \
	done
	$(BIN)/python benchmarks/render_readme.py

long: $(VENV)/.test
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m long
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/crashes.py --runs 32 --output benchmarks/results/crashes.json
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/streaming.py --output benchmarks/results/streaming.json
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/many_classes.py --output benchmarks/results/many_classes.json
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/architectures.py --output $(VENV)/architectures.jsonl

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache
