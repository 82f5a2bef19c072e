#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "store/internal.h"
#include "store/upkeep/internal.h"

static void add(struct upkeep_bucket *total, const struct upkeep_bucket *b)
{
	total->objects += b->objects;
	total->bytes += b->bytes;
	total->versions += b->versions;
	total->version_bytes += b->version_bytes;
	total->markers += b->markers;
	total->uploads += b->uploads;
	total->upload_bytes += b->upload_bytes;
}

static int read_buckets(struct db *db, struct upkeep_stat *out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_STAT_BUCKETS);
	int rc;

	while ((rc = db_step(db, st)) == SQLITE_ROW) {
		struct upkeep_bucket *list = array_grow(
			out->buckets, out->n_buckets, sizeof(*list));
		struct upkeep_bucket *b;
		uint64_t *numbers[] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL};

		if (!list)
			return error_memory(err);
		out->buckets = list;
		b = &list[out->n_buckets++];
		*b = (struct upkeep_bucket){.versioning = sqlite3_column_int(st, 1)};
		db_column_text(st, 0, b->name, sizeof(b->name));
		numbers[0] = &b->objects;
		numbers[1] = &b->bytes;
		numbers[2] = &b->versions;
		numbers[3] = &b->version_bytes;
		numbers[4] = &b->markers;
		numbers[5] = &b->uploads;
		numbers[6] = &b->upload_bytes;
		for (int i = 0; i < (int)ARRAY_SIZE(numbers); i++)
			*numbers[i] = (uint64_t)sqlite3_column_int64(st, 2 + i);
		add(&out->total, b);
	}
	return rc == SQLITE_DONE ? 0 : upkeep_db_failed(db, rc, "read the buckets", err);
}

static int read_lags(struct db *db, struct upkeep_stat *out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_STAT_REPLICATION);
	int rc;

	while ((rc = db_step(db, st)) == SQLITE_ROW) {
		struct upkeep_lag *list = array_grow(out->lags, out->n_lags, sizeof(*list)), *lag;

		if (!list)
			return error_memory(err);
		out->lags = list;
		lag = &list[out->n_lags++];
		*lag = (struct upkeep_lag){.versions = (uint64_t)sqlite3_column_int64(st, 2),
			.bytes = (uint64_t)sqlite3_column_int64(st, 3),
			.oldest_ns = sqlite3_column_int64(st, 4)};
		db_column_text(st, 0, lag->bucket, sizeof(lag->bucket));
		db_column_text(st, 1, lag->target, sizeof(lag->target));
	}
	return rc == SQLITE_DONE ? 0 : upkeep_db_failed(db, rc, "read the queues", err);
}

static int read_files(struct db *db, struct upkeep_stat *out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_STAT_FILES);
	int rc = db_step(db, st);

	if (rc != SQLITE_ROW)
		return upkeep_db_failed(db, rc, "read the data files", err);
	out->files = (uint64_t)sqlite3_column_int64(st, 0);
	out->file_bytes = (uint64_t)sqlite3_column_int64(st, 1);
	out->format = sqlite3_column_int64(st, 2);
	return 0;
}

static uint64_t size_of(struct store *store, const char *name)
{
	struct stat st;

	return fstatat(store->root_fd, name, &st, 0) < 0 ? 0 : (uint64_t)st.st_size;
}

int upkeep_stat(struct store *store, struct upkeep_stat *out, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	int rc = db ? 0 : -PENSTOCK_E_IO;

	*out = (struct upkeep_stat){0};
	if (rc == 0)
		rc = read_buckets(db, out, err);
	if (rc == 0)
		rc = read_lags(db, out, err);
	if (rc == 0)
		rc = read_files(db, out, err);
	if (rc == 0)
		rc = store_free_bytes(store, &out->free_bytes, err);
	out->database_bytes = size_of(store, "meta.db");
	out->log_bytes = size_of(store, "meta.db-wal");
	out->served = upkeep_is_served(store);
	out->relaxed = faccessat(store->root_fd, RELAXED_MARK, F_OK, 0) == 0;
	return rc;
}

int upkeep_db_failed(struct db *db, int rc, const char *what, struct penstock_error *err)
{
	switch (db_error(db, rc, what, err)) {
	case STORE_NO_SPACE:
		return -PENSTOCK_E_NO_SPACE;
	default:
		return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB
			       ? -PENSTOCK_E_CORRUPT
			       : -PENSTOCK_E_IO;
	}
}

bool upkeep_is_served(struct store *store)
{
	_cleanup_close_ int fd = openat(store->root_fd, "lock", O_RDONLY | O_CLOEXEC);

	return store->guest && fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

int upkeep_cancelled(const atomic_int *stop, struct penstock_error *err)
{
	return stop && atomic_load(stop) ? error_set(err, PENSTOCK_E_CANCELLED, "interrupted") : 0;
}
