/*
 * Two stores in memory, a directory, and MANY files or objects to move between them.
 *
 *	begin_world(&w);
 *	make_files(&w);					or make_objects(&w.store)
 *	run(&w, &(struct bulk_item){.kind = BULK_UPLOAD, .to.client = w.s3}, false);
 *	check_objects(&w.store);	or check_files(&w); w.done and w.failed are counts
 *	end_world(&w);
 */
#ifndef TEST_BULK_WORLD_H
#define TEST_BULK_WORLD_H

#include "tiny_store.h"

#include <dirent.h>
#include <semaphore.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "transfer/bulk/internal.h"

#define MANY 300

/* Replaces syncfs() of the C library, so that the test determines the result of a sync. */
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
	struct object_client *s3, *elsewhere;
	struct penstock_error err;
	struct bulk_totals totals;
	struct bulk_options options;
	char dir[64];
	atomic_int cancel;
	/* Numbers of reported results. */
	unsigned done, failed;
	unsigned cancel_after;
	pthread_t pusher;
	char last_error[1024];
	enum penstock_code last_code;
};

static inline void make_client(
	struct world *w, struct tiny_store *store, struct object_client **out)
{
	char url[MINI_URL_SIZE];

	mini_url(&store->server, "", url);
	assert_int_equal(0, object_client_open(out, w->engine,
				    &(struct store_place){.endpoint_url = url,
					    .region = "us-east-1",
					    .access_key_id = "AKIDEXAMPLE",
					    .secret_access_key = "very/secret"},
				    &w->err));
}

static inline void on_done(void *cookie, const struct bulk_item *item,
	const struct object_info *info, const struct penstock_error *err)
{
	struct world *w = cookie;

	assert_true(pthread_equal(w->pusher, pthread_self()));
	assert_ptr_equal(w, item->tag);
	if (!err) {
		w->done++;
		if (item->to.key)
			assert_non_null(info);
	} else {
		w->failed++;
		w->last_code = err->code;
		snprintf(w->last_error, sizeof(w->last_error), "%s", err->message);
	}
	if (w->cancel_after && w->done + w->failed >= w->cancel_after)
		atomic_store(&w->cancel, 1);
}

static inline void begin_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	tiny_start(&w->store);
	tiny_start(&w->other);
	assert_int_equal(
		0, http_engine_new(&w->engine,
			   &(struct http_engine_options){.retry_base_ms = 2, .max_attempts = 4},
			   &w->err));
	make_client(w, &w->store, &w->s3);
	make_client(w, &w->other, &w->elsewhere);
	snprintf(w->dir, sizeof(w->dir), "/tmp/bulk-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->pusher = pthread_self();
	w->options = (struct bulk_options){
		.on_done = on_done, .cookie = w, .cancel = &w->cancel, .no_sync = true};
}

static inline void end_world(struct world *w)
{
	object_client_free(w->s3);
	object_client_free(w->elsewhere);
	http_engine_free(w->engine);
	tiny_stop(&w->store);
	tiny_stop(&w->other);
	assert_int_equal(0, fs_remove_tree(w->dir, NULL));
	penstock_error_release(&w->err);
}

static inline size_t size_of(unsigned i)
{
	return i % 7 == 0 ? 0 : (size_t)i * 37 % 5000 + (i % 50 == 49 ? 100 * KIB : 0);
}

static inline const char *bytes_of(unsigned i)
{
	return data + (size_t)i * 13;
}

static inline char *path_of(const struct world *w, unsigned i)
{
	char text[128];
	char *path;

	snprintf(text, sizeof(text), "%s/d%u/f%u", w->dir, i % 5, i);
	path = strdup(text);
	assert_non_null(path);
	return path;
}

static inline void write_file(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(0, fs_write_all(fd, bytes, len));
	close(fd);
}

static inline void make_files(const struct world *w)
{
	for (unsigned i = 0; i < MANY; i++) {
		_cleanup_free_ char *path = path_of(w, i);
		_cleanup_free_ char *dir = strndup(path, (size_t)(strrchr(path, '/') - path));

		mkdir(dir, 0755);
		write_file(path, bytes_of(i), size_of(i));
	}
}

static inline void make_objects(struct tiny_store *store)
{
	for (unsigned i = 0; i < MANY; i++) {
		char key[64];

		snprintf(key, sizeof(key), "/bucket/k%u", i);
		tiny_make(store, key, bytes_of(i), size_of(i));
	}
}

/* Checks all files; a file that belongs to no object is an error. */
static inline void check_files(const struct world *w)
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

static inline void check_objects(struct tiny_store *store)
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

/* Pushes `n` items like `like`. Returns the negative code of the first push that failed. */
static inline int push_all(
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
		if (item.from.client) {
			item.from.bucket = "bucket";
			item.from.key = key;
		}
		if (item.to.client) {
			item.to.bucket = "bucket";
			item.to.key = key;
		}
		if (item.kind == BULK_UPLOAD || item.kind == BULK_DOWNLOAD)
			item.path = path;
		item.path_root = strlen(w->dir);
		item.known = known ? &info : NULL;
		r = bulk_push(bulk, &item, &w->err);
	}
	return r;
}

/* Runs a complete bulk of MANY items. */
static inline int run(struct world *w, const struct bulk_item *like, bool known)
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

#endif
