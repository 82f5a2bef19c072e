/*
 * Copies trees and single items from anywhere to anywhere: files, objects, web servers, pipes.
 *
 *	struct copy copy;
 *
 *	copy_begin(&copy, &(struct copy_options){ .engine = engine, .to = s3,
 *		.report = { .done = on_done, .cookie = cookie } }, err);
 *	copy_sources(&copy, &(struct copy_request){ .sources = &from, .n = 1, .target = &to,
 *		.recursive = true }, err);
 *	copy_finish(&copy, err);
 *	copy_end(&copy);
 *
 * Many items are in flight at a time (transfer/bulk.h). Items appear whole or not at all, and are
 * verified. A failed item is reported, and the other items continue, unless every item would have
 * the same error. The engine prints nothing.
 */
#ifndef COPY_COPY_H
#define COPY_COPY_H

#include "copy/place.h"
#include "transfer/bulk.h"

#include <penstock/error.h>

/* An item as the callbacks get it. All texts are valid until the callback returns. */
struct copy_item {
	/* "upload", "download", "copy", "delete"; "skip" if the item failed before it was
	 * submitted. May be NULL in the callback `same`. */
	const char *action;
	bool moved; /* the source is removed, too */
	/* for messages; in a deletion the deleted item; NULL in the callback `same` */
	const char *from;
	const char *to; /* for messages; NULL if there is none */
	/* path below the target directory: of a downloaded file, or of the item in the callback
	 * `same`; otherwise NULL */
	const char *name;
	uint64_t size;
	const char *etag; /* NULL or "" if unknown */
	void *tag; /* the tag passed to copy_push(); NULL if there is none */
};

/* Receives the events of a copy, on the thread that pushes unless the comment of a callback says
 * "any thread". Any callback may be NULL. */
struct copy_report {
	void (*found)(void *cookie, uint64_t size);
	void (*walked)(void *cookie); /* called before each wait for the items found so far */
	void (*moved)(void *cookie, int64_t bytes); /* any thread; negative before a retry */
	/* Called by any thread. `kept`: bytes of a large failed item that the next copy does not
	 * transfer again. `resumed`: bytes that an earlier copy kept, reported after `moved`. */
	void (*kept)(void *cookie, uint64_t bytes);
	void (*resumed)(void *cookie, uint64_t bytes);
	/* The item is done, or would be done if `dry_run` were not set. */
	void (*done)(void *cookie, const struct copy_item *item);
	/* `no_clobber` is set, and the target exists. */
	void (*skipped)(void *cookie, const struct copy_item *item);
	/* The target has the item already. */
	void (*same)(void *cookie, const struct copy_item *item);
	/* `err` is borrowed; its code is PENSTOCK_E_CANCELLED if the item was cancelled. */
	void (*failed)(
		void *cookie, const struct copy_item *item, const struct penstock_error *err);
	void *cookie;
};

/* Borrowed for the life of the copy. */
struct copy_options {
	struct http_engine *engine;
	struct http_engine *twin; /* see struct bulk_options */
	struct object_client *from, *to; /* NULL if that side is not in a store */
	bool same_store; /* both clients reach the same store, perhaps under different names */

	bool move; /* remove each source after its target was verified */
	bool dry_run;
	bool preserve; /* time, mode, links and empty directories */
	bool no_clobber; /* an existing target is skipped */
	bool force; /* also move or delete the state of runs below .penstock/ */
	/* A local file with the size and time of its object is not fetched again, so that an
	 * interrupted copy resumes. */
	bool keep_same;
	bool resume; /* resume large downloads; uploads resume if put.resume_dir is set */
	bool no_sync; /* downloads are not synced at the end */
	/* The first failed item ends the copy, and its error is returned. Otherwise only an error
	 * that every item would have (`repeats` of penstock_error) ends the copy. */
	bool stop_at_first_error;
	/* Local symbolic links are skipped; otherwise they are followed, or kept with
	 * `preserve`. */
	bool skip_links;
	struct path_filter filter; /* an empty list, or NULL, filters nothing */
	/* Used for all new objects: content_type, metadata, storage_class, part_size, resume_dir,
	 * delta_dir and if_none_match; for downloads, only the last two. With delta_dir, large
	 * downloads are recorded: the next upload of a downloaded file sends only its changes. */
	struct object_put_options put;
	unsigned parallel; /* requests at a time; 0 to adapt the number */
	const atomic_int *cancel;
	struct copy_report report;
};

