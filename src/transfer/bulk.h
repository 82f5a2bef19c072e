/*
 * Moves many objects and files at once.
 *
 *	#include "transfer/listing.h"
 *
 *	struct bulk *bulk = NULL;
 *	struct bulk_totals totals;
 *
 *	bulk_new(&bulk, engine, &(struct bulk_options){ .on_done = report, .cancel = cancel }, err);
 *	while (entry_source_next(source, &file, err) > 0)
 *		bulk_push(bulk, &(struct bulk_item){ .kind = BULK_UPLOAD, .path = file.path,
 *			.to = object_at(s3, "bucket", file.path) }, err);
 *	bulk_finish(bulk, &totals, err);
 *	bulk_free(bulk);
 *
 * One thread pushes and finishes. bulk_push() blocks while too much is in flight, so memory is
 * bounded for any number of items. `on_done` is called on that same thread, from within bulk_push()
 * and bulk_finish(), once for each item that was pushed, in the order in which the items end. A
 * failed item does not stop the others unless `stop_at_first_error` is set.
 *
 * Objects and files appear whole and verified, or not at all: a download is written to an unnamed
 * or temporary file, which gets the target's name at the end. Requests are retried as
 * net/http/http.h describes; after a 503 or 429 fewer requests are sent at a time.
 */
#ifndef TRANSFER_BULK_H
#define TRANSFER_BULK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "transfer/objects.h"

struct penstock_error;
struct http_engine;
struct bulk;
struct stat;

enum bulk_kind {
	BULK_UPLOAD, /* path -> to or to_url */
	BULK_DOWNLOAD, /* from or from_url -> path */
	/* from -> to: by the store if both have one client, else through this machine */
	BULK_COPY,
	BULK_DELETE /* from: up to 1,000 keys in one request; a missing object is a success */
};

/* bulk_push() copies everything but the clients, which must outlive the bulk. */
struct bulk_item {
	enum bulk_kind kind;
	struct object_ref from, to;
	/* A plain HTTP(S) resource in place of an object: fetched with GET, sent with PUT,
	 * unsigned. */
	const char *from_url, *to_url;
	/*
	 * The local file. The first `path_root` bytes of its path name an existing directory; a
	 * download creates missing directories below that directory and does not follow links
	 * there. If `path_root` is 0, the file's directory must exist.
	 */
	const char *path;
	size_t path_root;
	/* Size, ETag and time of the source, from a listing; saves a request. NULL if not known. */
	const struct object_info *known;
	/* upload, and copy between stores: the target is replaced only if it has this ETag */
	const char *if_match;
	bool if_none_match; /* fails if the target exists; in addition to the option for all */
	const char *content_type; /* upload: NULL for the type in the options */
	/* mv: deletes the source once the target is verified, and durable if it is a file */
	bool remove_source;
	void *tag; /* not used by the bulk */
};

struct bulk_options {
	const atomic_int *cancel;
	unsigned parallel; /* limit of requests in flight; 0 to adapt it to the store */
	/* For uploads and copies: content_type, metadata, storage_class, part_size, resume_dir. For
	 * downloads, too: if_none_match, delta_dir. Other members are ignored. Borrowed; may be
	 * NULL. */
	const struct object_put_options *put;
	bool resume; /* large downloads resume, see object_get_file() */
	bool set_times; /* downloads get the object's modification time */
	/* Uploads carry mtime and mode in the metadata ("mtime=1700000000.123456789",
	 * "mode=0100644"); downloads and copies between stores restore them. */
	bool preserve;
	bool symlinks; /* with `preserve`: links are sent and fetched as links */
	/* Downloads are not synced at the end: for files that are cheap to fetch again. */
	bool no_sync;
	bool stop_at_first_error;
	/* A second engine, used while many items are in flight; outlives the bulk. If NULL, the
	 * bulk creates one. */
	struct http_engine *twin;
	object_progress_fn progress; /* called from any thread */
	object_kept_fn kept, resumed; /* called from any thread */
	/* `info` describes the object after an upload or copy, and the source of a download; `info`
	 * is NULL after a failure or a deletion, and may be NULL for a URL. `err` is NULL on
	 * success. */
	void (*on_done)(void *cookie, const struct bulk_item *item, const struct object_info *info,
		const struct penstock_error *err);
	void *cookie; /* passed to all callbacks */
};

struct bulk_totals {
	uint64_t items; /* items that succeeded */
	uint64_t bytes; /* bytes of these items, without deletions */
	uint64_t failed; /* including cancelled items */
};

/* Opens (O_PATH) the directory that the first `len` bytes of `path` name; 0 for the working
 * directory. Follows links, because the user named the directory. Returns a descriptor. */
int bulk_open_root(const char *path, size_t len, struct penstock_error *err);
/* Opens (O_PATH) the directory that the first `len` bytes of `path` name. `root` is the descriptor
 * of the directory in the first `root_len` bytes; below that directory, missing directories are
 * created and no link is followed. Returns a descriptor. */
int bulk_make_below(
	int root, const char *path, size_t root_len, size_t len, struct penstock_error *err);
/* Adds `given` (may be NULL) and, with `preserve`, time and mode of a file to `out`. Returns -1 if
 * out of memory. */
int bulk_keep(
	struct strlist *out, const struct strlist *given, bool preserve, const struct stat *st);
/* bulk_kept_time() and bulk_kept_mode() read metadata that `preserve` wrote, and return false if
 * the value is missing or invalid. */
bool bulk_kept_time(const struct strlist *metadata, struct timespec *out);
/* The mode includes the type of the file. */
bool bulk_kept_mode(const struct strlist *metadata, mode_t *out);

int bulk_new(struct bulk **out, struct http_engine *engine, const struct bulk_options *options,
	struct penstock_error *err);
/* Fails with PENSTOCK_E_CANCELLED if the caller cancelled, after bulk_stop(), or if an item failed
 * and `stop_at_first_error` is set. */
int bulk_push(struct bulk *bulk, const struct bulk_item *item, struct penstock_error *err);
/* Waits for all pushed items, and syncs the downloads unless `no_sync` is set. Returns the error of
 * the first item that failed, else the error of the sync. `totals` may be NULL. More items can be
 * pushed afterwards unless the bulk was stopped. */
int bulk_finish(struct bulk *bulk, struct bulk_totals *totals, struct penstock_error *err);
/* Makes the file of `fd`, which already has its final name, durable together with the downloads. */
int bulk_note_device(struct bulk *bulk, int fd, struct penstock_error *err);
/* Cancels all items: items in flight end with PENSTOCK_E_CANCELLED, and no more can be pushed. */
void bulk_stop(struct bulk *bulk);
/* Cancels items in flight without reporting them. */
void bulk_free(struct bulk *bulk);

static inline void bulk_freep(struct bulk **bulk)
{
	bulk_free(*bulk);
}

#endif
