/* The lock of a run while its last holder dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "records/supervisor.h"

static char path[64];

static int set_up(void **state)
{
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/penstock-supervisor-test-XXXXXX");
	fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
	(void)state;
	return unlink(path);
}

/* Starts a process that takes the lock and has so much memory that its exit takes a while. */
static pid_t start_holder(void)
{
	char c;
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		int lock = -1;

		if (mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED ||
			supervisor_begin(path, "0123456789ab", &lock, NULL) < 0 ||
			write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* `kill -9` returns before the process has exited and its lock is free. */
static void a_killed_holder_is_waited_for(void **state)
{
	_cleanup_close_ int lock = -1;

	(void)state;
	for (int i = 0; i < 8; i++) {
		pid_t pid = start_holder();

		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(supervisor_begin(path, "0123456789ab", &lock, NULL), 0);

		close(take_fd(lock));
		waitpid(pid, NULL, 0);
	}
}

/* A live holder keeps the lock. */
static void a_live_holder_is_named(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int lock = -1;
	pid_t pid = start_holder();
	int r;

	(void)state;
	r = supervisor_begin(path, "0123456789ab", &lock, &err);

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(r, -PENSTOCK_E_EXISTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_killed_holder_is_waited_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_live_holder_is_named, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
