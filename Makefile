# Every target sets itself up: Python 3.11 to 3.13 and Java 17 are all that a machine needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
BENCH ?= --quick
FUZZ ?=
SPARKS ?=
TESTS ?=
# Tests without Spark use one core each. Those with it wait for each other's processes most of the time: two at once are faster than one.
WORKERS ?= --numprocesses logical --maxprocesses 4 --dist worksteal
SPARK_WORKERS ?= --numprocesses 2 --dist worksteal

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup python java fmt check test test-fast test-spark test-all matrix cluster s3 sites kafka page crash fuzz bench demo docs clean

help:
	@echo "make demo       watch three live streams join on a local Spark"
	@echo "make test       everything that a change must pass: check, tests without and with Spark"
	@echo "make test-fast  tests without Spark only"
	@echo "make test-all   the same tests with many more generated cases"
	@echo "make matrix     the tests with Spark on Spark 4.0, 4.1, 4.2, 4.3 and Connect 4.3; some: make matrix SPARKS=\"4.0 4.1\" TESTS=tests/spark"
	@echo "make cluster    a cluster of Spark on hosts of its own, in network namespaces (root): hosts die and others come"
	@echo "make kafka      a broker of Kafka's, from Maven's jars, on Spark 4.2: topics joined into a topic and a Delta table, killed and restarted"
	@echo "make s3         state and checkpoints in a bucket of an S3 server on loopback; fetches hadoop-aws by Maven"
	@echo "make sites      one application for each site, on hosts of its own (root): fifty kills, by a folder and by Kafka's topics, and a line that is cut"
	@echo "make page       the live page in a real browser, Debian's chromium through Playwright"
	@echo "make crash      fifty kills of a running query, on each runtime, and of subscriptions"
	@echo "make fuzz       5,000 hostile queries added to running subscriptions, under both engines; goes on where it was ended"
	@echo "make check      ruff and mypy       make fmt    format"
	@echo "make bench      a quick benchmark against Spark's own join; all of it: make bench BENCH="
	@echo "make docs       the documentation as a site, with the API reference, in site/"
	@echo "make setup      only set up $(VENV)"

setup: $(READY)

python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "watersmeet needs Python 3.11, 3.12 or 3.13, and there is no $(PYTHON); name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "watersmeet needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $$($(PYTHON) --version); name another: make PYTHON=python3.12" >&2; exit 1; }

java: python
	@$(PYTHON) -I src/watersmeet/runtime/spark/java.py

# The stamp is newer than both pyproject.toml as long as what is installed is what they say.
$(READY): pyproject.toml lab/pyproject.toml | python
	@echo "setting up $(VENV); the first time takes some minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[spark]" --editable ./lab --group dev
	@touch $(READY)

fmt: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@echo "check: passed"

# Tests with Spark wait most of the time, for micro-batches and for processes that start. Those without it fill the gaps, at a lower priority.
test: java check
	@log=$$(mktemp); nice -n 10 $(MAKE) --no-print-directory test-fast > $$log 2>&1 & fast=$$!; \
	  $(MAKE) --no-print-directory test-spark; spark=$$?; \
	  echo "tests with Spark are over; those without it go on"; \
	  wait $$fast; fast=$$?; cat $$log; rm -f $$log; \
	  test $$spark -eq 0 || echo "tests with Spark: failed, see above" >&2; \
	  test $$fast -eq 0 || echo "tests without Spark: failed, see above" >&2; \
	  test $$spark -eq 0 -a $$fast -eq 0
	@echo "make test: all passed"

test-fast: $(READY)
	@$(BIN)/python -m pytest --durations 40 $(WORKERS)
	@echo "tests without Spark: passed"

test-spark: java $(READY)
	@$(BIN)/python -m pytest -m "spark and not thorough" --durations 60 $(SPARK_WORKERS)
	@echo "tests with Spark: passed"

test-all: java check
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "" --timeout 7200
	@echo "make test-all: all passed"

matrix: java
	@$(PYTHON) -m tests.matrix $(SPARKS) -- $(TESTS)

cluster: java $(READY)
	@NEEDS=required $(BIN)/python -m pytest -m spark tests/cluster
	@echo "make cluster: all passed"

kafka: java
	@$(PYTHON) -m tests.kafka
	@echo "make kafka: all passed"

s3: java $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group s3
	@NEEDS=required $(BIN)/python -m pytest -m spark tests/s3
	@echo "make s3: all passed"

sites: java $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group s3
	@NEEDS=required CRASH_KILLS=$${CRASH_KILLS:-50} $(BIN)/python -m pytest -m spark tests/wire
	@echo "make sites: all passed"

page: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group page
	@NEEDS=required $(BIN)/python -m pytest tests/view
	@echo "make page: all passed"

crash: java $(READY)
	@CRASH_KILLS=50 $(BIN)/python -m pytest -m spark tests/crash
	@CRASH_KILLS=50 CRASH_ENGINE=rjoin $(BIN)/python -m pytest -m spark tests/crash/test_subscriptions.py
	@echo "make crash: all passed"

fuzz: $(READY)
	@$(BIN)/python -m tests.registry.fuzz $(FUZZ)
	@echo "make fuzz: all passed"

bench: java $(READY)
	@$(BIN)/watersmeet bench spark $(BENCH)

demo: java $(READY)
	@$(BIN)/watersmeet demo

# The stamp says that the group docs is installed, too.
$(DOCS_READY): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $(DOCS_READY)

# A link or an anchor that leads nowhere fails it, unless it is --quiet, which hides warnings from --strict, too.
# It reads sources only: nothing is imported, run or downloaded.
docs: $(DOCS_READY)
	@$(BIN)/mkdocs build --strict
	@echo "docs: open site/index.html"

clean:
	rm -rf $(VENV) .venv-spark-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site lab/dist
