# What a person and CI run. `make` alone lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Build output and downloaded services lie outside the tree, so that every clone shares them.
export WEIR_CACHE ?= $(HOME)/.cache/weir
export CARGO_TARGET_DIR := $(WEIR_CACHE)/target

# One shape for every cargo command: a `-p` somewhere would unify features differently and build all dependencies again.
BUILD := cargo build --release --locked --workspace
WITH_CRASH_POINTS := --release --locked --workspace --features weir/crash-points
WEIR := $(CARGO_TARGET_DIR)/release/weir

.PHONY: help
help: ## List these targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 16

.PHONY: demo
demo: build udfs ## Run the quickstart from nothing: 200,000 messages through a guest into an Iceberg table.
	rm -rf demo-data
	$(WEIR) run examples/quickstart/pipeline.yaml
	$(WEIR) head examples/quickstart/pipeline.yaml

.PHONY: build
build: need-build ## Build the host: the `weir` binary.
	$(BUILD)

.PHONY: udfs
udfs: need-build ## Build the first-party guests into target/udfs.
	udfs/build

.PHONY: languages
languages: need-languages ## Build the example guests of every language; their compilers are installed into the cache.
	@for build in examples/languages/*/build; do "$$build"; done

.PHONY: test
test: udfs languages peers ## Run every test, with the real services started and stopped by the tests.
	udfs/build --test
	@for build in examples/languages/*/build; do "$$build" --test; done
	cargo build $(WITH_CRASH_POINTS)
	cargo test $(WITH_CRASH_POINTS) --lib --bins -- $(TEST)
	cargo test $(WITH_CRASH_POINTS) --test all -- $(TEST)

.PHONY: prove
prove: export WEIR_PROVE := 1
prove: test ## Run every test at its full size: more seeds, more rows, more kills. Takes long.

.PHONY: bench
bench: build udfs ## Measure throughput and cost on this machine. BENCH="--rows 5000000 mask" chooses.
	tests/bench/main-job $(WEIR)
	tests/bench/run $(WEIR) $(BENCH)
	tests/bench/swaps.py $(WEIR) rust=target/udfs/passthrough.wasm $(if $(wildcard target/udfs/js_passthrough.wasm),js=target/udfs/js_passthrough.wasm)

.PHONY: bench-parts
bench-parts: build udfs need-bench ## Measure the parts of the data path and compare their instruction counts with the baseline.
	$(BUILD) --bin parts --features weir-tests/parts
	tests/parts/run $(CARGO_TARGET_DIR)/release/parts $(PARTS)

.PHONY: fuzz
fuzz: need-build ## Fuzz decoder, manifest and guest output, FUZZ_SECONDS (60) each. FUZZ="decoder" chooses.
	tests/fuzz/run $(FUZZ)

.PHONY: lint
lint: need-build ## Check format and lints; every warning fails.
	cargo fmt --all --check
	cargo clippy $(WITH_CRASH_POINTS) --all-targets -- -D warnings

.PHONY: docs
docs: need-build ## Write the reference of the pipeline file into docs/config.md, from the code.
	WEIR_BLESS=1 cargo test $(WITH_CRASH_POINTS) --test all -- reference

.PHONY: peers
peers: need-test ## Install the services and readers that the tests use.
	@for setup in tests/peers/*/setup; do "$$setup"; done

.PHONY: need-build need-languages need-test need-bench
need-build need-languages need-test need-bench:
	@.ci/need $(@:need-%=%)
