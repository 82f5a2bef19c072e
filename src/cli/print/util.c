#include "cli/print/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "cli/command.h"
#include "run/notices/reaction.h"

int show_open(struct records **records, char **home, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	int r = records_home(&path, err);

	if (r == 0)
		r = records_open(records, path, err);
	if (r == 0 && home)
		*home = take_pointer(path);
	return r;
}

int show_run(const struct cli *cli, size_t i, struct records **records, char **home,
	struct records_run *run, struct penstock_error *err)
{
	int r = show_open(records, home, err);

	return r < 0 ? r : records_find(*records, cli_operand(cli, i), run, err);
}

unsigned show_width(int fd)
{
	struct winsize size;

	if (!isatty(fd))
		return 0;
	return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* ---- names ---- */

void show_name(FILE *to, const char *name)
{
	while (*name) {
		size_t n = str_control(name);

		putc(n ? '?' : *name, to);
		name += n ? n : 1;
	}
}

/* ---- tables ---- */

/* Counts characters, which for most scripts have one column each. */
static size_t text_width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* Returns the number of bytes of the first `width` characters. */
static size_t bytes_of_width(const char *text, size_t width)
{
	size_t bytes = 0;

	while (text[bytes]) {
		if (((unsigned char)text[bytes] & 0xc0) != 0x80 && width-- == 0)
			break;
		bytes++;
	}
	return bytes;
}

struct grid grid_with(const char *const *titles)
{
	struct grid grid = GRID_INIT(0);

	for (; titles[grid.columns]; grid.columns++)
		grid_add(&grid, titles[grid.columns]);
	return grid;
}

void grid_add(struct grid *grid, const char *cell)
{
	_cleanup_free_ char *safe = strdup(cell && *cell ? cell : "-");
	char *to = safe;

	if (!safe)
		abort();
	/* Replace control characters, which could move the cursor or forge a line. */
	for (const char *p = safe; *p;) {
		size_t n = str_control(p);

		*to++ = !n ? *p : *p == '\n' || *p == '\t' ? ' ' : '?';
		p += n ? n : 1;
	}
	*to = '\0';
	if (strlist_add(&grid->cells, safe) < 0)
		abort();
}

void grid_add_cut(struct grid *grid, const char *cell, size_t width)
{
	_cleanup_free_ char *text = NULL;
	int len;

	if (!cell || text_width(cell) <= width) {
		grid_add(grid, cell);
		return;
	}
	len = (int)bytes_of_width(cell, width - 1);
	while (len > 0 && cell[len - 1] == ' ')
		len--;
	text = str_printf("%.*s…", len, cell);
	if (!text)
		abort();
	grid_add(grid, text);
}

void grid_addf(struct grid *grid, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	grid_add(grid, buf_str(&text));
}

static const char *colour_of(const char *word)
{
	static const struct {
		const char *word;
		const char *colour;
	} colours[] = {{"succeeded", "\033[32m"}, {"ok", "\033[32m"}, {"failed", "\033[31m"},
		{"fail", "\033[31m"}, {"lost", "\033[31m"}, {"warn", "\033[33m"},
		{"preempted", "\033[33m"}, {"stopped", "\033[33m"}, {"running", "\033[36m"},
		{"staging", "\033[36m"}, {"flushing", "\033[36m"}, {"queued", "\033[36m"}};

	for (size_t i = 0; i < ARRAY_SIZE(colours); i++) {
		if (strcmp(word, colours[i].word) == 0)
			return colours[i].colour;
	}
	return "";
}

static void print_row(
	const struct grid *grid, size_t row, const size_t *widths, bool colours, unsigned terminal)
{
	size_t used = 0;

	for (size_t c = 0; c < grid->columns; c++) {
		const char *cell = grid->cells.items[row * grid->columns + c];
		const char *colour = colours && row > 0 && c == grid->state_column ? colour_of(cell)
										   : "";
		bool cut = !grid->whole && terminal && text_width(cell) > terminal - used;
		bool last = c + 1 == grid->columns || cut;
		size_t bytes = cut ? bytes_of_width(cell, terminal - used - 1) : strlen(cell);

		printf("%s%.*s%s%s", colour, (int)bytes, cell, cut ? "…" : "",
			*colour ? "\033[0m" : "");
		/* Stop if the row has no room for two blanks and a character of the next column. */
		if (last || (!grid->whole && terminal && used + widths[c] + 2 >= terminal))
			break;
		printf("%*s", (int)(widths[c] - text_width(cell) + 2), "");
		used += widths[c] + 2;
	}
	putchar('\n');
}

void grid_print(struct grid *grid)
{
	_cleanup_free_ size_t *widths = calloc(grid->columns, sizeof(*widths));
	bool colours = cli_colours(STDOUT_FILENO);
	unsigned terminal = show_width(STDOUT_FILENO);

	if (!widths)
		abort();
	for (size_t i = 0; i < grid->cells.n; i++) {
		size_t width = text_width(grid->cells.items[i]);

		if (width > widths[i % grid->columns])
			widths[i % grid->columns] = width;
	}
	for (size_t row = 0; row < grid->cells.n / grid->columns; row++)
		print_row(grid, row, widths, colours, terminal);
	grid_release(grid);
}

void grid_release(struct grid *grid)
{
	strlist_release(&grid->cells);
}

/* ---- JSON ---- */

int show_json(json_t *value)
{
	int r = value ? json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : -1;

	putchar('\n');
	json_decref(value);
	if (r == 0 || ferror(stdout))
		return 0; /* a write error is reported on exit */
	fprintf(stderr, "penstock: out of memory\n");
	return CLI_EXIT_INTERNAL;
}

int show_list(struct grid *grid, json_t *array, int r)
{
	if (r == 0 && array)
		r = show_json(json_incref(array));
	else if (r == 0)
		grid_print(grid);
	json_decref(array);
	grid_release(grid);
	return r;
}

json_t *json_text(const char *text)
{
	_cleanup_(buf_release) struct buf clean = BUF_INIT(4 * LIMIT_STRING);
	json_t *value;

	if (!text || !*text)
		return json_null();
	value = json_string(text);
	if (value)
		return value;
	/* jansson accepts only UTF-8, but a path can have any bytes. */
	for (const char *p = text; *p;) {
		size_t len = (unsigned char)*p < 0x80	? 1
			     : (unsigned char)*p < 0xe0 ? 2
			     : (unsigned char)*p < 0xf0 ? 3
							: 4;
		json_t *one = strnlen(p, len) == len ? json_stringn(p, len) : NULL;

		if (one)
			buf_add(&clean, p, len);
		else
			buf_add_str(&clean, "\xef\xbf\xbd");
		p += one ? len : 1;
		json_decref(one);
	}
	return json_string(buf_str(&clean));
}

json_t *json_time(int64_t wall_ns)
{
	char text[CLOCK_RFC3339_SIZE];

	if (wall_ns == 0)
		return json_null();
	clock_format_rfc3339(wall_ns, text);
	return json_string(text);
}

void json_add_state(json_t *object, const struct records_attempt *a)
{
	bool ended = !run_state_is_live(a->state) && a->state != RUN_LOST;

	json_object_update_new(object,
		json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:i, s:o}", "state",
			json_text(run_state_name(a->state)), "attempt", a->attempt, "class",
			json_text(run_class_name(a->class)), "started", json_time(a->started_ns),
			"ended", json_time(a->ended_ns), "heard", json_time(a->heard_ns),
			"exit_code", ended ? json_integer(a->exit_code) : json_null(), "steps_done",
			a->steps_done, "message", json_text(a->message)));
	json_object_update_new(object,
		json_pack("{s:I, s:I, s:I, s:I, s:o}", "sync_lag_bytes",
			(json_int_t)a->sync_bytes_waiting, "sync_lag_ms",
			(json_int_t)a->sync_lag_ms, "sync_files_published",
			(json_int_t)a->sync_files_published, "sync_bytes_published",
			(json_int_t)a->sync_bytes_published, "sync_at", json_time(a->sync_at_ns)));
}

