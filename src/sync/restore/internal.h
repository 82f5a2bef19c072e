/* Bringing a directory back: the parts of it. Needs no running sync. */
#ifndef SYNC_RESTORE_INTERNAL_H
#define SYNC_RESTORE_INTERNAL_H

#include "sync/internal.h"

struct commit;
struct copy;

struct restore {
	struct sync *s; /* without threads of its own */
	struct sync_restored stats;
	struct commit *vouch; /* a whole checkpoint here; NULL if that of `vouch_path` is not */
	char *vouch_path; /* the last that was asked for */
	bool newer; /* the manifest, than the journal here: another machine had the run since */
	int64_t manifest_ns; /* when the store got it */
	struct strlist aside_paths, aside_files; /* what was set aside, and where it is now */
	/* parts of files, and their journals, that an earlier restore has left */
	struct strlist begun;
	struct entry **fetch, **dirs, **links;
	size_t n_fetch, n_dirs, n_links;
	struct copy *copy; /* while files are fetched */
	struct entry **again; /* of `fetch`: their objects were replaced meanwhile */
	size_t n_again;
	unsigned round; /* how often they were */
	struct penstock_error error; /* the first that ends the restore */
};

/* local.c */
/* Appends to an array that grows. -1 if out of memory. */
int restore_add(void ***items, size_t *n, void *item);
/* Moves a local name out of the way. A file is remembered, to be sent to partial/. */
int restore_set_aside(struct restore *r, const char *path, mode_t mode, struct penstock_error *err);
/* Sets mode and time as they were published; `e` then describes the local file. */
int restore_times(
	struct restore *r, struct entry *e, int fd, const char *path, struct penstock_error *err);
/* Removes parts that no fetch has consumed: their files need not be fetched any more. */
void restore_drop_begun(const struct restore *r);
/* Compares what is below the directory `path` with the table. */
int restore_check_dir(struct restore *r, const char *path, struct penstock_error *err);
/* A file of the table that is not here is to be fetched. */
int restore_note_missing(void *cookie, struct entry *e);

#endif
