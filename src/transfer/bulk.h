/*
 * Moves many objects and files at once.
 *
 *	struct bulk *bulk = NULL;
 *	struct bulk_totals totals;
 *
 *	bulk_new(&bulk, engine, &(struct bulk_options){ .on_done = report, .cancel = cancel }, err);
 *	while (walk(&file))
 *		bulk_push(bulk, &(struct bulk_item){ .kind = BULK_UPLOAD, .path = file.path,
 *			.to_client = s3, .to_bucket = "bucket", .to_key = file.key }, err);
 *	bulk_finish(bulk, &totals, err);
 *	bulk_free(bulk);
 *
 * One thread pushes and finishes. bulk_push() waits for room while too much is under way, so memory is
 * bounded whatever the count. `on_done` is called on that same thread, from within these calls, once for
 * each item that was pushed; the order is that in which items end. An item that failed does not stop the
 * others unless asked for.
 *
 * Objects and files appear whole or not at all, and verified: a download is written beside its target
 * and renamed. Requests are repeated as net/http.h says; a store that asks for less (503, 429) gets less.
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

enum bulk_kind {
	BULK_UPLOAD,   /* path -> to_* or to_url */
	BULK_DOWNLOAD, /* from_* or from_url -> path */
	BULK_COPY, /* from_* -> to_*: by the store where both clients are one, else through this machine */
	BULK_DELETE /* from_*: up to 1,000 in one request; a missing one is a success */
};

/* All is copied by bulk_push() but the clients, which must outlive the bulk. */
struct bulk_item {
	enum bulk_kind kind;
	struct object_client *from_client, *to_client;
	const char *from_bucket, *from_key;
	const char *to_bucket, *to_key;
	/* A plain HTTP(S) resource in place of an object: fetched with GET, made with PUT, unsigned. */
	const char *from_url, *to_url;
	/*
	 * The local file. The first `path_root` bytes of it are a directory that is there; below it missing
	 * directories are made on a download and no link is followed. 0: its directory must be there.
	 */
	const char *path;
	size_t path_root;
	/* Of the source, from a listing: size, ETag and time. Saves a request; NULL: not known. */
	const struct object_info *known;
	const char *if_match;	  /* of the object that is written over: only this one */
	bool if_none_match;	  /* only where there is none; beside the option of all */
	const char *content_type; /* of an upload; NULL: that of the options */
	bool remove_source; /* mv: once the successor is verified, and durable where it is a file */
	void *tag;	    /* the caller's */
};

struct bulk_options {
	const atomic_int *cancel;
	unsigned parallel; /* requests at a time, at most; 0: as many as pay */
	/* Of uploads and copies: if_none_match, content_type, metadata, storage_class, part_size, resume_dir,
	 * delta_dir; the rest of it is not looked at. Borrowed; NULL: none. */
	const struct object_put_options *put;
	bool resume;	/* of large downloads, as object_get_file() has it */
	bool set_times; /* downloads get the object's time of change */
	/* Uploads carry mtime and mode in the metadata ("mtime=1700000000.123456789", "mode=0100644"), downloads
	 * and copies between stores take them over. */
	bool preserve;
	bool symlinks; /* with `preserve`: a link goes up as a link, not as what it leads to */
	/* Downloads are not synced at the end: for what is easily fetched again. */
	bool no_sync;
	bool stop_at_first_error;
	/* A second engine for where many items are under way; outlives the bulk. NULL: it makes its own. */
	struct http_engine *twin;
	object_progress_fn progress; /* any thread */
	/* `info` is what is there now: of an upload or copy the object, of a download its source; NULL after a
	 * failure or a deletion. `err` is NULL on success. */
	void (*on_done)(void *cookie, const struct bulk_item *item, const struct object_info *info,
		const struct penstock_error *err);
	void *cookie; /* of both */
};

struct bulk_totals {
	uint64_t items;	 /* that ended well */
	uint64_t bytes;	 /* of these, deletions apart */
	uint64_t failed; /* the cancelled ones, too */
};

/* What `preserve` keeps in an object's metadata. False: they say no such thing. */
bool bulk_kept_time(const struct strlist *metadata, struct timespec *out);
bool bulk_kept_mode(const struct strlist *metadata, mode_t *out); /* with the type of the file */

int bulk_new(struct bulk **out, struct http_engine *engine, const struct bulk_options *options,
	struct penstock_error *err);
/* PENSTOCK_E_CANCELLED: by the caller, or an item failed and `stop_at_first_error` is set. */
int bulk_push(struct bulk *bulk, const struct bulk_item *item, struct penstock_error *err);
/*
 * Waits for all that was pushed. Returns the first item's error where any failed. `totals` may be NULL.
 * More can be pushed afterwards, unless it was stopped.
 */
int bulk_finish(struct bulk *bulk, struct bulk_totals *totals, struct penstock_error *err);
/* What is still under way is cancelled, and not reported. */
void bulk_free(struct bulk *bulk);

static inline void bulk_freep(struct bulk **bulk)
{
	bulk_free(*bulk);
}

#endif
