/*
 * Packs files into a zip, a temporary file without a name.
 *
 *	_cleanup_(packer_freep) struct packer *p = NULL;
 *
 *	packer_new(&p, tmp_dir, cancel, err);
 *	packer_add(p, &(struct packer_member){dir_fd, "a.txt", "lib/a.txt", &st}, err);
 *	fd = packer_finish(p, err);
 *
 * Members keep their modes and times; their owner is root. Used by one thread at a time.
 */
#ifndef ARCHIVE_PACK_H
#define ARCHIVE_PACK_H

#include <stdatomic.h>
#include <sys/stat.h>

struct packer;
struct penstock_error;

/* A file, directory or symbolic link; all members are borrowed for the call. */
struct packer_member {
	int dir_fd;
	const char *file; /* path below dir_fd; a link in its last component is not followed */
	const char *name; /* in the zip */
	const struct stat *st; /* result of lstat() */
};

/* Creates a packer. The zip is written below `tmp_dir`, which is created if missing. `cancel` is
 * borrowed, and may be NULL. */
int packer_new(struct packer **out, const char *tmp_dir, const atomic_int *cancel,
	struct penstock_error *err);
/* Fails with PENSTOCK_E_CHANGED if the file became shorter while it was packed. */
int packer_add(struct packer *p, const struct packer_member *member, struct penstock_error *err);
/* Returns a descriptor of the complete zip, which the caller closes. */
int packer_finish(struct packer *p, struct penstock_error *err);
/* `p` may be NULL. */
void packer_free(struct packer *p);

static inline void packer_freep(struct packer **p)
{
	packer_free(*p);
}

#endif