void json_add_attempt(json_t *object, const struct records_attempt *a)
{
	json_add_state(object, a);
	json_object_update_new(object,
		json_pack("{s:o, s:b, s:o, s:o}", "step_exit_code",
			a->step_code ? json_integer(a->step_code) : json_null(), "unflushed",
			a->unflushed, "sync_error", json_text(a->sync_error), "pid",
			run_state_is_live(a->state) ? json_integer(a->pid) : json_null()));
}

void show_elsewhere(const char *home, struct records_run *run, char host[static SHOW_HOST_SIZE])
{
	_cleanup_free_ char *path = run_path(home, run->id, RUN_FILE_ELSEWHERE);
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);
	json_auto_t *root = NULL;
	const char *state, *on;

	*host = '\0';
	if (!path || run_state_is_live(run->last.state) || access(path, F_OK) < 0 ||
		fs_read(path, &text, NULL) < 0)
		return;
	root = json_loadb(buf_str(&text), text.len, 0, NULL);
	state = json_string_value(json_object_get(root, "state"));
	on = json_string_value(json_object_get(root, "host"));
	if (!state || !on)
		return;
	snprintf(host, SHOW_HOST_SIZE, "%s", on);
	run->last.state = RUN_MOVED;
	for (int i = RUN_SUCCEEDED; i <= RUN_STOPPED; i++) {
		if (strcmp(state, run_state_name((enum run_state)i)) == 0)
			run->last.state = (enum run_state)i;
	}
	run->last.attempt = (int)json_integer_value(json_object_get(root, "attempt"));
	run->last.class = RUN_CLASS_NONE;
	run->last.exit_code = run->last.step_code = 0;
	/* The message is about the attempt on this machine, which a later attempt followed. */
	if (run->last.state != RUN_MOVED) {
		free(run->last.message);
		run->last.message = NULL;
	}
}

