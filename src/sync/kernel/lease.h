/*
 * Detects writers of a file and writable mappings. The kernel answers through a read lease, which
 * it grants only if there is no writer. While the lease is held, an open for writing waits; so the
 * lease is held only for a check or a short copy, and released as soon as a writer waits.
 */
#ifndef SYNC_KERNEL_LEASE_H
#define SYNC_KERNEL_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;

enum lease {
	LEASE_FREE, /* neither open for writing nor mapped for writing */
	LEASE_WRITER, /* a writer has the file open */
	LEASE_UNKNOWN /* the file system has no leases, or the file belongs to another user */
};

/* Requests a lease and releases it at once. `fd` must be open only for reading. */
enum lease lease_check(int fd);

/*
 * Copies the first `size` bytes of `fd` to a file without a name in `tmp_dir` while `fd` has no
 * writer. Returns the descriptor of the copy, or -code, with *why:
 *	-PENSTOCK_E_CHANGED: a writer has the file open, or opened it during the copy, or the
 *		file became shorter
 *	another code: the file could not be read, or the copy could not be written
 * If `patient`, a writer that opens the file near the end of the copy must wait until the last few
 * MiB are copied. `patient` is for files that have a writer almost all the time. Without leases the
 * copy is made anyway; the caller then compares the file before and after.
 */
int lease_snapshot(int fd, uint64_t size, const char *tmp_dir, bool patient, enum lease *lease,
	struct penstock_error *why);

/* Reads the first `size` bytes if no writer has the file open, or if there are no leases; stores
 * the outcome in *lease. Returns -1 if a writer has the file open, or if the file is shorter or
 * cannot be read. */
int lease_read(int fd, void *to, size_t size, enum lease *lease);

#endif
