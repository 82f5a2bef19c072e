/* Many objects and files in one bulk: each item is complete, has its own result, and is sent within
 * the limit of memory. */
#include "bulk_world.h"

#include <sys/resource.h>

#include "base/process/process.h"
#include "transfer/state/part_file.h"

/* Files are unchanged after an upload and a download, no temporary file is left, and each item is
 * reported once. */
static void files_go_up_and_come_down_the_same(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_files(&w);

	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to.client = w.s3}, false));
	assert_int_equal(MANY, w.done);
	assert_int_equal(MANY, w.totals.items);
	assert_int_equal(MANY, tiny_count(&w.store));
	check_objects(&w.store);
	assert_int_equal(0, fs_remove_tree(w.dir, NULL));
	assert_int_equal(0, mkdir(w.dir, 0755));
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));

	check_files(&w);
	assert_int_equal(MANY, w.done);
	assert_int_equal(0, w.store.heads);
	assert_int_equal(0, fs_remove_tree(w.dir, NULL));
	assert_int_equal(0, mkdir(w.dir, 0755));
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, false));
	check_files(&w);
	end_world(&w);
}

/* A copy stays in one store, or goes through this machine to another store. */
static void objects_are_copied_within_and_between_stores(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);

	assert_int_equal(0,
		run(&w,
			&(struct bulk_item){
				.kind = BULK_COPY, .from.client = w.s3, .to.client = w.elsewhere},
			true));
	assert_int_equal(0, w.store.copies);
	check_objects(&w.other);
	assert_int_equal(0, run(&w,
				    &(struct bulk_item){.kind = BULK_COPY,
					    .from.client = w.elsewhere,
					    .to.client = w.elsewhere},
				    true));
	assert_int_equal(MANY, w.other.copies);
	check_objects(&w.other);
	end_world(&w);
}

/* Holds replies until nine requests are in flight, so that a second engine has some of them. */
static bool hold_nine(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	(void)r;
	(void)fd;
	(void)keep;
	while (atomic_load(&store->peak) < 9)
		clock_sleep_ms(1);
	return false;
}

/* The bulks of a batch share a second engine, the twin, instead of opening connections of their
 * own. */
static void bulks_share_a_twin(void **state)
{
	struct world w;
	struct http_engine *twin = NULL;
	struct http_counters first, second;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	assert_int_equal(0, http_engine_clone(&twin, w.engine, &w.err));
	w.options.twin = twin;

	w.store.trouble = hold_nine;
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));
	http_engine_counters(twin, &first);
	w.store.peak = 0;
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));
	http_engine_counters(twin, &second);

	if (process_is_parallel()) {
		assert_true(first.requests > 0);
		assert_true(second.requests > first.requests);
	}
	http_engine_free(twin);
	end_world(&w);
}

static void deletions_go_by_the_thousand(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);

	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DELETE, .from.client = w.s3}, false));

	assert_int_equal(0, tiny_count(&w.store));
	assert_int_equal(1, w.store.deletes);
	assert_int_equal(MANY, w.done);
	end_world(&w);
}

/* A failed item is named, and does not delay the others. */
static void an_item_that_fails_is_named_and_alone(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	pthread_mutex_lock(&w.store.lock);
	tiny_remove(&w.store, "/bucket/k123");
	pthread_mutex_unlock(&w.store.lock);

	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND,
		run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));

	assert_int_equal(MANY - 1, w.done);
	assert_int_equal(1, w.failed);
	assert_int_equal(1, w.totals.failed);
	assert_non_null(strstr(w.last_error, "s3://bucket/k123"));
	end_world(&w);
}

/* Refuses each of the first forty keys once. */
static bool slow_down(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	atomic_bool *refused = store->cookie;
	unsigned i = 0;

	if (sscanf(r->target, "/bucket/k%u", &i) != 1 || i >= 40 ||
		atomic_exchange(&refused[i], true))
		return false;
	*keep = answer_error(fd, "503 Slow Down", "SlowDown", "Retry-After: 0\r\n");
	return true;
}

/* A store that asks for fewer requests gets fewer, and gets all items in the end. */
static void a_store_that_is_busy_gets_it_all_in_the_end(void **state)
{
	atomic_bool refused[40] = {false};
	struct world w;

	(void)state;
	begin_world(&w);
	make_files(&w);
	w.store.trouble = slow_down;
	w.store.cookie = refused;

	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to.client = w.s3}, false));

	check_objects(&w.store);
	assert_int_equal(MANY, w.done);
	end_world(&w);
}

/* Returns the number of concurrent requests that a bulk of MANY uploads reaches. If `busy`, the
 * store once replies that it is busy. */
