/* Many objects and files at once: all of them, whole, each with its own end, and no more at a time than fits. */
#include "tiny_store.h"

#include <dirent.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/process.h"
#include "transfer/bulk_internal.h"
#include "transfer/part_file.h"

#define MANY 300

/* In the place of the C library's: what a sync of the disk does is the test's to say. */
static struct {
	int error;
	bool waits;
	sem_t begun, go;
	atomic_uint ended;
} disk;

int syncfs(int fd)
{
	(void)fd;
	if (disk.waits) {
		sem_post(&disk.begun);
		sem_wait(&disk.go);
	}
	atomic_fetch_add(&disk.ended, 1);
	errno = disk.error;
	return disk.error ? -1 : 0;
}

struct world {
	struct tiny_store store, other;
	struct http_engine *engine;
	struct credentials_provider *keys;
	struct object_client *s3, *elsewhere;
	struct penstock_error err;
	struct bulk_totals totals;
	struct bulk_options options;
	char dir[64];
	atomic_int cancel;
	/* What was reported. */
	unsigned done, failed;
	unsigned cancel_after;
	pthread_t pusher;
	char last_error[1024];
	enum penstock_code last_code;
};

static void make_client(struct world *w, struct tiny_store *store, struct object_client **out)
{
	char url[MINI_URL_SIZE];

	mini_url(&store->server, "", url);
	assert_int_equal(0, object_client_new(out,
				    &(struct object_client_options){.engine = w->engine,
					    .endpoint_url = url,
					    .region = "us-east-1",
					    .credentials = w->keys},
				    &w->err));
}

static void on_done(void *cookie, const struct bulk_item *item, const struct object_info *info,
	const struct penstock_error *err)
{
	struct world *w = cookie;

	assert_true(pthread_equal(w->pusher, pthread_self()));
	assert_ptr_equal(w, item->tag);
	if (!err) {
		w->done++;
		if (item->to_key)
			assert_non_null(info);
	} else {
		w->failed++;
		w->last_code = err->code;
		snprintf(w->last_error, sizeof(w->last_error), "%s", err->message);
	}
	if (w->cancel_after && w->done + w->failed >= w->cancel_after)
		atomic_store(&w->cancel, 1);
}

static void begin_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	tiny_start(&w->store);
	tiny_start(&w->other);
	assert_int_equal(
		0, http_engine_new(&w->engine,
			   &(struct http_engine_options){.retry_base_ms = 2, .max_attempts = 4},
			   &w->err));
	assert_int_equal(0, credentials_provider_new_static(
				    &w->keys, "AKIDEXAMPLE", "very/secret", NULL, &w->err));
	make_client(w, &w->store, &w->s3);
	make_client(w, &w->other, &w->elsewhere);
	snprintf(w->dir, sizeof(w->dir), "/tmp/bulk-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->pusher = pthread_self();
	w->options = (struct bulk_options){
		.on_done = on_done, .cookie = w, .cancel = &w->cancel, .no_sync = true};
}

static void end_world(struct world *w)
{
	object_client_free(w->s3);
	object_client_free(w->elsewhere);
	http_engine_free(w->engine);
	credentials_provider_free(w->keys);
	tiny_stop(&w->store);
	tiny_stop(&w->other);
	assert_int_equal(0, fs_remove_tree(w->dir, NULL));
	penstock_error_release(&w->err);
}

static size_t size_of(unsigned i)
{
	return i % 7 == 0 ? 0 : (size_t)i * 37 % 5000 + (i % 50 == 49 ? 100 * KIB : 0);
}

static const char *bytes_of(unsigned i)
{
	return data + (size_t)i * 13;
}

static char *path_of(const struct world *w, unsigned i)
{
	char text[128];
	char *path;

	snprintf(text, sizeof(text), "%s/d%u/f%u", w->dir, i % 5, i);
	path = strdup(text);
	assert_non_null(path);
	return path;
}

static void write_file(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(0, fs_write_all(fd, bytes, len));
	close(fd);
}

static void make_files(const struct world *w)
{
	for (unsigned i = 0; i < MANY; i++) {
		_cleanup_free_ char *path = path_of(w, i);
		_cleanup_free_ char *dir = strndup(path, (size_t)(strrchr(path, '/') - path));

		mkdir(dir, 0755);
		write_file(path, bytes_of(i), size_of(i));
	}
}