struct copy {
	struct copy_options o;
	struct bulk *bulk;
	uint64_t found, failed; /* numbers of items */
	uint64_t spared; /* items below .penstock/ that a move or deletion skipped */
	uint64_t undeleted; /* names that a sync left at the target because of a failure */
	struct penstock_error first; /* the error that ended the copy */
	/* Set while an item that is not reported is transferred (pipe.c); receives its error. */
	struct penstock_error *unreported;
	struct object_info *unreported_info; /* receives size and ETag of that item */
	/* Modes of directories in which no file can be created; copy_finish() sets these modes. */
	struct copy_mode *modes;
	size_t n_modes;
	bool no_memory; /* the text of a report could not be allocated */
};

int copy_begin(struct copy *c, const struct copy_options *options, struct penstock_error *err);
/* Submits one item, or reports it if this is a dry run; `size` is 0 if unknown. A failure means
 * that the copy must end. */
int copy_push(
	struct copy *c, const struct bulk_item *item, uint64_t size, struct penstock_error *err);
/* Waits for all items. Failed items are not an error, unless stop_at_first_error is set or the
 * error would occur for every item. */
int copy_finish(struct copy *c, struct penstock_error *err);
/* Reports an item that could not be submitted; returns an error if the copy must end. Releases
 * `item_err`. `from` is for messages. */
int copy_item_failed(struct copy *c, const char *from, struct penstock_error *item_err,
	struct penstock_error *err);
/* Cancels all items, even from a callback; copy_finish() returns PENSTOCK_E_CANCELLED. */
void copy_cancel(struct copy *c);
/* Cancels the items in flight without reports, and frees everything. */
void copy_end(struct copy *c);

/* Returns true if two endpoint URLs lead to one store: the same address, or both Amazon. */
bool copy_is_same_store(const char *a, const char *b);

/* If the bucket is missing, replaces PENSTOCK_E_NOT_FOUND of an object with a message about the
 * bucket: the reply to the HEAD of an object does not show which of the two is missing. `text`
 * names the object. Returns the negative error code. */
int copy_explain_missing(struct object_ref object, const char *text, struct penstock_error *err);
/* An object_stream_fn that writes to standard output. `cookie` points to a `const atomic_int *`,
 * the cancel flag. Both pointers may be NULL. */
int copy_to_stdout(void *cookie, const void *data, size_t len, struct penstock_error *err);

/* ---- cp and mv ---- */

struct copy_request {
	const struct place *sources;
	size_t n;
	const struct place *target;
	bool recursive;
};
/* Refuses pairs that cannot be copied, sources with the same name at the target, and sources in
 * both s3:// and gs://. Needs no struct copy. */
int copy_check(const struct copy_request *request, bool move, struct penstock_error *err);
/* Refuses a target that is the source or below the source. */
int copy_check_overlap(
	const struct copy *c, const struct copy_request *request, struct penstock_error *err);
/* Submits all sources. */
int copy_sources(struct copy *c, const struct copy_request *request, struct penstock_error *err);

/* ---- sync ---- */

struct copy_sync {
	const struct place *source, *target;
	bool remove; /* delete names that are only at the target */
	bool size_only, exact_times, checksum; /* see compare.h */
};
int copy_sync_check(const struct copy_sync *sync, struct penstock_error *err);
int copy_sync_check_overlap(
	const struct copy *c, const struct copy_sync *sync, struct penstock_error *err);
/* Makes the target like the source. Deletions come last, and only if no item failed. Fails with
 * PENSTOCK_E_NOT_FOUND if all items of the target would be deleted because the source is empty,
 * unless `force` is set. */
int copy_sync_trees(struct copy *c, const struct copy_sync *sync, struct penstock_error *err);

/* ---- a prefix into a directory ---- */

/*
 * The prefix is a path: "foo" ("/foo", "foo/") means the object "foo" and all objects "foo/…", and
 * "" or "/" the whole bucket. Object "foo/a/b" becomes DIR/a/b, "foo" itself DIR/foo, and a key
 * that ends in "/" becomes a directory. All names are checked before the first file is created.
 */
struct copy_prefix {
	const char *bucket, *prefix, *dir;
	bool without_runs; /* leave out ".penstock/" at the top, the state of runs */
	bool one_output; /* copy the keys of one output only, see transfer/output_keys.h */
	/* Called after the listing and before the first byte, with the number of objects and bytes
	 * that the directory lacks. A non-zero result ends the copy with `err`. May be NULL. */
	int (*on_size)(void *cookie, uint64_t objects, uint64_t bytes, struct penstock_error *err);
	void *cookie;

	/* The result. */
	uint64_t objects, bytes, directories; /* below the prefix, and not filtered out */
};
/* Copies from options.from; creates `dir`. A prefix without objects is not an error. */
int copy_prefix(struct copy *c, struct copy_prefix *prefix, struct penstock_error *err);

#endif
