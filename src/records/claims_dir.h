/*
 * The claims directory: opening it safely, its lock, its files. For claims.c only.
 *
 * FILES. "claim-UID-PID-RANDOM" holds resources, "ticket-SEQUENCE-UID-PID-RANDOM" waits in line,
 * and "limit-SEQUENCE-UID-PID-RANDOM" waits outside of the line, for other runs of its user. All
 * are JSON: {"run", "name", "pid", "cpus", "cpu_list", "memory", "gpus", "gpu_list"}. Their owner
 * is the owner of the file, regardless of its name. A file that is not locked belongs to a dead
 * process.
 */
#ifndef RECORDS_CLAIMS_DIR_H
#define RECORDS_CLAIMS_DIR_H

#include <stdatomic.h>

#include "records/claims.h"

/* /run/lock/penstock if it exists or can be created, and /tmp/penstock-claims, which others may
 * use. */
enum { CLAIMS_DIRS = 2 };
struct claims_dirs {
	int fds[CLAIMS_DIRS]; /* -1 if it does not exist */
	int locks[CLAIMS_DIRS]; /* held between lock and unlock, else -1 */
	const char *paths[CLAIMS_DIRS];
	int own; /* index of the one that we write to; -1 if only listing */
};

/* With `create` at least one exists afterwards, or it is an error. */
int claims_dirs_open(struct claims_dirs *dirs, bool create, struct penstock_error *err);
void claims_dirs_release(struct claims_dirs *dirs);

/* Locks all of them, in order; waits for at most 30 s, or until *cancel. */
int claims_dirs_lock(
	struct claims_dirs *dirs, const atomic_int *cancel, struct penstock_error *err);
void claims_dirs_unlock(struct claims_dirs *dirs);

struct claims_file {
	char name[96];
	struct claim_holder who; /* a ticket if it waits; its strings are owned */
	bool held; /* waits for other runs of its user, and blocks no other user */
	uint64_t sequence; /* of a ticket */
	int *cpu_list; /* owned; as many as `who` has of a claim, NULL for a ticket */
	int *gpu_list; /* owned */
};

/* The files of living processes. */
struct claims_scan {
	struct claims_file *files;
	size_t n;
};
/* Reads them; `sweep` removes the files of dead processes if permitted. */
int claims_scan_read(struct claims_scan *scan, const struct claims_dirs *dirs, bool sweep,
	struct penstock_error *err);
void claims_scan_release(struct claims_scan *scan);

/* Writes the file, locked and close-on-exec; its descriptor (*out) keeps it alive. */
int claims_file_write(const struct claims_dirs *dirs, const struct claims_file *file, int *out,
	struct penstock_error *err);

#endif