static void make_objects(struct tiny_store *store)
{
	for (unsigned i = 0; i < MANY; i++) {
		char key[64];

		snprintf(key, sizeof(key), "/bucket/k%u", i);
		tiny_make(store, key, bytes_of(i), size_of(i));
	}
}

/* Every file of the tree that is no object's is a leftover. */
static void check_files(const struct world *w)
{
	unsigned found = 0;

	for (unsigned i = 0; i < MANY; i++) {
		_cleanup_free_ char *path = path_of(w, i);
		_cleanup_(buf_release) struct buf got = BUF_INIT(MIB);

		assert_int_equal(0, fs_read(path, &got, NULL));
		assert_int_equal(size_of(i), got.len);
		assert_memory_equal(bytes_of(i), buf_str(&got), got.len);
	}
	for (unsigned d = 0; d < 5; d++) {
		char path[128];
		DIR *dir;

		snprintf(path, sizeof(path), "%s/d%u", w->dir, d);
		dir = opendir(path);
		for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
			found += e->d_name[0] != '.';
		closedir(dir);
	}
	assert_int_equal(MANY, found);
}

static void check_objects(struct tiny_store *store)
{
	LOCK_SCOPE(&store->lock);

	for (unsigned i = 0; i < MANY; i++) {
		char key[64];
		const struct tiny_object *o;

		snprintf(key, sizeof(key), "/bucket/k%u", i);
		o = tiny_find(store, key);
		assert_non_null(o);
		assert_int_equal(size_of(i), o->len);
		assert_memory_equal(bytes_of(i), o->body, o->len);
	}
}

/* Pushes `n` items of a kind; -code of the first push that failed. */
static int push_all(
	struct world *w, struct bulk *bulk, const struct bulk_item *like, unsigned n, bool known)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n; i++) {
		_cleanup_free_ char *path = path_of(w, i);
		struct object_info info = {.size = size_of(i)};
		struct bulk_item item = *like;
		char key[64];

		md5_etag(bytes_of(i), size_of(i), info.etag);
		snprintf(key, sizeof(key), "k%u", i);
		item.tag = w;
		if (item.from_client) {
			item.from_bucket = "bucket";
			item.from_key = key;
		}
		if (item.to_client) {
			item.to_bucket = "bucket";
			item.to_key = key;
		}
		if (item.kind == BULK_UPLOAD || item.kind == BULK_DOWNLOAD)
			item.path = path;
		item.path_root = strlen(w->dir);
		item.known = known ? &info : NULL;
		r = bulk_push(bulk, &item, &w->err);
	}
	return r;
}

/* A whole bulk of MANY items. */
static int run(struct world *w, const struct bulk_item *like, bool known)
{
	_cleanup_(bulk_freep) struct bulk *bulk = NULL;
	int r;

	penstock_error_release(&w->err);
	w->done = w->failed = 0;
	assert_int_equal(0, bulk_new(&bulk, w->engine, &w->options, &w->err));
	r = push_all(w, bulk, like, MANY, known);
	if (r < 0) {
		bulk_finish(bulk, &w->totals, NULL);
		return r;
	}
	return bulk_finish(bulk, &w->totals, &w->err);
}

/* What goes up comes down the same, with no file left over and each item told of once. */
static void files_go_up_and_come_down_the_same(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_files(&w);

	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to_client = w.s3}, false));
	assert_int_equal(MANY, w.done);
	assert_int_equal(MANY, w.totals.items);
	assert_int_equal(MANY, tiny_count(&w.store));
	check_objects(&w.store);
	assert_int_equal(0, fs_remove_tree(w.dir, NULL));
	assert_int_equal(0, mkdir(w.dir, 0755));
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));

	check_files(&w);
	assert_int_equal(MANY, w.done);
	assert_int_equal(0, w.store.heads);
	assert_int_equal(0, fs_remove_tree(w.dir, NULL));
	assert_int_equal(0, mkdir(w.dir, 0755));
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, false));
	check_files(&w);
	end_world(&w);
}

/* Copies stay in one store, or go through this machine to another. */
static void objects_are_copied_within_and_between_stores(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);

	assert_int_equal(0,
		run(&w,
			&(struct bulk_item){
				.kind = BULK_COPY, .from_client = w.s3, .to_client = w.elsewhere},
			true));
	assert_int_equal(0, w.store.copies);
	check_objects(&w.other);
	assert_int_equal(0, run(&w,
				    &(struct bulk_item){.kind = BULK_COPY,
					    .from_client = w.elsewhere,
					    .to_client = w.elsewhere},
				    true));
	assert_int_equal(MANY, w.other.copies);
	check_objects(&w.other);
	end_world(&w);
}

/* A move leaves one of both, and deletions of many are few requests. */
static void moves_leave_nothing_at_the_source(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	make_files(&w);

	assert_int_equal(
		0, run(&w,
			   &(struct bulk_item){
				   .kind = BULK_UPLOAD, .to_client = w.s3, .remove_source = true},
			   false));
	check_objects(&w.store);
	for (unsigned i = 0; i < MANY; i++) {
		_cleanup_free_ char *path = path_of(&w, i);

		assert_int_equal(-1, access(path, F_OK));
	}
	assert_int_equal(0, run(&w,
				    &(struct bulk_item){.kind = BULK_COPY,
					    .from_client = w.s3,
					    .to_client = w.elsewhere,
					    .remove_source = true},
				    true));
	check_objects(&w.other);
	assert_int_equal(0, tiny_count(&w.store));
	assert_int_equal(0, run(&w,
				    &(struct bulk_item){.kind = BULK_DOWNLOAD,
					    .from_client = w.elsewhere,
					    .remove_source = true},
				    true));
	check_files(&w);
	assert_int_equal(0, tiny_count(&w.other));
	assert_int_equal(MANY, w.done);
	/* The store does not compare ETags: a few are looked at, and go at once. */
	assert_int_equal((MANY + 15) / 16, w.other.deletes);
	end_world(&w);
}

/* Holds answers until so many requests are there that a second engine has some. */
static bool hold_nine(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	(void)r;
	(void)fd;
	(void)keep;
	while (atomic_load(&store->peak) < 9)
		clock_sleep_ms(1);
	return false;
}

/* As the lines of a batch have it: none opens connections of its own. */
static void bulks_share_a_twin(void **state)
{
	struct world w;
	struct http_engine *twin = NULL;
	struct http_counters first, second;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	assert_int_equal(0, http_engine_twin(&twin, w.engine, &w.err));
	w.options.twin = twin;

	w.store.trouble = hold_nine;
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));
	http_engine_counters(twin, &first);
	w.store.peak = 0;
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));
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
		0, run(&w, &(struct bulk_item){.kind = BULK_DELETE, .from_client = w.s3}, false));

	assert_int_equal(0, tiny_count(&w.store));
	assert_int_equal(1, w.store.deletes);
	assert_int_equal(MANY, w.done);
	end_world(&w);
}

/* One that fails is named, and the others are not held up by it. */
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
		run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));

	assert_int_equal(MANY - 1, w.done);
	assert_int_equal(1, w.failed);
	assert_int_equal(1, w.totals.failed);
	assert_non_null(strstr(w.last_error, "s3://bucket/k123"));
	end_world(&w);
}

/* Each of the first forty keys is refused once. */
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

/* A store that wants less gets less, and in the end everything. */
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
		0, run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to_client = w.s3}, false));

	check_objects(&w.store);
	assert_int_equal(MANY, w.done);
	end_world(&w);
}

/* How many requests at a time a bulk of MANY uploads has come to; `busy`: the store says so once. */
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
		0, push_all(w, bulk, &(struct bulk_item){.kind = BULK_UPLOAD, .to_client = w->s3},
			   MANY, false));
	assert_int_equal(0, bulk_finish(bulk, &w->totals, &w->err));
	assert_int_equal(MANY, w->totals.items);
	w->store.trouble = NULL;
	return bulk->window;
}

/* It only grows with what came back well, so that both ends depend on counts and not on time. */
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

/* The first GET of every third object is damaged: what comes is not what was stored. */
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
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));

	check_files(&w);
	end_world(&w);
}

/* Ctrl-C: every item is told of once, and no file is there but whole ones under their names. */
static void a_cancelled_bulk_leaves_no_piece_of_a_file(void **state)
{
	struct world w;
	unsigned there = 0;

	(void)state;
	begin_world(&w);
	make_objects(&w.store);
	w.cancel_after = 20;

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED,
		run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));

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

/* Only-create refuses what is there, and says so of each. */
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
		run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to_client = w.s3}, false));

	assert_int_equal(1, w.failed);
	pthread_mutex_lock(&w.store.lock);
	assert_int_equal(3, tiny_find(&w.store, "/bucket/k7")->len);
	pthread_mutex_unlock(&w.store.lock);
	end_world(&w);
}

/* Times and modes travel in the metadata, and come back. */
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
		0, run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to_client = w.s3}, false));
	assert_int_equal(0, fs_remove_tree(w.dir, NULL));
	assert_int_equal(0, mkdir(w.dir, 0755));
	assert_int_equal(
		0, run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));

	assert_int_equal(0, stat(path, &st));
	assert_int_equal(1700000000, st.st_mtim.tv_sec);
	assert_int_equal(123456789, st.st_mtim.tv_nsec);
	assert_int_equal(0640, st.st_mode & 0777);
	end_world(&w);
}

/* A link on the way would lead out of the directory that was named. */
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
		run(&w, &(struct bulk_item){.kind = BULK_DOWNLOAD, .from_client = w.s3}, true));

	assert_int_equal(MANY / 5, w.failed);
	assert_int_equal(-1, access("/tmp/f1", F_OK));
	end_world(&w);
}

/* Somebody saves the file anew while the old one is on its way. */
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

/* A file that was replaced while it was moved is not the one that was stored: it stays, however it went. */
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
						    .to_client = w.s3,
						    .to_bucket = "bucket",
						    .to_key = "k",
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

/* A link is made beside its name, too, and must not take the name of another file for that. */
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
						    .from_client = w.s3,
						    .from_bucket = "bucket",
						    .from_key = keys[i] + strlen("/bucket/"),
						    .tag = &w},
					    &w.err));
		assert_int_equal(0, bulk_finish(bulk, NULL, &w.err));
	}

	assert_int_equal(6, readlink(path, target, sizeof(target)));
	assert_string_equal("a.link", target);
	assert_int_equal(0, fs_read(path, &got, NULL)); /* through it */
	assert_string_equal("precious", buf_str(&got));
	bulk_free(take_pointer(bulk));
	end_world(&w);
}

struct syncing {
	struct bulk *bulk;
	pthread_t thread;
	int r;
	unsigned ended; /* syncs, when it returned */
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

/* Two batches of moved objects are deleted at a time: the second waits for the sync that the first began. */
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
	/* Time for it to be wrong; when it is right it waits. */
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

/* The kernel says once that bytes were lost, to whoever asks first: they may be anybody's. */
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

/* A web server takes and gives without names of buckets, signatures and checksums; the length has to be right. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_go_up_and_come_down_the_same),
		cmocka_unit_test(files_go_to_a_web_server_and_back),
		cmocka_unit_test(objects_are_copied_within_and_between_stores),
		cmocka_unit_test(moves_leave_nothing_at_the_source),
		cmocka_unit_test(bulks_share_a_twin),
		cmocka_unit_test(deletions_go_by_the_thousand),
		cmocka_unit_test(an_item_that_fails_is_named_and_alone),
		cmocka_unit_test(a_store_that_is_busy_gets_it_all_in_the_end),
		cmocka_unit_test(a_store_that_is_busy_gets_fewer_requests_at_a_time),
		cmocka_unit_test(damaged_bytes_are_fetched_again),
		cmocka_unit_test(a_cancelled_bulk_leaves_no_piece_of_a_file),
		cmocka_unit_test(only_create_leaves_what_is_there),
		cmocka_unit_test(times_and_modes_come_back),
		cmocka_unit_test(a_link_among_the_directories_is_in_the_way),
		cmocka_unit_test(a_move_leaves_a_file_that_took_the_place_of_the_one_that_was_sent),
		cmocka_unit_test(links_come_down_beside_files_of_any_name),
		cmocka_unit_test(nobody_goes_ahead_of_a_sync_under_way),
		cmocka_unit_test(a_sync_that_failed_is_no_success_for_the_next),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
