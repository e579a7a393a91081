# Thin over the CMake presets (CMakePresets.json). `make help` lists what there is.
# Variables: PREFIX, DESTDIR (install), GPU (dist), RUNS, FUZZ_SECONDS (fuzz), JOBS.
PREFIX ?= /usr/local
DESTDIR ?=
GPU ?=
RUNS ?= 20000
FUZZ_SECONDS ?= 0
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

export JOBS RUNS FUZZ_SECONDS DESTDIR

.DEFAULT_GOAL := all
.PHONY: all demo test check install dist sanitize fuzz format format-check deps deps-test clean help

all: deps ## build the program, its plug-ins and, where cmocka is there, its tests
	@tools/build default

demo: deps ## build, make a small dataset, run brim bench on the best device, leave a report
	@tools/build default bin
	@tools/demo demo-out

test: deps-test ## build and run every test this machine can run (what CI runs)
	@tools/test all

check: deps-test ## only the main build's tests: the quick round while working
	@tools/test main

install: deps ## install under PREFIX (default /usr/local), below DESTDIR when set
	@tools/build default bin
	@cmake --install build --prefix "$(PREFIX)"

dist: deps ## make dist/brim, a folder that runs elsewhere; GPU=90 for one card, without oneDNN
	@tools/dist "$(GPU)"

sanitize: deps-test ## every test under ASan and UBSan, the threaded ones under TSan
	@tools/test sanitize

fuzz: deps-test ## fuzz every parser: RUNS=n for each, or FUZZ_SECONDS=n for each
	@tools/fuzz

format: deps-test ## rewrite the sources with clang-format
	@tools/format

format-check: deps-test ## fail where clang-format would change something
	@tools/format --check

deps:
	@tools/deps build

deps-test:
	@tools/deps build test

clean: ## remove what was built
	rm -rf build build-* dist demo-out

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile
