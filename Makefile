# Commands for users and developers; Meson does the build.
#   make deps        install the packages that the build, the tests and the examples need (Debian 12)
#   make             build/penstock
#   make quickstart  install packages, build, and run the main job with the embedded store; DATASET=URL|PATH for other images
#   make check       the checks for every change; check-full adds the other sanitizers and the long tests, soak takes hours
#   make bench       benchmarks against other programs; fails if a figure misses its limit
#   make fuzz        run libFuzzer on each parser of untrusted input; SECONDS_EACH=60
#   make tables      generate the tables of docs/ again, after a change of a key, a variable or an exit code
#   make install     install into PREFIX (/usr/local), below DESTDIR if it is set
#   make packages    deb, wheel, tarball and image into build/packages; docs/install.md describes them
#   make deb         Debian packages, checked by lintian
#   make wheel       a Python wheel with the program inside, for Linux distributions from 2020 on
#   make tarball     the program for the same distributions, without Python
#   make image       a container image of the Debian package (needs root)
#   make check-packages   test all packages and make quickstart in bare Debian systems (needs root and a Debian mirror)
SHELL := /bin/bash
BUILD ?= build
PREFIX ?= /usr/local
NICE ?= nice -n 5
PYTEST := /usr/bin/python3 -m pytest
export PYTHONDONTWRITEBYTECODE :=
SCRIPTS := $(shell git ls-files .ci/run examples tools 2>/dev/null | xargs -r grep -lE '^\#!/bin/(ba)?sh' 2>/dev/null)

.PHONY: all
all: $(BUILD)/build.ninja
	ninja -C $(BUILD) product

$(BUILD)/build.ninja:
	@command -v meson >/dev/null || { echo "meson is not installed; run 'make deps' first" >&2; exit 69; }
	meson setup $(BUILD) --prefix $(PREFIX)

.PHONY: deps
deps:
	@tools/install-deps

.PHONY: tables
tables: $(BUILD)/build.ninja
	ninja -C $(BUILD) penstock
	tools/fill-tables $(BUILD)/penstock

.PHONY: install
install: all
	meson configure $(BUILD) -Dprefix=$(PREFIX)
	meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

.PHONY: quickstart
quickstart:
	@tools/install-deps build example
	$(MAKE) all
	tools/quickstart $(if $(DATASET),--dataset '$(DATASET)')

# --- Checks for every change -------------------------------------------------------------------------------------

# Some checks mostly wait or use one thread, so others run in parallel.
.PHONY: check check-style check-tests check-unit check-tidy check-python check-system
check: deps
	$(MAKE) -j 3 check-style asan test-venvs test-bytecode
	$(MAKE) -j 2 check-tidy check-tests
	@echo "make check: all passed"

check-style: format-check all
	tools/check-includes.py
	tools/check-shape $(BUILD)
	tools/check-words
	tools/check-docs
	tools/check-examples
	tools/build-page $(BUILD)/page-check check
	shellcheck $(SCRIPTS)
	git ls-files -z | grep -zvE '^(tests/(fuzz/corpus|.*/vectors)/|(web|tests/javascript)/package-lock.json)' | xargs -0 codespell --builtin clear --ignore-words tools/codespell-ignore

# Unit tests and the corpus of the fuzz targets, with AddressSanitizer and UndefinedBehaviorSanitizer.
# handle_segv=2: cmocka would catch SIGSEGV and hide its place; the sanitizer prints the stack.
SANITIZE := ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:handle_segv=2 \
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
check-unit: asan
	$(SANITIZE) tools/meson-test build-asan --suite unit

# Builds everything with Clang and sanitizers. Clang's warnings are errors, too; check-tidy reads the
# compile commands of this build.
.PHONY: asan
asan: build-asan/build.ninja
	$(NICE) ninja -C build-asan

