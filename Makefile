# make demo and make test need Python (3.10 or later) and a C compiler, nothing else; from the second
# run on they need no network. `make help` lists the rest.
PYTHON  ?= python3
VENV    ?= .venv
RANKS   ?= 1 2 3 4
SOAK_MINUTES ?= 30
BIN     := $(abspath $(VENV))/bin
INSIDE   = PATH="$(BIN):$$PATH"
MPICCS   = $(BIN)/mpicc:$(BIN)/mpicc_abi
SOURCES := pyproject.toml setup.py MANIFEST.in README.md $(wildcard pchan/*.py pchan/*.pyi examples/*.py) \
           $(wildcard csrc/*.h csrc/core/*.[ch] csrc/python/*.[ch] benchmarks/*.py benchmarks/c/*.c)
C_FILES := $(wildcard csrc/*.h csrc/*/*.[ch] benchmarks/c/*.[ch] examples/*.c)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 \2/p' $(MAKEFILE_LIST) | \
	    while read -r make target what; do printf 'make %-12s %s\n' "$$target" "$$what"; done
	@echo "variables         PYTHON=$(PYTHON) VENV=$(VENV) RANKS='$(RANKS)' SOAK_MINUTES=$(SOAK_MINUTES)"
	@echo "make -C csrc test tests the C library alone, with the mpicc on PATH."

# The environment: third-party packages once per change of pyproject.toml, pchan after each change of its source.
$(VENV)/packages: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet mpich 'mpi4py>=4.0' numpy mpmath gmpy2 threadpoolctl rich tqdm matplotlib 'setuptools>=64' wheel 'pytest>=9' pytest-mpi hypothesis
	-@$(BIN)/pip install --quiet python-flint # its numbers go untested where it has no wheel
	@touch $@

# build/lib may hold modules that exist no more
$(VENV)/installed: $(VENV)/packages $(SOURCES)
	@rm -rf build/lib* build/bdist*
	PCHAN_BUILD_MPICC=$(MPICCS) $(BIN)/pip install --quiet --no-build-isolation --no-deps --no-index --force-reinstall .
	@touch $@

demo: $(VENV)/installed ## set up .venv, install pchan, run the two demonstrations on 2 ranks
	@$(INSIDE) MPIEXEC_TIMEOUT=300 mpiexec -n 2 python -m pchan demo

# All rank counts run, whatever fails; the last line tells.
test: $(VENV)/installed ## the C tests, then the Python suite on RANKS
	@rm -f build/tests-*.xml; mkdir -p build; failed=; \
	echo "== C tests"; \
	$(MAKE) --no-print-directory -C csrc test BUILD=build-venv MPICC=$(BIN)/mpicc MPIEXEC=$(BIN)/mpiexec || failed=" C"; \
	for n in $(RANKS); do \
	    echo "== mpiexec -n $$n pytest"; \
	    $(INSIDE) MPIEXEC_TIMEOUT=600 timeout -k 10 630 mpiexec -n $$n pytest -q --junitxml=build/tests-$$n.xml \
	        || failed="$$failed $$n"; \
	done; \
	if [ -n "$$failed" ]; then echo "FAILED (C tests, or number of ranks):$$failed"; exit 1; fi; \
	echo "All passed: the C tests, and the Python suite on $(RANKS) ranks."

# Each prints its table.
bench: $(VENV)/installed ## benchmarks in their short form on 2 ranks: reports and pictures in build/bench
	@mkdir -p build/bench
	@for name in channel qreduce gram; do \
	    $(INSIDE) mpiexec -n 2 python -m pchan bench $$name \
	        --json build/bench/$$name.json --plot build/bench/$$name.png || exit 1; \
	done

soak: soak-random soak-crashes ## the long runs: random channels and reductions for SOAK_MINUTES, every crash in every phase

# Half of the time as one node, half as two, so that messages are bundled.
soak-random: $(VENV)/installed ## random channels and reductions for SOAK_MINUTES on 4 ranks, values checked, memory flat
	@cd tests && for nodes in 1 2; do \
	    PATH="$(BIN):$$PATH" MPIR_CVAR_NUM_CLIQUES=$$nodes mpiexec -n 4 python soak.py --minutes $$(($(SOAK_MINUTES) / 2)) || exit 1; \
	done

soak-crashes: $(VENV)/installed ## every way to die in every phase on 2 and 3 ranks, as root
	$(INSIDE) PCHAN_SOAK=1 pytest -q -rs tests/test_crashes.py

# Development tools, installed when first needed.
$(VENV)/tools: $(VENV)/packages
	$(BIN)/pip install --quiet ruff==0.17.6 clang-format==23.1.5 mypy pre-commit
	@touch $@

format: $(VENV)/tools ## rewrite all files with ruff and clang-format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(C_FILES)

# core/ with the warnings of csrc/Makefile, then the whole extension, each for both ABIs
lint: $(VENV)/tools $(VENV)/installed ## ruff, mypy, clang-format, and warnings as errors for each MPI ABI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(BIN)/mypy --python-executable $(BIN)/python
	$(MAKE) --no-print-directory -C csrc all BUILD=build-abi MPICC=$(BIN)/mpicc_abi
	$(MAKE) --no-print-directory -C csrc all BUILD=build-venv MPICC=$(BIN)/mpicc
	CFLAGS="-Wall -Wextra -Werror" PCHAN_BUILD_MPICC=$(MPICCS) \
	    $(BIN)/python setup.py --quiet build_ext --build-temp build/lint --build-lib build/lint

$(VENV)/docs-tools: $(VENV)/packages
	$(BIN)/pip install --quiet 'sphinx>=8' 'myst-parser>=4' furo
	@touch $@

tidy: $(VENV)/tools ## clang-tidy on the C code, with the checks of .clang-tidy
	@$(BIN)/pip install --quiet clang-tidy==23.1.4
	$(INSIDE) $(MAKE) --no-print-directory -j2 -k -C csrc tidy MPICC=$(BIN)/mpicc \
	    PYTHON_INCLUDES="-I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')"

pre-commit: $(VENV)/tools ## check each commit from now on as .pre-commit-config.yaml says
	$(BIN)/pre-commit install

docs: $(VENV)/docs-tools $(VENV)/installed ## the documents as HTML in build/docs; a warning is an error
	$(BIN)/sphinx-build -q -E -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

clean: ## remove what was built
	rm -rf build csrc/build csrc/build-* dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean ## remove .venv, too
	rm -rf $(VENV)

.PHONY: help demo test bench soak soak-random soak-crashes docs format lint tidy pre-commit clean distclean
.DEFAULT_GOAL := help
