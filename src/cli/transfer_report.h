/*
 * What cp, mv and sync tell: a line on the terminal while they run, a line or a JSON object for each item that
 * was asked for, one line on stderr for each that failed, and a summary.
 *
 *	struct report report = REPORT_INIT;
 *
 *	report_begin(&report, cli, dry_run);
 *	report_found(&report, size);			as items are found
 *	report_done(&report, &(struct report_item){ .action = "upload", .from = path, .to = url, .size = size });
 *	report_failed(&report, &item, &err);		releases the error
 *	return report_end(&report);			the exit code
 *
 * report_moved() may be called from any thread, the others from one.
 */
#ifndef CLI_TRANSFER_REPORT_H
#define CLI_TRANSFER_REPORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/remote.h"

#include <penstock/error.h>

struct report {
	const struct cli *cli;
	bool dry_run;
	bool json;
	bool verbose;
	bool aside; /* standard output is an object's: what is told goes to stderr */
	struct json_stream stream;
	int64_t began_ms;

	/* Under the lock: the terminal is drawn to by whoever moves bytes. */
	pthread_mutex_t lock;
	bool terminal;
	bool drawn;
	bool walked; /* everything there is was found */
	int64_t drawn_ms;
	pthread_t ticker; /* redraws while nothing else happens */
	pthread_cond_t end;
	bool ticking;
	uint64_t found, found_bytes;
	uint64_t done, done_bytes;
	uint64_t deleted, skipped, same, failed, cancelled;
	atomic_llong moved; /* bytes */

	int code; /* the worst so far */
};
/* clang-format off */
#define REPORT_INIT { .lock = PTHREAD_MUTEX_INITIALIZER }
/* clang-format on */

struct report_item {
	const char *action; /* "upload", "download", "copy", "delete" */
	bool moved;	    /* its source is gone, too */
	const char *from;   /* as it may be shown; NULL: of a deletion */
	const char *to;	    /* NULL: standard output */
	uint64_t size;
	const char *etag; /* NULL or "": none */
};

void report_begin(struct report *report, const struct cli *cli, bool dry_run);
void report_found(struct report *report, uint64_t size);
/* There is no more to be found. */
void report_walked(struct report *report);
void report_moved(struct report *report, int64_t bytes);
/* With --dry-run: what would be done. */
void report_done(struct report *report, const struct report_item *item);
/* It was there already, and is to stay. */
void report_skipped(struct report *report, const struct report_item *item);
void report_same(struct report *report);
/* One line, and the exit code; what was cancelled is only counted. Releases the error. */
void report_failed(
	struct report *report, const struct report_item *item, struct penstock_error *err);
/* What is the matter with all of it. Releases the error. */
void report_error(struct report *report, struct penstock_error *err);
/* The summary; returns the exit code. */
int report_end(struct report *report);

#endif
