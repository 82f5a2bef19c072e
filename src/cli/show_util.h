/* What verbs that show things share: tables, JSON, colours, times. */
#ifndef CLI_SHOW_UTIL_H
#define CLI_SHOW_UTIL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "records/records.h"

struct cli;
struct penstock_error;

/* Opens the records of this user; the home (owned) too unless `home` is NULL. */
int show_open(struct records **records, char **home, struct penstock_error *err);
/* The run that the first operand names. */
int show_find(const struct cli *cli, struct records *records, struct records_run *run,
	struct penstock_error *err);

/* Whether colours are wanted on this descriptor: a terminal, and no NO_COLOR. */
bool show_colours(int fd);
/* Columns of the terminal behind `fd`; 0: it is none. */
unsigned show_width(int fd);

/*
 * Columns as wide as their widest cell. Cells are added row by row, the heading first; on a terminal the
 * last column is cut to what fits. Control characters are shown as '?'.
 */
struct grid {
	struct strlist cells;
	size_t columns;
	bool whole;	     /* the last column is never cut */
	size_t state_column; /* its words get a colour on a terminal; SIZE_MAX: none */
};
/* clang-format off */
#define GRID_INIT(n) { { NULL, 0 }, (n), false, SIZE_MAX }
/* clang-format on */
void grid_add(struct grid *grid, const char *cell); /* NULL: "-" */
/* At most `width` characters of it. */
void grid_add_cut(struct grid *grid, const char *cell, size_t width);
void grid_addf(struct grid *grid, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void grid_print(const struct grid *grid);
void grid_release(struct grid *grid);

/* Names come from others: what would move the cursor or forge a line is shown as '?'. */
void show_name(FILE *to, const char *name);

/* One value of JSON on stdout, indented, with a newline; takes the reference. */
int show_json(json_t *value);
/* A string (bytes that are no UTF-8 become U+FFFD), or null for NULL and "". */
json_t *json_text(const char *text);
/* What a run was told of its machine (run/reaction.h): source, reason, noticed, deadline, soon, withdrawn; null: nothing. */
json_t *json_notice(const char *home, const struct records_run *run);
/* RFC 3339, or null for 0. */
json_t *json_time(int64_t wall_ns);
/* An attempt's fields, added to `object`. */
void json_add_attempt(json_t *object, const struct records_attempt *attempt);

/* "2026-11-21 10:05:00", local; "-" for 0. */
#define SHOW_TIME_SIZE 24
const char *show_time(int64_t wall_ns, char out[static SHOW_TIME_SIZE]);
/* "850 ms", "12.3 s", "5 min 3 s", "2 h 10 min". */
#define SHOW_DURATION_SIZE 32
const char *show_duration(int64_t ms, char out[static SHOW_DURATION_SIZE]);

#endif
