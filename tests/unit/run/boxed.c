#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/task/box.h"
#include "run/task/boxed.h"

enum { ROUNDS = 300 };

/* Acts as the init process of a container, whose helper starts the task and exits after `spin`
 * loops. The task is then a child of the init process. */
static void be_init(volatile pid_t *task, volatile unsigned *spin)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fork() == 0) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, 0);
			for (;;)
				pause();
		}
		*task = pid;
		for (unsigned left = *spin; left > 0; left = left - 1)
			__asm__ volatile("");
		_exit(0);
	}
	for (;;)
		pause();
}

/* The helper exits after a different time in each round, sometimes between the two checks for
 * children. */
static void a_task_is_found_while_its_helper_ends(void **state)
{
	struct shared {
		volatile pid_t task;
		volatile unsigned spin;
	} *shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_true(shared != MAP_FAILED);
#ifdef __SANITIZE_THREAD__
	/* The sanitizer gives the helper a second thread, which the kernel briefly makes the parent
	 * of the task. Real helpers have one thread. */
	skip();
#endif
	for (unsigned i = 0; i < ROUNDS; i++) {
		pid_t found;
		pid_t init;

		shared->task = 0;
		shared->spin = i % 100 * 1000;
		init = fork();
		if (init == 0)
			be_init(&shared->task, &shared->spin);
		while (!shared->task)
			sched_yield();
		found = boxed_find(init, shared->task);

		kill(init, SIGKILL);
		kill(shared->task, SIGKILL);
		waitpid(init, NULL, 0);
		assert_int_equal(found, shared->task);
	}
	munmap(shared, sizeof(*shared));
}

static void who_has_ended_is_not_found(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	assert_int_equal(boxed_find(getpid(), pid), getpid());
	assert_int_equal(boxed_find(getpid(), 0), getpid());
}

/* In a path that other users can write to, they could replace the directory to mount. */
static void what_others_can_write_to_is_not_safe(void **state)
{
	char dir[] = "/tmp/penstock-box-XXXXXX";

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_true(box_is_safe_in(dir));
	assert_int_equal(chmod(dir, 01777), 0);
	assert_false(box_is_safe_in(dir));
	assert_int_equal(chmod(dir, 0770), 0);
	assert_false(box_is_safe_in(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	assert_true(box_is_safe_in(dir));
	assert_int_equal(rmdir(dir), 0);
	assert_false(box_is_safe_in(dir));
	assert_false(box_is_safe_in("/tmp"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_task_is_found_while_its_helper_ends),
		cmocka_unit_test(who_has_ended_is_not_found),
		cmocka_unit_test(what_others_can_write_to_is_not_safe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