const char *show_message(const struct records_run *run, char out[static SHOW_MESSAGE_SIZE])
{
	char age[SHOW_DURATION_SIZE];

	if (run->last.message || run->last.state != RUN_LOST)
		return run->last.message;
	if (run->workflow) /* a run of this machine */
		snprintf(out, SHOW_MESSAGE_SIZE, "killed; 'penstock resume %s' continues the run",
			run->id);
	else if (run->last.heard_ns)
		snprintf(out, SHOW_MESSAGE_SIZE, "last heard of %s ago",
			show_duration((clock_wall_ns() - run->last.heard_ns) / NS_PER_MS, age));
	else
		return NULL;
	return out;
}

/* ---- times ---- */

const char *show_time(int64_t wall_ns, char out[static SHOW_TIME_SIZE])
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	struct tm tm;

	if (wall_ns == 0 || !localtime_r(&seconds, &tm) ||
		strftime(out, SHOW_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		snprintf(out, SHOW_TIME_SIZE, "-");
	return out;
}

const char *show_duration(int64_t ms, char out[static SHOW_DURATION_SIZE])
{
	int64_t s = ms / 1000;

	if (ms < 1000)
		snprintf(out, SHOW_DURATION_SIZE, "%" PRId64 " ms", ms);
	else if (s < 60)
		snprintf(out, SHOW_DURATION_SIZE, "%.1f s", (double)ms / 1000);
	else if (s < 3600)
		snprintf(out, SHOW_DURATION_SIZE, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
	else
		snprintf(out, SHOW_DURATION_SIZE, "%" PRId64 " h %" PRId64 " min", s / 3600,
			s / 60 % 60);
	return out;
}

json_t *json_notice(const char *home, const struct records_run *run)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);
	_cleanup_free_ char *path = run_path(home, run->id, RUN_FILE_NOTICE);
	json_t *object;

	if (!path || fs_read(path, &text, NULL) < 0)
		return json_null();
	object = json_loadb(buf_str(&text), text.len, 0, NULL);
	if (json_integer_value(json_object_get(object, "attempt")) == run->last.attempt)
		return object;
	json_decref(object);
	return json_null();
}

/* ---- lists ---- */

void json_stream_add(struct json_stream *stream, json_t *value)
{
	fputs(stream->begun ? ",\n  " : "[\n  ", cli_out());
	stream->begun = true;
	/* A write error, such as that of a closed pipe, is reported on exit. */
	if (!value || (json_dumpf(value, cli_out(), JSON_COMPACT | JSON_PRESERVE_ORDER) < 0 &&
			      !ferror(cli_out())))
		abort();
	json_decref(value);
}

void json_stream_end(struct json_stream *stream)
{
	fputs(stream->begun ? "\n]\n" : "[]\n", cli_out());
}

json_t *json_object_info(const struct object_info *info)
{
	return json_pack("{s:o, s:I, s:o, s:o}", "key", json_text(info->key), "size",
		(json_int_t)info->size, "etag", json_text(info->etag), "modified",
		json_time(info->modified_ns));
}
