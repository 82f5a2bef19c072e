#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "run/process/cgroups.h"
#include "run/step/host.h"

/* A simulated /sys/fs/cgroup. make() creates the files of a group, as the kernel would. */
struct fixture {
	char dir[64];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/penstock-cgroups-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	cgroup_set_root("/sys/fs/cgroup", NULL);
	fs_remove_tree(f->dir, NULL);
	free(f);
	return 0;
}

static void make(const struct fixture *f, const char *path, const char *file, const char *text)
{
	_cleanup_free_ char *dir = path_join(f->dir, path);
	_cleanup_free_ char *name = dir ? path_join(dir, file) : NULL;

	assert_non_null(name);
	assert_int_equal(fs_mkdirs(dir, 0755, NULL), 0);
	assert_int_equal(fs_write_atomic(name, text, strlen(text), 0644, NULL), 0);
}

/* Asserts the path where a group would be created. No group is created, because the kernel's files
 * are missing. */
static void assert_made_below(const struct fixture *f, const char *membership, const char *below)
{
	_cleanup_(buf_release) struct buf where = BUF_INIT(4096);
	_cleanup_free_ char *wanted = path_join(f->dir, below);

	cgroup_set_root(f->dir, membership);
	assert_int_equal(cgroup_place(&where), 0);
	assert_non_null(wanted);
	assert_string_equal(buf_str(&where), wanted);
}

/* The slice that systemd delegates to a user delegates memory to its children; the scope of the
 * session does not. */
static void a_delegated_slice_is_used(void **state)
{
	const struct fixture *f = *state;
	const char *scope = "user.slice/user-7.slice/user@7.service/app.slice/run-1.scope";

	make(f, scope, "cgroup.controllers", "memory pids\n");
	make(f, scope, "memory.max", "max\n");
	make(f, "user.slice/user-7.slice/user@7.service/app.slice", "cgroup.subtree_control",
		"cpuset memory pids\n");

	assert_made_below(f, "0::/user.slice/user-7.slice/user@7.service/app.slice/run-1.scope\n",
		"user.slice/user-7.slice/user@7.service/app.slice memory cpus pids\n");
}

/* A group outside of step_0 would evade its memory limit. penstock makes its groups in step_0,
 * where they only count usage. */
static void a_limit_above_us_is_never_left(void **state)
{
	const struct fixture *f = *state;

	make(f, "slurm/job_7/step_0", "cgroup.controllers", "memory\n");
	make(f, "slurm/job_7/step_0", "memory.max", "1048576\n");
	make(f, "slurm/job_7", "cgroup.subtree_control", "memory\n");

	assert_made_below(f, "0::/slurm/job_7/step_0\n", "slurm/job_7/step_0\n");
}

/* Version 1 has a directory for each controller; a hybrid machine has version 2 in addition. */
static void hybrid_machines_use_both(void **state)
{
	const struct fixture *f = *state;
	_cleanup_(buf_release) struct buf where = BUF_INIT(4096);
	_cleanup_(buf_release) struct buf wanted = BUF_INIT(4096);

	make(f, "memory/a", "tasks", "");
	make(f, "cpuset", "tasks", "");
	make(f, "pids/a", "tasks", "");
	make(f, "unified", "cgroup.controllers", "");
	cgroup_set_root(f->dir, "8:pids:/a\n4:memory:/a\n3:cpuset:/\n0::/\n");
	buf_printf(&wanted, "%s/pids/a pids\n%s/memory/a memory\n%s/cpuset cpus\n%s/unified\n",
		f->dir, f->dir, f->dir, f->dir);

	assert_int_equal(cgroup_place(&where), 0);
	assert_string_equal(buf_str(&where), buf_str(&wanted));
}

/* The groups of a killed run are removed, even within the group of the whole run. A group with a
 * live process stays. */
static void empty_groups_of_the_dead_are_swept(void **state)
{
	const struct fixture *f = *state;
	_cleanup_(buf_release) struct buf where = BUF_INIT(4096);
	_cleanup_free_ char *theirs = NULL;
	_cleanup_free_ char *ours = NULL;
	int status;
	pid_t dead = fork();

	if (dead == 0)
		_exit(0);
	assert_int_equal(waitpid(dead, &status, 0), dead);
	assert_true(
		asprintf(&theirs, "%s/memory/penstock-0123456789ab-%d-1/penstock-0123456789ab-%d-2",
			f->dir, (int)dead, (int)dead) > 0);
	assert_true(
		asprintf(&ours, "%s/memory/penstock-0123456789ab-%d-1", f->dir, (int)getpid()) > 0);
	assert_int_equal(fs_mkdirs(theirs, 0755, NULL), 0);
	assert_int_equal(fs_mkdirs(ours, 0755, NULL), 0);

	cgroup_set_root(f->dir, "4:memory:/\n");
	assert_int_equal(cgroup_place(&where), 0);

	*strrchr(theirs, '/') = '\0';
	assert_int_equal(access(theirs, F_OK), -1);
	assert_int_equal(access(ours, F_OK), 0);
}

/* Only directories with penstock's names are ever removed. */
static void foreign_directories_are_left_alone(void **state)
{
	const struct fixture *f = *state;
	_cleanup_free_ char *theirs = path_join(f->dir, "theirs");
	_cleanup_free_ char *outside = strdup("/tmp/penstock-nowhere");

	make(f, "theirs", "cgroup.procs", "");
	cgroup_set_root(f->dir, "0::/\n");

	assert_int_equal(cgroup_end_recorded(theirs), 0);
	assert_int_equal(cgroup_end_recorded(outside), 0);
	assert_int_equal(access(theirs, F_OK), 0);
}

/* Concurrent steps get different CPUs as long as there are enough, and then the least used CPUs. */
static void shares_are_spread(void **state)
{
	uint16_t used[CLAIMS_MAX_CPUS] = {0};
	const int cpus[] = {4, 5, 6};
	int a[3];
	int b[3];

	(void)state;
	assert_int_equal(shares_take(used, cpus, 3, 2, a), 2);
	assert_int_equal(a[0], 4);
	assert_int_equal(a[1], 5);
	assert_int_equal(shares_take(used, cpus, 3, 1, b), 1);
	assert_int_equal(b[0], 6);
	shares_release(used, cpus, 3, a, 2);
	assert_int_equal(shares_take(used, cpus, 3, 9, a), 3);
	shares_release(used, cpus, 3, a, 3);
	shares_release(used, cpus, 3, b, 1);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(used[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_delegated_slice_is_used, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_limit_above_us_is_never_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(hybrid_machines_use_both, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			empty_groups_of_the_dead_are_swept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			foreign_directories_are_left_alone, set_up, tear_down),
		cmocka_unit_test(shares_are_spread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
