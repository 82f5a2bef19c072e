/* What lies below a prefix into a directory: a call that did not end leaves the next one what it has done, and no more. */
#include "tiny_store.h"

#include "transfer/tree.h"
#include "transfer/tree_journal.h"

/* In the place of the C library's: what a sync of the disk does is the test's to say. */
static int sync_error;
static unsigned syncs;

int syncfs(int fd)
{
	(void)fd;
	syncs++;
	errno = sync_error;
	return sync_error ? -1 : 0;
}

struct world {
	struct tiny_store store;
	struct fixture f; /* its server is not asked */
	struct object_client *s3;
	char dir[32];
	char journal[64];
};

/* Two objects below "p", none below anything else. */
static bool lists(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	char xml[1024] = "<ListBucketResult></ListBucketResult>";

	if (!is(r, "GET", "list-type=2"))
		return false;
	if (strstr(r->target, "prefix=p")) {
		const struct tiny_object *a = tiny_find(store, "/bucket/p/a");
		const struct tiny_object *b = tiny_find(store, "/bucket/p/b");

		snprintf(xml, sizeof(xml),
			"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/a</Key>"
			"<LastModified>2026-11-21T09:05:00.000Z</LastModified><ETag>%s</ETag>"
			"<Size>%zu</Size></Contents><Contents><Key>p/b</Key><LastModified>"
			"2026-11-21T09:05:00.000Z</LastModified><ETag>%s</ETag><Size>%zu</Size>"
			"</Contents></ListBucketResult>",
			a->etag, a->len, b->etag, b->len);
	}
	*keep = mini_reply(fd, "200 OK", "Content-Type: application/xml\r\n", xml, strlen(xml));
	return true;
}

static void begin_world(struct world *w)
{
	char url[MINI_URL_SIZE];

	memset(w, 0, sizeof(*w));
	begin(&w->f, NULL);
	tiny_start(&w->store);
	w->store.trouble = lists;
	tiny_make(&w->store, "/bucket/p/a", data, 1000);
	tiny_make(&w->store, "/bucket/p/b", data, 2000);
	mini_url(&w->store.server, "", url);
	assert_int_equal(0, object_client_new(&w->s3,
				    &(struct object_client_options){.engine = w->f.engine,
					    .endpoint_url = url,
					    .region = "us-east-1",
					    .credentials = w->f.keys},
				    &w->f.err));
	snprintf(w->dir, sizeof(w->dir), "/tmp/tree-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->journal, sizeof(w->journal), "%s/%s", w->dir, TREE_JOURNAL_NAME);
	sync_error = 0;
	syncs = 0;
}

static void end_world(struct world *w)
{
	object_client_free(w->s3);
	tiny_stop(&w->store);
	end(&w->f);
	assert_int_equal(0, fs_remove_tree(w->dir, NULL));
}

static int download(struct world *w, const char *prefix,
	const struct tree_download_options *options, struct tree_download_stats *stats)
{
	penstock_error_release(&w->f.err);
	return transfer_download_tree(w->s3, "bucket", prefix, w->dir, options, stats, &w->f.err);
}

/* A call may have fetched all, and been killed before it made them durable. */
static void what_an_earlier_call_left_is_synced(void **state)
{
	struct tree_download_stats stats;
	struct world w;

	(void)state;
	begin_world(&w);
	sync_error = EIO;
	assert_true(0 > download(&w, "p", NULL, &stats));
	assert_int_equal(2, stats.fetched_objects);
	assert_int_equal(1, syncs);
	sync_error = 0;

	assert_int_equal(0, download(&w, "p", NULL, &stats));

	assert_int_equal(0, stats.fetched_objects);
	assert_int_equal(2, stats.skipped_objects);
	assert_int_equal(2, syncs);
	assert_int_equal(-1, access(w.journal, F_OK));
	end_world(&w);
}

static void read_journal(const struct world *w, struct buf *out)
{
	assert_int_equal(0, fs_read(w->journal, out, NULL));
	assert_true(out->len > 0);
}

/* While the first is under way. */
static int download_another(
	void *cookie, uint64_t objects, uint64_t bytes, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf before = BUF_INIT(MIB), after = BUF_INIT(MIB);
	struct world *w = cookie;

	(void)bytes;
	(void)err;
	assert_int_equal(2, objects);
	read_journal(w, &before);
	assert_int_equal(-(int)PENSTOCK_E_EXISTS, download(w, "q", NULL, NULL));
	read_journal(w, &after);
	assert_int_equal(before.len, after.len);
	assert_memory_equal(before.data, after.data, before.len);
	return 0;
}

static void another_download_does_not_touch_the_journal(void **state)
{
	struct tree_download_stats stats;
	struct world w;

	(void)state;
	begin_world(&w);

	assert_int_equal(0,
		download(&w, "p",
			&(struct tree_download_options){.on_size = download_another, .cookie = &w},
			&stats));

	assert_int_equal(2, stats.fetched_objects);
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_an_earlier_call_left_is_synced),
		cmocka_unit_test(another_download_does_not_touch_the_journal),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
