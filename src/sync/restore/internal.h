/* Declarations that the parts of sync_restore() share. No running sync is needed. */
#ifndef SYNC_RESTORE_INTERNAL_H
#define SYNC_RESTORE_INTERNAL_H

#include "sync/internal.h"

struct commit;
struct copy;

struct restore {
	struct sync *s; /* a sync without threads */
	struct sync_restored stats;
	/* commit of the local checkpoint `vouch_path`; NULL if the checkpoint is incomplete */
	struct commit *vouch;
	char *vouch_path; /* path of the checkpoint that was verified last */
	/* the manifest is newer than the local journal: another machine has owned the run since */
	bool newer;
	int64_t manifest_ns; /* time at which the store received the manifest */
	/* files that were set aside: their paths, and their places now */
	struct strlist aside_paths, aside_files;
	/* parts of files, and their journals, that an earlier restore has left */
	struct strlist begun;
	struct entry **fetch, **dirs, **links;
	size_t n_fetch, n_dirs, n_links;
	struct copy *copy; /* set while files are fetched */
	struct entry **again; /* files of `fetch` whose objects were replaced meanwhile */
	size_t n_again;
	unsigned round; /* number of times that replaced files were fetched again */
	struct penstock_error error; /* the first error, which ends the restore */
};

/* local.c */
/* Appends to an array that grows. Returns -1 if out of memory. */
int restore_add(void ***items, size_t *n, void *item);
/* Moves a local name to the private directory. A regular file is also noted, so that it is sent to
 * partial/. */
int restore_set_aside(struct restore *r, const char *path, mode_t mode, struct penstock_error *err);
/* Sets mode and time as they were published; `e` then describes the local file. */
int restore_times(
	struct restore *r, struct entry *e, int fd, const char *path, struct penstock_error *err);
/* Removes partial downloads that no fetch has used, because their files no longer have to be
 * fetched. */
void restore_drop_begun(const struct restore *r);
/* Compares everything below the directory `path` with the table. */
int restore_check_dir(struct restore *r, const char *path, struct penstock_error *err);
/* Marks a file of the table that is missing locally: the restore fetches it. */
int restore_note_missing(void *cookie, struct entry *e);

#endif
