# On a fresh machine with Python 3.11+ and make:
#   make demo [ONCE=1] [LIS=hl7v2] [FAULTS=config/bad-day.toml]
#                                     run the daily flow on this machine (LIS: folder, http, hl7v2 or sql)
#   make bench [ONLY=intake] [QUICK=1] [LARGE=1]
#                                     measure the programs against their floors; the table is in build/ too
#   make test [JOBS=4] [ONLY=tests/unit/rules]
#                                     check formatting, types and import rules, and run the quick tests, or those below a path
#   make test-all [ONLY=...]          the same, then the slow tests: other databases, browsers, transports, installations
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LIS ?= folder
# Tests start programs hundreds of times: let Python cache the compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all proof bench lint docs screenshots wheelhouse deb sbom audit lock clean

demo: .venv/.run
	$(BIN)/lab-sandbox demo --lis $(LIS) $(if $(ONCE),--once) $(if $(FAULTS),--faults $(FAULTS))

# What ONLY names may lie on one side of the marker alone: pytest's exit code 5, nothing to run, is none of an error then.
PYTEST := $(BIN)/python -m pytest -n $(or $(JOBS),$(if $(ONLY),0,4)) --dist load
UNLESS_EMPTY := $(if $(ONLY),|| [ $$? -eq 5 ])

test: $(if $(ONLY),.venv/.dev,lint)
	$(PYTEST) -m "not slow and not proof" $(ONLY) $(UNLESS_EMPTY)
	@echo 'left out: the tests marked slow, which `make test-all` runs as well, and the long ones of `make proof`'

test-all: test
	$(PYTEST) -m "slow and not proof" $(ONLY) $(UNLESS_EMPTY)

# What it survives: long tests, known-bad variants that they must find, and a table of the figures (docs/reliability.md). It takes hours,
# and goes on where it was interrupted. SHORT=1 is SHARE=0.05, the share of its full length that each runs; ONLY="kills soak" names
# single proofs; AGAIN=1 runs what held before, too, VARIANTS=1 only its known-bad variants; WRITE=1 puts the table into the pages.
proof: .venv/.dev .venv/.mutation
	$(BIN)/python -m tests.proof $(ONLY) --share $(or $(SHARE),$(if $(SHORT),0.05,1)) --jobs $(or $(JOBS),$(if $(SHORT),4,3)) \
		$(if $(AGAIN),--again) $(if $(VARIANTS),--variants) $(if $(WRITE),--write)

# About eight minutes. ONLY names single benchmarks; QUICK=1 is a look of two minutes; LARGE=1 adds what takes many minutes;
# WRITE=1 puts the table into docs/performance.md.
bench: .venv/.dev
	mkdir -p build
	$(BIN)/python -m benchmarks $(ONLY) $(if $(QUICK),--quick) $(if $(LARGE),--large) \
		--json build/benchmarks.json --markdown build/benchmarks.md \
		$(if $(WRITE),--page docs/performance.md)

# The program and all that it runs on, for a machine without a network: see docs/install.md.
wheelhouse: .venv/.run
	rm -rf build/wheelhouse && mkdir -p build/wheelhouse
	cp requirements/run.txt build/wheelhouse/requirements.txt
	$(PIP) download --quiet --require-hashes --dest build/wheelhouse -r requirements/run.txt
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheelhouse .
	@echo 'build/wheelhouse has all that an installation without a network needs'

# A package for the distribution and the processor of this machine: see docs/install.md.
deb: wheelhouse
	rm -f build/lab-agent_*.deb
	debian/build.sh $(BIN)/python build/wheelhouse build

# What the program consists of, as CycloneDX: each package with version and hashes, from the lock file.
sbom: build/supply-chain/.installed
	sed "s/^dynamic = .*/version = \"$$($(PYTHON) -c 'from tools.version import build_version; print(build_version())')\"/" \
		pyproject.toml > build/pyproject.toml
	build/supply-chain/bin/cyclonedx-py requirements requirements/run.txt --pyproject build/pyproject.toml --mc-type application \
		--output-reproducible --output-format JSON --output-file build/sbom.json
	@echo 'build/sbom.json'

# Asks an advisory database, which needs a network, whether something known is wrong with what runs.
audit: build/supply-chain/.installed
	build/supply-chain/bin/pip-audit --disable-pip --require-hashes --requirement requirements/run.txt

build/supply-chain/.installed: requirements/supply-chain.txt
	$(PYTHON) -m venv --clear build/supply-chain
	build/supply-chain/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/supply-chain.txt
	touch $@

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Generates the documentation pages made from the code.
docs: .venv/.dev
	$(BIN)/python -m tools.docs

# Takes the pictures of the documentation from the demo, with Chromium.
screenshots: .venv/.dev
	$(BIN)/python -m tools.screenshots

# Updates the dependencies. The lock files contain hashes and no registry.
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --quiet --upgrade
lock: .venv/.dev
	$(LOCK) pyproject.toml --group build -o requirements/run.txt
	$(LOCK) pyproject.toml --group build --group test --group bench -c requirements/run.txt -o requirements/dev.txt
	$(LOCK) --group pyproject.toml:supply-chain -o requirements/supply-chain.txt
	$(LOCK) --group pyproject.toml:mutation -c requirements/dev.txt -o requirements/mutation.txt

.venv/.run: requirements/run.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lab-agent needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo 'installing the libraries into .venv: a minute or two, the first time only'
	$(PIP) install --require-hashes -r requirements/run.txt
	@echo 'installing the programs'
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	touch $@

.venv/.dev: .venv/.run requirements/dev.txt
	$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	touch $@

# What the proof `mutation` needs besides: mutmut, whose operators it uses.
.venv/.mutation: .venv/.dev requirements/mutation.txt
	$(PIP) install --quiet --require-hashes -r requirements/mutation.txt
	touch $@

clean:
	rm -rf .venv build
