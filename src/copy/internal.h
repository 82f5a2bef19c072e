/* Shared by the files of src/copy. */
#ifndef COPY_INTERNAL_H
#define COPY_INTERNAL_H

#include "copy/copy.h"

static inline bool copy_is_cancelled(const struct copy *c)
{
	return c->o.cancel && atomic_load(c->o.cancel);
}

/* Fails with PENSTOCK_E_INVALID and a message that starts with the place as the user gave it. */
int copy_refuse(struct penstock_error *err, const struct place *place, const char *why);
/* Returns "s3://bucket/key" or "gs://bucket/key"; free() it. NULL if out of memory. */
char *copy_object_text(struct object_ref object);
/* Fills in the target side of an item. */
void copy_item_target(const struct copy *c, const struct target *target, const struct place *place,
	struct bulk_item *item);

struct copy_mode {
	char *path; /* as `path` and `path_root` of struct target */
	size_t path_root;
	mode_t mode;
};
/* Records a mode that copy_finish() gives to the directory `target`. Returns 0, or -1 with
 * errno. */
int copy_set_mode_later(struct copy *c, const struct target *target, mode_t mode);

/* pipe.c: returns true for a pair that a bulk cannot copy: a pair with a pipe, or a web server with
 * something other than a file. */
bool copy_is_pipe(const struct place *source, const struct place *target);
/* Copies a pair for which copy_is_pipe() is true. `name` is NULL if the target itself is meant. */
int copy_pipe(struct copy *c, const struct place *source, const struct place *target,
	const char *name, struct penstock_error *err);

/* Reports an item by a callback of copy_report. The callback may be NULL. */
static inline void copy_report(struct copy *c,
	void (*report)(void *cookie, const struct copy_item *item), const struct copy_item *item)
{
	if (report)
		report(c->o.report.cookie, item);
}
/* Reports a failed item, and counts it unless it was cancelled. Does not release the error. */
void copy_report_failed(
	struct copy *c, const struct copy_item *item, const struct penstock_error *err);

/* Creates the directories of a local target: the target itself if `directory`, otherwise its
 * parent. */
int copy_make_target(
	struct copy *c, const struct place *target, bool directory, struct penstock_error *err);

#endif
