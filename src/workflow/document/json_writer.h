/*
 * JSON for people: indented, one member on each line.
 *
 *	struct json_writer w = {.out = out};
 *
 *	json_write_open(&w, NULL, '{');
 *	json_write_string(&w, "name", "train");
 *	json_write_open(&w, "codes", '[');
 *	json_write_number(&w, NULL, 75);
 *	json_write_close(&w, ']');
 *	json_write_close(&w, '}');
 *
 * A key is NULL in a list. Running out of memory sticks in `out`.
 */
#ifndef WORKFLOW_DOCUMENT_JSON_WRITER_H
#define WORKFLOW_DOCUMENT_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json_writer {
	struct buf *out;
	unsigned depth;
	bool filled; /* the current level has a member */
};

void json_write_open(struct json_writer *w, const char *key, char bracket);
void json_write_close(struct json_writer *w, char bracket);
/* null if `value` is NULL. */
void json_write_string(struct json_writer *w, const char *key, const char *value);
void json_write_number(struct json_writer *w, const char *key, int64_t value);
void json_write_bool(struct json_writer *w, const char *key, bool value);

#endif
