/*
 * Is anybody writing to this file, or has it mapped writable? The kernel answers through a read
 * lease: it is granted only where there is no writer. While it is held, whoever opens the file for
 * writing waits, so it is held only for the moment of a check or of a short copy, and given back as
 * soon as a writer knocks.
 */
#ifndef SYNC_LEASE_H
#define SYNC_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;

enum lease {
	LEASE_FREE,   /* nobody has it open for writing, nor mapped */
	LEASE_WRITER, /* somebody has */
	LEASE_UNKNOWN /* the file system has no leases, or the file is not ours */
};

/* `fd` is open for reading only. */
enum lease lease_check(int fd);

/*
 * Copies the first `size` bytes of `fd` to a file without a name in `tmp_dir` while nobody writes.
 * Returns its descriptor, or -1 with *why:
 *	PENSTOCK_E_CHANGED: a writer has the file, or came and was let through
 *	other: the copy could not be written (no space), or read
 * With `patient` a writer that knocks near the end waits for the last few MiB: for files whose
 * writers leave no gap. Without leases the copy is made anyway; the caller then compares the file
 * before and after.
 */
int lease_snapshot(int fd, uint64_t size, const char *tmp_dir, bool patient, enum lease *lease,
	struct penstock_error *why);

/* Reads the first `size` bytes while nobody writes: what came of it is in *lease. -1: a writer has it, or it is shorter. */
int lease_read(int fd, void *to, size_t size, enum lease *lease);

#endif