static unsigned window_after(struct world *w, bool busy)
{
	_cleanup_(bulk_freep) struct bulk *bulk = NULL;
	atomic_bool refused[40] = {false};

	for (size_t i = busy ? 1 : 0; i < ARRAY_SIZE(refused); i++)
		atomic_store(&refused[i], true);
	w->store.trouble = slow_down;
	w->store.cookie = refused;
	assert_int_equal(0, bulk_new(&bulk, w->engine, &w->options, &w->err));
	assert_int_equal(
		0, push_all(w, bulk, &(struct bulk_item){.kind = BULK_UPLOAD, .to.client = w->s3},
			   MANY, false));
	assert_int_equal(0, bulk_finish(bulk, &w->totals, &w->err));
	assert_int_equal(MANY, w->totals.items);
	w->store.trouble = NULL;
	return bulk->window;
}

/* The number of concurrent requests grows only with successful replies, so both results depend on
 * counts and not on the time. */
static void a_store_that_is_busy_gets_fewer_requests_at_a_time(void **state)
{
	struct world w;
	unsigned calm, busy;

	(void)state;
	begin_world(&w);
	make_files(&w);

	calm = window_after(&w, false);
	busy = window_after(&w, true);

	assert_true(calm > 16);
	assert_true(busy < calm);
	end_world(&w);
}

/* Replies about missing objects do not show that the store can handle more requests. */
static void failed_requests_do_not_grow_the_window(void **state)
{
	struct bulk *bulk = NULL;
	struct world w;
	unsigned before;

	(void)state;
	begin_world(&w);
	assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
	before = bulk->window;
	assert_int_equal(0,
		push_all(&w, bulk, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3},
			MANY, true));
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, bulk_finish(bulk, &w.totals, &w.err));

	assert_true(w.failed > before);
	assert_int_equal(before, bulk->window);
	bulk_free(bulk);
	end_world(&w);
}

/* Returns damaged bytes at the first GET of every third object. */
static bool flip_a_bit(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	struct tiny_object *o = tiny_find(store, r->target);
	_cleanup_free_ char *damaged = NULL;
	char headers[256];

	if (strcmp(r->method, "GET") != 0 || !o || !o->len || o->len % 3 || o->hit)
		return false;
	o->hit = true;
	store->times++;
	damaged = memcpy(malloc(o->len), o->body, o->len);
	damaged[o->len / 2] ^= 1;
	snprintf(headers, sizeof(headers), "ETag: %s\r\nx-amz-checksum-crc64nvme: %s\r\n", o->etag,
		o->sum);
	*keep = mini_reply(fd, "200 OK", headers, damaged, o->len);
	return true;
}

static void damaged_bytes_are_fetched_again(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	w.store.trouble = flip_a_bit;

	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));

	check_files(&w);
	end_world(&w);
}

/* After Ctrl-C, every item has been reported once, and only complete files exist under their
 * names. */
static void a_cancelled_bulk_leaves_no_piece_of_a_file(void **state)
{
	struct world w;
	unsigned there = 0;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	w.cancel_after = 20;

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED,
		run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));

	for (unsigned i = 0; i < MANY; i++) {
		_cleanup_free_ char *path = path_of(&w, i);
		_cleanup_free_ char *part = NULL;
		struct stat st;

		assert_int_equal(0, part_file_first_name(path, &part, NULL));
		assert_int_equal(-1, access(part, F_OK));
		if (stat(path, &st) == 0) {
			there++;
			assert_int_equal(size_of(i), st.st_size);
		}
	}
	assert_true(there >= 20);
	assert_true(w.failed > 0 || w.done < MANY);
	end_world(&w);
}

/* Only-create refuses existing files and reports each of them. */
static void only_create_leaves_what_is_there(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_files(&w);
	pthread_mutex_lock(&w.store.lock);
	tiny_make(&w.store, "/bucket/k7", "old", 3);
	pthread_mutex_unlock(&w.store.lock);
	w.options.put = &(struct object_put_options){.if_none_match = true};

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to.client = w.s3}, false));

	assert_int_equal(1, w.failed);
	pthread_mutex_lock(&w.store.lock);
	assert_int_equal(3, tiny_find(&w.store, "/bucket/k7")->len);
	pthread_mutex_unlock(&w.store.lock);
	end_world(&w);
}

/* Times and modes are stored in the metadata, and restored. */
static void times_and_modes_come_back(void **state)
{
	const struct timespec times[2] = {{1700000000, 0}, {1700000000, 123456789}};
	_cleanup_free_ char *path = NULL;
	struct world w;
	struct stat st;

	(void)state;
	begin_world(&w);
	make_files(&w);
	path = path_of(&w, 3);
	assert_int_equal(0, chmod(path, 0640));
	assert_int_equal(0, utimensat(AT_FDCWD, path, times, 0));
	w.options.preserve = true;

	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to.client = w.s3}, false));
	assert_int_equal(0, fs_remove_tree(w.dir, NULL));
	assert_int_equal(0, mkdir(w.dir, 0755));
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));

	assert_int_equal(0, stat(path, &st));
	assert_int_equal(1700000000, st.st_mtim.tv_sec);
	assert_int_equal(123456789, st.st_mtim.tv_nsec);
	assert_int_equal(0640, st.st_mode & 0777);
	end_world(&w);
}

