/* Moves of objects and files, and copies between stores: an item that was not copied completely
 * stays at its source. */
#include "bulk_world.h"

/* After a move, each item exists either at the source or at the target, and many deletions take few
 * requests. */
static void moves_leave_nothing_at_the_source(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_files(&w);

	assert_int_equal(
		0, run(&w,
			   &(struct bulk_item){
				   .kind = BULK_UPLOAD, .to.client = w.s3, .remove_source = true},
			   false));
	check_objects(&w.store);
	for (unsigned i = 0; i < MANY; i++) {
		_cleanup_free_ char *path = path_of(&w, i);

		assert_int_equal(-1, access(path, F_OK));
	}
	assert_int_equal(0, run(&w,
				    &(struct bulk_item){.kind = BULK_COPY,
					    .from.client = w.s3,
					    .to.client = w.elsewhere,
					    .remove_source = true},
				    true));
	check_objects(&w.other);
	assert_int_equal(0, tiny_count(&w.store));
	assert_int_equal(0, run(&w,
				    &(struct bulk_item){.kind = BULK_DOWNLOAD,
					    .from.client = w.elsewhere,
					    .remove_source = true},
				    true));
	check_files(&w);
	assert_int_equal(0, tiny_count(&w.other));
	assert_int_equal(MANY, w.done);
	/* The store ignores ETags in deletions, so a few objects at a time are checked with HEAD
	 * and then deleted together. */
	assert_int_equal((MANY + 15) / 16, w.other.deletes);
	end_world(&w);
}

/* Refuses deletions of several objects. A HEAD shows that another client has replaced one of
 * them. */
static bool refuses_deletions(
	struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	(void)store;
	if (is(r, "POST", "delete"))
		*keep = answer_error(fd, "403 Forbidden", "AccessDenied", "");
	else if (strcmp(r->method, "HEAD") == 0 && strcmp(r->target, "/bucket/k3") == 0)
		*keep = mini_printf(fd,
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "
			"\"feedfeedfeedfeedfeedfeedfeedfeed\"\r\nLast-Modified: Sat, "
			"21 Nov 2026 09:05:00 GMT\r\n\r\n");
	else
		return false;
	return true;
}

/* An object may have been refused because of another object of the same request, so none of them
 * counts as moved. */
static void a_move_that_cannot_remove_its_source_fails(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	w.store.trouble = refuses_deletions;

	assert_true(0 > run(&w,
				&(struct bulk_item){.kind = BULK_DOWNLOAD,
					.from.client = w.s3,
					.remove_source = true},
				true));

	assert_int_equal(MANY, w.failed);
	assert_int_equal(0, w.done);
	assert_int_equal(MANY, tiny_count(&w.store));
	check_files(&w);
	end_world(&w);
}

/* The store returns the key as an XML parser reads it, with a changed line ending. */
static bool refuses_another_name(
	struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	static const char xml[] = "<DeleteResult><Error><Key>x\ny</Key><Code>AccessDenied</Code>"
				  "<Message>no</Message></Error></DeleteResult>";

	(void)store;
	if (is(r, "POST", "delete"))
		*keep = mini_reply(fd, "200 OK", "", xml, sizeof(xml) - 1);
	return is(r, "POST", "delete");
}

static void a_refusal_by_another_name_is_one(void **state)
{
	struct bulk *bulk = NULL;
	struct world w;

	(void)state;
	begin_world(&w);
	w.store.trouble = refuses_another_name;

	assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
	assert_int_equal(0, bulk_push(bulk,
				    &(struct bulk_item){.kind = BULK_DELETE,
					    .from = object_at(w.s3, "bucket", "x\ry"),
					    .tag = &w},
				    &w.err));
	assert_int_equal(-(int)PENSTOCK_E_PERMISSION, bulk_finish(bulk, &w.totals, &w.err));
	bulk_freep(&bulk);

	assert_int_equal(1, w.failed);
	end_world(&w);
}

