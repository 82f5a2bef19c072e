/* The text of `penstock show`. */
#include "cli/history/show_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/print/util.h"
#include "s3/date.h"

/* Formats a time in the local time zone, like all times that `penstock show` prints. */
static const char *time_of(const json_t *object, const char *key, char out[static SHOW_TIME_SIZE])
{
	const char *text = json_string_value(json_object_get(object, key));
	int64_t ns = 0;

	return show_time(text && date_parse_iso(text, &ns) ? ns : 0, out);
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "-";
}

static int64_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Appends "a 1, b x, size 2.1 MB" for an object, "x" for a string; null values are skipped. */
static void add_value(struct buf *out, const json_t *value)
{
	const char *key;
	json_t *member;
	const char *between = "";
	char size[STR_SIZE_SIZE];

	if (json_is_string(value)) {
		buf_add_str(out, json_string_value(value));
		return;
	}
	if (json_is_object(value)) {
		json_object_foreach ((json_t *)(uintptr_t)value, key, member) {
			if (json_is_null(member))
				continue;
			if (strcmp(key, "bytes") == 0 && json_is_integer(member)) {
				str_format_size((uint64_t)json_integer_value(member), size);
				buf_printf(out, "%ssize %s", between, size);
			} else {
				buf_printf(out, "%s%s ", between, key);
				add_value(out, member);
			}
			between = ", ";
		}
		return;
	}
	_cleanup_free_ char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	buf_add_str(out, text ? text : "");
}

static void add_line(struct grid *grid, const char *label, const char *text)
{
	if (strcmp(text, "-") == 0)
		return;
	grid_addf(grid, "  %s", label);
	grid_add(grid, text);
}

static void add_value_line(struct grid *grid, const char *label, const json_t *value)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	if (!value || json_is_null(value))
		return;
	add_value(&text, value);
	if (text.len)
		add_line(grid, label, buf_str(&text));
}

static void add_state(struct grid *grid, const struct records_run *run, const char *host)
{
	const struct records_attempt *a = &run->last;
	char begin[SHOW_TIME_SIZE], heard[SHOW_TIME_SIZE];
	char took[SHOW_DURATION_SIZE];
	char how[SHOW_MESSAGE_SIZE];
	const char *message = show_message(run, how);
	int64_t until = a->ended_ns ? a->ended_ns : clock_wall_ns();

	grid_add(grid, "  state");
	if (*host)
		grid_addf(grid, "%s %s %s", run_state_name(a->state),
			a->state == RUN_MOVED ? "to" : "on", host);
	else if (a->class != RUN_CLASS_NONE &&
		 strcmp(run_class_name(a->class), run_state_name(a->state)) != 0)
		grid_addf(grid, "%s (%s)", run_state_name(a->state), run_class_name(a->class));
	else
		grid_add(grid, run_state_name(a->state));
	if (message)
		add_line(grid, "message", message);
	grid_add(grid, "  attempt");
	if (a->state == RUN_LOST)
		grid_addf(grid, "%d, started %s%s%s", a->attempt, show_time(a->started_ns, begin),
			a->heard_ns ? ", last heard of " : "",
			a->heard_ns ? show_time(a->heard_ns, heard) : "");
	else
		grid_addf(grid, "%d, started %s, %s %s", a->attempt,
			show_time(a->started_ns, begin), a->ended_ns ? "took" : "for",
			show_duration((until - a->started_ns) / NS_PER_MS, took));
	if (a->heard_ns && run_state_is_live(a->state)) {
		grid_add(grid, "  last heard of");
		grid_addf(grid, "%s ago",
			show_duration((clock_wall_ns() - a->heard_ns) / NS_PER_MS, took));
	}
	if (!run_state_is_live(a->state) && a->state != RUN_LOST) {
		grid_add(grid, "  exit code");
		if (a->step_code && a->step_code != a->exit_code)
			grid_addf(grid, "%d (the step's was %d)", a->exit_code, a->step_code);
		else
			grid_addf(grid, "%d", a->exit_code);
	}
}

static void add_sync(struct grid *grid, const struct records_attempt *a)
{
	char size[STR_SIZE_SIZE];
	char sent[STR_SIZE_SIZE];
	char age[SHOW_DURATION_SIZE];

	if (a->sync_at_ns == 0)
		return;
	str_format_size(a->sync_bytes_waiting, size);
	str_format_size(a->sync_bytes_published, sent);
	grid_add(grid, "  sync");
	grid_addf(grid, "%" PRIu64 " file%s, %s sent; %s waiting, lag %s%s",
		a->sync_files_published, a->sync_files_published == 1 ? "" : "s", sent, size,
		show_duration(a->sync_lag_ms, age),
		a->unflushed ? "; not flushed: 'penstock flush' uploads the rest" : "");
	if (a->sync_error)
		add_line(grid, "sync error", a->sync_error);
}

static void add_notice(struct grid *grid, const json_t *notice)
{
	char when[SHOW_TIME_SIZE];

	if (!json_is_object(notice))
		return;
	grid_add(grid, "  notice");
	grid_addf(grid, "%s, from %s: %s%s%s", time_of(notice, "noticed", when),
		text_of(notice, "source"), text_of(notice, "reason"),
		json_is_true(json_object_get(notice, "soon")) ? " (preemption may be soon)" : "",
		json_is_true(json_object_get(notice, "withdrawn")) ? " (withdrawn)" : "");
	if (json_is_string(json_object_get(notice, "deadline")))
		add_line(grid, "deadline", time_of(notice, "deadline", when));
}

/* Adds the URL of a tracked run or, if there is none, its id and place. */
static void add_tracking(struct grid *grid, const json_t *one)
{
	const char *url = json_string_value(json_object_get(one, "url"));
	const char *run = json_string_value(json_object_get(one, "run"));
	const char *place = json_string_value(json_object_get(one, "place"));

	if (!url && !run && !place)
		return;
	grid_addf(grid, "  %s", text_of(one, "tracker"));
	if (url || !run)
		grid_add(grid, url ? url : place);
	else
		grid_addf(grid, "run %s%s%s", run, place ? " in " : "", place ? place : "");
}

/* Adds an amount with two decimals, or with four if it is below 1. */
static void add_money(struct grid *grid, const json_t *cost)
{
	double value = json_real_value(cost);

	if (cost)
		grid_addf(grid, "%.*f", value < 1 ? 4 : 2, value);
	else
		grid_add(grid, NULL);
}

/* Adds the sum of the attempts' costs. `n` is the number of attempts on all machines, of which some
 * may have no cost. */
static void add_sum(struct grid *grid, const json_t *object, int n)
{
	const json_t *cost = json_object_get(object, "cost"), *a;
	double value = json_real_value(cost);
	int priced = 0, digits = value < 1 ? 4 : 2;
	size_t i;

	if (!cost)
		return;
	json_array_foreach (json_object_get(object, "attempts"), i, a)
		priced += json_object_get(a, "cost") != NULL;
	grid_add(grid, "  cost");
	if (priced < n)
		grid_addf(grid, "%.*f for %d of %d attempts", digits, value, priced, n);
	else
		grid_addf(grid, "%.*f", digits, value);
}

static void print_summary(const json_t *object, const struct records_run *run, const char *host)
{
	struct grid grid = GRID_INIT(2);
	const json_t *attempts = json_object_get(object, "attempts");
	const json_t *provenance = json_object_get(
		json_array_get(attempts, json_array_size(attempts) - 1), "provenance");
	const char *key;
	json_t *value;
	size_t i;

	printf("run %s%s", run->id, run->name ? " (" : "");
	show_name(stdout, run->name ? run->name : "");
	puts(run->name ? ")" : "");
	add_state(&grid, run, host);
	add_notice(&grid, json_object_get(object, "notice"));
	add_line(&grid, "workflow", run->workflow ? run->workflow : "-");
	add_line(&grid, "output", run->output ? run->output : "-");
	add_sync(&grid, &run->last);
	add_value_line(&grid, "resources", json_object_get(object, "resources"));
	add_line(&grid, "directory", text_of(object, "directory"));
	add_line(&grid, "log", text_of(object, "log"));
	json_object_foreach ((json_t *)(uintptr_t)provenance, key, value) {
		if (!json_is_array(value))
			add_value_line(&grid, key, value);
	}
	add_sum(&grid, object, run->last.attempt);
	json_array_foreach (json_object_get(provenance, "inputs"), i, value) {
		add_value_line(&grid, "input", value);
	}
	json_array_foreach (json_object_get(object, "tracking"), i, value) {
		add_tracking(&grid, value);
	}
	grid_print(&grid);
}

static void print_attempts(const json_t *attempts, bool priced)
{
	struct grid grid = priced ? grid_new("  N", "STATE", "BEGUN", "ENDED", "COST", "MESSAGE")
				  : grid_new("  N", "STATE", "BEGUN", "ENDED", "MESSAGE");
	char when[SHOW_TIME_SIZE];
	const json_t *a;
	size_t i;

	printf("\nattempts\n");
	grid.state_column = 1;
	json_array_foreach (attempts, i, a) {
		grid_addf(&grid, "  %d", (int)number_of(a, "attempt"));
		grid_add(&grid, text_of(a, "state"));
		grid_add(&grid, time_of(a, "started", when));
		if (strcmp(text_of(a, "state"), run_state_name(RUN_LOST)) == 0 &&
			json_is_string(json_object_get(a, "heard")))
			grid_addf(&grid, "after %s", time_of(a, "heard", when));
		else
			grid_add(&grid, time_of(a, "ended", when));
		if (priced)
			add_money(&grid, json_object_get(a, "cost"));
		grid_add(&grid, text_of(a, "message"));
	}
	grid_print(&grid);
}

/* Adds the steps of a list, and the steps within them. `inside` is "catch: " or "finally: " if the
 * list is that part of a step, else "". */
static void add_steps(struct grid *grid, const json_t *steps, const char *inside)
{
	static const char *const parts[][2] = {
		{"steps", ""}, {"catch", "catch: "}, {"finally", "finally: "}};
	char when[SHOW_TIME_SIZE];
	const json_t *s;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)steps, i, s) {
		grid_addf(grid, "  %s", text_of(s, "number"));
		grid_add(grid, text_of(s, "state"));
		if (number_of(s, "attempt"))
			grid_addf(grid, "%d", (int)number_of(s, "attempt"));
		else
			grid_add(grid, NULL);
		grid_add(grid, time_of(s, "ended", when));
		if (json_object_get(s, "iterations"))
			grid_addf(grid, "%s%s (%lld of %lld iterations)", inside,
				text_of(s, "name"), (long long)number_of(s, "iterations_done"),
				(long long)number_of(s, "iterations"));
		else
			grid_addf(grid, "%s%s", inside, text_of(s, "name"));
		for (size_t k = 0; k < ARRAY_SIZE(parts); k++)
			add_steps(grid, json_object_get(s, parts[k][0]), parts[k][1]);
	}
}

static void print_steps(const json_t *steps)
{
	struct grid grid = grid_new("  STEP", "STATE", "ATTEMPT", "ENDED", "NAME");

	printf("\nsteps\n");
	add_steps(&grid, steps, "");
	grid_print(&grid);
}

static void print_name(const char *label, const char *name)
{
	fputs(label, stdout);
	show_name(stdout, name);
}

static void print_outputs(const json_t *object)
{
	struct grid grid = GRID_INIT(4);
	const json_t *value;
	char size[STR_SIZE_SIZE], when[SHOW_TIME_SIZE];
	uint64_t kept = 0;
	size_t i;

	json_array_foreach (json_object_get(object, "outputs"), i, value) {
		if (i == 0)
			printf("\npublished\n");
		grid_addf(&grid, "  %s", text_of(value, "url"));
		str_format_size((uint64_t)number_of(value, "size"), size);
		grid_add(&grid, size);
		grid_add(&grid, time_of(value, "mtime", when));
		grid_addf(&grid, "%s%s", text_of(value, "etag"),
			json_is_true(json_object_get(value, "open")) ? " (still being written)"
								     : "");
	}
	grid_print(&grid);
	json_array_foreach (json_object_get(object, "replaced"), i, value)
		kept += (uint64_t)number_of(value, "size");
	str_format_size(kept, size);
	json_array_foreach (json_object_get(object, "replaced"), i, value) {
		if (i == 0)
			printf("\nkept copies of replaced objects (%zu cop%s, %s together)\n",
				json_array_size(json_object_get(object, "replaced")),
				json_array_size(json_object_get(object, "replaced")) == 1 ? "y"
											  : "ies",
				size);
		print_name("  ", text_of(value, "path"));
		print_name(": the earlier object (", text_of(value, "etag"));
		print_name(") is kept as ", json_object_get(value, "url") ? text_of(value, "url")
									  : text_of(value, "kept"));
		putchar('\n');
		if (!json_object_get(value, "restore"))
			continue;
		print_name("    restore it with: ", text_of(value, "restore"));
		putchar('\n');
	}
	json_array_foreach (json_object_get(object, "partial"), i, value) {
		if (i == 0)
			printf("\n"
			       "files set aside, because their writer died before it closed "
			       "them\n");
		print_name("  ", json_string_value(value));
		putchar('\n');
	}
}

void show_print(const json_t *object, const struct records_run *run, const char *host)
{
	const json_t *attempts = json_object_get(object, "attempts");

	print_summary(object, run, host);
	if (json_array_size(attempts) > 1)
		print_attempts(attempts, json_object_get(object, "cost"));
	if (json_array_size(json_object_get(object, "steps")) > 0)
		print_steps(json_object_get(object, "steps"));
	print_outputs(object);
}
