/*
 * The journal of an upload in parts, from which the next call for the same file and object goes on:
 *
 *	DIR/DIGEST.upload	of the local path and the object; text, as record_file.h has it
 *
 *	put_resume_find(&r, u, err);		u->id, u->part_size: those of an earlier call's upload
 *	put_resume_take(&r, u, info, err);	which of its parts are there; 1: all of it is there already
 *	put_resume_started(&r, u);		or one that was begun now
 *	put_resume_part(&r, u, number);		a part is there
 *	put_resume_end(&r, keep);
 *
 * An upload is gone on with where the file is the same (path, inode, size, times), the object would be the same
 * (metadata, storage class, kind of checksum), and the store still has the upload. A part counts where the store
 * lists it as the journal has it, and the file's bytes still have its checksum. All else is sent (again), and an
 * upload that cannot be gone on with is ended.
 */
#ifndef TRANSFER_PUT_RESUME_H
#define TRANSFER_PUT_RESUME_H

#include <stdbool.h>
#include <sys/stat.h>

#include "transfer/record_file.h"

struct object_client;
struct object_info;
struct penstock_error;
struct upload;

/* The same file, of the same size, that nobody has changed between the two looks. */
bool put_same_file(const struct stat *a, const struct stat *b);

struct put_resume {
	bool on; /* else there is no file */
	struct record_file file;
};

/* Without a journal, where none can be had, `r->on` is false. Ends an upload that is of no use any more. */
int put_resume_find(struct put_resume *r, struct upload *u, struct penstock_error *err);
int put_resume_take(struct put_resume *r, struct upload *u, struct object_info *info,
	struct penstock_error *err);
/* The upload is another one from now on, which is not begun yet. */
void put_resume_restart(struct put_resume *r, const struct upload *u);
void put_resume_started(struct put_resume *r, const struct upload *u);
void put_resume_part(struct put_resume *r, const struct upload *u, unsigned number);
/* Once per client: ends the uploads whose file is gone or another one by now, or that are too old. */
void put_resume_sweep(struct object_client *client, const char *dir);
/* Closes it; without `keep` there is nothing to go on from. */
void put_resume_end(struct put_resume *r, bool keep);

#endif
