/* Output helpers of the verbs: tables, JSON, colours, times. */
#ifndef CLI_PRINT_UTIL_H
#define CLI_PRINT_UTIL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "records/layout.h"
#include "records/records.h"
#include "transfer/objects.h"

struct cli;
struct penstock_error;

/* Opens the records of this user. Unless `home` is NULL, also sets `*home`, which the caller
 * frees. */
int show_open(struct records **records, char **home, struct penstock_error *err);
/* Opens the records and finds the run of operand `i`. */
int show_run(const struct cli *cli, size_t i, struct records **records, char **home,
	struct records_run *run, struct penstock_error *err);

/* Returns the columns of the terminal `fd`; 0 if it is not a terminal. */
unsigned show_width(int fd);

/* A table, whose columns are as wide as their widest cell. Cells are added row by row; on a
 * terminal each row is cut to the width of the terminal. Control characters are shown as '?'. */
struct grid {
	struct strlist cells;
	size_t columns;
	bool whole; /* rows are never cut */
	size_t state_column; /* the words of this column are coloured; SIZE_MAX if there is none */
};
/* Returns a table with these titles; use GRID_INIT() for a table without titles. */
#define grid_new(...) grid_with((const char *const[]){__VA_ARGS__, NULL})
struct grid grid_with(const char *const *titles);
/* clang-format off */
#define GRID_INIT(n) { { NULL, 0 }, (n), false, SIZE_MAX }
/* clang-format on */
void grid_add(struct grid *grid, const char *cell); /* NULL is shown as "-" */
/* Adds at most `width` characters of the cell. */
void grid_add_cut(struct grid *grid, const char *cell, size_t width);
void grid_addf(struct grid *grid, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints and releases the table. */
void grid_print(struct grid *grid);
void grid_release(struct grid *grid);

/* Prints a name from an untrusted source: control characters, which could move the cursor or forge
 * a line, are shown as '?'. */
void show_name(FILE *to, const char *name);

/*
 * If the run is not live on this machine, and this home knows of a later attempt on another
 * machine, replaces the number and the state of the last attempt of `run` with those of the later
 * attempt. The state is RUN_MOVED if the later attempt had not ended. Sets `host` to the machine,
 * or to "" if there is no such attempt.
 */
#define SHOW_HOST_SIZE 65
void show_elsewhere(const char *home, struct records_run *run, char host[static SHOW_HOST_SIZE]);

/* Prints a JSON value on stdout, indented, with a newline; takes the reference. */
int show_json(json_t *value);
/* If `r` is 0, prints the JSON list, or the table if `array` is NULL. Releases the list and the
 * table. Returns `r`, or the exit code if printing fails. */
int show_list(struct grid *grid, json_t *array, int r);
/* Returns a string (bytes that are not UTF-8 become U+FFFD), or null for NULL and "". */
json_t *json_text(const char *text);
/* Returns the preemption notice of a run (run/notices/reaction.h): source, reason, noticed,
 * deadline, soon, withdrawn; null if there is none. */
json_t *json_notice(const char *home, const struct records_run *run);
/* Returns the time as a string in the format of RFC 3339, or null for 0. */
json_t *json_time(int64_t wall_ns);
/* Adds those fields of an attempt that the run's state in a store also has. */
void json_add_state(json_t *object, const struct records_attempt *attempt);
/* Adds all fields of an attempt to `object`. */
void json_add_attempt(json_t *object, const struct records_attempt *attempt);

/* Returns the message of the last attempt; NULL if the attempt has no message. For a lost run
 * without a message, returns the command that resumes the run or, for a run of another machine, the
 * time since its last report. */
#define SHOW_MESSAGE_SIZE 80
const char *show_message(const struct records_run *run, char out[static SHOW_MESSAGE_SIZE]);

/* Formats a time in the local time zone as "2026-11-21 10:05:00", or as "-" if it is 0. */
#define SHOW_TIME_SIZE 24
const char *show_time(int64_t wall_ns, char out[static SHOW_TIME_SIZE]);
/* Formats a duration as "850 ms", "12.3 s", "5 min 3 s" or "2 h 10 min". */
#define SHOW_DURATION_SIZE 32
const char *show_duration(int64_t ms, char out[static SHOW_DURATION_SIZE]);

/*
 * Prints a list of JSON objects of any length on stdout, without keeping it in memory.
 *
 *	struct json_stream stream = { 0 };
 *
 *	json_stream_add(&stream, json_object_info(&info));	// takes the reference
 *	json_stream_end(&stream);
 */
struct json_stream {
	bool begun;
};
void json_stream_add(struct json_stream *stream, json_t *value);
void json_stream_end(struct json_stream *stream);
/* Returns {"key", "size", "etag", "modified"}; the caller may add members. */
json_t *json_object_info(const struct object_info *info);

#endif
