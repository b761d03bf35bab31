# kwire: `make up` runs a broker on localhost:9092, `make test` checks everything that fits in
# half an hour. Both set up what they need first. `make help` lists the rest.
# ARGS="…" goes to `kwire up`, or to pytest; REAL=1 points the compat tests at Apache Kafka.

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
CODE := kwire protocol replication tests compat_tests bench spark_it
SPARK_PY := spark_it/.build/venv-$(or $(SPARK_VERSION),4.0.0)/bin/python
export REAL
unexport PYTHONDONTWRITEBYTECODE          # compiled modules halve every start of kwire
export SPARK_VERSION

.DEFAULT_GOAL := help
.PHONY: help setup up lint unit golden compat mutants test test-all demo bench soak soak-transactions bench-cluster spark spark-short spark-wordcount release clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

setup:  ## make .venv with kwire and the development tools (does nothing the second time)
	@bash tools/setup.sh

up: setup  ## a broker on localhost:9092 until Ctrl-C; ARGS="--port 9093 -c key=value"
	@$(PY) -m kwire up $(ARGS)

lint: setup  ## format, lint, strict types, layer contracts
	.venv/bin/ruff format --check $(CODE)
	.venv/bin/ruff check $(CODE)
	.venv/bin/mypy
	.venv/bin/lint-imports

unit: setup  ## unit tests
	$(PYTEST) tests -m "not slow" $(ARGS)

golden: setup  ## byte equality with Kafka's own bytes (tests/data)
	$(PY) -m kwire.protocol.check tests/data/golden-*.jsonl.gz

compat: setup  ## stock clients against kwire; REAL=1: against Apache Kafka
	$(PYTEST) compat_tests -m "not slow" $(ARGS)

mutants: setup  ## break the core's rules one by one: which test notices? ARGS="P01 log/ --by sim --seeds 1-20"
	@nice -n 10 $(PY) tools/mutants.py $(ARGS)

test: lint golden setup  ## all checks that fit in half an hour
	KWIRE_SPEED_SLACK=3 $(PYTEST) tests compat_tests -m "not slow" $(ARGS)
	$(MAKE) spark-short ARGS=

test-all: lint golden setup  ## everything, and missing tools are failures
	COMPAT_STRICT=1 $(PYTEST) tests compat_tests $(ARGS)
	$(MAKE) spark ARGS=

demo: setup  ## a real text, a word count, kill -9 in the middle, nothing lost
	@$(PY) -m compat_tests.demo $(ARGS)

bench: setup  ## kwire, kfake and Apache Kafka side by side; the codec beside struct
	@$(PY) -m bench.run $(ARGS)
	@$(PY) bench/codec.py

soak: setup  ## five brokers attacked for MINUTES (10), two client libraries, nothing lost; ARGS="--seed 7"
	@$(PY) -m compat_tests.soak --minutes $(or $(MINUTES),10) $(ARGS)

soak-transactions: setup  ## four brokers and clients of three libraries attacked for MINUTES (5), transactions whole; ARGS="--seed 7"
	@$(PY) -m compat_tests.transaction_soak --minutes $(or $(MINUTES),5) $(ARGS)

bench-cluster: setup  ## three kwire brokers beside three of Apache Kafka, acks=all, one table
	@$(PY) -m bench.cluster $(ARGS)

spark: setup  ## Spark's Kafka source and sink on three brokers: a word count, then the tests; SPARK_VERSION=3.5.7
	@bash spark_it/setup.sh
	@$(SPARK_PY) spark_it/wordcount.py
	$(SPARK_PY) -m pytest spark_it $(ARGS)

spark-short: setup  ## the part of the Spark tests that `make test` runs; skipped, with the reason, where Spark cannot be had
	@if bash spark_it/setup.sh; then $(SPARK_PY) -m pytest spark_it -m "not slow" $(ARGS); \
	elif [ "$$COMPAT_STRICT" = 1 ]; then exit 1; else echo "Spark tests SKIPPED: the reason is above" >&2; fi

spark-wordcount: setup  ## the word count alone; ARGS="--text FILE --isolation process"
	@bash spark_it/setup.sh
	@$(SPARK_PY) spark_it/wordcount.py $(ARGS)

release:  ## sdist, wheel, image and notes of the version in dist/, checked, not uploaded; ARGS=--rehearse
	@python3 tools/release.py $(ARGS)

clean:  ## remove what was built (not .venv)
	rm -rf compat_tests/.build bench/.build spark_it/.build build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
