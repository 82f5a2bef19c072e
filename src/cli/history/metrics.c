/* `penstock metrics`: prints the numbers that training code has written as a table, plots, JSON or
 * CSV. */
#include <fnmatch.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/history/artifacts_place.h"
#include "cli/history/tracked.h"
#include "cli/objects/remote.h"
#include "cli/print/chart.h"
#include "cli/print/util.h"
#include "metrics/read.h"
#include "records/layout.h"

enum { WIDTH = 80, HEIGHT = 14, SPARK = 16 };

struct session {
	struct metrics metrics;
	struct remote remote; /* the store, if the operand is a place */
	struct location at;
	struct artifacts_place place; /* the output, if the operand is a run */
	struct records *records;
	char *home;
	bool live; /* files may still be written */
};

static void session_release(struct session *s)
{
	metrics_release(&s->metrics);
	artifacts_place_release(&s->place);
	location_release(&s->at);
	remote_release(&s->remote);
	records_free(s->records);
	free(s->home);
}

/* ---- reading ---- */

static void note(void *cookie, const char *path, const char *problem)
{
	const struct session *s = cookie;

	/* The incomplete end of a growing file is not a problem. */
	if (!s->live || !strstr(problem, "ends within"))
		log_warn("'%s': %s", path, problem);
}

/* Passed as the path of every usage file (run/report/usage_file.h), so that the names of its series
 * begin with "usage/". */
#define USAGE "usage/all.usage"

/* Reads the usage files of a run's attempts. The files of attempts on other machines come from the
 * store. */
static int read_usage(struct session *s, const char *id, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	int r = records_find(s->records, id, &run, err);

	for (int attempt = 1; r == 0 && attempt <= run.last.attempt; attempt++) {
		_cleanup_(run_layout_release) struct run_layout layout = {0};
		_cleanup_free_ char *file = NULL, *key = NULL;

		r = run_layout_init(&layout, s->home, id, attempt, err);
		if (r < 0)
			break;
		file = run_log_usage(layout.log);
		key = str_printf("%s" RUN_STATE_ROOT "%s/log/%d.usage",
			s->place.prefix ? s->place.prefix : "", id, attempt);
		if (!file || !key)
			r = error_memory(err);
		else if (s->place.dir || access(file, F_OK) == 0)
			r = metrics_read_file(&s->metrics, file, USAGE, note, s, err);
		else
			r = metrics_read_object(&s->metrics, artifacts_object(&s->place, key),
				USAGE, NULL, note, s, err);
	}
	return r;
}

static int read_run(struct session *s, const char *word, struct penstock_error *err)
{
	int r = show_open(&s->records, &s->home, err);

	if (r == 0)
		r = artifacts_find(&s->place, s->home, s->records, word, false, err);
	if (r < 0)
		return r;
	s->live = s->place.live;
	if (s->place.dir) {
		r = metrics_read_dir(&s->metrics, s->place.dir, note, s, err);
	} else {
		r = artifacts_open(&s->place, s->home, err);
		if (r == 0)
			r = metrics_read_store(&s->metrics,
				artifacts_object(&s->place, s->place.prefix), NULL, note, s, err);
	}
	if (r == 0 && *s->place.id)
		r = read_usage(s, s->place.id, err);
	return r == 0 && *s->place.id
		       ? tracked_read_metrics(&s->metrics, &s->place, s->home, s->records, err)
		       : r;
}

/* Keys of usage files next to the output, including those of runs that are unknown in this home. */
struct listing {
	struct strlist keys;
	bool no_memory;
};

static int note_usage(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;

	if (str_ends(info->key, ".usage") && strstr(info->key, "/log/"))
		l->no_memory = strlist_add(&l->keys, info->key) < 0;
	return l->no_memory;
}

static int read_place_usage(struct session *s, const char *prefix, struct penstock_error *err)
{
	_cleanup_free_ char *runs = str_printf("%s" RUN_STATE_ROOT, prefix);
	struct listing l = {0};
	int r = runs ? object_list(object_at(s->remote.client, s->at.bucket, runs), NULL,
			       note_usage, &l, s->remote.cancel, err)
		     : error_memory(err);

	if (r == 0 && l.no_memory)
		r = error_memory(err);
	for (size_t i = 0; r == 0 && i < l.keys.n; i++)
		r = metrics_read_object(&s->metrics,
			object_at(s->remote.client, s->at.bucket, l.keys.items[i]), USAGE,
			s->remote.cancel, note, s, err);
	strlist_release(&l.keys);
	return r;
}

