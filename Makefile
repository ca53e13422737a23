# One entry point for people and for CI; `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1
PROTO := $(wildcard proto/distserve_proto/*.proto)
STAMP := .venv/.installed
GPU_STAMP := .venv/.installed-gpu
# three processes, one of which mostly waits; they share the tests as tests/conftest.py says
PYTEST := $(BIN)/python -m pytest -n 3

.PHONY: help install demo down test test-fast bench-placement bench-engine bench-transfer test-gpu verify format proto constraints clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | column -t -s "$$(printf '\t')"

install: $(STAMP)  ## make .venv with exactly the versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt scripts/install
	@scripts/install $(PYTHON)
	@touch $@

# NVIDIA's bindings of NCCL, on top of the rest
$(GPU_STAMP): $(STAMP)
	@scripts/install $(PYTHON) worker,test,gpu
	@touch $@

demo: $(STAMP)  ## local cluster, chart, SmolLM2, one streamed answer; leaves it running
	@$(BIN)/distserve dev demo

down: $(STAMP)  ## stop what `make demo` started
	@$(BIN)/distserve dev down

test: $(STAMP)  ## all tests, the end-to-end ones included
	@$(BIN)/distserve dev build
	@$(PYTEST)

test-fast: $(STAMP)  ## the tests that need no cluster
	@$(PYTEST) -m "not cluster"

test-gpu: $(GPU_STAMP)  ## engine and transports on GPUs, one is enough; says what ran where for docs/transports.md
	@scripts/test-gpu

bench-placement: $(STAMP)  ## CPU time of the placement search, devices that it saves
	@$(BIN)/distserve bench placement

bench-engine: $(STAMP)  ## steps of the engine against transformers
	@$(BIN)/distserve bench engine

bench-transfer: $(STAMP)  ## speed of the KV transports, share of a request that its pull takes
	@$(BIN)/distserve bench transfer

verify: $(STAMP)  ## lint, types, import contracts, generated files, schemas, samples
	@scripts/verify

format: $(STAMP)  ## format and fix what can be fixed
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format --quiet .

proto: $(STAMP)  ## regenerate the Python code of proto/
	@$(BIN)/python -m grpc_tools.protoc -I proto --python_out=proto --grpc_python_out=proto \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --mypy_out=quiet:proto --mypy_grpc_out=quiet:proto $(PROTO)

constraints: $(STAMP)  ## resolve pyproject.toml anew into constraints.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-find-links --upgrade --all-extras --no-header --no-annotate pyproject.toml -o constraints.txt

clean: $(STAMP)  ## remove the environment and everything built in this clone; its clusters end first
	@for state in build/dev/*/; do \
	  [ ! -d "$$state" ] || DISTSERVE_STATE= $(BIN)/distserve dev down --name "$$(basename "$$state")"; \
	done
	@rm -rf .venv build
