#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"

static int spawn(struct process *p, const char *command, int out, struct penstock_error *err)
{
	const char *argv[] = {"/bin/sh", "-c", command, NULL};

	return process_spawn(p,
		&(struct process_spec){.argv = argv,
			.stdin_fd = -1,
			.stdout_fd = out,
			.stderr_fd = -1,
			.new_session = true},
		err);
}

/* The exit code of a child comes back as waitpid() gives it. */
static void a_child_runs_and_is_reaped(void **state)
{
	struct process p;
	int status = 0;

	(void)state;
	assert_int_equal(spawn(&p, "exit 7", -1, NULL), 0);

	assert_true(process_wait(&p, -1, &status));
	assert_int_equal(WEXITSTATUS(status), 7);
	process_release(&p);
}

/* What fails before exec is told by name, and leaves no child. */
static void a_missing_program_is_the_callers_error(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *argv[] = {"/nonexistent/program", NULL};
	struct process p;

	(void)state;
	assert_int_equal(
		process_spawn(&p,
			&(struct process_spec){
				.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1},
			&err),
		-PENSTOCK_E_NOT_FOUND);

	assert_non_null(strstr(err.message, "/nonexistent/program"));
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* Only 0, 1 and 2 reach the child, also where our own descriptors are not close-on-exec. */
static void a_child_inherits_no_other_descriptor(void **state)
{
	char text[256] = "";
	struct process p;
	int ends[2];
	int leaked = open("/dev/null", O_RDONLY);
	int status;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_true(leaked > 2);
	/* ls itself opens 3 for the directory. */
	assert_int_equal(spawn(&p, "ls /proc/self/fd | tr '\\n' ' '", ends[1], NULL), 0);
	close(ends[1]);

	assert_true(process_wait(&p, -1, &status));
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	assert_string_equal(text, "0 1 2 3 ");
	close(ends[0]);
	close(leaked);
	process_release(&p);
}

static bool count_one(void *cookie, const struct process_info *info)
{
	(void)info;
	++*(int *)cookie;
	return true;
}

/* Grandchildren are found, and a signal handler is seen. */
static void descendants_and_handlers_are_seen(void **state)
{
	struct process_info info;
	struct process p;
	int ends[2];
	int found = 0;
	int status;
	char c;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(
		spawn(&p, "trap 'exit 3' TERM; sleep 1000 & echo x; wait", ends[1], NULL), 0);
	close(ends[1]);
	assert_int_equal(read(ends[0], &c, 1), 1);

	assert_true(process_catches(p.pid, SIGTERM));
	assert_false(process_catches(p.pid, SIGUSR1));
	assert_true(process_info(p.pid, &info));
	assert_int_equal(info.parent, getpid());
	assert_int_equal(info.session, p.pid);
	assert_int_equal(process_descendants(p.pid, count_one, &found), 1);
	assert_int_equal(found, 1);
	process_signal(&p, SIGTERM);
	assert_true(process_wait(&p, -1, &status));
	assert_int_equal(WEXITSTATUS(status), 3);
	kill(-p.pid, SIGKILL);
	close(ends[0]);
	process_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_runs_and_is_reaped),
		cmocka_unit_test(a_missing_program_is_the_callers_error),
		cmocka_unit_test(a_child_inherits_no_other_descriptor),
		cmocka_unit_test(descendants_and_handlers_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