/* A failed copy leaves no object, which a later copy with only-create would keep. */
static void a_copy_of_what_was_replaced_is_told_as_such(void **state)
{
	struct object_info known = {.size = 3, .etag = "\"00000000000000000000000000000000\""};
	struct bulk_item item = {.kind = BULK_COPY,
		.from.bucket = "bucket",
		.from.key = "k",
		.to.bucket = "bucket",
		.to.key = "copy",
		.known = &known};
	struct bulk *bulk = NULL;
	struct world w;

	(void)state;
	begin_world(&w);
	tiny_make(&w.store, "/bucket/k", "new", 3);
	item.tag = &w;
	item.from.client = item.to.client = w.s3;
	for (int new_only = 1; new_only >= 0; new_only--) {
		item.if_none_match = new_only;
		assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
		assert_int_equal(0, bulk_push(bulk, &item, &w.err));
		assert_int_equal(-(int)PENSTOCK_E_CHANGED, bulk_finish(bulk, &w.totals, &w.err));
		bulk_freep(&bulk);
		bulk = NULL;
		penstock_error_release(&w.err);
		/* Without only-create, this store leaves the copy, because it ignores the
		 * condition. */
		if (new_only)
			assert_int_equal(1, tiny_count(&w.store));
	}
	end_world(&w);
}

/* Replaces the object after the first check. */
static bool replaces_what_was_seen(
	struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	static const char other[10] = "other";

	(void)fd;
	(void)keep;
	if (atomic_fetch_add(&store->times, 1) == 1) {
		LOCK_SCOPE(&store->lock);

		tiny_make(store, r->target, other, sizeof(other));
	}
	return false;
}

/* A copy never has the metadata of one object and the bytes of another. A failed copy leaves no
 * object, which a later copy with only-create would keep. */
static void a_copy_between_stores_is_of_one_object(void **state)
{
	static const size_t sizes[] = {SIZE, 100};
	struct bulk_item item = {.kind = BULK_COPY,
		.from.bucket = "bucket",
		.from.key = "k",
		.to.bucket = "bucket",
		.to.key = "k",
		.if_none_match = true};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct bulk *bulk = NULL;
		struct world w;

		begin_world(&w);
		tiny_make(&w.store, "/bucket/k", data, sizes[i]);
		w.store.trouble = replaces_what_was_seen;
		item.tag = &w;
		item.from.client = w.s3;
		item.to.client = w.elsewhere;

		assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
		assert_int_equal(0, bulk_push(bulk, &item, &w.err));
		assert_int_equal(-(int)PENSTOCK_E_CHANGED, bulk_finish(bulk, &w.totals, &w.err));
		bulk_freep(&bulk);

		assert_int_equal(2, w.store.times);
		assert_int_equal(0, tiny_count(&w.other));
		end_world(&w);
	}
}

/* Another program replaces the file while its old content is being sent. */
static bool save_anew(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	const char *path = store->cookie;
	_cleanup_free_ char *beside = NULL;

	(void)fd;
	(void)keep;
	if (strcmp(r->method, "PUT") != 0 || atomic_exchange(&store->times, 1))
		return false;
	assert_true(asprintf(&beside, "%s.new", path) > 0);
	write_file(beside, "newer", 5);
	assert_int_equal(0, rename(beside, path));
	return false;
}

/* A file that was replaced during its move differs from the stored object, so it stays. Each size
 * is sent in another way: from memory, from the open file, or by a thread. */
