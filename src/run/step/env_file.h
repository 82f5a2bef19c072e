/*
 * The $DEEPSQUARE_ENV file, which passes values from a step to later steps:
 *
 *	echo "EPOCHS=10" >> "$DEEPSQUARE_ENV"
 *	printf 'NOTE<<END\nseveral\nlines\nEND\n' >> "$DEEPSQUARE_ENV"
 *
 * A line is KEY=value, where the value is everything after the first '=', unchanged, or KEY<<MARK,
 * where the value is all following lines up to a line that is only MARK. Lines that begin with '#'
 * and all other lines are skipped. The last value of a key counts. PATH and LD_LIBRARY_PATH cannot
 * be set, as in a workflow's env. env_file_check() reports the skipped lines.
 */
#ifndef RUN_STEP_ENV_FILE_H
#define RUN_STEP_ENV_FILE_H

#include <stddef.h>

#include "base/str.h"

struct penstock_error;

/* Sets the variables of `text` in `env`. An unfinished KEY<<MARK is an error that names the key. */
int env_file_parse(const char *text, size_t len, struct strlist *env, struct penstock_error *err);

struct env_file_odd {
	unsigned n; /* skipped lines that are neither empty nor comments */
	unsigned lines[3]; /* numbers of the first skipped lines, from 1 */
	char block[80]; /* "KEY<<MARK" (shortened) without an end; "" if there is none */
	size_t whole; /* bytes of complete lines; if `block` is set, of the lines before it */
};

/* Finds the lines that env_file_parse() skips, but does not count those before offset `from`, which
 * an earlier call has counted. */
void env_file_check(const char *text, size_t len, size_t from, struct env_file_odd *out);

/* Calls env_file_parse() with the contents of a file; a missing file sets nothing. */
int env_file_read(const char *path, struct strlist *env, struct penstock_error *err);

#endif
