/*
 * The manifest of a run: one JSON document with one entry per line, so that it is written and read
 * in constant memory.
 *
 *	{"format":"penstock manifest","version":1,"run":"ID","attempt":1,"generation":7,
 *	"written":"2026-11-21T09:05:00.000Z","files":[
 *	{"path":"a%0Ab","type":"file","size":3,"mtime":1795251900000000000,"mode":"0644","etag":"…"}
 *	,{"path":"latest","type":"link","link":"a%0Ab","mtime":…,"mode":"0777"}
 *	],"replaced":[
 *	{"path":"a","size":3,"etag":"…","kept":"out/.penstock/runs/ID/replaced/ETAG/a"}
 *	],"partial":[
 *	{"path":"b","kept":"…","size":9}
 *	]}
 *
 * `path`, `link` and `kept` are percent-encoded by names_encode(); mtime is in nanoseconds since
 * 1970. "deleted":true marks an object whose file is gone, "older":true an object of an attempt
 * before the run started over; "crc64" (ECMA, reflected) is present if it is known.
 */
#ifndef SYNC_RECORD_MANIFEST_H
#define SYNC_RECORD_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct penstock_error;

enum manifest_list { MANIFEST_FILES, MANIFEST_REPLACED, MANIFEST_PARTIAL, MANIFEST_LISTS_ };

struct manifest_head {
	char run[128];
	int attempt;
	uint64_t generation;
};

struct manifest_item {
	const char *path; /* raw bytes */
	const char *link; /* target of a link; NULL if the entry is not a link */
	const char *kept; /* key of the copy; NULL if the entry has no copy */
	const char *etag; /* "" if the entry has no ETag */
	uint64_t size;
	int64_t mtime_ns;
	mode_t mode; /* with the type */
	uint64_t crc;
	bool has_crc;
	bool older; /* from before the run started over: not to be restored or deleted */
	bool deleted;
};

/* To write a manifest, call manifest_begin(), then manifest_item() for the items of the three lists
 * in their order, with manifest_list() before the second and the third list, then manifest_end().
 * manifest_written() reports errors of writes. Functions return -1 if out of memory; `f` then does
 * not hold a manifest. */
int manifest_begin(FILE *f, const struct manifest_head *head);
void manifest_list(FILE *f, enum manifest_list list);
int manifest_item(FILE *f, enum manifest_list list, const struct manifest_item *item, bool first);
void manifest_end(FILE *f);
/* Flushes `f`. Returns false if a write has failed: `f` then lacks bytes, even if later writes
 * succeeded. */
bool manifest_written(FILE *f);

typedef int (*manifest_fn)(void *cookie, enum manifest_list list, const struct manifest_item *item);
/*
 * Reads a whole manifest; `fn` returns non-zero to stop. Returns -PENSTOCK_E_CORRUPT if `f` is not
 * a manifest or is truncated; `fn` may have been called before. Returns -PENSTOCK_E_UNSUPPORTED if
 * the manifest has another version of the format. `name` is for messages.
 */
int manifest_read(FILE *f, const char *name, struct manifest_head *head, manifest_fn fn,
	void *cookie, struct penstock_error *err);

#endif