/* A symbolic link among the directories would lead out of the target directory. */
static void a_link_among_the_directories_is_in_the_way(void **state)
{
	char link[128];
	struct world w;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	snprintf(link, sizeof(link), "%s/d1", w.dir);
	assert_int_equal(0, symlink("/tmp", link));

	assert_int_equal(-(int)PENSTOCK_E_EXISTS,
		run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from.client = w.s3}, true));

	assert_int_equal(MANY / 5, w.failed);
	assert_int_equal(-1, access("/tmp/f1", F_OK));
	end_world(&w);
}

/* A link is first created under a temporary name, which must not be the name of another file. */
static void links_come_down_beside_files_of_any_name(void **state)
{
	static const char *const keys[] = {"/bucket/a.link", "/bucket/a"};
	_cleanup_(bulk_freep) struct bulk *bulk = NULL;
	_cleanup_(buf_release) struct buf got = BUF_INIT(MIB);
	char path[128], target[32] = "";
	struct world w;

	(void)state;
	begin_world(&w);
	w.options.preserve = w.options.symlinks = true;
	w.options.parallel = 1;
	tiny_make(&w.store, keys[0], "precious", 8);
	snprintf(tiny_make(&w.store, keys[1], "a.link", 6)->mode, 8, "120777");
	assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		snprintf(path, sizeof(path), "%s/%s", w.dir, keys[i] + strlen("/bucket/"));
		assert_int_equal(0, bulk_push(bulk,
					    &(struct bulk_item){.kind = BULK_DOWNLOAD,
						    .path = path,
						    .from = object_at(w.s3, "bucket",
							    keys[i] + strlen("/bucket/")),
						    .tag = &w},
					    &w.err));
		assert_int_equal(0, bulk_finish(bulk, NULL, &w.err));
	}

	assert_int_equal(6, readlink(path, target, sizeof(target)));
	assert_string_equal("a.link", target);
	assert_int_equal(0, fs_read(path, &got, NULL)); /* reads through the link */
	assert_string_equal("precious", buf_str(&got));
	bulk_free(take_pointer(bulk));
	end_world(&w);
}

/* Replaces rename() of the C library; records the content of the file that a rename replaces. */
static struct {
	char path[128];
	char before[32];
} renamed;

int rename(const char *from, const char *to)
{
	int fd = *renamed.path ? open(renamed.path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd >= 0) {
		ssize_t n = read(fd, renamed.before, sizeof(renamed.before) - 1);

		renamed.before[n > 0 ? n : 0] = '\0';
		close(fd);
	}
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* If the target of the link were first written to a file with the link's name, a kill could leave a
 * file that looks like any other. */
static void where_a_link_leads_is_never_a_file_in_its_place(void **state)
{
	struct object_info known = {.size = 6};
	struct bulk_item item = {.kind = BULK_DOWNLOAD, .from.bucket = "bucket", .from.key = "a"};
	struct bulk *bulk = NULL;
	char target[32] = "";
	struct world w;

	(void)state;
	begin_world(&w);
	w.options.preserve = w.options.symlinks = true;
	snprintf(tiny_make(&w.store, "/bucket/a", "beside", 6)->mode, 8, "120777");
	md5_etag("beside", 6, known.etag);
	snprintf(renamed.path, sizeof(renamed.path), "%s/a", w.dir);
	item.path = renamed.path;
	item.from.client = w.s3;
	item.tag = &w;
	/* The first round takes one request, the second round a HEAD before the GET. */
	for (int i = 0; i < 2; i++) {
		item.known = i ? NULL : &known;
		unlink(renamed.path);
		write_file(renamed.path, "old", 3);
		assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
		assert_int_equal(0, bulk_push(bulk, &item, &w.err));
		assert_int_equal(0, bulk_finish(bulk, NULL, &w.err));
		bulk_freep(&bulk);
		bulk = NULL;
		assert_int_equal(6, readlink(renamed.path, target, sizeof(target)));
		assert_string_equal("old", renamed.before);
	}
	/* Only-create also refuses to replace a link whose target is missing. */
	item.if_none_match = true;
	assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
	assert_int_equal(0, bulk_push(bulk, &item, &w.err));
	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION, bulk_finish(bulk, NULL, &w.err));
	bulk_freep(&bulk);
	*renamed.path = '\0';
	end_world(&w);
}

/* A web server stores files without buckets, signatures and checksums, so only the length shows
 * that a file is complete. */
