#include "cli/print/progress.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

enum {
	REDRAW_MS = 100,
	LINE_MS = 10000,
	SIZE_MS = 1000,
	SILENT_MS = 3000,
	MAX_ITEMS = 16,
	NAME_SIZE = 256,
	NOTE_SIZE = 64
};

struct item {
	char name[NAME_SIZE];
	uint64_t done;
	uint64_t total;
	uint64_t before; /* bytes of `done` that an earlier, interrupted copy moved */
	char note[NOTE_SIZE]; /* at the end of the line */
	int64_t began_ms;
	int64_t moved_ms; /* monotonic time of the last change of `done` */
	int64_t moved_ns; /* wall-clock time of that change */
	int64_t said_ms; /* time of the last plain line */
	bool said;
	bool finished;
};

struct progress {
	pthread_mutex_t lock;
	bool quiet;
	bool terminal;
	struct item items[MAX_ITEMS];
	size_t n;
	size_t drawn; /* lines of the bars on the terminal */
	/* one line with the cursor at its end: other output then does not overwrite the line */
	bool single;
	int64_t drawn_ms;
	bool ticking; /* a thread redraws */
	pthread_t ticker;
	pthread_cond_t end;
	void (*look)(void *cookie); /* called by the ticker, without the lock */
	void *cookie;
};

struct progress *progress_new(bool quiet)
{
	struct progress *p = calloc(1, sizeof(*p));
	const char *term = getenv("TERM");

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	clock_cond_init(&p->end);
	p->quiet = quiet;
	p->terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
	return p;
}

void progress_free(struct progress *p)
{
	bool ticking;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	ticking = p->ticking;
	p->ticking = false;
	pthread_cond_signal(&p->end);
	pthread_mutex_unlock(&p->lock);
	if (ticking)
		pthread_join(p->ticker, NULL);
	progress_clear(p);
	pthread_cond_destroy(&p->end);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* Appends "12.3 MB of 170 MB, 85.1 MB/s, 2 s to go" or, if no bytes have arrived for a while, "12.3
 * MB of 170 MB, no data since 17:03:11". */
static void describe(const struct item *item, int64_t now, struct buf *out)
{
	char done[STR_SIZE_SIZE];
	char total[STR_SIZE_SIZE];
	char rate[STR_SIZE_SIZE];
	int64_t ms = now - item->began_ms;
	uint64_t moved = item->done > item->before ? item->done - item->before : 0;
	uint64_t per_s = ms > 0 ? (uint64_t)((double)moved * 1000 / (double)ms) : 0;
	bool silent = !item->finished && item->done < item->total &&
		      now - item->moved_ms >= SILENT_MS;

	str_format_size(item->done, done);
	str_format_size(item->total, total);
	str_format_size(per_s, rate);
	buf_add_str(out, done);
	if (item->total && !item->finished)
		buf_printf(out, " of %s", total);
	if (silent) {
		time_t at = (time_t)(item->moved_ns / NS_PER_S);
		struct tm tm;
		char text[16] = "";

		if (localtime_r(&at, &tm))
			strftime(text, sizeof(text), "%H:%M:%S", &tm);
		buf_printf(out, ", no data since %s", text);
	} else if (ms >= 1000) {
		buf_printf(out, ", %s/s", rate);
	}
	if (item->finished)
		buf_printf(out, ", %.1f s", (double)ms / 1000);
	else if (silent)
		;
	else if (item->total > item->done && per_s && ms >= 1000)
		buf_printf(out, ", %" PRIu64 " s to go", (item->total - item->done) / per_s + 1);
}

/* Appends "name  [########      ]  text", cut to the width so that no line wraps. */
static void draw_item(const struct item *item, int64_t now, int width, struct buf *out)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_LOG_LINE);
	int bar = width > 90 ? 30 : 14;
	const char *slash = strrchr(item->name, '/');
	const char *name = slash && slash[1] ? slash + 1 : item->name;

	buf_printf(&line, "%-24.24s ", name);
	if (item->total) {
		double part = (double)item->done / (double)item->total;
		int full = (int)((part > 1 ? 1 : part) * bar);

		buf_add_char(&line, '[');
		for (int i = 0; i < bar; i++)
			buf_add_char(&line, i < full ? '#' : ' ');
		buf_add_str(&line, "] ");
	}
	describe(item, now, &line);
	buf_add_str(&line, item->note);
	buf_printf(out, "\r\033[K%.*s\n", width - 1, buf_str(&line));
}

static void erase(struct progress *p)
{
	if (p->single && p->drawn)
		fputs("\r\033[K", stderr);
	for (size_t i = 0; !p->single && i < p->drawn; i++)
		fputs("\033[A\r\033[K", stderr);
	p->drawn = 0;
}

static void redraw(struct progress *p, int64_t now)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(MAX_ITEMS * LIMIT_LOG_LINE);
	struct winsize size;
	int width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col
										      : 80;

	for (size_t i = 0; i < p->n; i++)
		draw_item(&p->items[i], now, width, &out);
	if (p->single && p->n)
		buf_truncate(&out, out.len - 1);
	if (!p->drawn && p->n)
		log_begin_line();
	erase(p);
	fputs(buf_str(&out), stderr);
	fflush(stderr);
	p->drawn = p->n;
	p->drawn_ms = now;
}

static struct item *find_item(struct progress *p, const char *name, int64_t now)
{
	struct item *item;

