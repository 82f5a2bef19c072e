#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "records/cgroup.h"

static char mount[64];

static int set_up(void **state)
{
	(void)state;
	snprintf(mount, sizeof(mount), "/tmp/penstock-cgroup-test-XXXXXX");
	return mkdtemp(mount) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return fs_remove_tree(mount, NULL);
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s%s", mount, dir);
	assert_int_equal(fs_mkdirs(path, 0755, NULL), 0);
	snprintf(path, sizeof(path), "%s%s/%s", mount, dir, name);
	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0644, NULL), 0);
}

/* In version 2, the lowest limit of the group and its ancestors counts. */
static void the_tightest_group_counts(void **state)
{
	struct cgroup_limits limits;

	(void)state;
	put("/user.slice", "memory.max", "2147483648\n");
	put("/user.slice", "cpu.max", "max 100000\n");
	put("/user.slice/a", "memory.max", "max\n");
	put("/user.slice/a", "cpu.max", "150000 100000\n");

	cgroup_limits_read(mount, "0::/user.slice/a\n", &limits);
	assert_true(limits.memory == 2147483648U);
	assert_true(limits.cpus > 1.49 && limits.cpus < 1.51);
}

/* Version 1 has a tree for each controller. In a container, the path may be that of the host. */
static void version_one_is_read_at_the_mount_when_the_path_is_the_hosts(void **state)
{
	struct cgroup_limits limits;

	(void)state;
	put("/memory", "memory.limit_in_bytes", "1073741824\n");
	put("/cpu", "cpu.cfs_quota_us", "200000\n");
	put("/cpu", "cpu.cfs_period_us", "100000\n");

	cgroup_limits_read(
		mount, "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n", &limits);
	assert_true(limits.memory == 1073741824U);
	assert_true(limits.cpus > 1.99 && limits.cpus < 2.01);
}

/* The result is 0 if there is no limit, which version 1 writes as its largest number or as a quota
 * of -1. */
static void no_limit_is_zero(void **state)
{
	struct cgroup_limits limits;

	(void)state;
	put("/memory/a", "memory.limit_in_bytes", "9223372036854771712\n");
	put("/cpu/a", "cpu.cfs_quota_us", "-1\n");
	put("/cpu/a", "cpu.cfs_period_us", "100000\n");

	cgroup_limits_read(mount, "4:memory:/a\n3:cpu:/a\nnonsense\n::\n1:x\n", &limits);
	assert_true(limits.memory == 0);
	assert_true(limits.cpus == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_tightest_group_counts),
		TEST(version_one_is_read_at_the_mount_when_the_path_is_the_hosts),
		TEST(no_limit_is_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
