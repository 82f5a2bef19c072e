/*
 * Detects writers of a file and writable mappings. The kernel answers through a read lease,
 * which it grants only if there is no writer. While the lease is held, an open for writing waits;
 * so it is held only for a check or a short copy, and released as soon as a writer waits.
 */
#ifndef SYNC_KERNEL_LEASE_H
#define SYNC_KERNEL_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;

enum lease {
	LEASE_FREE, /* not open for writing, nor mapped */
	LEASE_WRITER, /* a writer has it open */
	LEASE_UNKNOWN /* the file system has no leases, or the file belongs to another user */
};

/* `fd` is open for reading only. */
enum lease lease_check(int fd);

/*
 * Copies the first `size` bytes of `fd` to a file without a name in `tmp_dir` while it has no
 * writer. Returns its descriptor, or -1 with *why:
 *	PENSTOCK_E_CHANGED: a writer has the file, or came and was let through
 *	other: the copy could not be written (no space), or read
 * With `patient` a writer that knocks near the end waits for the last few MiB: for files whose
 * writers leave no gap. Without leases the copy is made anyway; the caller then compares the file
 * before and after.
 */
int lease_snapshot(int fd, uint64_t size, const char *tmp_dir, bool patient, enum lease *lease,
	struct penstock_error *why);

/* Reads the first `size` bytes if no writer has the file open; the outcome is stored in *lease.
 * Returns -1 if a writer has it, or it is shorter. */
int lease_read(int fd, void *to, size_t size, enum lease *lease);

#endif