static int read_place(struct session *s, const struct cli *cli, struct penstock_error *err)
{
	_cleanup_free_ char *prefix = NULL;
	int r = remote_open_at(&s->remote, cli, 0, false, &s->at, err);

	if (r < 0)
		return r;
	s->live = true; /* another machine may still write */
	prefix = location_prefix(s->at.key);
	if (!prefix)
		return error_memory(err);
	r = metrics_read_store(&s->metrics, object_at(s->remote.client, s->at.bucket, prefix),
		s->remote.cancel, note, s, err);
	return r < 0 ? r : read_place_usage(s, prefix, err);
}

static int read_all(struct session *s, const struct cli *cli, struct penstock_error *err)
{
	const char *word = cli_operand(cli, 0);
	int r = location_is_object(word) ? read_place(s, cli, err)
		: location_is_dir(word)	 ? metrics_read_dir(&s->metrics, word, note, s, err)
					 : read_run(s, word, err);

	/* Having no metrics is not an error for a list in JSON, which may be empty. */
	if (r == 0 && !s->metrics.n && (cli_n_operands(cli) > 1 || !cli_has(cli, "json")))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find metrics of '%s'; penstock reads event files of TensorBoard, JSON "
			"lines, CSV files, MLflow's and checkpoints' metrics in the output, and "
			"the tracked run at MLflow",
			word);
	if (r == 0 && s->metrics.dropped)
		log_warn("more than %d metrics; %" PRIu64 " points of the others are not shown",
			LIMIT_METRICS_SERIES, s->metrics.dropped);
	return r;
}

/* ---- selecting ---- */

/* Returns true if `word` is the whole name, its last components, or a pattern that matches. */
static bool matches(const char *name, const char *word)
{
	size_t len = strlen(name), n = strlen(word);

	return strcmp(name, word) == 0 ||
	       (len > n && name[len - n - 1] == '/' && strcmp(name + len - n, word) == 0) ||
	       fnmatch(word, name, 0) == 0;
}

static bool is_wanted(const struct cli *cli, const char *name)
{
	size_t n = cli_n_operands(cli);

	for (size_t i = 1; i < n; i++)
		if (matches(name, cli_operand(cli, i)))
			return true;
	return n < 2;
}

static int check_names(
	const struct cli *cli, const struct metrics *metrics, struct penstock_error *err)
{
	_cleanup_free_ const char **names = calloc(metrics->n + 1, sizeof(*names));

	if (!names)
		return error_memory(err);
	for (size_t k = 0; k < metrics->n; k++)
		names[k] = metrics->series[k].name;
	for (size_t i = 1; i < cli_n_operands(cli); i++) {
		const char *word = cli_operand(cli, i), *near;
		bool found = false;

		for (size_t k = 0; k < metrics->n && !found; k++)
			found = matches(names[k], word);
		near = found ? NULL : str_nearest(word, names, metrics->n);
		if (!found)
			return error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot find metric '%s'%s%s%s; 'penstock metrics %s' lists the "
				"metrics",
				word, near ? "; did you mean '" : "", near ? near : "",
				near ? "'?" : "", cli_operand(cli, 0));
	}
	return 0;
}

/* ---- printing ---- */

/* The values of a series and their bounds. */
struct values {
	double *x, *y;
	double low, high;
	size_t n, n_finite;
	bool by_step;
};

static void values_release(struct values *v)
{
	free(v->x);
	free(v->y);
}

static int values_of(const struct metrics_series *s, bool by_time, struct values *out,
	struct penstock_error *err)
{
	*out = (struct values){.x = calloc(s->n, sizeof(double)),
		.y = calloc(s->n, sizeof(double)),
		.n = s->n,
		.by_step = !by_time};
	if (!out->x || !out->y)
		return error_memory(err);
	for (size_t i = 0; i < s->n; i++)
		out->by_step = out->by_step && s->points[i].step != METRICS_NO_STEP;
	for (size_t i = 0; i < s->n; i++) {
		const struct metrics_point *p = &s->points[i];

		out->x[i] = out->by_step ? (double)p->step : (double)p->time_ms;
		out->y[i] = p->value;
		if (!isfinite(p->value))
			continue;
		out->low = out->n_finite ? fmin(out->low, p->value) : p->value;
		out->high = out->n_finite ? fmax(out->high, p->value) : p->value;
		out->n_finite++;
	}
	return 0;
}

static void add_number(struct grid *grid, double value, bool known)
{
	if (known)
		grid_addf(grid, "%.6g", value);
	else
		grid_add(grid, NULL);
}

