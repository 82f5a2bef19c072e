/*
 * The journal of a multipart upload, from which the next call for the same file and object resumes:
 *
 *	DIR/DIGEST.upload	digest of the local path and the object; see record_file.h
 *
 *	put_resume_find(&r, u, err);	// sets u->id, u->part_size of an earlier upload
 *	put_resume_take(&r, u, fn, info, err);	// takes over its parts; 1: the object exists
 *	put_resume_started(&r, u);	// records a new upload
 *	put_resume_part(&r, u, number);	// records a part
 *	put_resume_end(&r, keep);
 *
 * An upload is resumed if the file is the same (path, inode, size, times), the object would be the
 * same (type, metadata, storage class, kind of checksum), and the store still has the upload. A
 * part is skipped if the store's list and the journal agree about the part, and the file's bytes
 * still have its checksum. All other parts are sent, and an upload that cannot be resumed is
 * aborted.
 */
#ifndef TRANSFER_PUT_RESUME_H
#define TRANSFER_PUT_RESUME_H

#include <stdbool.h>
#include <sys/stat.h>

#include "transfer/state/record_file.h"

struct object_client;
struct object_info;
struct penstock_error;
struct upload;

/* Returns true if both describe the same file with the same size and times. */
bool put_same_file(const struct stat *a, const struct stat *b);

struct put_resume {
	bool on; /* false if there is no journal */
	struct record_file file;
};

/* Sets `r->on` to false if no journal can be created. Aborts an earlier upload that cannot be
 * resumed. */
int put_resume_find(struct put_resume *r, struct upload *u, struct penstock_error *err);
/* put_resume_take() loads the parts that the store has. If the upload is missing and `exists` finds
 * its completed object, returns 1. If the upload cannot be resumed, returns 0 with u->id NULL. */
typedef bool upload_exists_fn(struct upload *u, struct object_info *info);
int put_resume_take(struct put_resume *r, struct upload *u, upload_exists_fn *exists,
	struct object_info *info, struct penstock_error *err);
void put_resume_started(struct put_resume *r, const struct upload *u);
void put_resume_part(struct put_resume *r, const struct upload *u, unsigned number);
/* Aborts uploads whose file is missing or has changed, and old uploads; once per client. */
void put_resume_sweep(struct object_client *client, const char *dir);
/* Closes the journal, and removes the journal unless `keep` is set. */
void put_resume_end(struct put_resume *r, bool keep);

#endif
