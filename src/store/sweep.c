/* The sweep removes the data files that a crash has left. */
#include "store/internal.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"

/* Data files without a row in the table `blobs`. If the layout of an object (layout.c) names such a
 * file, the file has lost its row, which a repair adds again. */
struct sweep {
	struct store *store;
	struct db *db;
	uint64_t *ids;
	bool *named; /* a layout names the file */
	size_t n;
};

static bool is_stopped(const struct sweep *s)
{
	return atomic_load(&s->store->stop_sweep);
}

/*
 * Returns true if no row names a file that was found in its directory. Checks the pins first: a
 * body is pinned from before its file exists until its row is committed. A file that had no pin and
 * afterwards has no row therefore never had a row, or has lost its row.
 */
static bool has_no_row(const struct sweep *s, uint64_t id)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;

	if (blob_is_pinned(s->store, id))
		return false;
	st = db_bound(s->db, SQL_BLOB_HAS, "i", (int64_t)id);
	return db_step(s->db, st) == SQLITE_DONE;
}

/* Returns -1 if out of memory, like look_into() and find_files(). */
static int add(struct sweep *s, uint64_t id)
{
	uint64_t *list = array_grow(s->ids, s->n, sizeof(*list));

	if (!list)
		return -1;
	s->ids = list;
	list[s->n++] = id;
	return 0;
}

static int look_into(struct sweep *s, unsigned number)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[sizeof("data/xx/.")];
	struct dirent *entry;

	/* The directory may be a link to another disk. */
	snprintf(path, sizeof(path), "data/%02x/.", number);
	dir = fs_list_at(s->store->root_fd, path);
	while (dir && (entry = fs_next_entry(dir)) && !is_stopped(s)) {
		uint64_t id;

		if (!blob_parse(entry->d_name, number, &id))
			continue;
		if (has_no_row(s, id) && add(s, id) < 0)
			return -1;
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int find_files(struct sweep *s)
{
	for (unsigned i = 0; i < 256 && !is_stopped(s); i++)
		if (look_into(s, i) < 0)
			return -1;
	s->named = calloc(s->n + 1, sizeof(*s->named));
	if (!s->named)
		return -1;
	if (s->n)
		qsort(s->ids, s->n, sizeof(*s->ids), compare);
	return 0;
}

/* Returns -1 if the layout is invalid, or out of memory. */
static int take_layout(struct sweep *s, const void *layout, size_t len)
{
	_cleanup_free_ struct store_piece *pieces = NULL;
	size_t n_parts = 0, n = 0;

	if (layout_decode(layout, len, NULL, &n_parts, NULL, &n) < 0)
		return -1;
	pieces = calloc(n + 1, sizeof(*pieces));
	if (!pieces)
		return -1;
	layout_decode(layout, len, NULL, &n_parts, pieces, &n);
	for (size_t i = 0; i < n; i++) {
		const uint64_t *found = bsearch(
			&pieces[i].blob, s->ids, s->n, sizeof(*s->ids), compare);

		if (found)
			s->named[found - s->ids] = true;
	}
	return 0;
}

/* Finds the files that layouts name. Returns -1 if a layout cannot be read. A new layout never
 * names a file without a row, so one statement finds all layouts that matter. */
static int find_named(struct sweep *s)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(s->db, SQL_LAYOUTS);
	int rc;

	while ((rc = db_step(s->db, st)) == SQLITE_ROW && !is_stopped(s))
		if (take_layout(
			    s, sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0)) < 0)
			return -1;
	return rc == SQLITE_DONE || is_stopped(s) ? 0 : -1;
}

static void remove_files(const struct sweep *s)
{
	size_t removed = 0;

	for (size_t i = 0; i < s->n; i++)
		if (!s->named[i]) {
			blob_unlink(s->store, s->ids[i]);
			removed++;
		}
	if (removed)
		log_info("store '%s': removed %zu data files left by a crash", s->store->root,
			removed);
	if (removed < s->n)
		log_warn("store '%s': %zu data files of objects have no row in the database; run "
			 "'penstock store repair'",
			s->store->root, s->n - removed);
}

void *blob_sweep(void *arg)
{
	struct store *store = arg;
	_cleanup_reader_ struct db *db = db_reader(store, NULL);
	struct sweep s = {.store = store, .db = db};
	bool done = db && find_files(&s) == 0 && (!s.n || find_named(&s) == 0) && !is_stopped(&s);

	if (done)
		remove_files(&s);
	else if (!is_stopped(&s))
		log_warn("store '%s': cannot remove files left by a crash: the database cannot be "
			 "read; run 'penstock store check'",
			store->root);
	store->sweep_cut = !done;
	free(s.ids);
	free(s.named);
	return NULL;
}
