#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "run/report/output.h"

struct fixture {
	char dir[64];
	char log[80];
	struct output *output;
	int terminal[2];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/penstock-output-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->log, sizeof(f->log), "%s/log", f->dir);
	assert_int_equal(pipe2(f->terminal, O_CLOEXEC), 0);
	assert_int_equal(output_start(&f->output, f->log, f->terminal[1], f->terminal[1], NULL), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	output_stop(f->output);
	output_free(f->output);
	log_redact_clear();
	close(f->terminal[0]);
	close(f->terminal[1]);
	fs_remove_tree(f->dir, NULL);
	free(f);
	return 0;
}

static void put(const struct fixture *f, int which, const char *text)
{
	assert_int_equal(fs_write_all(output_write_fd(f->output, which), text, strlen(text)), 0);
}

static void assert_log(const struct fixture *f, const char *expected)
{
	struct buf text = BUF_INIT(100000);

	assert_int_equal(fs_read(f->log, &text, NULL), 0);
	assert_string_equal(buf_str(&text), expected);
	assert_int_equal(output_size(f->output), text.len);
	buf_release(&text);
}

static void put_task(const struct output_task *task, const char *text)
{
	assert_int_equal(fs_write_all(output_task_fd(task, 1), text, strlen(text)), 0);
}

/* Lines of tasks that print at the same time are not mixed; each has a label. */
static void labelled_lines_are_not_torn(void **state)
{
	struct fixture *f = *state;
	struct output_task *a = NULL;
	struct output_task *b = NULL;

	assert_int_equal(output_add(f->output, "[0] ", &a, NULL), 0);
	assert_int_equal(output_add(f->output, "[1] ", &b, NULL), 0);
	put_task(a, "half a");
	output_drain(f->output);
	put_task(b, "one\r\ntwo");
	output_drain(f->output);
	put_task(a, " line\n");
	output_drain(f->output);
	assert_int_equal(output_task_bytes(a), 12);
	output_task_started(a);
	output_task_started(b);
	output_remove(f->output, b);
	output_remove(f->output, a);
	output_drain(f->output);

	assert_log(f, "[1] one\n[0] half a line\n[1] two\n");
}

/* Open MPI's tags are shown in the same form as the ranks of other tasks. */
static void tags_of_a_launcher_become_ranks(void **state)
{
	struct fixture *f = *state;
	struct output_task *a = NULL;

	assert_int_equal(output_add(f->output, "", &a, NULL), 0);
	put_task(a, "[1,3]<stdout>:hello\n[1,12]<stderr>:\nits own [1,2]<stdout>: line\n[1,2] no "
		    "tag\n");
	output_remove(f->output, a);
	output_drain(f->output);

	assert_log(f, "[3] hello\n[12] \nits own [1,2]<stdout>: line\n[1,2] no tag\n");
}

/* A secret that a task prints in two writes is masked, even if another task prints between them. */
static void secrets_of_one_task_are_masked_beside_another(void **state)
{
	struct fixture *f = *state;
	struct output_task *a = NULL;
	struct output_task *b = NULL;

	log_redact("the-secret-value");
	assert_int_equal(output_add(f->output, NULL, &a, NULL), 0);
	put_task(a, "x the-sec");
	assert_int_equal(output_add(f->output, "[1] ", &b, NULL), 0);
	put_task(b, "y\n");
	put_task(a, "ret-value\n");
	output_remove(f->output, a);
	output_remove(f->output, b);
	output_drain(f->output);

	{
		struct buf text = BUF_INIT(100000);

		assert_int_equal(fs_read(f->log, &text, NULL), 0);
		assert_null(strstr(buf_str(&text), "secret"));
		assert_non_null(strstr(buf_str(&text), "***"));
		buf_release(&text);
	}
}

/* Both streams reach the terminal and the log before output_drain() returns. */
static void output_reaches_terminal_and_log(void **state)
{
	struct fixture *f = *state;
	char shown[64] = "";

	put(f, 1, "out\n");
	output_drain(f->output);
	put(f, 2, "err\n");
	output_drain(f->output);
	output_note(f->output, "note %d", 1);

	assert_log(f, "out\nerr\nnote 1\n");
	assert_int_equal(read(f->terminal[0], shown, sizeof(shown)), 8);
	assert_string_equal(shown, "out\nerr\n");
}

/* A note starts a new line, even after output that did not end with a newline. */
static void a_note_begins_a_line(void **state)
{
	struct fixture *f = *state;

	put(f, 1, "half");
	output_drain(f->output);
	output_note(f->output, "note 1");
	output_note(f->output, "note 2");
	put(f, 2, "more\n");
	output_drain(f->output);
	output_note(f->output, "note 3");

	assert_log(f, "half\nnote 1\nnote 2\nmore\nnote 3\n");
}

/* A secret in two writes is masked; an incomplete secret at the end of the output is shown. */
static void secrets_are_masked_across_writes(void **state)
{
	struct fixture *f = *state;

	log_redact("hunter22");
	put(f, 1, "key=hunt");
	put(f, 1, "er22; again hunter22!\nhunt");
	output_drain(f->output);

	assert_log(f, "key=***; again ***!\nhunt");
}

/* Waits for the next bytes of the terminal, and compares them. */
static void assert_shown(const struct fixture *f, const char *expected)
{
	char shown[64] = "";
	size_t len = 0;

	while (len < strlen(expected)) {
		ssize_t n = read(f->terminal[0], shown + len, strlen(expected) - len);

		assert_true(n > 0);
		len += (size_t)n;
	}
	assert_string_equal(shown, expected);
}

/* If a secret is written slowly, at most its first two letters are shown. A prompt is shown in
 * full. */