# The runtime of the sanitizers is shared, because tests load libraries before it: those of failing
# allocations, for example. Line tables suffice for stack traces, and build faster than full debug information. Without
# optimization the build takes 1.5 instead of 3.4 minutes of processor time, and the unit tests 0.2 minutes more.
build-asan/build.ninja:
	CC=clang-14 CC_LD=gold meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debug -Dfuzz=true \
		-Dc_args=-gline-tables-only \
		-Dc_link_args="-shared-libasan -Wl,-rpath,$$(clang-14 -print-runtime-dir)"

check-tidy: asan
	nice -n 19 tools/tidy --sources build-asan

check-tests: asan
	$(MAKE) -j 2 check-unit check-python
	$(MAKE) check-system

.PHONY: test-venvs
test-venvs:
	tools/test-venv >/dev/null
	tools/test-venv determined >/dev/null
	tools/test-venv tracking >/dev/null

# Each worker of the system tests imports all test files: in 1 s if their bytecode is cached, otherwise in 5 s.
.PHONY: test-bytecode
test-bytecode: all
	$(PYTEST) tests/system --collect-only -qq >/dev/null

# Tests the Python package in the build directory, with the system's Python and torch.
check-python: all test-venvs
	PENSTOCK_PYTHON=$(BUILD)/python $(PYTEST) tests/python

check-system: all test-venvs
	tools/test-system

# --- Longer ------------------------------------------------------------------------------------------------------

# Takes about two hours; make -k check-full runs the rest after a failure.
.PHONY: check-full tidy-all check-system-asan check-tsan check-long soak fuzz bench
check-full: check tidy-all check-tsan check-system-asan check-long check-packages
	@echo "make check-full: all passed"

tidy-all: build-asan/build.ninja
	tools/tidy --all build-asan

# With a sanitizer, a system test may take three times its usual limit (pytest.ini: 300 s).
WATCH_THREADS := TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$(CURDIR)/tests/tsan-suppressions
check-tsan: build-tsan/build.ninja
	$(NICE) ninja -C build-tsan
	$(WATCH_THREADS) tools/meson-test build-tsan --suite unit
	$(WATCH_THREADS) PENSTOCK=build-tsan/penstock tools/test-system --timeout 900

build-tsan/build.ninja:
	meson setup build-tsan -Db_sanitize=thread -Db_lundef=false

check-system-asan: asan
	$(SANITIZE) PENSTOCK=build-asan/penstock tools/test-system --timeout 900

check-long: all
	PENSTOCK_PYTHON=$(BUILD)/python $(PYTEST) tests/python -m long --timeout 3600
	ninja -C $(BUILD) tests/unit/test-sync-alloc
	ALLOCATIONS=all $(BUILD)/tests/unit/test-sync-alloc
	tools/test-system -m long --timeout 3600

soak: deps
	$(MAKE) all
	$(PYTEST) tests/system -m soak --timeout 0

fuzz: deps
	tools/fuzz

bench: deps build-release/build.ninja
	ninja -C build-release penstock tests/unit/sync/sync-driver python-package
	PATH="$$(tools/bench-peers):$$PATH" bench/run

build-release/build.ninja:
	meson setup build-release --buildtype release

# Checks only sources that differ from the main branch; `make check` checks src and python, `make check-full` also tests.
.PHONY: tidy
tidy: build-asan/build.ninja
	tools/tidy --changed build-asan

# --- Packages ----------------------------------------------------------------------------------------------------

.PHONY: packages package-deps deb wheel tarball image check-packages
packages: deb wheel tarball image

package-deps:
	@tools/install-deps build package

deb: package-deps
	tools/package/deb
wheel: package-deps
	tools/package/portable wheel
tarball: package-deps
	tools/package/portable tarball
image: deb
	tools/package/image

check-packages: packages
	$(PYTEST) tests/packages

# --- Formatting --------------------------------------------------------------------------------------------------

.PHONY: format format-check clean
format:
	git ls-files '*.c' '*.h' | xargs clang-format -i
format-check:
	git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

clean:
	rm -rf build build-asan build-tsan build-release build-portable
