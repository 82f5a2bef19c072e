/*
 * The file behind $DEEPSQUARE_ENV, by which a step passes values to the steps after it:
 *
 *	echo "EPOCHS=10" >> "$DEEPSQUARE_ENV"
 *	printf 'NOTE<<END\nseveral\nlines\nEND\n' >> "$DEEPSQUARE_ENV"
 *
 * Lines are KEY=value, with everything behind the first '=' kept as it is, or KEY<<MARK followed by
 * lines up to one that is MARK. Lines that begin with '#' and lines that are neither are skipped.
 * The last value of a key wins. PATH and LD_LIBRARY_PATH cannot be set, as in a workflow's env.
 * env_file_check() tells what was skipped, for whoever wrote it.
 */
#ifndef RUN_ENV_FILE_H
#define RUN_ENV_FILE_H

#include <stddef.h>

#include "base/str.h"

struct penstock_error;

/* Sets what `text` says in `env`. An unfinished KEY<<MARK is an error that names the key. */
int env_file_parse(const char *text, size_t len, struct strlist *env, struct penstock_error *err);

struct env_file_odd {
	unsigned n;	   /* lines that are skipped and no comment */
	unsigned lines[3]; /* the first of them, from 1 */
	char block[80];	   /* "KEY<<MARK" (shortened) that has no end; "": none */
	size_t whole;	   /* bytes of whole lines, and before that block */
};

/* Lines that begin before `from` were looked at before. */
void env_file_check(const char *text, size_t len, size_t from, struct env_file_odd *out);

/* env_file_parse() of a file; a missing one says nothing. */
int env_file_read(const char *path, struct strlist *env, struct penstock_error *err);

#endif
