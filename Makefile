# One verb for each thing a person does. `make` alone lists them.
#
# Nothing is needed but Python 3.11 or newer with its venv module, and make: uv is fetched through pip when it
# is missing, and everything else comes from requirements.lock (versions and hashes, no addresses).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo $(BIN)/uv)
# What the product needs to run, and then what its developers need.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
PROJECTS := $(wildcard packages/*/pyproject.toml)
PRODUCT := $(addprefix -e packages/,fencepost fencepost-server fencepost-orders fencepost-players fencepost-nonces fencepost-judge)
OURS := $(addprefix --no-emit-package ,$(notdir $(wildcard packages/*)))
PYTEST_ARGS ?=
# What `make quick` leaves out of the unit tests and the kernel: fuzzing, models, migrations, the documentation, tests that start
# processes, and what `make check` runs.
QUICK_TESTS := tests/unit tests/integration/kernel $(addprefix --ignore=tests/unit/,fuzz bench docs embedded torture testing \
	$(addsuffix .py,console/test_deploy flows/test_lateness flows/test_pages flows/test_time_index flows/test_value_codec \
	job_features/test_typing judge/test_documents judge/test_packages nonces/test_keys test_bill_of_materials test_extras \
	test_plugin test_secrets test_tidy)) \
	$(addprefix --ignore-glob=tests/integration/kernel/test_,migrate* *_model.py array_literal.py)

# The tests start Python by the hundred: what one process has compiled, the others need not compile again. `make up`
# starts few, and compiles what it imports; a pip inside the environment, which nothing uses, would take as long again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up quick test test-matrix mutants coverage specs check docs references audit bench soak torture contest-rehearsal sbom release lock clean setup

help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## the environment in .venv, from the lock files

$(RUNS): requirements.lock $(PROJECTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@command -v uv >/dev/null 2>&1 || test -x $(BIN)/uv || $(PYTHON) -m pip --python $(BIN)/python install --quiet uv || \
		{ $(BIN)/python -m ensurepip && $(BIN)/python -m pip install --quiet uv; }
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps $(PRODUCT)
	@touch $@

$(READY): $(RUNS) requirements-dev.lock pyproject.toml
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements-dev.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps -e packages/fencepost-torture
	@touch $@

up: $(RUNS) ## the whole system on an embedded PostgreSQL and Valkey; Ctrl-C stops it
	@exec $(BIN)/fencepost up

quick: $(READY) ## unit tests and the kernel on a real PostgreSQL, while you write
	@$(BIN)/python -m pytest -n 3 --dist worksteal -q $(QUICK_TESTS) $(PYTEST_ARGS)

test: $(READY) ## everything that a change needs before it is submitted; FULL=1 adds the long tests and fails on any skip
	@$(BIN)/python -m pytest -n 4 --dist worksteal $(if $(FULL),--full,) $(PYTEST_ARGS)

test-matrix: $(READY) ## the kernel and job suites on every server version that this machine has
	@$(BIN)/python -m tests.matrix $(PYTEST_ARGS)

mutants: $(READY) ## plant bugs by rule in every function of the kernel: do the tests see them? SAMPLE=100 for some
	@$(BIN)/python -m tests.mutants $(if $(SAMPLE),--sample $(SAMPLE),)

coverage: $(READY) ## lines and branches of the kernel's Python and of what is decided without I/O: all of them
	@$(BIN)/python -m coverage run -m pytest -q -n 0 $(addprefix tests/unit/,flows fuzz job_features jobs judge kernel nonces orders outbox torture) \
		$(addprefix tests/integration/,kernel drivers) tests/acceptance/test_eviction.py tests/acceptance/test_paused_holder.py
	@$(BIN)/python -m coverage report

specs: $(READY) ## the TLA+ specifications, and their broken twins, with TLC
	@$(BIN)/python -m pytest -n 2 -v tests/specs $(PYTEST_ARGS)

check: $(READY) ## ruff (with bandit's rules), mypy, pyright, import contracts, the tidy test, a search for secrets, the bill of materials
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q tests/unit/test_tidy.py tests/unit/test_secrets.py tests/unit/test_bill_of_materials.py

docs: $(READY) ## the documentation as a site in dist/docs, with every broken link an error; `fencepost docs` shows it
	@$(BIN)/python -m docs.site

references: $(READY) ## write the pages that come from code, the index of each folder of docs, the catalogue of the console's words, and the README's picture
	@$(BIN)/python -m docs.site.references
	@$(BIN)/python deploy/words.py
	@$(BIN)/python deploy/refusal_picture.py

audit: $(READY) ## known vulnerabilities of the dependencies, as far as the package registry reports them
	@$(BIN)/python .ci/audit.py

contest-rehearsal: $(READY) ## a contest of five compressed hours with 2,000 submissions, through killed judges and servers that are away; SUBMISSIONS=300 for fewer
	@REHEARSAL_SUBMISSIONS=$(or $(SUBMISSIONS),2000) $(BIN)/python -m pytest --full -q -s -n 0 -k whole tests/acceptance/judge/test_contest_rehearsal.py $(PYTEST_ARGS)

bench: $(READY) ## every benchmark; QUICK=1 for under a minute each
	@$(BIN)/python -m bench all $(if $(QUICK),--quick,)

bench-%: $(READY) ## one benchmark, as in bench-kernel
	@$(BIN)/python -m bench $* $(if $(QUICK),--quick,)

soak: $(READY) ## everything at half load with faults: does anything grow? HOURS=8, a picture in .fencepost/bench/soak.svg
	@$(BIN)/python -m bench.soak --hours $(or $(HOURS),8)

torture: $(READY) ## the systems under faults: SECONDS=60 SEED=7 SYSTEMS=jobs,nonces FAULTS=process,network
	@$(BIN)/fencepost torture --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) \
		$(if $(SYSTEMS),--systems $(SYSTEMS),) $(if $(FAULTS),--faults $(FAULTS),)

sbom: ## what we are made of, as CycloneDX, from the lock file: dist/sbom.json
	@$(PYTHON) deploy/bill_of_materials.py dist/sbom.json

release: $(READY) ## what a release publishes, in dist/release: wheels, bill of materials, notes, digests; sends nothing. TAG=v0.1.0
	@$(BIN)/python deploy/release.py $(if $(TAG),--tag $(TAG),)

lock: ## write the lock files anew: requirements.lock for the product, requirements-dev.lock for its developers
	@$(UV) pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 $(OURS) --extra embedded \
		-o requirements.lock $(filter-out packages/fencepost-torture/%,$(PROJECTS))
	@$(UV) pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 $(OURS) --all-extras --group dev \
		-c requirements.lock -o requirements-dev.lock $(PROJECTS)

clean: ## remove the environment, the caches and the embedded servers' data
	rm -rf $(VENV) .fencepost .mypy_cache .ruff_cache .pytest_cache .hypothesis
