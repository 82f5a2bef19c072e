/*
 * Checks the contents of the $DEEPSQUARE_ENV files after each execution that may have written to
 * these files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/attempt/attempt.h"
#include "run/step/env_file.h"
#include "run/walk/walk.h"

struct env_seen {
	struct env_seen *next;
	char *path;
	size_t bytes; /* already checked */
	unsigned users; /* frames that own the file; 0 for the file of the run */
	bool begun; /* the file of an earlier attempt was checked */
	/* several live executions may have written to the file since its contents were last
	 * complete */
	bool shared;
};

void walk_env_release(struct walk *walk)
{
	while (walk->env_seen) {
		struct env_seen *seen = walk->env_seen;

		walk->env_seen = seen->next;
		free(seen->path);
		free(seen);
	}
}

static struct env_seen **place_of(struct walk *walk, const char *path)
{
	struct env_seen **place = &walk->env_seen;

	while (*place && strcmp((*place)->path, path) != 0)
		place = &(*place)->next;
	return place;
}

/* Finds or adds the state of the file. Returns NULL if out of memory. */
static struct env_seen *seen_of(struct walk *walk, const char *path)
{
	struct env_seen *seen = *place_of(walk, path);

	if (seen)
		return seen;
	seen = calloc(1, sizeof(*seen));
	if (!seen)
		return NULL;
	seen->path = strdup(path);
	if (!seen->path) {
		free(seen);
		return NULL;
	}
	seen->next = walk->env_seen;
	walk->env_seen = seen;
	return seen;
}

int walk_env_own(struct walk *walk, const char *path)
{
	struct env_seen *seen = seen_of(walk, path);

	if (!seen)
		return -1;
	seen->users++;
	return 0;
}

void walk_env_disown(struct walk *walk, const char *path)
{
	struct env_seen **place = place_of(walk, path);
	struct env_seen *seen = *place;

	if (!seen || !seen->users || --seen->users)
		return;
	*place = seen->next;
	free(seen->path);
	free(seen);
}

static int read_whole(const char *path, struct buf *text, struct penstock_error *err)
{
	int r = fs_read_plain(path, text, err);

	if (r == 0 && memchr(buf_str(text), '\0', text->len))
		r = error_set(err, PENSTOCK_E_INVALID, "it contains a NUL byte");
	return r;
}

/* Truncates the file after its complete part, so that the next steps append to complete lines. */
static void cut(const char *path, struct env_seen *seen, size_t whole)
{
	_cleanup_close_ int fd = fs_open_plain(path, O_WRONLY, 0600, NULL);

	if (fd >= 0 && ftruncate(fd, (off_t)whole) == 0)
		seen->bytes = whole;
}

/* Reads the file that an earlier attempt left. That attempt has reported the faults in the file. */
static void see_first(struct walk *walk, struct env_seen *seen)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_ENV_FILE);
	struct env_file_odd odd;

	seen->begun = true;
	/* Report no error here: the step that reads the file next does. */
	if (read_whole(seen->path, &text, NULL) < 0)
		return;
	env_file_check(buf_str(&text), text.len, text.len, &odd);
	seen->bytes = text.len;
	if (!*odd.block)
		return;
	run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
		"the last attempt was ended while '%s' of $DEEPSQUARE_ENV was written; that value "
		"is dropped",
		odd.block);
	cut(seen->path, seen, odd.whole);
}

static const char *path_of(const struct walk *walk, const struct frame *frame)
{
	return frame->env_file ? frame->env_file : walk->attempt->layout.env_file;
}

void walk_env_begin(struct walk *walk, const struct frame *frame)
{
	struct env_seen *seen = seen_of(walk, path_of(walk, frame));

	if (seen && !seen->begun)
		see_first(walk, seen);
}

/* Returns true if a live execution may write to the file. */
static bool is_written(const struct walk *walk, const struct env_seen *seen)
{
	for (const struct frame *f = walk->live; f; f = f->next_live) {
		if (strcmp(path_of(walk, f), seen->path) == 0)
			return true;
	}
	return false;
}

/* Makes the step fail with the message. Returns false if the step has already failed, or is not in
 * its body. */
