/*
 * Saves checkpoints as a training program would, for the system tests.
 *
 *	checkpoint-tool save DIR STEP SIZE [METRIC=VALUE]...  one checkpoint of two files
 *	checkpoint-tool loop DIR FIRST LAST SIZE  each step from FIRST to LAST; prints each step
 *	checkpoint-tool rank DIR STEP SIZE RANK WORLD SECONDS	the part of one rank
 *	checkpoint-tool latest DIR	prints the step of the newest complete checkpoint, or "none"
 *	checkpoint-tool check DIR	the same, and checks that the bytes match the step
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "checkpoint/save.h"

#define CHUNK 65536

/* Fills `block` with the content of the file at offset `at`; the content depends on the step. */
static void fill(unsigned char *block, size_t n, uint64_t step, uint64_t at)
{
	for (size_t i = 0; i < n; i++)
		block[i] = (unsigned char)((step * 2654435761U + (at + i) * 40503U) >> 7);
}

static int write_file(
	struct save *s, const char *name, uint64_t step, uint64_t size, struct penstock_error *err)
{
	static unsigned char block[CHUNK];
	int r = save_write(s, name, block, 0, err); /* creates the file even if it is empty */

	for (uint64_t at = 0; r == 0 && at < size; at += CHUNK) {
		size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

		fill(block, n, step, at);
		r = save_write(s, name, block, n, err);
	}
	return r;
}

static int save(const char *dir, uint64_t step, uint64_t size, struct save_options o,
	char **metrics, struct penstock_error *err)
{
	const char *attempt = getenv("PENSTOCK_ATTEMPT");
	_cleanup_free_ char *first = NULL, *second = NULL;
	uint64_t number = 1;
	struct save *s = NULL;
	int r;

	if (attempt)
		str_to_u64(attempt, 1, INT32_MAX, &number);
	o.attempt = (unsigned)number;
	o.run_id = getenv("PENSTOCK_RUN_ID");
	if (asprintf(&first, "model-%u.bin", o.rank) < 0 ||
		asprintf(&second, "optimizer/%u.bin", o.rank) < 0)
		return error_memory(err);
	r = save_begin(&s, dir, step, &o, err);
	if (r == 0)
		r = write_file(s, first, step, size, err);
	if (r == 0)
		r = write_file(s, second, step + 1000000, size / 2, err);
	for (; r == 0 && metrics && *metrics; metrics++) {
		char *equals = strchr(*metrics, '=');

		*equals = '\0';
		r = save_metric(s, *metrics, strtod(equals + 1, NULL), err);
	}
	if (r == 0)
		r = save_commit(s, err);
	save_free(s);
	return r;
}

static int check_file(const struct commit *c, const char *name, uint64_t step)
{
	static unsigned char wanted[CHUNK], found[CHUNK];
	const struct commit_file *f = commit_find_file(c, name);
	_cleanup_free_ char *path = path_join(c->path, name);
	_cleanup_fclose_ FILE *in = path ? fopen(path, "re") : NULL;

	for (uint64_t at = 0; f && in && at < f->size; at += CHUNK) {
		size_t n = f->size - at < CHUNK ? (size_t)(f->size - at) : CHUNK;

		fill(wanted, n, step, at);
		if (fread(found, 1, n, in) != n || memcmp(wanted, found, n) != 0)
			return -1;
	}
	return f && in ? 0 : -1;
}

static int latest(const char *dir, bool check, struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *c = NULL;
	int r = commit_latest(&c, dir, NULL, NULL, NULL, err);

	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return printf("none\n") < 0;
	if (r < 0)
		return r;
	if (check && (check_file(c, "model-0.bin", c->step) < 0 ||
			     check_file(c, "optimizer/0.bin", c->step + 1000000) < 0))
		return error_set(
			err, PENSTOCK_E_CORRUPT, "'%s' has the bytes of another step", c->path);
	return printf("%" PRIu64 "\n", c->step) < 0;
}

static uint64_t number(const char *text)
{
	uint64_t value = 0;

	if (!text || !str_to_u64(text, 0, INT64_MAX, &value))
		exit(64);
	return value;
}

int main(int argc, char **argv)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct save_options o = {.world_size = 1, .timeout_ms = 60000};
	const char *what = argc > 2 ? argv[1] : "";
	int r = 0;

	if (strcmp(what, "save") == 0 && argc >= 5) {
		r = save(argv[2], number(argv[3]), number(argv[4]), o, argv + 5, &err);
	} else if (strcmp(what, "loop") == 0 && argc == 6) {
		for (uint64_t step = number(argv[3]); r == 0 && step <= number(argv[4]); step++) {
			r = save(argv[2], step, number(argv[5]), o, NULL, &err);
			if (r == 0 && (printf("%" PRIu64 "\n", step) < 0 || fflush(stdout) != 0))
				return 74;
		}
	} else if (strcmp(what, "rank") == 0 && argc == 8) {
		o.rank = (unsigned)number(argv[5]);
		o.world_size = (unsigned)number(argv[6]);
		o.timeout_ms = (int64_t)number(argv[7]) * 1000;
		r = save(argv[2], number(argv[3]), number(argv[4]), o, NULL, &err);
	} else if ((strcmp(what, "latest") == 0 || strcmp(what, "check") == 0) && argc == 3) {
		r = latest(argv[2], *what == 'c', &err);
	} else {
		fprintf(stderr,
			"usage: see the first comment of tests/support/checkpoint_tool.c\n");
		return 64;
	}
	if (r < 0)
		fprintf(stderr, "checkpoint-tool: %s\n", err.message);
	return r < 0 ? 1 : 0;
}