	for (size_t i = 0; i < p->n; i++) {
		if (strncmp(p->items[i].name, name, NAME_SIZE - 1) == 0)
			return &p->items[i];
	}
	if (p->n == MAX_ITEMS)
		return NULL; /* do not show more items: bars would scroll off the screen */
	item = &p->items[p->n++];
	snprintf(item->name, sizeof(item->name), "%s", name);
	item->began_ms = now;
	item->moved_ms = now;
	item->moved_ns = clock_wall_ns();
	return item;
}

static void set_bytes(struct item *item, uint64_t done, uint64_t total, int64_t now)
{
	if (done != item->done) {
		item->moved_ms = now;
		item->moved_ns = clock_wall_ns();
	}
	item->done = done;
	item->total = total;
}

static void *tick(void *arg)
{
	struct progress *p = arg;

	LOCK_SCOPE(&p->lock);
	while (p->ticking) {
		if (p->look) {
			pthread_mutex_unlock(&p->lock);
			p->look(p->cookie);
			pthread_mutex_lock(&p->lock);
		}
		if (p->n && clock_monotonic_ms() - p->drawn_ms >= REDRAW_MS)
			redraw(p, clock_monotonic_ms());
		if (p->ticking)
			clock_cond_wait_ms(&p->end, &p->lock, REDRAW_MS);
	}
	return NULL;
}

/* Starts the thread that redraws. Without the thread, the last update of a bar might not be drawn,
 * and a stalled transfer would not be shown. */
static void start_ticking(struct progress *p)
{
	if (p->ticking)
		return;
	p->ticking = true;
	if (thread_start(&p->ticker, "progress", tick, p, NULL) < 0)
		p->ticking = false;
}

void progress_follow(struct progress *p, void (*look)(void *cookie), void *cookie)
{
	if (!p || p->quiet || !p->terminal)
		return;
	LOCK_SCOPE(&p->lock);
	if (p->ticking)
		return;
	p->single = true;
	p->look = look;
	p->cookie = cookie;
	start_ticking(p);
}

void progress_line(struct progress *p, const struct progress_line *line)
{
	int64_t now = clock_monotonic_ms();
	struct item *item;

	if (!p || p->quiet || !p->terminal)
		return;
	LOCK_SCOPE(&p->lock);
	item = p->n ? &p->items[0] : find_item(p, line->name, now);
	snprintf(item->name, sizeof(item->name), "%s", line->name);
	snprintf(item->note, sizeof(item->note), "%s", line->note);
	item->before = line->before;
	set_bytes(item, line->done, line->total, now);
}

void progress_suspend(struct progress *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	erase(p);
	fflush(stderr);
}

void progress_resume(struct progress *p)
{
	if (p)
		pthread_mutex_unlock(&p->lock);
}

/* Logs a line at the start (once the size is known, or has been unknown for a while), at the end,
 * and at intervals between them. */
static void say_line(struct item *item, int64_t now)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);
	bool first = !item->said;

	if (!item->finished && first && !item->total && now - item->began_ms < SIZE_MS)
		return;
	if (!item->finished && !first && now - item->said_ms < LINE_MS)
		return;
	item->said = true;
	item->said_ms = now;
	if (item->finished || !first) {
		describe(item, now, &text);
		log_info("%s: %s%s", item->name, item->finished ? "done, " : "", buf_str(&text));
	} else if (item->total) {
		char total[STR_SIZE_SIZE];

		str_format_size(item->total, total);
		log_info("%s: started, %s", item->name, total);
	} else {
		log_info("%s: started", item->name);
	}
}

void progress_update(struct progress *p, const char *name, uint64_t done, uint64_t total)
{
	int64_t now = clock_monotonic_ms();
	struct item *item;
	size_t before;
	bool changed;

	if (!p || p->quiet)
		return;
	LOCK_SCOPE(&p->lock);
	before = p->n;
	item = find_item(p, name, now);
	if (!item || item->finished)
		return;
	set_bytes(item, done, total, now);
	item->finished = total && done >= total;
	changed = p->n != before || item->finished;
	if (p->terminal) {
		start_ticking(p);
		if (changed || now - p->drawn_ms >= REDRAW_MS)
			redraw(p, now);
	} else {
		say_line(item, now);
	}
}

void progress_note(struct progress *p, const char *text)
{
	if (!p) {
		log_info("%s", text);
		return;
	}
	LOCK_SCOPE(&p->lock);
	erase(p);
	log_info("%s", text);
	if (p->terminal && p->n)
		redraw(p, clock_monotonic_ms());
}

void progress_complete(struct progress *p)
{
	int64_t now = clock_monotonic_ms();

	if (!p || p->quiet)
		return;
	LOCK_SCOPE(&p->lock);
	for (size_t i = 0; i < p->n; i++) {
		struct item *item = &p->items[i];

		if (item->finished)
			continue;
		item->finished = true;
		if (item->total > item->done)
			item->done = item->total;
		if (!p->terminal)
			say_line(item, now);
	}
	if (p->terminal && p->n)
		redraw(p, now);
}

/* Removes unfinished bars. Finished bars stay on the terminal, and new items start below them. */
void progress_clear(struct progress *p)
{
	size_t n = 0;

	if (!p)
		return;
	LOCK_SCOPE(&p->lock);
	for (size_t i = 0; i < p->n; i++) {
		if (p->items[i].finished)
			p->items[n++] = p->items[i];
	}
	if (p->single) {
		erase(p);
	} else if (n < p->n && p->drawn) {
		p->n = n;
		redraw(p, clock_monotonic_ms());
	}
	p->drawn = 0;
	p->n = 0;
}
