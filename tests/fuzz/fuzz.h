/*
 * Header of every fuzz target. A target defines LLVMFuzzerTestOneInput(); it is linked twice: with
 * libFuzzer (tools/fuzz), and with replay.c, which runs the corpus as a unit test.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts if the condition, which must hold for every input, is false. */
#define require(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,          \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* A failure has a code and one line of text; a success does not set the error. */
static inline void require_error(int rc, const struct penstock_error *err)
{
	require(rc <= 0);
	if (rc == 0) {
		require(err->code == PENSTOCK_OK);
		return;
	}
	require((int)err->code == -rc && err->message && *err->message);
	if (strchr(err->message, '\n'))
		fprintf(stderr, "message: %s\n", err->message);
	require(!strchr(err->message, '\n'));
}

/* Returns a copy of the bytes. The memory ends with them, so that ASan detects a read beyond it. */
static inline char *fuzz_bytes(const uint8_t *data, size_t size)
{
	char *bytes = calloc(1, size);

	require(bytes || !size);
	if (size)
		memcpy(bytes, data, size);
	return bytes;
}

/* Returns a copy of the bytes, followed by a NUL. The memory ends after the NUL, so that ASan
 * detects a read beyond it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	require(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

/* Returns the next line of `*at` (a text of fuzz_text()) and moves `*at` past the line. Returns
 * NULL if there are no more lines. */
static inline char *fuzz_line(char **at)
{
	char *line = *at;
	char *newline = line ? strchr(line, '\n') : NULL;

	if (newline)
		*newline = '\0';
	*at = newline ? newline + 1 : NULL;
	return line;
}

#endif
