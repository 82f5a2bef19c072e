# Everything a user or developer types; the build itself is Meson's.
#   make deps        install what building, testing and the examples need (Debian 12)
#   make             build/penstock
#   make quickstart  install, build and run the main job with the embedded store; DATASET=URL|PATH for other pictures
#   make check       what every change needs; check-full adds sanitizers everywhere and the long tests, soak takes hours
#   make bench       measurements beside their peers; fails on a missed ratio
#   make fuzz        each parser of foreign input under libFuzzer; SECONDS_EACH=60
#   make tables      the generated tables of docs/, after a change of a key, a variable or an exit code
#   make install     into PREFIX (/usr/local), below DESTDIR where that is given
#   make packages    deb, wheel, tarball and image into build/packages; docs/install.md says what each is for
#   make deb         Debian packages, checked by lintian
#   make wheel       a Python wheel with the program inside, for Linux distributions from 2020 on
#   make tarball     the program for the same distributions, without Python
#   make image       a container image of the Debian package (needs root)
#   make check-packages   all of them in bare Debian systems, and make quickstart there (needs root and a Debian mirror)
SHELL := /bin/bash
BUILD ?= build
PREFIX ?= /usr/local
NICE ?= nice -n 5
PYTEST := /usr/bin/python3 -m pytest
export PYTHONDONTWRITEBYTECODE :=
SCRIPTS := $(shell git ls-files .ci/run tools 2>/dev/null | xargs -r grep -lE '^\#!/bin/(ba)?sh' 2>/dev/null)

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

# --- What every change needs -------------------------------------------------------------------------------------

# Some of it waits most of its time, or has one thread; what runs beside it takes the processors.
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
	git ls-files -z | grep -zvE '^(tests/(fuzz/corpus|.*/vectors)/|web/package-lock.json)' | xargs -0 codespell --builtin clear --ignore-words tools/codespell-ignore

# Unit tests and the fuzz targets' corpus, with every byte and every undefined operation watched. The other compiler, whose
# warnings are errors, too; check-tidy reads its commands.
# cmocka catches a SIGSEGV and goes on without saying where it was: the sanitizer keeps the signal, and prints the stack.
SANITIZE := ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:handle_segv=2 \
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
check-unit: asan
	$(SANITIZE) tools/meson-test build-asan --suite unit

# Everything under Clang with sanitizers.
.PHONY: asan
asan: build-asan/build.ninja
	$(NICE) ninja -C build-asan

# The shared runtime, because the tests of failing allocations and those that preload a library come before it.
# A stack needs lines only, and this compiles and links in less time than with all that debuggers show.
build-asan/build.ninja:
	CC=clang-14 CC_LD=gold meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debug -Doptimization=1 -Dfuzz=true \
		-Dc_args=-gline-tables-only \
		-Dc_link_args="-shared-libasan -Wl,-rpath,$$(clang-14 -print-runtime-dir)"

check-tidy: asan
	nice -n 19 tools/tidy --sources build-asan

check-tests: asan
	$(MAKE) check-unit
	$(MAKE) -j 2 check-python check-system

.PHONY: test-venvs
test-venvs:
	tools/test-venv >/dev/null
	tools/test-venv determined >/dev/null
	tools/test-venv tracking >/dev/null

# Each worker of the system tests imports all of their files, which takes it 1 s if they are compiled, otherwise 5.
.PHONY: test-bytecode
test-bytecode: all
	$(PYTEST) tests/system --collect-only -qq >/dev/null

# The Python package as it lies in the build directory, with the system's Python and torch.
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

# A test of the whole program may take three times as long (pytest.ini: 300 s) where a sanitizer watches it.
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
	tools/test-system -m long --timeout 3600
	PENSTOCK_PYTHON=$(BUILD)/python $(PYTEST) tests/python -m long --timeout 3600
	ninja -C $(BUILD) tests/unit/test-sync-alloc
	ALLOCATIONS=all $(BUILD)/tests/unit/test-sync-alloc

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

# Sources that differ from the main branch only; `make check` looks at all of src, `make check-full` at the tests, too.
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
