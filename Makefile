# Everything a user or developer types; the build itself is Meson's.
#   make deps        install what building, testing and the examples need (Debian 12)
#   make             build/penstock
#   make quickstart  install, build and run the main job with the embedded store
#   make check       the tests every change needs; check-full adds the long ones
SHELL := /bin/bash
BUILD ?= build

.PHONY: all
all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD)

.PHONY: format format-check
format:
	git ls-files '*.c' '*.h' | xargs clang-format -i
format-check:
	git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