static void files_go_to_a_web_server_and_back(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_files(&w);

	for (unsigned round = 0; round < 2; round++) {
		_cleanup_(bulk_freep) struct bulk *bulk = NULL;

		assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
		for (unsigned i = 0; i < MANY; i++) {
			_cleanup_free_ char *path = path_of(&w, i);
			char at[64], url[MINI_URL_SIZE];

			snprintf(at, sizeof(at), "/bucket/k%u", i);
			mini_url(&w.store.server, at, url);
			assert_int_equal(
				0, bulk_push(bulk,
					   &(struct bulk_item){
						   .kind = round ? BULK_DOWNLOAD : BULK_UPLOAD,
						   .path = path,
						   .path_root = strlen(w.dir),
						   .to_url = round ? NULL : url,
						   .from_url = round ? url : NULL,
						   .tag = &w},
					   &w.err));
		}
		assert_int_equal(0, bulk_finish(bulk, &w.totals, &w.err));
		assert_int_equal(MANY, w.totals.items);
		if (round == 0) {
			check_objects(&w.store);
			assert_int_equal(0, fs_remove_tree(w.dir, NULL));
			assert_int_equal(0, mkdir(w.dir, 0755));
		}
	}

	check_files(&w);
	end_world(&w);
}

/* A web server that ends the first reply after half of the file, and sends the rest at the next
 * request. */
static bool cut_in_half(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	const struct tiny_object *o = tiny_find(store, r->target);
	uint64_t first = 0, last = 0;

	*keep = false;
	if (atomic_fetch_add(&store->times, 1) == 0) {
		mini_printf(fd, "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: %zu\r\n\r\n",
			o->len);
		mini_write(fd, o->body, o->len / 2);
	} else {
		mini_range(r, o->len, &first, &last);
		mini_printf(fd,
			"HTTP/1.1 206 P\r\nETag: \"x\"\r\nContent-Length: %" PRIu64
			"\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%s\r\n\r\n",
			last - first + 1, first, last, (const char *)store->cookie);
		mini_write(fd, o->body + first, last - first + 1);
	}
	return true;
}

/* The length in the second reply is that of the rest, not of the whole file. */
static void a_small_file_of_a_web_server_that_is_cut_goes_on(void **state)
{
	static const char *const totals[] = {"100000", "*"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(totals); i++) {
		_cleanup_(bulk_freep) struct bulk *bulk = NULL;
		_cleanup_(buf_release) struct buf got = BUF_INIT(MIB);
		struct world w;
		char path[128], url[MINI_URL_SIZE];

		begin_world(&w);
		tiny_make(&w.store, "/f", data, 100000);
		w.store.trouble = cut_in_half;
		w.store.cookie = (void *)(uintptr_t)totals[i];
		mini_url(&w.store.server, "/f", url);
		snprintf(path, sizeof(path), "%s/f", w.dir);
		assert_int_equal(0, bulk_new(&bulk, w.engine, &w.options, &w.err));
		assert_int_equal(0, bulk_push(bulk,
					    &(struct bulk_item){.kind = BULK_DOWNLOAD,
						    .path = path,
						    .path_root = strlen(w.dir),
						    .from_url = url,
						    .tag = &w},
					    &w.err));

		assert_int_equal(0, bulk_finish(bulk, NULL, &w.err));

		assert_int_equal(2, w.store.times);
		assert_int_equal(0, fs_read(path, &got, NULL));
		assert_int_equal(100000, got.len);
		assert_memory_equal(data, got.data, got.len);
		bulk_free(take_pointer(bulk));
		end_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_go_up_and_come_down_the_same),
		cmocka_unit_test(files_go_to_a_web_server_and_back),
		cmocka_unit_test(a_small_file_of_a_web_server_that_is_cut_goes_on),
		cmocka_unit_test(objects_are_copied_within_and_between_stores),
		cmocka_unit_test(bulks_share_a_twin),
		cmocka_unit_test(deletions_go_by_the_thousand),
		cmocka_unit_test(an_item_that_fails_is_named_and_alone),
		cmocka_unit_test(a_store_that_is_busy_gets_it_all_in_the_end),
		cmocka_unit_test(a_store_that_is_busy_gets_fewer_requests_at_a_time),
		cmocka_unit_test(failed_requests_do_not_grow_the_window),
		cmocka_unit_test(damaged_bytes_are_fetched_again),
		cmocka_unit_test(a_cancelled_bulk_leaves_no_piece_of_a_file),
		cmocka_unit_test(only_create_leaves_what_is_there),
		cmocka_unit_test(times_and_modes_come_back),
		cmocka_unit_test(a_link_among_the_directories_is_in_the_way),
		cmocka_unit_test(links_come_down_beside_files_of_any_name),
		cmocka_unit_test(where_a_link_leads_is_never_a_file_in_its_place),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
