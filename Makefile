# make demo and make test need Python (3.10 or later) and a C compiler, nothing else; from the second
# run on they need no network. `make help` lists the rest.
PYTHON  ?= python3
VENV    ?= .venv
BIN      = $(VENV)/bin
RANKS   ?= 1 2 3 4
SOURCES := pyproject.toml setup.py MANIFEST.in README.md $(wildcard pchan/*.py pchan/*.pyi examples/*.py) \
           $(wildcard csrc/*.h csrc/core/*.[ch] csrc/python/*.[ch])

help:
	@echo "make demo     set up $(VENV), install, run the two demonstrations on 2 ranks"
	@echo "make test     the C tests, then the Python suite on $(RANKS) ranks"
	@echo "make format   ruff format, clang-format"
	@echo "make lint     ruff, mypy, clang-format, warnings as errors for every MPI compiler found"
	@echo "make clean    remove what was built; make distclean: $(VENV) too"
	@echo "variables     PYTHON=$(PYTHON) VENV=$(VENV) RANKS='$(RANKS)'"

# The environment: third-party packages once per change of pyproject.toml, pchan after each change of its source.
$(VENV)/packages: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet mpich 'mpi4py>=4.0' numpy mpmath gmpy2 'setuptools>=77' wheel 'pytest>=8' pytest-mpi hypothesis
	@touch $@

$(VENV)/installed: $(VENV)/packages $(SOURCES)
	PCHAN_BUILD_MPICC=$(CURDIR)/$(BIN)/mpicc:$(CURDIR)/$(BIN)/mpicc_abi \
	    $(BIN)/pip install --quiet --no-build-isolation --no-deps --no-index --force-reinstall .
	@touch $@

demo: $(VENV)/installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" MPIEXEC_TIMEOUT=300 mpiexec -n 2 python -m pchan demo

test: $(VENV)/installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(MAKE) --no-print-directory -C csrc test BUILD=build
	@set -e; for n in $(RANKS); do \
	    echo "== mpiexec -n $$n pytest"; \
	    PATH="$(CURDIR)/$(BIN):$$PATH" MPIEXEC_TIMEOUT=600 mpiexec -n $$n pytest -q --junitxml=build/tests-$$n.xml; done
	@echo "All tests passed on $(RANKS) ranks."

# Development tools, installed when first needed.
$(VENV)/tools: $(VENV)/packages
	$(BIN)/pip install --quiet ruff==0.17.6 clang-format==23.1.5 mypy
	@touch $@

C_FILES := $(wildcard csrc/*.h csrc/*/*.[ch] benchmarks/c/*.c)

format: $(VENV)/tools
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(C_FILES)

lint: $(VENV)/tools $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(BIN)/mypy --python-executable $(BIN)/python
	@for cc in mpicc mpicc_abi; do \
	    $(MAKE) --no-print-directory -C csrc all BUILD=build-$$cc MPICC=$(CURDIR)/$(BIN)/$$cc || exit 1; done

clean:
	rm -rf build csrc/build csrc/build-* dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean
	rm -rf $(VENV)

.PHONY: help demo test format lint clean distclean
.DEFAULT_GOAL := help
