# Thin over the CMake presets (CMakePresets.json). `make help` lists what there is.
# Variables: PREFIX, DESTDIR (install), GPU (dist), RUNS, FUZZ_SECONDS (fuzz), STAGES (test-all), TESTS (test: an
# expression; words: names), FILE, ALL (check), JOBS. CUDA: the GPUs that code is compiled for, all, none, or 90; else this machine's.
PREFIX ?= /usr/local
DESTDIR ?=
GPU ?=
RUNS ?= 20000
FUZZ_SECONDS ?= 0
STAGES ?= all
TESTS ?=
FILE ?=
ALL ?=
CUDA ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

export JOBS TESTS RUNS FUZZ_SECONDS DESTDIR CUDA

.DEFAULT_GOAL := all
.PHONY: all demo test test-all test-night check words install dist sanitize fuzz format format-check deps deps-test \
        deps-test-all clean help

all: deps ## build the program, its plug-ins and, where cmocka is there, its tests
	@tools/build default

demo: deps ## build, make a small dataset, run brim bench on the best device, leave a report
	@tools/build default bin
	@tools/demo demo-out

test: deps-test ## build and run the tests: minutes
	@tools/test main

test-all: deps-test-all ## the tests, the long ones, sanitizers and fuzzers; STAGES=rest without the tests
	@tools/test $(STAGES)

test-night: deps-test ## every case of tests that run a sample, and tests of many minutes
	@tools/test night

check: deps-test ## after an edit: the tests nearest to FILE="a.c b.h" or to what changed; ALL=1 all that reach it
	@tools/check $(if $(ALL),--all) $(FILE)

words: deps-test ## keep what brim says now as what tests expect (tests/cli/words); TESTS="test_cli_x test_cli_y"
	@tools/words $(TESTS)

install: deps ## install under PREFIX (default /usr/local), below DESTDIR when set
	@tools/build default bin
	@cmake --install build --prefix "$(PREFIX)"

dist: deps ## make dist/brim, a folder that runs elsewhere; GPU=90 for one card, without oneDNN
	@tools/dist "$(GPU)"

sanitize: deps-test-all ## every test under ASan and UBSan, the threaded ones under TSan
	@tools/test asan-all tsan

fuzz: deps-test-all ## fuzz every parser: RUNS=n for each, or FUZZ_SECONDS=n for each
	@tools/fuzz

format: deps-test ## rewrite the sources with clang-format
	@tools/format

format-check: deps-test ## fail where clang-format would change something
	@tools/format --check

deps:
	@tools/deps build

deps-test:
	@tools/deps build test

deps-test-all:
	@tools/deps build test test-all

clean: ## remove what was built
	rm -rf build build-* dist demo-out

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile
