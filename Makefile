# The same targets run on a developer's machine and in CI; `make help` lists them.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
DIST = dist

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: all
all: lint test ## everything that CI runs

LOCK = tests/requirements.lock
GROUPS = --group lint --group test --group stores --group frameworks

# The second call finds all there, or tells of a dependency that is not in the lock.
$(VENV): pyproject.toml $(LOCK)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement $(LOCK)
	$(BIN)/pip install --quiet --no-index $(GROUPS) "maturin>=1.9.4,<2" "pip>=25.1"
	touch $(VENV)

.PHONY: lock
lock: ## pin anew what lint and test install; needs uv
	printf 'maturin>=1.9.4,<2\npip>=25.1\n' | uv pip compile pyproject.toml - $(GROUPS) --quiet --upgrade --universal \
		--python-version 3.11 --generate-hashes --no-annotate --no-header --output-file $(LOCK)
	sed -i '1i # What `make test` and `make lint` install, pinned by hash; `make lock` makes it anew.' $(LOCK)

.PHONY: audit
audit: $(VENV) ## licences, origin and known holes of all dependencies; needs cargo-deny, pip-audit and a network
	cargo deny check
	pip-audit --strict --require-hashes --disable-pip --requirement $(LOCK)

.PHONY: install
install: $(VENV) ## build the wheel and install it into the virtual environment
	rm -rf $(DIST)
	$(BIN)/maturin build --release --quiet --interpreter $(BIN)/python --out $(DIST)
	$(BIN)/pip install --quiet --force-reinstall --no-deps $(DIST)/*.whl
	$(BIN)/pip install --quiet $(DIST)/*.whl

# stargraph needs Python 3.13; pyenv hides the ones that it has.
PYTHON313 ?= $(shell python3.13 -c 'import sys; print(sys.executable)' 2>/dev/null || \
	ls -d $$(pyenv root 2>/dev/null)/versions/3.13*/bin/python3.13 2>/dev/null | head -1)

.PHONY: stargraph
stargraph: install ## what the contract test of stargraph needs, where Python 3.13 is installed
ifneq ($(PYTHON313),)
	$(PYTHON313) -m venv $(VENV)/stargraph
	$(VENV)/stargraph/bin/pip install --quiet pydantic
	$(VENV)/stargraph/bin/pip install --quiet --no-deps "stargraph>=0.8,<1"
	$(VENV)/stargraph/bin/pip install --quiet --force-reinstall --no-deps $(DIST)/*.whl
endif

$(VENV)/training: models/requirements.txt | $(VENV)
	$(PYTHON) -m venv $(VENV)/training
	$(VENV)/training/bin/pip install --quiet --requirement models/requirements.txt
	touch $(VENV)/training

.PHONY: training
training: $(VENV)/training ## what training the models needs, about 6 GB

.PHONY: test
test: install stargraph $(if $(CI),training) ## all tests, Rust and Python; the Python ones against the wheel
	cargo test --workspace --quiet
	$(BIN)/pytest

.PHONY: lint
lint: install ## formatting, lints and types, Rust and Python
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest crossgate._core

.PHONY: format
format: $(VENV) ## mend formatting and what the lints can mend
	cargo fmt --all
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: figures
figures: install ## every figure of the README and of the baselines, from our own data; ten minutes
	$(BIN)/crossgate eval eval/skills eval/chunks --runs $(DIST)/runs --json > $(DIST)/figures.json
	mv $(DIST)/figures.json eval/baselines.json
	$(BIN)/crossgate eval $(DIST)/runs/skills-test.run.jsonl --curve docs/gate.svg
	$(BIN)/crossgate eval $(DIST)/runs/chunks-test.run.jsonl
	$(BIN)/crossgate eval eval/skills --split conversation
	$(BIN)/crossgate eval eval/chunks --steps --reranker crossgate-router-minilm-l6

HOLDOUTS = skill-triggers metatool clinc150 hwu64 scifact cosqa pubmedqa

.PHONY: holdouts
holdouts: install ## the tables of the cross-encoder's card, from the public sets in DATA; half an hour
	test -d "$(DATA)/skill-triggers"  # DATA=FOLDER
	$(BIN)/crossgate eval $(addprefix $(DATA)/,$(HOLDOUTS)) --limit 300 --unnamed --runs $(DIST)/runs --json \
		> $(DIST)/holdouts.json
	$(BIN)/python models/holdouts.py $(DIST)/holdouts.json eval/baselines.json

.PHONY: fuzz
fuzz: ## fuzz the readers of index files and traces and the text analysis, ten minutes each
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none index_file -- -max_total_time=600
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none trace -- -max_total_time=600
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none text -- -max_total_time=600

ATTACKS ?= 5000

.PHONY: attack
attack: install ## hostile input of every kind, ATTACKS draws of each from a seed; ten minutes
	CROSSGATE_ATTACKS=$(ATTACKS) $(BIN)/pytest --timeout 3600 tests/test_attacks.py

.PHONY: wheels
wheels: $(VENV) ## the wheels of a release for Linux, cross-built and checked
	$(BIN)/pip install --quiet --group release
	rustup target add $(foreach libc,gnu musl,$(foreach cpu,x86_64 aarch64,$(cpu)-unknown-linux-$(libc)))
	$(BIN)/python release/wheels.py

.PHONY: clean
clean: ## remove everything that was built
	rm -rf $(VENV) $(DIST) target
