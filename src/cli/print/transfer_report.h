/*
 * Reports a copy: a progress line on the terminal; on request, a line or a JSON object for each
 * item; a line on stderr for each failed item; and a summary.
 *
 *	struct report report = REPORT_INIT;
 *
 *	report_begin(&report, cli, dry_run);
 *	copy_begin(&copy, &(struct copy_options){.report = report_callbacks(&report)}, err);
 *	...
 *	return report_end(&report);	// the exit code
 */
#ifndef CLI_PRINT_TRANSFER_REPORT_H
#define CLI_PRINT_TRANSFER_REPORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/print/fold.h"
#include "cli/print/progress.h"
#include "cli/print/util.h"
#include "copy/copy.h"

#include <penstock/error.h>

struct report {
	const struct cli *cli;
	bool dry_run;
	bool json;
	bool verbose;
	bool to_stderr; /* print items to stderr: stdout is the content of an object */
	struct json_stream stream;
	int64_t began_ms;

	/* The lock protects `stream`, `code` and the members from here to `fold`. */
	pthread_mutex_t lock;
	struct progress *progress; /* NULL if no line is shown */
	bool walked; /* all items have been found */
	uint64_t found, found_bytes;
	uint64_t done, done_bytes;
	uint64_t deleted, skipped, same, failed, cancelled;
	struct fold fold;
	atomic_llong moved; /* bytes */
	atomic_ullong resumed; /* the part of `moved` that an earlier, interrupted copy moved */
	/* bytes and number of unfinished items that are kept for the next copy */
	atomic_ullong kept, kept_items;

	int code; /* the largest exit code so far */
};
/* clang-format off */
#define REPORT_INIT { .lock = PTHREAD_MUTEX_INITIALIZER }
/* clang-format on */

void report_begin(struct report *report, const struct cli *cli, bool dry_run);
/* Returns the callbacks that report a copy; they are valid as long as `report`. */
struct copy_report report_callbacks(struct report *report);
/* Reports an error of the whole verb. Releases the error. */
void report_error(struct report *report, struct penstock_error *err);
/* Prints the summary; returns the exit code. */
int report_end(struct report *report);

#endif
