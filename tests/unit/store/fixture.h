/* A store in a temporary directory, and short functions that put and read objects. */
#ifndef TEST_STORE_FIXTURE_H
#define TEST_STORE_FIXTURE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <unistd.h>
#include <cmocka.h>
#include <sqlite3.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "store/store.h"

/* The store is durable, so that a file is removed with its last reference, but syncs do nothing, so
 * that tests do not wait for a disk. tests/support/power tests the syncs. */
int fsync(int fd);
__attribute__((visibility("default"))) int fsync(int fd)
{
	(void)fd;
	return 0;
}

/* The kind of sync that fails, and the number of failures. */
enum { FAIL_NOTHING, FAIL_MARK, FAIL_SYNCFS };
static atomic_int failing, n_failures;

static inline int fail_if(int kind)
{
	if (atomic_load(&failing) != kind)
		return 0;
	atomic_fetch_add(&n_failures, 1);
	errno = EIO;
	return -1;
}

/* Returns true if `fd` is open on the file "relaxed" of a store. */
static inline bool is_mark(int fd)
{
	char link[64], path[256];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path));
	return n > 8 && memcmp(path + n - 8, "/relaxed", 8) == 0;
}

int fdatasync(int fd);
__attribute__((visibility("default"))) int fdatasync(int fd)
{
	return atomic_load(&failing) == FAIL_MARK && is_mark(fd) ? fail_if(FAIL_MARK) : 0;
}

int syncfs(int fd);
__attribute__((visibility("default"))) int syncfs(int fd)
{
	(void)fd;
	return fail_if(FAIL_SYNCFS);
}

struct fixture {
	char root[64];
	struct store *store;
};

static inline void fixture_open(struct fixture *f, bool relaxed)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (store_open(&f->store, &(struct store_options){.root = f->root, .relaxed = relaxed},
		    &err) < 0)
		fail_msg("%s", err.message);
}

/* Changes the database from outside the store. */
static inline void fixture_exec(const struct fixture *f, const char *sql)
{
	char path[128];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/meta.db", f->root);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const char *tmp = getenv("TMPDIR");

	snprintf(f->root, sizeof(f->root), "%s/store-test-XXXXXX",
		tmp && strlen(tmp) < 40 ? tmp : "/tmp");
	if (!mkdtemp(f->root))
		return -1;
	fixture_open(f, false);
	if (store_bucket_create(f->store, "b", "", NULL) != STORE_OK)
		return -1;
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	store_close(f->store);
	fs_remove_tree(f->root, NULL);
	free(f);
	return 0;
}

/* Creates a synced body with these bytes. */
static inline struct store_body *make_body(
	struct store *store, const void *data, size_t len, bool may_inline)
{
	struct store_body *body = NULL;

	assert_int_equal(store_body_new(store, len, may_inline, &body, NULL), 0);
	assert_int_equal(store_body_write(body, data, len, NULL), 0);
	assert_int_equal(store_body_sync(body, NULL), 0);
	return body;
}

static inline enum store_status put_full(
	struct fixture *f, struct store_put *put, const void *data, size_t len)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_body *body = make_body(f->store, data, len, true);
	enum store_status status;

	put->bucket = put->bucket ? put->bucket : "b";
	put->body = body;
	put->etag = put->etag ? put->etag : "d41d8cd98f00b204e9800998ecf8427e";
	status = store_put(f->store, put, &err);
	store_body_free(body);
	penstock_error_release(&err);
	return status;
}

static inline enum store_status put(
	struct fixture *f, const char *key, const char *etag, const char *text)
{
	return put_full(f, &(struct store_put){.key = key, .etag = etag}, text, strlen(text));
}

static inline struct store_object *get(struct fixture *f, const char *key)
{
	struct store_object *object = NULL;

	assert_int_equal(store_object_get(f->store, "b", key, &object, NULL), STORE_OK);
	return object;
}

/* Returns all bytes of an object. The caller has to free them. */
static inline char *content(struct store_object *object)
{
	struct store_reader *reader = NULL;
	char *data = malloc(object->size + 1);

	assert_int_equal(store_reader_new(object, &reader, NULL), 0);
	assert_int_equal(store_reader_read(reader, 0, data, object->size + 1, NULL), object->size);
	data[object->size] = '\0';
	store_reader_free(reader);
	return data;
}

static inline void assert_content(struct fixture *f, const char *key, const char *text)
{
	struct store_object *object = get(f, key);
	char *data = content(object);

	assert_string_equal(data, text);
	free(data);
	store_object_unref(object);
}

/* Counts the data files below the root. */
static inline size_t count_all_files(const struct fixture *f)
{
	char path[128];
	size_t n = 0;

	for (unsigned i = 0; i < 256; i++) {
		struct dirent *entry;
		DIR *dir;

		snprintf(path, sizeof(path), "%s/data/%02x", f->root, i);
		dir = opendir(path);
		if (!dir)
			continue;
		while ((entry = readdir(dir)) != NULL)
			n += entry->d_name[0] != '.';
		closedir(dir);
	}
	return n;
}

/* Counts the data files, without those that only wait to be unlinked. */
static inline size_t count_files(const struct fixture *f)
{
	if (f->store)
		store_reclaim(f->store);
	return count_all_files(f);
}

#endif
