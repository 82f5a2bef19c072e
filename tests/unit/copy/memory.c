/* Every allocation of a copy fails once. Each file is then complete or missing, and a missing file
 * has an error. */
#include "copy/copy.h"
#include "../transfer/memory_fixture.h"

static int download(struct client *c, struct penstock_error *err)
{
	struct copy_prefix prefix = {.bucket = "bucket", .prefix = "p", .dir = dir};
	struct copy copy;
	int rc = copy_begin(&copy,
		&(struct copy_options){.engine = c->engine,
			.from = c->s3,
			.keep_same = true,
			.no_sync = true,
			.stop_at_first_error = true},
		err);

	if (rc == 0)
		rc = copy_prefix(&copy, &prefix, err);
	if (rc == 0)
		rc = copy_finish(&copy, err);
	copy_end(&copy);
	if (rc == 0)
		assert_int_equal(prefix.objects, 2);
	return rc;
}

static void check_tree(int rc)
{
	static const char *const names[] = {"a", "d/b"};
	char path[64];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		/* Each file is complete; if no error occurred, both files exist. */
		if (rc == 0 || access(path, F_OK) == 0)
			assert_file(names[i], true);
	}
	fs_remove_tree(dir, NULL);
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void downloading_a_tree(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = download, .check = check_tree}, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(downloading_a_tree, start_server, stop_server),
	};

	/* If an allocation fails, libcurl 7.88 may lose the query of a URL, so its allocations do
	 * not fail here; tests/unit/net/memory.c covers them. */
	alloc_fail_skip_library("libcurl");
	alarm(115);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