static int print_table(const struct metrics *metrics, bool by_time, struct penstock_error *err)
{
	bool unicode = chart_unicode();
	struct grid grid = unicode ? grid_new("NAME", "POINTS", "STEP", "LAST", "MIN", "MAX",
					     "TREND")
				   : grid_new("NAME", "POINTS", "STEP", "LAST", "MIN", "MAX");
	int r = 0;

	for (size_t i = 0; r == 0 && i < metrics->n; i++) {
		const struct metrics_series *s = &metrics->series[i];
		_cleanup_(values_release) struct values v = {0};
		const struct metrics_point *last = &s->points[s->n - 1];
		char spark[CHART_SPARK_SIZE];

		r = values_of(s, by_time, &v, err);
		if (r < 0)
			break;
		grid_add(&grid, s->name);
		grid_addf(&grid, "%" PRIu64, s->stride > 1 ? s->seen : (uint64_t)s->n);
		if (last->step == METRICS_NO_STEP)
			grid_add(&grid, NULL);
		else
			grid_addf(&grid, "%" PRId64, last->step);
		add_number(&grid, last->value, true);
		add_number(&grid, v.low, v.n_finite > 0);
		add_number(&grid, v.high, v.n_finite > 0);
		chart_spark(v.y, v.n, SPARK, spark);
		if (unicode)
			grid_add(&grid, spark);
	}
	return show_list(&grid, NULL, r);
}

static int print_chart(
	const struct metrics_series *s, bool by_time, bool first, struct penstock_error *err)
{
	_cleanup_(values_release) struct values v = {0};
	unsigned width = show_width(STDOUT_FILENO);
	char from[SHOW_TIME_SIZE], to[SHOW_TIME_SIZE];
	struct chart chart = {.width = width ? width : WIDTH,
		.height = HEIGHT,
		.unicode = chart_unicode(),
		.n = s->n,
		.from = from,
		.to = to};
	const struct metrics_point *last = &s->points[s->n - 1];
	int r = values_of(s, by_time, &v, err);

	if (r < 0)
		return r;
	if (v.by_step) {
		snprintf(from, sizeof(from), "%" PRId64, s->points[0].step);
		snprintf(to, sizeof(to), "%" PRId64, last->step);
	} else {
		show_time(s->points[0].time_ms * NS_PER_MS, from);
		show_time(last->time_ms * NS_PER_MS, to);
	}
	if (!first)
		putchar('\n');
	show_name(stdout, s->name);
	printf(": %.6g", last->value);
	if (last->step != METRICS_NO_STEP)
		printf(" at step %" PRId64, last->step);
	if (v.n_finite < v.n)
		printf("; %zu of %zu points are not finite", v.n - v.n_finite, v.n);
	putchar('\n');
	chart.x = v.x;
	chart.y = v.y;
	return chart_print(stdout, &chart) < 0 ? error_memory(err) : 0;
}

/* JSON has no NaN and no infinity. These strings are those of the JSON format of Protocol
 * Buffers. */
