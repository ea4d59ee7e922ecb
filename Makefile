# make demo   train on noisy digits and print the accuracy before and after correction
# make test   run the linter, the type checker and the tests
# make test-oldest  run the tests with the oldest supported versions, in an environment of its own (needs Python 3.10)
# make docs   build the documentation site in site/
# make wheel  build the wheel in dist/
# make bench  measure the costs that the code has changed (all: under two hours) and update the tables in the docs
# make long   run the long tests: dozens of crashes, ten million streamed rows, 21,841 classes, 326 architectures
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The versions to install. `make test CONSTRAINTS=` takes the newest ones that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
INSTALL = $(BIN)/python -m pip install -q $(addprefix -c ,$(CONSTRAINTS))
# The site needs neither torch nor transformers: docstrings are read without importing the package.
DOCS_VENV ?= .venv-docs
DOCS_REQUIREMENTS = $(PYTHON) -c "import tomllib; \
	print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])"
# The oldest supported Python, for the oldest supported versions of the packages.
OLDEST_PYTHON ?= python3.10
# Two test processes with one thread each use two cores best.
TEST_PROCESSES ?= 2

# Folder of the datasets for `make bench`, named as on the Hub; without it they come from the Hub.
DATA ?=

.PHONY: demo test test-oldest docs wheel bench long lint style format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml $(CONSTRAINTS)
	$(INSTALL) -e ".[demo]"
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml $(CONSTRAINTS)
	$(INSTALL) -e ".[test]"
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/glc-hf train

# Types are checked with the versions of constraints.txt: other versions of the packages declare other types.
MYPY := $(if $(filter constraints.txt,$(CONSTRAINTS)),$(BIN)/mypy,true)

lint: style
	$(MYPY)

style: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The types are checked beside the tests; what mypy prints comes last. Many tests start processes, which would all compile
# the sources again where the environment forbids to write bytecode.
test: style
	@echo "$(MYPY) & pytest -q -n $(TEST_PROCESSES)"; \
	$(MYPY) > $(VENV)/mypy.log 2>&1 & types=$$!; \
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 \
		$(BIN)/python -m pytest -q -n $(TEST_PROCESSES); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/mypy.log; \
	test $$tests -eq 0 -a $$types -eq 0

test-oldest:
	$(MAKE) test PYTHON=$(OLDEST_PYTHON) VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt

$(DOCS_VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install -q -c constraints.txt $$($(DOCS_REQUIREMENTS))
	touch $@

docs: $(DOCS_VENV)/.docs
	PATH="$(abspath $(DOCS_VENV))/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mkdocs build --strict

wheel: $(BIN)/python
	$(BIN)/python -m pip wheel -q --no-deps --wheel-dir dist .

bench: $(VENV)/.test
	$(INSTALL) -e ".[bench]"
	$(BIN)/python benchmarks/run_all.py $(addprefix --data ,$(DATA)); status=$$?; \
		$(BIN)/python benchmarks/render_readme.py && $(BIN)/python benchmarks/pictures.py && exit $$status

long: $(VENV)/.test
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m long
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/crashes.py --runs 32 --output benchmarks/results/crashes.json
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/streaming.py --output benchmarks/results/streaming.json
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/many_classes.py --output benchmarks/results/many_classes.json
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/architectures.py --output $(VENV)/architectures.jsonl

clean:
	rm -rf build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache
