/* `penstock top`: shows the live runs of this home and their resource usage, refreshed. */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/frame/interrupt.h"
#include "cli/print/full_screen.h"
#include "cli/print/util.h"
#include "records/layout.h"
#include "run/process/live.h"
#include "run/process/usage.h"

enum { SAMPLE_MS = 500, HEAD_LINES = 2, FOOT_LINES = 2, TAIL_BYTES = 4096, NAME_WIDTH = 24 };

struct row {
	char id[RECORDS_ID_SIZE];
	char *name, *steps; /* owned */
	enum run_state state;
	int attempt;
	int64_t started_ns;
	uint64_t lag_ms, waiting; /* lag of the sync; bytes that are not published */
	struct usage usage;
	int64_t read_at_ms; /* monotonic */
	double cpu; /* processors used since the last refresh; negative if unknown */
	double gpu; /* negative if unknown */
};

struct top {
	struct records *records;
	char *home;
	struct row *rows;
	size_t n;
	size_t selected;
	char *said; /* the result of the last key; owned */
};

static void rows_free(struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(rows[i].name);
		free(rows[i].steps);
	}
	free(rows);
}

static void top_release(struct top *top)
{
	rows_free(top->rows, top->n);
	records_free(top->records);
	free(top->home);
	free(top->said);
}

/* ---- reading ---- */

struct reading {
	const struct top *top;
	struct row *rows;
	size_t n;
	struct row *row; /* the row that gets the steps */
	bool no_memory;
};

static int add_step(void *cookie, const struct live_step *step)
{
	struct reading *reading = cookie;
	struct row *row = reading->row;
	struct usage usage;
	char *steps = str_printf(
		"%s%s%s", row->steps ? row->steps : "", row->steps ? ", " : "", step->name);

	free(row->steps);
	row->steps = steps;
	usage_read(step->pids, step->n, &usage);
	row->usage.cpu_ms += usage.cpu_ms;
	row->usage.rss += usage.rss;
	return 0;
}

/* Returns the GPU load: the second to last field of the last sample (run/report/usage_file.h). */
static double last_gpu(const char *home, const struct row *row)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_free_ char *path = NULL;
	_cleanup_fclose_ FILE *f = NULL;
	char text[TAIL_BYTES + 1], *comma;
	size_t n;

	if (run_layout_init(&layout, home, row->id, row->attempt, NULL) == 0)
		path = run_log_usage(layout.log);
	f = path ? fopen(path, "re") : NULL;
	if (!f || (fseek(f, -TAIL_BYTES, SEEK_END) < 0 && fseek(f, 0, SEEK_SET) < 0))
		return -1;
	n = fread(text, 1, TAIL_BYTES, f);
	text[n] = '\0';
	for (int i = 0; i < 2; i++) {
		comma = strrchr(text, ',');
		if (!comma)
			return -1;
		if (i == 0)
			*comma = '\0';
	}
	return comma[1] >= '0' && comma[1] <= '9' ? strtod(comma + 1, NULL) : -1;
}

static const struct row *row_before(const struct top *top, const char *id)
{
	for (size_t i = 0; i < top->n; i++)
		if (strcmp(top->rows[i].id, id) == 0)
			return &top->rows[i];
	return NULL;
}

static int add_run(void *cookie, const struct records_run *run)
{
	struct reading *reading = cookie;
	const struct row *before = row_before(reading->top, run->id);
	_cleanup_free_ char *dir = NULL;
	struct row *rows;
	int64_t ms;

	if (!run_state_is_live(run->last.state))
		return 0;
	rows = array_grow(reading->rows, reading->n, sizeof(*rows));
	dir = run_path(reading->top->home, run->id, RUN_FILE_DIR);
	if (rows)
		reading->rows = rows;
	if (!rows || !dir) {
		reading->no_memory = true;
		return 1;
	}
	reading->row = &rows[reading->n++];
	*reading->row = (struct row){.state = run->last.state,
		.name = strdup(run->name ? run->name : run->id),
		.attempt = run->last.attempt,
		.started_ns = run->last.started_ns,
		.lag_ms = (uint64_t)run->last.sync_lag_ms,
		.waiting = run->last.sync_bytes_waiting,
		.read_at_ms = clock_monotonic_ms(),
		.cpu = -1};
	snprintf(reading->row->id, sizeof(reading->row->id), "%s", run->id);
	live_each(dir, add_step, reading);
	reading->row->gpu = last_gpu(reading->top->home, reading->row);
	ms = before ? reading->row->read_at_ms - before->read_at_ms : 0;
	if (ms > 0 && reading->row->steps && before->steps)
		reading->row->cpu = reading->row->usage.cpu_ms > before->usage.cpu_ms
					    ? (double)(reading->row->usage.cpu_ms -
						       before->usage.cpu_ms) /
						      (double)ms
					    : 0;
	return 0;
}

static int refresh(struct top *top, struct penstock_error *err)
{
	struct reading reading = {.top = top};
	int r = records_list(top->records, add_run, &reading, err);

	if (r < 0 || reading.no_memory) {
		rows_free(reading.rows, reading.n);
		return r < 0 ? r : error_memory(err);
	}
	rows_free(top->rows, top->n);
	top->rows = reading.rows;
	top->n = reading.n;
	if (top->selected >= top->n)
		top->selected = top->n ? top->n - 1 : 0;
	return 0;
}

/* ---- printing ---- */

static void add_row(struct grid *grid, const struct row *row)
{
	char size[STR_SIZE_SIZE], age[SHOW_DURATION_SIZE];

	grid_add_cut(grid, row->name, NAME_WIDTH);
	grid_add(grid, row->id);
	grid_add(grid, run_state_name(row->state));
	if (row->cpu < 0)
		grid_add(grid, NULL);
	else
		grid_addf(grid, "%.2f", row->cpu);
	str_format_size(row->usage.rss, size);
	grid_add(grid, row->steps ? size : NULL);
	if (row->gpu < 0)
		grid_add(grid, NULL);
	else
		grid_addf(grid, "%.2f", row->gpu);
	str_format_size(row->waiting, size);
	if (row->waiting)
		grid_addf(grid, "%s by %s", show_duration((int64_t)row->lag_ms, age), size);
	else
		grid_add(grid, NULL);
	grid_add(grid, show_duration((clock_wall_ns() - row->started_ns) / NS_PER_MS, age));
	grid_add(grid, row->steps);
}

#define TITLES "NAME", "ID", "STATE", "CPU", "MEMORY", "GPU", "BEHIND", "TIME", "STEPS"

static void print_page(const struct top *top)
{
	struct grid grid = grid_new(" ", TITLES);
	unsigned height = full_screen_height();
	size_t room = height > HEAD_LINES + FOOT_LINES + 1 ? height - HEAD_LINES - FOOT_LINES : 1;
	size_t from = top->selected >= room ? top->selected - room + 1 : 0;

	grid.state_column = 3;
	printf("%zu live run%s\n", top->n, top->n == 1 ? "" : "s");
	for (size_t i = from; i < top->n && i < from + room; i++) {
		grid_add(&grid, i == top->selected ? ">" : " ");
		add_row(&grid, &top->rows[i]);
	}
	grid_print(&grid);
	if (top->said)
		show_name(stdout, top->said);
	printf("\narrows or j, k: select; l: log; s: stop; p: preempt; q: quit");
}

static json_t *json_row(const struct row *row)
{
	return json_pack("{s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:I, s:I, s:o}", "id",
		json_text(row->id), "name", json_text(row->name), "state",
		json_text(run_state_name(row->state)), "attempt", row->attempt, "cpu",
		row->cpu < 0 ? json_null() : json_real(row->cpu), "memory",
		row->steps ? json_integer((json_int_t)row->usage.rss) : json_null(), "gpu",
		row->gpu < 0 ? json_null() : json_real(row->gpu), "sync_lag_ms",
		(json_int_t)row->lag_ms, "sync_lag_bytes", (json_int_t)row->waiting, "steps",
		json_text(row->steps));
}

/* CPU usage is the difference between two readings. */
static int print_once(const struct cli *cli, struct top *top, struct penstock_error *err)
{
	struct grid grid = grid_new(TITLES);
	json_t *array = cli_has(cli, "json") ? json_array() : NULL;
	int r = refresh(top, err);

	clock_sleep_ms(SAMPLE_MS);
	if (r == 0)
		r = refresh(top, err);
	grid.state_column = 2;
	for (size_t i = 0; r == 0 && i < top->n; i++) {
		add_row(&grid, &top->rows[i]);
		if (array)
			json_array_append_new(array, json_row(&top->rows[i]));
	}
	return show_list(&grid, array, r);
}

/* ---- keys ---- */

/* Runs `words`, a command line of penstock. If `shows`, the output goes to the terminal. Otherwise
 * the last line of the output is kept for display, or the error message if the command cannot be
 * run. */
static void run_verb(struct top *top, const char *const *words, bool shows)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct process_run_options options = {.name = "penstock"};
	int status = 0, r;

	if (!shows)
		options.out.text = options.err.text = &text;
	r = process_run(&(struct process_spec){.argv = words,
				.stdin_fd = -1,
				.stdout_fd = STDOUT_FILENO,
				.stderr_fd = STDERR_FILENO,
				.die_with_parent = true},
		&options, &status, &err);
	free(take_pointer(top->said));
	if (text.len && text.data[text.len - 1] == '\n')
		buf_truncate(&text, text.len - 1);
	if (r < 0) {
		top->said = strdup(err.message);
	} else if (text.len) {
		const char *last = strrchr(text.data, '\n');

		top->said = strdup(last ? last + 1 : text.data);
	}
}

/* Shows the log until the run ends, or until Ctrl-C, which does not end this program. */
static void show_log(struct top *top, const char *id)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, before;

	full_screen_end();
	sigaction(SIGINT, &ignore, &before);
	run_verb(top,
		(const char *const[]){"/proc/self/exe", "logs", "-f", "--lines", "100", id, NULL},
		true);
	sigaction(SIGINT, &before, NULL);
	full_screen_begin();
}

static bool confirms(const char *question, const struct row *row)
{
	int key;

	do {
		full_screen_draw();
		printf("%s '", question);
		show_name(stdout, row->name);
		printf("' (%s)? y or n", row->id);
		key = full_screen_key(-1);
	} while (key == FULL_SCREEN_NONE);
	return key == 'y';
}

static void use_key(struct top *top, int key)
{
	struct row *row = top->n ? &top->rows[top->selected] : NULL;

	if ((key == FULL_SCREEN_UP || key == 'k') && top->selected)
		top->selected--;
	else if ((key == FULL_SCREEN_DOWN || key == 'j') && top->selected + 1 < top->n)
		top->selected++;
	else if (key == 'l' && row)
		show_log(top, row->id);
	else if (key == 's' && row && confirms("Stop; 'penstock resume' continues the run:", row))
		run_verb(
			top, (const char *const[]){"/proc/self/exe", "stop", row->id, NULL}, false);
	else if (key == 'p' && row &&
		 confirms("Preempt, with 30 s to save; 'penstock run' resumes the run:", row))
		run_verb(top,
			(const char *const[]){
				"/proc/self/exe", "preempt", "--no-wait", row->id, NULL},
			false);
}

static int run_top(const struct cli *cli)
{
	_cleanup_(top_release) struct top top = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t every_ms;
	int key = FULL_SCREEN_NONE, r;

	if (!cli_duration_ms(cli, "every", 1000, &every_ms))
		return CLI_EXIT_USAGE;
	if (every_ms < 100 || every_ms > INT32_MAX)
		return cli_misuse(cli, "--every must be at least 100ms");
	r = show_open(&top.records, &top.home, &err);
	if (r == 0 && (cli_has(cli, "json") || full_screen_begin() < 0)) {
		r = print_once(cli, &top, &err);
		return r < 0 ? cli_fail(cli, &err) : r;
	}
	while (r == 0 && key != 'q' && key != FULL_SCREEN_END) {
		r = refresh(&top, &err);
		if (r < 0)
			break;
		full_screen_draw();
		print_page(&top);
		key = full_screen_key((int)every_ms);
		use_key(&top, key);
	}
	full_screen_end();
	return r < 0 ? cli_fail(cli, &err) : cli_interrupted() ? 128 + cli_interrupted() : 0;
}

const struct command command_top = {
	.name = "top",
	.summary = "watch the live runs and their use of the machine",
	.description =
		"Shows the live runs of this home, refreshed each second: their steps, the use "
		"of processors, memory and GPUs, and how far the object storage is behind. Keys "
		"follow the log of a run, stop the run or preempt it; the last two ask first. If "
		"stdout is not a terminal, one table is printed.\n"
		"\n"
		"'penstock metrics RUN' plots the usage of a run from its beginning.",
	.options = OPTIONS({0, "every", "TIME", "Time between two refreshes; default: 1s"},
		{0, "json", NULL, "Print a list of JSON objects, once"}),
	.examples = EXAMPLES({"penstock top", "Watch the runs"},
		{"penstock top --json", "Print the use of all live runs once"}),
	.exits = EXITS({"128+n", "Ended by signal n"}),
	.run = run_top,
};