static json_t *json_value(double value)
{
	if (isfinite(value))
		return json_real(value);
	return json_string(isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

/* Returns a number n such that at most `most` points are printed if every n-th point is printed. */
static size_t points_each(const struct metrics_series *s, int64_t most)
{
	return s->n ? (s->n - 1) / (size_t)most + 1 : 1;
}

/* Returns the index of the first printed point. The index is chosen so that the last point is
 * printed. */
static size_t first_point(const struct metrics_series *s, size_t each)
{
	return s->n ? (s->n - 1) % each : 0;
}

static json_t *json_series(const struct metrics_series *s, int64_t most)
{
	json_t *points = json_array(), *repeated = json_array();
	size_t each = points_each(s, most);

	for (size_t i = 0; i < s->n_repeats; i++) {
		const struct metrics_repeat *p = &s->repeats[i];

		json_array_append_new(
			repeated, json_pack("[I, I, o]", (json_int_t)p->from, (json_int_t)p->to,
					  p->time_ms ? json_integer(p->time_ms) : json_null()));
	}
	for (size_t i = first_point(s, each); i < s->n; i += each) {
		const struct metrics_point *p = &s->points[i];
		json_t *point = json_array();

		json_array_append_new(
			point, p->step == METRICS_NO_STEP ? json_null() : json_integer(p->step));
		json_array_append_new(point, p->time_ms ? json_integer(p->time_ms) : json_null());
		json_array_append_new(point, json_value(p->value));
		json_array_append_new(points, point);
	}
	return json_pack("{s:o, s:I, s:o, s:o}", "name", json_text(s->name), "every",
		(json_int_t)s->stride * (json_int_t)each, "points", points, "repeated", repeated);
}

/* Prints a field of CSV as RFC 4180 defines it. */
static void print_field(const char *text)
{
	if (!text[strcspn(text, ",\"\r\n")]) {
		fputs(text, stdout);
		return;
	}
	putchar('"');
	for (; *text; text++) {
		if (*text == '"')
			putchar('"');
		putchar(*text);
	}
	putchar('"');
}

static void print_csv(const struct metrics_series *s, int64_t most)
{
	size_t each = points_each(s, most);

	for (size_t i = first_point(s, each); i < s->n; i += each) {
		const struct metrics_point *p = &s->points[i];

		print_field(s->name);
		putchar(',');
		if (p->step != METRICS_NO_STEP)
			printf("%" PRId64, p->step);
		putchar(',');
		if (p->time_ms)
			printf("%" PRId64, p->time_ms);
		printf(",%.17g\n", p->value);
	}
}

static int print(const struct cli *cli, const struct metrics *metrics, int64_t most,
	struct penstock_error *err)
{
	bool json = cli_has(cli, "json"), csv = cli_has(cli, "csv");
	bool by_time = cli_has(cli, "by-time"), first = true;
	struct json_stream stream = {0};
	int r = 0;

	if (!json && !csv && cli_n_operands(cli) == 1)
		return print_table(metrics, by_time, err);
	if (csv)
		puts("name,step,time_ms,value");
	for (size_t i = 0; r == 0 && i < metrics->n; i++) {
		const struct metrics_series *s = &metrics->series[i];

		if (!is_wanted(cli, s->name))
			continue;
		if (json)
			json_stream_add(&stream, json_series(s, most));
		else if (csv)
			print_csv(s, most);
		else
			r = print_chart(s, by_time, first, err);
		first = false;
	}
	if (json)
		json_stream_end(&stream);
	return r;
}

static int run_metrics(const struct cli *cli)
{
	static const char *const forms[] = {"json", "csv", NULL};
	_cleanup_(session_release) struct session s = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t most;
	int r = cli_refuse_together(cli, forms);

	if (r)
		return r;
	if (!cli_number(cli, "points", 1, INT64_MAX, INT64_MAX, &most))
		return CLI_EXIT_USAGE;
	if (cli_has(cli, "points") && !cli_has(cli, "json") && !cli_has(cli, "csv"))
		return cli_misuse(cli, "--points needs --json or --csv");
	r = read_all(&s, cli, &err);
	if (r == 0)
		r = check_names(cli, &s.metrics, &err);
	if (r == 0)
		r = print(cli, &s.metrics, most, &err);
	return r < 0 ? remote_fail(cli, &err) : r;
}

const struct command command_metrics = {
	.name = "metrics",
	.summary = "list and plot the metrics of a run",
	.operands = "RUN|s3://PLACE|DIR [NAME...]",
	.min_operands = 1,
	.max_operands = UINT_MAX,
	.description =
		"Reads the metrics that training code has written into its output: event files of "
		"TensorBoard, JSON lines (metrics*.jsonl, log*.jsonl, *history*.jsonl), tables "
		"(metrics.csv), the file store and the database of MLflow (mlruns, mlflow.db), and "
		"the metrics of checkpoints. Metrics of the run that `tracking.mlflow` names come "
		"from the server, with names that begin with mlflow/. Names of metrics of "
		"processors, memory, network and GPUs begin with usage/. RUN is an id, the "
		"beginning of one, or a name. The place of an output, or a directory, can be given "
		"instead of a run.\n"
		"\n"
		"Without a NAME all of them are listed. A NAME plots the metrics of that name, "
		"those that end in /NAME, or those that match a pattern such as '*loss*'. Points "
		"that a resumed training writes again replace the earlier ones.",
	.options = OPTIONS({0, "by-time", NULL, "Plot over the time instead of the step"},
		{0, "json", NULL,
			"Print a list of JSON objects with `name` and `points`, each [step, time in ms, value]"},
		{0, "csv", NULL, "Print lines of name, step, time in ms, and value"},
		{0, "points", "N",
			"With --json or --csv: at most N points of a metric, evenly spaced"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock metrics cifar10", "List the metrics of the run"},
		{"penstock metrics cifar10 loss", "Plot the metrics with that name"},
		{"penstock metrics s3://bucket/results '*accuracy'",
			"Plot metrics of a run of another machine"},
		{"penstock metrics cifar10 --csv > metrics.csv",
			"Write the metrics for another program"}),
	.exits = EXITS({"66", "There is no such run, bucket or metric"},
		{"69", "The store does not respond"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run_metrics,
};
