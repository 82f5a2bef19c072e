#include "cli/print/transfer_report.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "cli/command.h"
#include "cli/frame/interrupt.h"

void report_begin(struct report *report, const struct cli *cli, bool dry_run)
{
	report->cli = cli;
	report->dry_run = dry_run;
	report->json = cli_has(cli, "json");
	report->verbose = cli_has(cli, "verbose");
	/* Show no progress line while a JSON list goes to the terminal: the line would overwrite
	 * lines of the list. */
	if (!dry_run && log_stream() == stderr && !(report->json && isatty(STDOUT_FILENO)))
		report->progress = progress_new(cli_quiet(cli));
	report->began_ms = clock_monotonic_ms();
}

/* ---- the line on the terminal ---- */

/* Shows "1234 of 60000", or "1234 of 60000+" if more items may be found. */
static void look(void *cookie)
{
	struct report *report = cookie;
	long long counted = atomic_load(&report->moved);
	uint64_t moved = counted > 0 ? (uint64_t)counted : 0;
	char name[64], note[64] = "";
	LOCK_SCOPE(&report->lock);

	if (moved < report->done_bytes)
		moved = report->done_bytes;
	snprintf(name, sizeof(name), "%" PRIu64 " of %" PRIu64 "%s", report->done, report->found,
		report->walked ? "" : "+");
	if (report->failed)
		snprintf(note, sizeof(note), ", %" PRIu64 " failed", report->failed);
	progress_line(report->progress, &(struct progress_line){.name = name,
						.note = note,
						.done = moved,
						.total = report->found_bytes,
						.before = atomic_load(&report->resumed)});
}

static void on_found(void *cookie, uint64_t size)
{
	struct report *report = cookie;
	LOCK_SCOPE(&report->lock);
	report->found++;
	report->found_bytes += size;
	if (report->found == 1)
		progress_follow(report->progress, look, report);
}

static void on_walked(void *cookie)
{
	struct report *report = cookie;
	LOCK_SCOPE(&report->lock);
	report->walked = true;
}

static void on_moved(void *cookie, int64_t bytes)
{
	struct report *report = cookie;

	atomic_fetch_add(&report->moved, bytes);
}

static void on_kept(void *cookie, uint64_t bytes)
{
	struct report *report = cookie;

	atomic_fetch_add(&report->kept, bytes);
	atomic_fetch_add(&report->kept_items, 1);
}

static void on_resumed(void *cookie, uint64_t bytes)
{
	struct report *report = cookie;

	atomic_fetch_add(&report->resumed, bytes);
}

/* ---- items ---- */

static void add_json(struct report *report, const struct copy_item *item, const char *status,
	const struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * LIMIT_LOG_LINE);
	json_t *object = json_pack("{s:o, s:o, s:o, s:o, s:I, s:o, s:b}", "action",
		json_text(item->action), "status", json_text(status), "source",
		json_text(item->from), "target", json_text(item->to), "size",
		(json_int_t)item->size, "etag", json_text(item->etag), "moved", item->moved);

	if (err) {
		log_redact_into(&text, err->message ? err->message : "");
		json_object_set_new(object, "error", json_text(buf_str(&text)));
	}
	json_stream_add(&report->stream, object);
}

static void print_or_add(struct report *report, const struct copy_item *item, bool skipped)
{
	FILE *out = report->to_stderr ? log_stream() : cli_out();
	const char *status = skipped ? "skipped" : report->dry_run ? "would" : "done";

	if (report->json) {
		add_json(report, item, status, NULL);
	} else if (report->dry_run ? !skipped : report->verbose && !cli_quiet(report->cli)) {
		progress_suspend(report->progress);
		fprintf(out, "%s%s ", report->dry_run ? "would " : "",
			item->moved ? "move" : item->action);
		show_name(out, item->from ? item->from : item->to);
		if (item->from && item->to) {
			fputs(" -> ", out);
			show_name(out, item->to);
		}
		fprintf(out, "%s\n", skipped ? " (skipped: it exists already)" : "");
		progress_resume(report->progress);
	}
}

static void on_done(void *cookie, const struct copy_item *item)
{
	struct report *report = cookie;
	LOCK_SCOPE(&report->lock);
	if (strcmp(item->action, "delete") == 0) {
		report->deleted++;
	} else {
		report->done++;
		report->done_bytes += item->size;
	}
	print_or_add(report, item, false);
}

static void on_skipped(void *cookie, const struct copy_item *item)
{
	struct report *report = cookie;
	LOCK_SCOPE(&report->lock);
	report->skipped++;
	print_or_add(report, item, true);
}

static void on_same(void *cookie, const struct copy_item *item)
{
	struct report *report = cookie;
	LOCK_SCOPE(&report->lock);

	(void)item;
	report->same++;
}

/* Raises the exit code to that of the error, unless the exit code is larger already. Here
 * PENSTOCK_E_INVALID is about an operand, not about a workflow. */
static void worsen(struct report *report, int code)
{
	int exit_code = code == PENSTOCK_E_INVALID   ? CLI_EXIT_INPUT
			: code == PENSTOCK_E_CORRUPT ? CLI_EXIT_UNAVAILABLE
						     : exit_code_of_error(code);

	if (exit_code > report->code)
		report->code = exit_code;
}

/* Returns true if the message contains the subject as a whole word. */
static bool names(const char *message, const char *subject)
{
	size_t n = strlen(subject);

	for (const char *at = message; n && (at = strstr(at, subject)); at++) {
		char before = at == message ? ' ' : at[-1], after = at[n];

		if (strchr(" '\"(", before) &&
			(strchr(":,;'\")", after) || (after == ' ' && strchr(subject, '/'))))
			return true;
	}
	return false;
}

static void print_line(struct report *report, const char *text)
{
	progress_suspend(report->progress);
	fprintf(log_stream(), "%spenstock %s:%s %s", log_colour(LOG_ERROR), cli_verb(report->cli),
		log_colour_end(), cli_where());
	show_name(log_stream(), text);
	putc('\n', log_stream());
	progress_resume(report->progress);
}

static void print_error(
	struct report *report, const char *subject, const struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(4 * LIMIT_LOG_LINE);
	const char *message = err->message ? err->message : penstock_code_name(err->code);

	if (subject && !names(message, subject)) {
		buf_add_str(&line, subject);
		buf_add_str(&line, ": ");
	}
	log_redact_into(&line, message);
	print_line(report, buf_str(&line));
}

static void on_failed(void *cookie, const struct copy_item *item, const struct penstock_error *err)
{
	struct report *report = cookie;
	LOCK_SCOPE(&report->lock);
	if (err->code == PENSTOCK_E_CANCELLED) {
		report->cancelled++;
	} else {
		report->failed++;
		worsen(report, err->code);
		if (fold_shows(&report->fold, item->from, item->to, err))
			print_error(report, item->from ? item->from : item->to, err);
		if (report->json)
			add_json(report, item, "failed", err);
	}
}

struct copy_report report_callbacks(struct report *report)
{
	return (struct copy_report){.found = on_found,
		.walked = on_walked,
		.moved = on_moved,
		.kept = on_kept,
		.resumed = on_resumed,
		.done = on_done,
		.skipped = on_skipped,
		.same = on_same,
		.failed = on_failed,
		.cookie = report};
}

void report_error(struct report *report, struct penstock_error *err)
{
	LOCK_SCOPE(&report->lock);
	if (err->code == PENSTOCK_E_CANCELLED) {
		report->cancelled++;
	} else {
		worsen(report, err->code);
		if (fold_shows(&report->fold, NULL, NULL, err))
			print_error(report, NULL, err);
	}
	penstock_error_release(err);
}

/* ---- the summary ---- */

/* Returns the rate, in bytes per second, of the part of `bytes` that this copy moved. */
static uint64_t rate_of(const struct report *report, uint64_t bytes, int64_t ms)
{
	uint64_t before = atomic_load(&report->resumed);

	return bytes > before && ms > 0 ? (uint64_t)((double)(bytes - before) * 1000 / (double)ms)
					: 0;
}

static void add_count(struct buf *line, uint64_t n, const char *what)
{
	if (n)
		buf_printf(line, "%s%" PRIu64 " %s", line->len ? ", " : "", n, what);
}

/* Adds the number of bytes that are kept of unfinished items, and the way to continue. */
static void add_continuation(const struct report *report, bool interrupted, struct buf *line)
{
	uint64_t items = atomic_load(&report->kept_items);
	bool copies = strcmp(cli_verb(report->cli), "cp") == 0;
	char bytes[STR_SIZE_SIZE];

	str_format_size(atomic_load(&report->kept), bytes);
	if (items)
		buf_printf(line, "; kept %s of %s: the same command resumes %s", bytes,
			items == 1 ? "an unfinished item" : "unfinished items",
			items == 1 ? "it" : "them");
	else if (interrupted && report->done && !report->dry_run && !copies)
		buf_add_str(line, "; the same command transfers the rest");
	else if (interrupted && !report->dry_run && !report->done)
		buf_add_str(line, "; the same command starts over");
	if (interrupted && copies && report->done && !report->dry_run &&
		!cli_has(report->cli, "no-clobber"))
		buf_printf(line, "%s the items that exist, --no-clobber skips them",
			items ? ", and copies again" : "; the same command copies again");
}

static void summarize(const struct report *report, int interrupted)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_LOG_LINE);
	int64_t ms = clock_monotonic_ms() - report->began_ms;
	char bytes[STR_SIZE_SIZE], rate[STR_SIZE_SIZE];
	bool move = strcmp(cli_verb(report->cli), "mv") == 0;
	uint64_t there = atomic_load(&report->resumed);

	str_format_size(report->done_bytes, bytes);
	str_format_size(rate_of(report, report->done_bytes, ms), rate);
	if (report->done || (!report->deleted && !report->skipped && !report->same))
		buf_printf(&line, "%" PRIu64 " %s%s, %s", report->done,
			report->dry_run ? "to be " : "", move ? "moved" : "copied", bytes);
	if (there && there <= report->done_bytes) {
		str_format_size(report->done_bytes - there, bytes);
		buf_printf(&line, " (%s transferred)", bytes);
	}
	if (report->done_bytes && ms >= 1000 && !report->dry_run)
		buf_printf(&line, ", %.1f s, %s/s", (double)ms / 1000, rate);
	add_count(&line, report->deleted, report->dry_run ? "to be deleted" : "deleted");
	add_count(&line, report->same, "unchanged");
	add_count(&line, report->skipped, "skipped");
	add_count(&line, report->failed, "failed");
	add_continuation(report, interrupted, &line);
	/* A batch prints its own summary. */
	if (!*cli_where() || report->verbose || atomic_load(&report->kept_items))
		log_info("%s%s%s", cli_where(), interrupted ? "interrupted: " : "", buf_str(&line));
}

static void note_folded(void *cookie, const char *text)
{
	print_line(cookie, text);
}

int report_end(struct report *report)
{
	/* The last item may end before the interrupt is seen. */
	int interrupted = report->cancelled ? cli_interrupted() : 0;

	progress_free(report->progress);
	report->progress = NULL;
	if (report->json)
		json_stream_end(&report->stream);
	fold_end(&report->fold, note_folded, report);
	summarize(report, interrupted);
	if (interrupted)
		return 128 + interrupted;
	if (!report->code && report->cancelled)
		return 128 + SIGINT;
	return report->code;
}
