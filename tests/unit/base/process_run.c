#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/process/run.h"

enum { PATIENCE_MS = 60000, SOON_MS = 200 };

static int run(const char *command, const struct process_run_options *options, int *status,
	struct penstock_error *err)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	struct process_run_options complete = *options;

	complete.name = "it";
	if (!complete.timeout_ms)
		complete.timeout_ms = PATIENCE_MS;
	return process_run(&(struct process_spec){.argv = argv,
				   .stdin_fd = -1,
				   .stdout_fd = -1,
				   .stderr_fd = -1,
				   .new_session = true},
		&complete, status, err);
}

static void assert_ends_with(
	const char *command, const struct process_run_options *options, int code, const char *says)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int status;

	assert_int_equal(run(command, options, &status, &err), -code);
	assert_non_null(strstr(err.message, says));
}

/* Standard output, standard error and the status are returned separately. */
static void what_a_program_prints_is_had_with_its_status(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(64), said = BUF_INIT(64);
	int status = 0;

	(void)state;
	assert_int_equal(run("echo reason >&2; echo printed; exit 7",
				 &(struct process_run_options){.out.text = &out, .err.text = &said},
				 &status, NULL),
		0);

	assert_string_equal(buf_str(&out), "printed\n");
	assert_string_equal(buf_str(&said), "reason\n");
	assert_int_equal(WEXITSTATUS(status), 7);
}

static void one_buffer_may_take_both(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);
	int status = -1;

	(void)state;
	assert_int_equal(
		run("echo reason >&2; echo printed",
			&(struct process_run_options){.out.text = &text, .err.text = &text},
			&status, NULL),
		0);

	assert_non_null(strstr(buf_str(&text), "reason\n"));
	assert_non_null(strstr(buf_str(&text), "printed\n"));
	assert_int_equal(status, 0);
}

/* When a program ends, its pipe may still contain almost as many bytes as it can buffer. */
static void nothing_is_lost_of_one_that_ends_at_once(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(60000);
		int status = -1;

		assert_int_equal(
			run("exec head -c 60000 /dev/zero",
				&(struct process_run_options){.out.text = &out}, &status, NULL),
			0);
		assert_int_equal(out.len, 60000);
	}
}

/* The buffer's limit is enforced, and a program that prints endlessly is killed. */
static void more_than_the_limit_is_refused(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(100000);
	_cleanup_(buf_release) struct buf exact = BUF_INIT(4);
	int status;

	(void)state;
	assert_ends_with("exec cat /dev/zero", &(struct process_run_options){.out.text = &out},
		PENSTOCK_E_LIMIT, "longer than the limit of 100000 bytes");
	assert_true(out.len <= 100000);

	assert_int_equal(run("printf abcd", &(struct process_run_options){.out.text = &exact},
				 &status, NULL),
		0);
	assert_string_equal(buf_str(&exact), "abcd");
	buf_clear(&exact);
	assert_ends_with("printf abcde", &(struct process_run_options){.out.text = &exact},
		PENSTOCK_E_LIMIT, "4 bytes");
}

/* A program prints the reason of a failure last, so the end of standard error is kept. */
static void the_end_of_stderr_is_kept(void **state)
{
	_cleanup_(buf_release) struct buf said = BUF_INIT(64);
	const char *end = "99999\n100000\nfatal: this is why\n";
	int status;

	(void)state;
	assert_int_equal(run("(seq 100000; echo 'fatal: this is why') >&2; exit 1",
				 &(struct process_run_options){.err.text = &said}, &status, NULL),
		0);

	assert_int_equal(said.len, 64);
	assert_string_equal(buf_str(&said) + 64 - strlen(end), end);
}

/* At the timeout the program and its children are killed; the pipe that both hold shows that both
 * have ended. */
