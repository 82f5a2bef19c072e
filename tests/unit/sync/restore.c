#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/fs.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "sync/sync.h"
#include "transfer/objects.h"

struct fixture {
	struct mini_http server;
	struct http_engine *engine;
	struct object_client *s3;
	char top[64], out[80], private_dir[80];
	bool has_manifest;
};

/* A store that ignores conditions, and removes `private_dir`, a local directory of the run, while
 * the manifest is fetched. */
static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	bool manifest = strstr(r->target, "manifest.json") && f->has_manifest;
	bool read = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

	if (read && strstr(r->target, "list-type"))
		return mini_reply(fd, "200 OK", "", "<ListBucketResult></ListBucketResult>",
			strlen("<ListBucketResult></ListBucketResult>"));
	if (read && !manifest)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (!read)
		return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", "", 0);
	fs_remove_tree(f->private_dir, NULL);
	return mini_printf(fd, "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 1\r\n\r\n%s",
		strcmp(r->method, "HEAD") == 0 ? "" : "x");
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char url[MINI_URL_SIZE];

	snprintf(f->top, sizeof(f->top), "/tmp/penstock-restore-XXXXXX");
	assert_non_null(mkdtemp(f->top));
	snprintf(f->out, sizeof(f->out), "%s/out", f->top);
	snprintf(f->private_dir, sizeof(f->private_dir), "%s/private", f->top);
	assert_int_equal(mkdir(f->out, 0700), 0);
	mini_start(&f->server, answer, f);
	mini_url(&f->server, "", url);
	assert_int_equal(http_engine_new(&f->engine, &(struct http_engine_options){0}, NULL), 0);
	assert_int_equal(
		object_client_open(&f->s3, f->engine,
			&(struct store_place){
				.endpoint_url = url, .region = "us-east-1", .anonymous = true},
			NULL),
		0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	object_client_free(f->s3);
	http_engine_free(f->engine);
	mini_stop(&f->server);
	fs_remove_tree(f->top, NULL);
	free(f);
	return 0;
}

static int restore(struct fixture *f, struct sync_restored *restored)
{
	const struct sync_options o = {.dir = f->out,
		.private_dir = f->private_dir,
		.client = f->s3,
		.bucket = "b",
		.prefix = "",
		.state_prefix = ".penstock/runs/run",
		.run_id = "run",
		.attempt = 1,
		.workers = 1};

	return sync_restore(&o, restored, NULL);
}

static void without_a_manifest_there_is_nothing_to_restore(void **state)
{
	struct sync_restored restored;

	assert_int_equal(restore(*state, &restored), 0);

	assert_false(restored.found);
}

/* If the restore reported a missing manifest, the run would start from the beginning. */
static void a_missing_local_directory_is_not_a_missing_manifest(void **state)
{
	struct fixture *f = *state;
	struct sync_restored restored;

	f->has_manifest = true;

	assert_int_equal(restore(f, &restored), -PENSTOCK_E_IO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			without_a_manifest_there_is_nothing_to_restore, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_missing_local_directory_is_not_a_missing_manifest, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
