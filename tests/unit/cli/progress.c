/* Progress on a simulated terminal, and plain lines in files and pipes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/print/progress.h"

enum { COLUMNS = 60, UPDATES = 20000 };

/* Collects the text on stderr while a test draws. A thread reads the text, so that the drawing
 * never blocks. */
struct screen {
	int saved;
	int reader;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the text */
	struct buf text;
};

static void *read_all(void *cookie)
{
	struct screen *s = cookie;
	char block[4096];
	ssize_t n;

	while ((n = read(s->reader, block, sizeof(block))) > 0) {
		pthread_mutex_lock(&s->lock);
		buf_add(&s->text, block, (size_t)n);
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

static void screen_begin(struct screen *s, bool terminal)
{
	int ends[2];

	setenv("TERM", "xterm", 1);
	if (terminal) {
		struct winsize size = {.ws_col = COLUMNS, .ws_row = 24};

		assert_int_equal(openpty(&ends[0], &ends[1], NULL, NULL, &size), 0);
	} else {
		assert_int_equal(pipe(ends), 0);
	}
	pthread_mutex_init(&s->lock, NULL);
	buf_init(&s->text, 64 * 1024 * 1024);
	s->reader = ends[0];
	s->saved = dup(STDERR_FILENO);
	assert_int_equal(pthread_create(&s->thread, NULL, read_all, s), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
}

static const char *screen_end(struct screen *s)
{
	fflush(stderr);
	/* Closes the last descriptor of this end, so that the reader gets an end of file. */
	dup2(s->saved, STDERR_FILENO);
	close(s->saved);
	pthread_join(s->thread, NULL);
	close(s->reader);
	return buf_str(&s->text);
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

static bool shows(struct screen *s, const char *what)
{
	bool found;

	pthread_mutex_lock(&s->lock);
	found = count(buf_str(&s->text), what) > 0;
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* Many updates must not flood a terminal over a slow connection. */
static void a_terminal_is_redrawn_ten_times_a_second_at_most(void **state)
{
	struct screen s;
	struct progress *p;
	int64_t began, ms;
	const char *text;

	(void)state;
	screen_begin(&s, true);
	p = progress_new(false);
	began = clock_monotonic_ms();
	for (unsigned i = 0; i < UPDATES || clock_monotonic_ms() - began < 350; i++)
		progress_update(p, "data.bin", 1 + i % UPDATES, UPDATES + 1);
	ms = clock_monotonic_ms() - began;
	progress_free(p);

	text = screen_end(&s);
	assert_in_range(count(text, "data.bin"), 1, 2 + (unsigned)(ms / 100));
	buf_release(&s.text);
}

/* If a line wrapped, its upper half would stay on the screen when the next line is drawn. */
static void no_line_is_wider_than_the_terminal(void **state)
{
	struct screen s;
	struct progress *p;
	char *line, *rest;

	(void)state;
	screen_begin(&s, true);
	p = progress_new(false);
	progress_update(p, "http://host/a-name-that-is-longer-than-what-is-shown-of-names.tar.gz",
		1, UINT64_C(123456789012345));
	progress_update(p, "b", UINT64_C(123456789012345), UINT64_C(123456789012345));
	progress_free(p);

	screen_end(&s);
	assert_true(count(buf_str(&s.text), "a-name-that-is-longer") > 0);
	for (line = strtok_r(s.text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *shown = strstr(line, "\033[K");

		for (; shown && strstr(shown + 1, "\033[K"); shown = strstr(shown + 1, "\033[K"))
			;
		shown = shown ? shown + 3 : line;
		assert_in_range(strcspn(shown, "\r"), 1, COLUMNS - 1);
	}
	buf_release(&s.text);
}

/* The last line of an item shows a full bar, the size and the time that it took. */
static void the_last_line_of_an_item_is_its_end(void **state)
{
	struct screen s;
	struct progress *p;
	const char *text, *last;

	(void)state;
	screen_begin(&s, true);
	p = progress_new(false);
	progress_update(p, "data.bin", 10, 2000000);
	progress_update(p, "data.bin", 2000000, 2000000);
	progress_update(p, "data.bin", 5, 2000000); /* an update of a slow thread */
	progress_complete(p);
	progress_free(p);

	text = screen_end(&s);
	for (last = strstr(text, "data.bin"); strstr(last + 1, "data.bin");)
		last = strstr(last + 1, "data.bin");
	assert_non_null(strstr(last, "[##############] 2.0 MB, "));
	assert_non_null(strstr(last, " s"));
	assert_null(strstr(last, "to go"));
	buf_release(&s.text);
}

/* At the end, the bar of an incomplete item is removed, and a full bar stays. */
static void no_bar_is_left_half_full(void **state)
{
	struct screen s;
	struct progress *p;
	const char *text, *last;

	(void)state;
	screen_begin(&s, true);
	p = progress_new(false);
	progress_update(p, "whole.bin", 2000000, 2000000);
	progress_update(p, "part.bin", 500000, 2000000);
	progress_clear(p);
	progress_free(p);

	text = screen_end(&s);
	for (last = strstr(text, "part.bin"); strstr(last + 1, "part.bin");)
		last = strstr(last + 1, "part.bin");
	assert_non_null(strstr(last, "whole.bin"));
	buf_release(&s.text);
}

/* The last update is drawn, even if it soon follows another one. */
static void the_last_update_is_drawn(void **state)
{
	struct screen s;
	struct progress *p;
	int64_t began = clock_monotonic_ms();

	(void)state;
	screen_begin(&s, true);
	p = progress_new(false);
	progress_update(p, "data.bin", 1, 2000000);
	progress_update(p, "data.bin", 1500000, 2000000);
	while (clock_monotonic_ms() - began < 10000 && !shows(&s, "1.5 MB of 2.0"))
		clock_sleep_ms(10);
	progress_free(p);

	assert_true(count(screen_end(&s), "1.5 MB of 2.0") > 0);
	buf_release(&s.text);
}

/* Bars must not overwrite a printed line. */
static void a_note_stands_above_the_bars(void **state)
{
	struct screen s;
	struct progress *p;
	const char *text, *note;

	(void)state;
	screen_begin(&s, true);
	p = progress_new(false);
	progress_update(p, "data.bin", 10, 2000000);
	progress_note(p, "waiting for the store");
	progress_free(p);

	text = screen_end(&s);
	note = strstr(text, "waiting for the store");
	assert_non_null(note);
	assert_memory_equal(strstr(text, "\033[A\r\033[K"), "\033[A\r\033[K", 7);
	assert_true(strstr(text, "\033[A\r\033[K") < note);
	assert_non_null(strstr(note, "data.bin"));
	buf_release(&s.text);
}

/* In a file or a pipe, an item has one line at its start, with the size, and one at its end,
 * without control characters. */
static void elsewhere_there_are_plain_lines(void **state)
{
	struct screen s;
	struct progress *p;
	const char *text;

	(void)state;
	screen_begin(&s, false);
	p = progress_new(false);
	for (uint64_t i = 0; i <= 1000; i++)
		progress_update(p, "data.bin", i * 3000, i ? 3000000 : 0);
	progress_update(p, "data.bin", 3000000, 3000000);
	progress_free(p);

	text = screen_end(&s);
	assert_non_null(strstr(
		text, "penstock: data.bin: started, 3.0 MB\npenstock: data.bin: done, 3.0 MB, "));
	assert_int_equal(count(text, "\n"), 2);
	assert_null(strchr(text, '\033'));
	assert_null(strchr(text, '\r'));
	buf_release(&s.text);
}

/* If the size is unknown, the first line is printed after a second. */
static void what_has_no_size_begins_after_a_second(void **state)
{
	struct screen s;
	struct progress *p;
	int64_t began = clock_monotonic_ms();
	const char *text;

	(void)state;
	screen_begin(&s, false);
	p = progress_new(false);
	for (uint64_t i = 1; clock_monotonic_ms() - began < 1200; i++) {
		progress_update(p, "stream", i, 0);
		clock_sleep_ms(1);
	}
	progress_update(p, "stream", 5000, 0); /* right after another line */
	progress_complete(p);
	progress_free(p);

	text = screen_end(&s);
	assert_int_equal(
		strncmp(text, "penstock: stream: started\npenstock: stream: done, ", 50), 0);
	buf_release(&s.text);
}

/* --quiet disables all progress. */
static void quiet_draws_nothing(void **state)
{
	struct screen s;
	struct progress *p;

	(void)state;
	screen_begin(&s, true);
	p = progress_new(true);
	progress_update(p, "data.bin", 1, 2);
	progress_complete(p);
	progress_free(p);

	assert_string_equal(screen_end(&s), "");
	buf_release(&s.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_terminal_is_redrawn_ten_times_a_second_at_most),
		cmocka_unit_test(no_line_is_wider_than_the_terminal),
		cmocka_unit_test(the_last_line_of_an_item_is_its_end),
		cmocka_unit_test(no_bar_is_left_half_full),
		cmocka_unit_test(the_last_update_is_drawn),
		cmocka_unit_test(a_note_stands_above_the_bars),
		cmocka_unit_test(elsewhere_there_are_plain_lines),
		cmocka_unit_test(what_has_no_size_begins_after_a_second),
		cmocka_unit_test(quiet_draws_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