static void a_program_that_never_ends_is_killed_with_its_children(void **state)
{
	const char *const argv[] = {"/bin/sh", "-c", "sleep 1000 & sleep 1000; exit 0", NULL};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct pollfd p = {.events = POLLIN};
	int ends[2], status;
	char c;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(
		process_run(&(struct process_spec){.argv = argv,
				    .stdin_fd = -1,
				    .stdout_fd = ends[1],
				    .stderr_fd = -1,
				    .new_session = true},
			&(struct process_run_options){.name = "sleep", .timeout_ms = SOON_MS},
			&status, &err),
		-PENSTOCK_E_TIMEOUT);

	assert_non_null(strstr(err.message, "sleep"));
	close(ends[1]);
	p.fd = ends[0];
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(read(ends[0], &c, 1), 0);
	close(ends[0]);
}

/* The timeout counts from the start that the caller gives. */
static void several_may_share_one_time(void **state)
{
	(void)state;
	assert_ends_with("exec sleep 1000",
		&(struct process_run_options){
			.began_ms = clock_monotonic_ms() - 10000, .timeout_ms = 10000},
		PENSTOCK_E_TIMEOUT, "within 10 s");
}

/* A program that has closed its output may still be running; its timeout remains. */
static void one_that_closes_its_output_and_lives_on_has_its_time(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(64), said = BUF_INIT(64);

	(void)state;
	assert_ends_with("echo last; exec >&- 2>&-; exec sleep 1000",
		&(struct process_run_options){
			.out.text = &out, .err.text = &said, .timeout_ms = SOON_MS},
		PENSTOCK_E_TIMEOUT, "did not end");
}

/* A helper may start an agent that lives for days and keeps the pipe open. */
static void a_child_that_keeps_the_pipe_is_not_waited_for(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(64), said = BUF_INIT(64);
	int status = -1;
	long child;

	(void)state;
	assert_int_equal(run("sleep 1000 & echo $!",
				 &(struct process_run_options){.out.text = &out, .err.text = &said},
				 &status, NULL),
		0);

	assert_int_equal(status, 0);
	child = strtol(buf_str(&out), NULL, 10);
	assert_true(child > 1);
	assert_int_equal(kill((pid_t)child, SIGKILL), 0); /* the child was not killed before */
}

struct feeder {
	pid_t child;
	int fd;
};

/* Simulates a child that prints without end: after each read there is more data. */
static int feed(void *cookie, const char *data, size_t len, struct penstock_error *err)
{
	struct feeder *f = cookie;
	char path[64];

	(void)len;
	if (!f->child) {
		f->child = (pid_t)strtol(data, NULL, 10);
		snprintf(path, sizeof(path), "/proc/%d/fd/1", (int)f->child);
		f->fd = open(path, O_WRONLY | O_CLOEXEC);
	}
	return write(f->fd, "x", 1) == 1 ? 0 : error_errno(err, errno, "cannot write");
}

static void a_child_that_prints_endlessly_is_not_waited_for(void **state)
{
	struct feeder feeder = {0, -1};
	int status = -1;

	(void)state;
	assert_int_equal(
		run("sleep 1000 & echo $!",
			&(struct process_run_options){.out = {.take = feed, .cookie = &feeder}},
			&status, NULL),
		0);

	assert_int_equal(status, 0);
	assert_int_equal(kill(feeder.child, SIGKILL), 0);
	close(feeder.fd);
}

static int cancel_it(void *cookie, const char *data, size_t len, struct penstock_error *err)
{
	(void)data;
	(void)len;
	(void)err;
	atomic_store((atomic_int *)cookie, 1);
	return 0;
}

static void a_wish_to_stop_ends_it(void **state)
{
	atomic_int cancel = 0;

	(void)state;
	assert_ends_with("echo began; exec sleep 1000",
		&(struct process_run_options){
			.cancel = &cancel, .out = {.take = cancel_it, .cookie = &cancel}},
		PENSTOCK_E_CANCELLED, "it was cancelled");
	assert_int_equal(atomic_load(&cancel), 1);
}

static int refuse(void *cookie, const char *data, size_t len, struct penstock_error *err)
{
	(void)data;
	(void)len;
	++*(int *)cookie;
	return error_set(err, PENSTOCK_E_PROTOCOL, "no sense in it");
}