static void secrets_are_masked_across_slow_writes(void **state)
{
	struct fixture *f = *state;

	log_redact("hunter22");
	put(f, 1, "key=hunt");
	assert_shown(f, "key=hu");
	put(f, 1, "er22.");
	assert_shown(f, "***.");
	put(f, 1, "Is it h");
	assert_shown(f, "Is it h");
	put(f, 1, "e?");
	assert_shown(f, "e?");
	put(f, 1, "hu");
	assert_shown(f, "hu");
	put(f, 1, "hunter22!");
	assert_shown(f, "***!");
	output_drain(f->output);

	assert_log(f, "key=hu***.Is it he?hu***!");
}

/* If one secret is a prefix of another, masking the shorter one must not reveal the rest of the
 * longer one. */
static void the_longest_secret_wins(void **state)
{
	struct fixture *f = *state;

	log_redact("abcd");
	log_redact("abcdefgh");
	put(f, 1, "abcdefgh abcdef");
	output_drain(f->output);

	assert_log(f, "*** ***ef");
}

/* A full disk, here simulated by a limit on the file's size, does not end the log: the last bytes
 * wait for free space. */
static void a_full_disk_leaves_a_gap_and_not_the_end(void **state)
{
	struct fixture *f = *state;
	struct rlimit whole, small = {.rlim_cur = 6};
	char line[1001];

	memset(line, 'x', 999);
	line[999] = '\n';
	line[1000] = '\0';
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
	small.rlim_max = whole.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	output_note(f->output, "one");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 100; i++)
		output_note(f->output, "%s", line);
	output_note(f->output, "last");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
	output_retry(f->output);
	output_note(f->output, "after");

	{
		struct buf text = BUF_INIT(200000);

		assert_int_equal(fs_read(f->log, &text, NULL), 0);
		assert_int_equal(output_size(f->output), text.len);
		/* "one", two bytes that still fitted, the notice of the gap, LIMIT_LOG_WAITING
		 * bytes, and "after" */
		assert_memory_equal(buf_str(&text), "one\nxx\npenstock: ", 17);
		assert_non_null(strstr(buf_str(&text),
			" bytes of the log are missing here: its disk was full\nxxx"));
		assert_non_null(strstr(buf_str(&text), "xxx\n\nlast\nafter\n"));
		assert_in_range(text.len, LIMIT_LOG_WAITING, LIMIT_LOG_WAITING + 200);
		buf_release(&text);
	}
}

static char *read_log(const struct fixture *f, struct buf *text)
{
	buf_clear(text);
	assert_int_equal(fs_read(f->log, text, NULL), 0);
	return text->data;
}

/* No process reads the terminal: the log still gets everything at full speed, and the terminal
 * later gets the newest output. */
static void a_slow_terminal_does_not_stop_the_step(void **state)
{
	enum { LINES = 40000 };
	struct fixture *f = *state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(8 * MIB), seen = BUF_INIT(8 * MIB);
	int master, slave, fd;
	int64_t until;

	assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
	output_stop(f->output);
	output_free(f->output);
	f->output = NULL;
	assert_int_equal(output_start(&f->output, f->log, slave, slave, NULL), 0);
	fd = output_write_fd(f->output, 1);
	fcntl(fd, F_SETFL, O_NONBLOCK);

	for (int i = 0; i < LINES; i++) {
		struct pollfd p = {fd, POLLOUT, 0};
		char line[40];
		int len = snprintf(line, sizeof(line), "a line of the step: number %d\n", i);

		assert_int_equal(poll(&p, 1, 10000), 1);
		assert_int_equal(write(fd, line, (size_t)len), len);
	}
	until = clock_monotonic_ms() + 20000;
	while (!strstr(read_log(f, &text), "number 39999\n") && clock_monotonic_ms() < until)
		clock_sleep_ms(10);
	assert_non_null(strstr(text.data, "number 20000\n"));
	assert_non_null(strstr(text.data, "number 39999\n"));

	fcntl(master, F_SETFL, O_NONBLOCK);
	while (!(seen.len && strstr(buf_str(&seen), "number 39999")) &&
		clock_monotonic_ms() < until) {
		char piece[4096];
		struct pollfd p = {master, POLLIN, 0};
		ssize_t n = poll(&p, 1, 1000) == 1 ? read(master, piece, sizeof(piece)) : 0;

		buf_add(&seen, piece, n > 0 ? (size_t)n : 0);
	}
	assert_non_null(strstr(buf_str(&seen), "number 0\r\n"));
	assert_null(strstr(buf_str(&seen), "number 20000\r\n"));
	assert_non_null(strstr(buf_str(&seen), "log only"));
	assert_non_null(strstr(buf_str(&seen), "number 39999\r\n"));
	close(master);
	close(slave);
}

/* A terminal that was closed must not end the log. */
static void a_lost_terminal_does_not_stop_the_log(void **state)
{
	struct fixture *f = *state;

	close(f->terminal[0]);
	f->terminal[0] = open("/dev/null", O_RDONLY);
	put(f, 1, "one\n");
	output_drain(f->output);
	put(f, 1, "two\n");
	output_drain(f->output);

	assert_log(f, "one\ntwo\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(output_reaches_terminal_and_log, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_note_begins_a_line, set_up, tear_down),
		cmocka_unit_test_setup_teardown(labelled_lines_are_not_torn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(tags_of_a_launcher_become_ranks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			secrets_of_one_task_are_masked_beside_another, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			secrets_are_masked_across_writes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			secrets_are_masked_across_slow_writes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_longest_secret_wins, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_slow_terminal_does_not_stop_the_step, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_lost_terminal_does_not_stop_the_log, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_full_disk_leaves_a_gap_and_not_the_end, set_up, tear_down),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