static bool blame(const struct frame *frame, struct step_end *end, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static bool blame(const struct frame *frame, struct step_end *end, const char *fmt, ...)
{
	va_list ap;

	if (frame->phase != PHASE_BODY_RUNS || end->code || end->signal || end->oom)
		return false;
	va_start(ap, fmt);
	vsnprintf(end->values, sizeof(end->values), fmt, ap);
	va_end(ap);
	return true;
}

static void check_text(struct walk *walk, const struct frame *frame, struct env_seen *seen,
	const struct buf *text, struct step_end *end)
{
	bool written = is_written(walk, seen), shared = seen->shared;
	struct env_file_odd odd;

	/* A shorter file was replaced by a step, so check all of it. */
	if (text->len < seen->bytes)
		seen->bytes = 0;
	env_file_check(buf_str(text), text->len, seen->bytes, &odd);
	_cleanup_(buf_release) struct buf lines = BUF_INIT(LIMIT_STRING);

	for (unsigned i = 0; i < odd.n && i < ARRAY_SIZE(odd.lines); i++)
		buf_printf(&lines, "%s%u", i ? ", " : "", odd.lines[i]);
	if (odd.n > ARRAY_SIZE(odd.lines))
		buf_printf(&lines, " and %u more", odd.n - (unsigned)ARRAY_SIZE(odd.lines));
	if (odd.n)
		run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
			"'%s'%s wrote text to $DEEPSQUARE_ENV that sets no variable, in line%s %s; "
			"a line must be KEY=value (not PATH or LD_LIBRARY_PATH), or KEY<<MARK with "
			"a line MARK after the value",
			frame->name, written ? ", or a step in parallel," : "",
			odd.n == 1 ? "" : "s", buf_str(&lines));
	/* A live execution may still write the missing lines. */
	seen->bytes = written ? odd.whole : text->len;
	seen->shared = *odd.block && written;
	if (!*odd.block || written)
		return;
	cut(seen->path, seen, odd.whole);
	if (shared)
		run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
			"'%s', or a step in parallel, left '%s' in $DEEPSQUARE_ENV without its "
			"end, and the value is not passed on",
			frame->name, odd.block);
	else if (!blame(frame, end,
			 "wrote '%s' to $DEEPSQUARE_ENV, but the value of %.*s has no end; add a "
			 "line with only the text after '<<'",
			 odd.block, (int)strcspn(odd.block, "<"), odd.block))
		run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
			"'%s' left '%s' in $DEEPSQUARE_ENV without its end, and the value is not "
			"passed on",
			frame->name, odd.block);
}

static void take_unreadable(struct walk *walk, const struct frame *frame, struct env_seen *seen,
	const struct buf *text, const char *why, struct step_end *end)
{
	bool shared = seen->shared;

	seen->shared = is_written(walk, seen);
	if (seen->shared)
		return;
	if (shared || !blame(frame, end, "left a $DEEPSQUARE_ENV that cannot be read: %s", why))
		run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
			"'%s'%s left a $DEEPSQUARE_ENV that cannot be read, so the last lines are "
			"not passed on: %s",
			frame->name, shared ? ", or a step in parallel," : "", why);
	/* Keep the lines that were checked and are still in the file; `text` is the beginning of
	 * the file. */
	size_t len = strnlen(buf_str(text), text->len < seen->bytes ? text->len : seen->bytes);
	struct env_file_odd odd;

	env_file_check(buf_str(text), len, len, &odd);
	cut(seen->path, seen, odd.whole);
}

void walk_env_check(struct walk *walk, const struct frame *frame, struct step_end *end)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_ENV_FILE);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct env_seen *seen = *place_of(walk, path_of(walk, frame));
	struct stat st;

	*end->values = '\0';
	if (!seen || lstat(seen->path, &st) < 0 ||
		(S_ISREG(st.st_mode) && (size_t)st.st_size == seen->bytes))
		return;
	if (read_whole(seen->path, &text, &err) == 0)
		check_text(walk, frame, seen, &text, end);
	else
		take_unreadable(walk, frame, seen, &text, err.message, end);
}

/* ---- modules ---- */

int module_env_begin(
	const struct run_layout *layout, const char *path, char **file, struct penstock_error *err)
{
	_cleanup_free_ char *name = str_printf("%s.%s", layout->env_file, path);
	_cleanup_close_ int fd = -1;

	if (!name)
		return error_memory(err);
	fd = fs_open_plain(name, O_WRONLY | O_CREAT, 0600, err);
	if (fd < 0)
		return fd;
	*file = take_pointer(name);
	return 0;
}

/* Adds a variable. A value of several lines gets an end mark that the value does not contain. */
static void add_variable(struct buf *out, const char *prefix, const char *key, const char *value)
{
	unsigned n = 0;
	char mark[24] = "END";

	if (!strchr(value, '\n')) {
		buf_printf(out, "%s_%s=%s\n", prefix, key, value);
		return;
	}
	while (strstr(value, mark))
		snprintf(mark, sizeof(mark), "END_%u", n++);
	buf_printf(out, "%s_%s<<%s\n%s\n%s\n", prefix, key, mark, value, mark);
}

int module_env_export(const struct run_layout *layout, const char *path,
	const struct workflow_use *use, const char *outer, struct penstock_error *err)
{
	_cleanup_free_ char *name = str_printf("%s.%s", layout->env_file, path);
	_cleanup_(strlist_release) struct strlist env = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_ENV_FILE);
	_cleanup_close_ int fd = -1;
	struct stat st;
	char last;
	int r;

	if (!use->export_env_as.value)
		return 0;
	if (!name)
		return error_memory(err);
	r = env_file_read(name, &env, err);
	if (r < 0)
		return r;
	if (!outer)
		outer = layout->env_file;
	fd = fs_open_plain(outer, O_RDWR | O_APPEND | O_CREAT, 0600, err);
	if (fd < 0)
		return fd;
	/* A step may have left its last line without an end. */
	if (fstat(fd, &st) == 0 && st.st_size && pread(fd, &last, 1, st.st_size - 1) == 1 &&
		last != '\n')
		buf_add_str(&text, "\n");
	for (size_t i = 0; i < use->outputs.n; i++) {
		const char *output = use->outputs.items[i].value;
		const char *value = strlist_get(&env, output);

		if (value)
			add_variable(&text, use->export_env_as.value, output, value);
	}
	if (buf_failed(&text))
		return buf_error(&text, "the outputs of the module", err);
	if (fs_write_all(fd, buf_str(&text), text.len) < 0)
		return error_errno(err, errno, "cannot write '%s'", outer);
	return 0;
}
