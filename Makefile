# Everything a checkout does, from nothing but a Python: each target first builds .venv when that is needed.
#
# .venv is plain `python -m venv` and pip, held to constraints.txt. No environment that happens to be active is read or
# changed, and pip's own settings (PIP_* variables, pip.conf) decide where packages come from.

STORE ?= runs
COMPARE_FLAGS ?=
DEVICE ?= cpu
OUT ?= gpu.json
GPU_FLAGS ?=
TIMES ?= 10
PYTEST_FLAGS ?=
BASE ?= e265b69
COUNT ?= 10000
chaos: COUNT = 10

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help compare install test test-long fuzz simulate chaos docs golden gpu gpu-paper lint format types clean FORCE

# An active environment, and pip settings that say where to install, would lead the commands below out of .venv.
OUTSIDE := PYTHONHOME PYTHONPATH VIRTUAL_ENV __PYVENV_LAUNCHER__ PIP_PYTHON PIP_TARGET PIP_PREFIX PIP_ROOT
unexport $(OUTSIDE)
# Without __pycache__ each of the processes that the tests start would compile raychains again.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make compare     sample the two built-in tasks and write their reports under $(STORE)/ (resumes what is there)"
	@echo "                 STORE=folder or URI, COMPARE_FLAGS='…' for more of raychains compare's options"
	@echo "make test        the tests; PYTEST_FLAGS='-k preflight' chooses, RAYCHAINS_DATA=folder finds data sets"
	@echo "make test-long   the tests marked long, and all malformed inputs"
	@echo "make simulate    COUNT=10000 more histories on simulated time, counted in docs/reliability/simulation.json"
	@echo "make fuzz        TIMES=10 times as many malformed inputs as in make test-long, others each time; their count"
	@echo "make chaos       COUNT=10 more real faults of tiny commands, a minute each, counted in docs/reliability/chaos.json"
	@echo "make docs        the documentation as a site in site/, with a search and the Python API; a broken link is an error"
	@echo "make golden      this tree's samples against those of the commit BASE=$(BASE), byte for byte"
	@echo "make gpu         laws of all samplers, steps as on the CPU, exact resume, runs with Ray and the chain benchmark on"
	@echo "                 DEVICE=cuda (or any; default cpu), as JSON in OUT=gpu.json and a page beside it; SMOKE=1: a minute;"
	@echo "                 GPU_FLAGS=\"--minutes 8 --only 'law/*'\"; the same command goes on where one was interrupted"
	@echo "make gpu-paper   one chain of cSG-MCMC's Table 1 on DEVICE=cuda in about 7 minutes: error and NLL of its samples, in OUT=gpu-paper;"
	@echo "                 METHOD=csghmc, sghmc, csgld or sgld; EPOCHS=2 SUBSET=1000 tries it on a CPU; BARE=1 takes the Python that is"
	@echo "                 there, with torch and torchvision, and installs nothing (docs/reliability/gpu.md)"
	@echo "make lint        ruff: rules and format          make format   rewrite to that format"
	@echo "make types       mypy"
	@echo "make install     only build .venv, with the test tools"
	@echo "make clean       remove .venv, site/ and caches; never $(STORE)/"
	@echo "The first of them installs into .venv (several minutes). Another Python: make PYTHON=python3.12 test"

compare: .venv/.installed-run
	.venv/bin/raychains compare --task digits --pack 10 --resume --store "$(STORE)" $(COMPARE_FLAGS)
	.venv/bin/raychains compare --task mixture25 --pack 4 --resume --store "$(STORE)" $(COMPARE_FLAGS)

install: .venv/.installed-test

# Two processes take file after file: most tests wait for Ray. The order is that of tests/conftest.py, the longest first.
test: .venv/.installed-test
	.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

test-long: .venv/.installed-test
	RAYCHAINS_FUZZ=1 .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		-m "long or fuzz" --timeout 3600 $(PYTEST_FLAGS)

simulate: .venv/.installed-test
	.venv/bin/python -m tests.simulation --count "$(COUNT)"

chaos: .venv/.installed-test
	.venv/bin/python -m tests.chaos --count "$(COUNT)"