static void a_move_leaves_a_file_that_took_the_place_of_the_one_that_was_sent(void **state)
{
	static const size_t sizes[] = {100, 200 * KIB, 9 * MIB};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		_cleanup_(bulk_freep) struct bulk *bulk = NULL;
		_cleanup_(buf_release) struct buf got = BUF_INIT(MIB);
		_cleanup_free_ char *path = NULL, *bytes = calloc(1, sizes[i]);
		struct world w;

		begin_world(&w);
		assert_true(asprintf(&path, "%s/f", w.dir) > 0);
		write_file(path, bytes, sizes[i]);
		w.store.trouble = save_anew;
		w.store.cookie = path;
		assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
		assert_int_equal(0, bulk_push(bulk,
					    &(struct bulk_item){.kind = BULK_UPLOAD,
						    .path = path,
						    .to = object_at(w.s3, "bucket", "k"),
						    .remove_source = true,
						    .tag = &w},
					    &w.err));

		assert_int_equal(-(int)PENSTOCK_E_CHANGED, bulk_finish(bulk, NULL, &w.err));

		assert_int_equal(0, fs_read(path, &got, NULL));
		assert_string_equal("newer", buf_str(&got));
		bulk_free(take_pointer(bulk));
		end_world(&w);
	}
}

struct syncing {
	struct bulk *bulk;
	pthread_t thread;
	int r;
	unsigned ended; /* number of completed syncs when bulk_sync() returned */
	atomic_bool over;
};

static void *sync_main(void *arg)
{
	struct syncing *s = arg;

	s->r = bulk_sync(s->bulk, NULL);
	s->ended = atomic_load(&disk.ended);
	atomic_store(&s->over, true);
	return NULL;
}

static struct bulk *begin_syncs(struct world *w, int error)
{
	struct bulk *bulk = NULL;
	int fd;

	begin_world(w);
	w->options.no_sync = false;
	disk.error = error;
	atomic_store(&disk.ended, 0);
	assert_int_equal(0, bulk_new(&bulk, w->engine, &w->options, &w->err));
	fd = open(w->dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(0, bulk_note_device(bulk, fd, &w->err));
	close(fd);
	return bulk;
}

/* Two batches of moved objects are deleted concurrently. The second batch waits for the sync that
 * the first one has begun. */
static void nobody_goes_ahead_of_a_sync_under_way(void **state)
{
	struct world w;
	struct bulk *bulk = begin_syncs(&w, 0);
	struct syncing one = {.bulk = bulk}, two = {.bulk = bulk};

	(void)state;
	sem_init(&disk.begun, 0, 0);
	sem_init(&disk.go, 0, 0);
	disk.waits = true;
	pthread_create(&one.thread, NULL, sync_main, &one);
	sem_wait(&disk.begun);

	pthread_create(&two.thread, NULL, sync_main, &two);
	/* Give a wrong implementation time to continue; a correct one waits. */
	for (unsigned ms = 0; ms < 100 && !atomic_load(&two.over); ms++)
		clock_sleep_ms(1);
	sem_post(&disk.go);

	pthread_join(one.thread, NULL);
	pthread_join(two.thread, NULL);
	disk.waits = false;
	assert_int_equal(0, one.r);
	assert_int_equal(0, two.r);
	assert_int_equal(1, two.ended);
	bulk_free(bulk);
	end_world(&w);
}

/* The kernel reports lost bytes only once, to the first caller. The bytes may belong to any file,
 * so all later syncs of the bulk fail. */
static void a_sync_that_failed_is_no_success_for_the_next(void **state)
{
	struct world w;
	struct bulk *bulk = begin_syncs(&w, EIO);

	(void)state;
	assert_true(bulk_sync(bulk, NULL) < 0);
	disk.error = 0;

	assert_true(bulk_sync(bulk, &w.err) < 0);

	assert_non_null(strstr(w.err.message, "disk"));
	bulk_free(bulk);
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves_leave_nothing_at_the_source),
		cmocka_unit_test(a_move_that_cannot_remove_its_source_fails),
		cmocka_unit_test(a_refusal_by_another_name_is_one),
		cmocka_unit_test(a_copy_of_what_was_replaced_is_told_as_such),
		cmocka_unit_test(a_copy_between_stores_is_of_one_object),
		cmocka_unit_test(a_move_leaves_a_file_that_took_the_place_of_the_one_that_was_sent),
		cmocka_unit_test(nobody_goes_ahead_of_a_sync_under_way),
		cmocka_unit_test(a_sync_that_failed_is_no_success_for_the_next),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