/* After its error, the sink is not called again. */
static void the_error_of_a_sink_ends_it(void **state)
{
	int times = 0;

	(void)state;
	assert_ends_with("exec yes",
		&(struct process_run_options){.out = {.take = refuse, .cookie = &times}},
		PENSTOCK_E_PROTOCOL, "no sense in it");
	assert_int_equal(times, 1);
}

static void a_program_that_is_not_there_is_named(void **state)
{
	const char *const argv[] = {"/nonexistent/program", NULL};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf out = BUF_INIT(64);
	int status;

	(void)state;
	assert_int_equal(
		process_run(&(struct process_spec){.argv = argv, .stdin_fd = -1, .stderr_fd = -1},
			&(struct process_run_options){.name = "it", .input = "x", .out.text = &out},
			&status, &err),
		-PENSTOCK_E_NOT_FOUND);
	assert_non_null(strstr(err.message, "/nonexistent/program"));
}

static void a_signal_is_seen_in_the_status(void **state)
{
	int status = 0;

	(void)state;
	assert_int_equal(run("kill -TERM $$", &(struct process_run_options){0}, &status, NULL), 0);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
}

/* The input has more bytes than a pipe can buffer. SIGPIPE has its default action, so an unexpected
 * signal would end this test. */
static void an_input_of_any_length_may_be_read_or_not(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(64);
	_cleanup_free_ char *input = calloc(3 * MIB + 1, 1);
	int status = -1;

	(void)state;
	assert_non_null(input);
	memset(input, 'x', 3 * MIB);
	signal(SIGPIPE, SIG_DFL);
	assert_int_equal(
		run("exit 0", &(struct process_run_options){.input = input}, &status, NULL), 0);
	assert_int_equal(status, 0);

	assert_int_equal(
		run("exec wc -c", &(struct process_run_options){.input = input, .out.text = &out},
			&status, NULL),
		0);
	assert_int_equal(strtol(buf_str(&out), NULL, 10), 3 * MIB);
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* Interrupted system calls neither end the run early nor make it wait for data that it has already
 * read. */
static void signals_disturb_nothing(void **state)
{
	const struct sigaction action = {.sa_handler = on_alarm};
	const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB), more = BUF_INIT(64);
	int status = -1;
	int r;

	(void)state;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	r = run("head -c 300000 /dev/zero; sleep 0.1; printf end",
		&(struct process_run_options){.out.text = &out}, &status, NULL);
	assert_ends_with("echo x; exec sleep 1000",
		&(struct process_run_options){.out.text = &more, .timeout_ms = SOON_MS},
		PENSTOCK_E_TIMEOUT, "did not end");
	setitimer(ITIMER_REAL, &never, NULL);

	assert_int_equal(r, 0);
	assert_int_equal(status, 0);
	assert_int_equal(out.len, 300003);
	assert_string_equal(out.data + 300000, "end");
}

/* ---- checks after each test ---- */

static size_t open_descriptors(void)
{
	_cleanup_closedir_ DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	return n;
}

static int before(void **state)
{
	static size_t descriptors;

	descriptors = open_descriptors();
	*state = &descriptors;
	return 0;
}

/* No process and no descriptor is left after a test. */
static int after(void **state)
{
	return process_count_spawned() == 0 && open_descriptors() == *(size_t *)*state ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, before, after)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_a_program_prints_is_had_with_its_status),
		TEST(one_buffer_may_take_both),
		TEST(nothing_is_lost_of_one_that_ends_at_once),
		TEST(more_than_the_limit_is_refused),
		TEST(the_end_of_stderr_is_kept),
		TEST(a_program_that_never_ends_is_killed_with_its_children),
		TEST(several_may_share_one_time),
		TEST(one_that_closes_its_output_and_lives_on_has_its_time),
		TEST(a_child_that_keeps_the_pipe_is_not_waited_for),
		TEST(a_child_that_prints_endlessly_is_not_waited_for),
		TEST(a_wish_to_stop_ends_it),
		TEST(the_error_of_a_sink_ends_it),
		TEST(a_program_that_is_not_there_is_named),
		TEST(a_signal_is_seen_in_the_status),
		TEST(an_input_of_any_length_may_be_read_or_not),
		TEST(signals_disturb_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
