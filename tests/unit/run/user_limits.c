/* Limits of users, from the two configuration files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "run/config/user_limits.h"

static char dir[] = "/tmp/penstock-limits-XXXXXX";

static void write_config(const char *variable, const char *text)
{
	char path[100];

	snprintf(path, sizeof(path), "%s/%s", dir, variable);
	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
	assert_int_equal(setenv(variable, path, 1), 0);
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(strcpy(dir, "/tmp/penstock-limits-XXXXXX")) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

static void other_users_have_the_limits_of_the_administrator(void **state)
{
	const uid_t other = geteuid() + 4000000;
	struct claim_limits limits;
	char text[200];

	(void)state;
	snprintf(text, sizeof(text), "limits: {'%u': {cpus: 2, memory: 1GiB}, '*': {gpus: 1}}",
		(unsigned)other);
	write_config("PENSTOCK_SYSTEM_CONFIG", text);
	write_config("PENSTOCK_CONFIG", "limits: {'*': {gpus: 0, runs: 7}}");
	assert_int_equal(user_limits_of(other, &limits, NULL), 0);
	assert_int_equal(limits.cpus, 2);
	assert_int_equal(limits.memory, 1 << 30);
	assert_int_equal(limits.gpus, -1);
	assert_int_equal(limits.runs, -1);
	assert_int_equal(user_limits_of(other + 1, &limits, NULL), 0);
	assert_int_equal(limits.cpus, -1);
	assert_int_equal(limits.gpus, 1);
	assert_int_equal(user_limits_of(geteuid(), &limits, NULL), 0);
	assert_int_equal(limits.gpus, 0);
	assert_int_equal(limits.runs, 7);
}

static void an_invalid_limit_of_another_user_is_an_error(void **state)
{
	struct claim_limits limits;

	(void)state;
	write_config("PENSTOCK_SYSTEM_CONFIG", "limits: {ann: {cpu: 1}}");
	assert_int_equal(user_limits_of(geteuid() + 4000000, &limits, NULL), -PENSTOCK_E_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_users_have_the_limits_of_the_administrator),
		cmocka_unit_test(an_invalid_limit_of_another_user_is_an_error),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