fuzz: .venv/.installed-test
	RAYCHAINS_FUZZ="$(TIMES)" .venv/bin/python -m pytest -n 2 --dist loadfile --timeout 0 tests/fuzz $(PYTEST_FLAGS)

# The variable turns off Material's notice of its successor, not the strict checks.
docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict -f docs/site/mkdocs.yml
	@echo "The site begins at site/index.html. Its search needs a server: python3 -m http.server --directory site"

golden: .venv/.installed-test
	.venv/bin/python -m tests.golden.compare $(BASE)

gpu: .venv/.installed-run
	.venv/bin/python -m tests.gpu.check --device "$(DEVICE)" --out "$(OUT)" $(if $(SMOKE),--short) $(GPU_FLAGS)

gpu-paper: $(if $(BARE),,.venv/.installed-run)
	$(if $(BARE),"$(BASE_PYTHON)",.venv/bin/python) -m benchmarks.gpu_paper.chain --device "$(DEVICE)" $(if $(METHOD),--method "$(METHOD)") \
		$(if $(EPOCHS),--epochs "$(EPOCHS)") $(if $(SUBSET),--subset "$(SUBSET)") \
		$(if $(filter-out gpu.json,$(OUT)),--out "$(OUT)") $(GPU_FLAGS)

lint: .venv/.installed-test
	@status=0; .venv/bin/ruff check . || status=1; .venv/bin/ruff format --check . || status=1; exit $$status

format: .venv/.installed-test
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

types: .venv/.installed-test
	.venv/bin/python -m mypy raychains $(wildcard jobs/*.py)

clean:
	rm -rf .venv build site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ── .venv ────────────────────────────────────────────────────────────────────────────────────────────────────────────

# .venv/.made names the folder that a complete .venv was made for. It is missing while pip works, so an install that was
# interrupted begins again from an empty .venv; so does one that was moved, or whose Python is gone.
ifneq ($(shell unset $(OUTSIDE); [ "$$(cat .venv/.made 2>/dev/null)" = "$(CURDIR)" ] && \
	.venv/bin/python -c '' 2>/dev/null && echo whole),whole)
.venv/.made: FORCE
endif

.venv/.made:
	@$(if $(BASE_PYTHON),,$(error $(NO_PYTHON)))"$(BASE_PYTHON)" -m venv --clear .venv
	@printf '%s' "$(CURDIR)" > $@

.venv/.installed-run: .venv/.made pyproject.toml constraints.txt
	$(call pip_install,-e .)
	@touch $@

.venv/.installed-test: .venv/.made pyproject.toml constraints.txt
	$(call pip_install,-e ".[test]")
	@touch $@ .venv/.installed-run .venv/.installed-docs

.venv/.installed-docs: .venv/.made pyproject.toml constraints.txt
	$(call pip_install,-e ".[docs]")
	@touch $@ .venv/.installed-run

# --no-user: a `user = true` among pip's settings is an error inside an environment.
define pip_install
	@echo "installing raychains and what it needs into .venv (the first time about 7 GB, several minutes)"
	@rm -f .venv/.made
	@.venv/bin/python -m pip install -qq --disable-pip-version-check --no-user -c constraints.txt $(1)
	@printf '%s' "$(CURDIR)" > .venv/.made
endef

# The first of these that is a Python we support and can make environments: Debian's lacks ensurepip without
# python3-venv, and a pyenv shim may exist for a version that is not chosen. A PYTHON on the command line is an order.
OTHERS := $(if $(filter command,$(firstword $(origin PYTHON))),,python3 python3.11 python3.12 python3.13 python3.14 python)
PROBE := import sys, venv, ensurepip; (3, 11) <= sys.version_info < (3, 15) and print(sys.executable)
BASE_PYTHON = $(eval BASE_PYTHON := $(shell unset $(OUTSIDE); for p in "$(PYTHON)" $(OTHERS); do \
	found=$$("$$p" -c '$(PROBE)' 2>/dev/null); [ -n "$$found" ] && echo "$$found" && break; done))$(BASE_PYTHON)

NO_PYTHON = no suitable Python$(if $(PYTHON), (PYTHON=$(PYTHON))): raychains needs Python 3.11 to 3.14 with its venv and \
	ensurepip modules (Debian, Ubuntu: apt install python3 python3-venv); name another by make PYTHON=/path/to/python3
