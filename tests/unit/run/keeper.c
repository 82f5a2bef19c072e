#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "run/publish/keeper.h"
#include "run/publish/publisher.h"
#include "sync/sync.h"
#include "transfer/objects.h"
#include "workflow/model.h"

/* The sync uploads no files before its flush, so no output counts as published. */
struct fixture {
	char top[64];
	struct http_engine *engine;
	struct object_client *s3;
	struct workflow workflow;
	struct attempt attempt;
	struct reaction reaction;
	struct publisher publisher;
	struct keeper keeper;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	_cleanup_free_ char *private_dir = NULL;

	assert_non_null(f);
	snprintf(f->top, sizeof(f->top), "/tmp/penstock-keeper-XXXXXX");
	assert_non_null(mkdtemp(f->top));
	private_dir = path_join(f->top, "private");
	f->attempt.layout.output = path_join(f->top, "out");
	assert_int_equal(fs_mkdirs(f->attempt.layout.output, 0700, NULL), 0);
	assert_int_equal(http_engine_new(&f->engine, &(struct http_engine_options){0}, NULL), 0);
	/* No server listens at this address. */
	assert_int_equal(object_client_open(&f->s3, f->engine,
				 &(struct store_place){.endpoint_url = "http://127.0.0.1:1",
					 .region = "us-east-1",
					 .anonymous = true},
				 NULL),
		0);
	f->workflow.checkpoints.path.value = ".";
	f->workflow.checkpoints.pattern.value = "*.pth";
	f->attempt.workflow = &f->workflow;
	publisher_init(&f->publisher, &f->attempt, &f->reaction, NULL);
	assert_int_equal(sync_start(&f->publisher.sync,
				 &(struct sync_options){.dir = f->attempt.layout.output,
					 .private_dir = private_dir,
					 .client = f->s3,
					 .bucket = "b",
					 .prefix = "",
					 .state_prefix = ".penstock/runs/run",
					 .run_id = "run",
					 .attempt = 1,
					 .workers = 1},
				 NULL),
		0);
	assert_int_equal(keeper_init(&f->keeper, &f->publisher, NULL), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	keeper_release(&f->keeper);
	sync_free(f->publisher.sync);
	publisher_release(&f->publisher);
	object_client_free(f->s3);
	http_engine_free(f->engine);
	fs_remove_tree(f->top, NULL);
	free(f->attempt.layout.output);
	free(f);
	return 0;
}

static void write_file(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = path_join(f->attempt.layout.output, name);

	assert_int_equal(fs_write_atomic(path, "x", 1, 0600, NULL), 0);
}

/* The sync reports no event for a file that turns out to be unchanged, so the keeper must check the
 * file again. */
static void a_file_that_does_not_count_yet_is_reported(void **state)
{
	struct fixture *f = *state;
	size_t n = 7;

	assert_true(keeper_commit_files(&f->keeper, false, &n));
	write_file(f, "other");
	assert_true(keeper_commit_files(&f->keeper, false, &n));
	write_file(f, "a.pth");
	assert_false(keeper_commit_files(&f->keeper, false, &n));
	assert_int_equal(n, 0);

	/* After a restore, every file of the checkpoint is complete. */
	assert_true(keeper_commit_files(&f->keeper, true, &n));
	assert_int_equal(n, 1);
	assert_true(keeper_commit_files(&f->keeper, false, &n));
	assert_int_equal(n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_file_that_does_not_count_yet_is_reported, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
