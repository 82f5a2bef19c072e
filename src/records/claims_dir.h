/*
 * Opens, locks, reads and writes the claims directory. Used only by claims.c.
 *
 * A file "claim-UID-PID-RANDOM" holds resources, "ticket-SEQUENCE-UID-PID-RANDOM" waits in line,
 * and "limit-SEQUENCE-UID-PID-RANDOM" waits outside of the line, for other runs of its user. All
 * files are JSON: {"run", "name", "pid", "cpus", "cpu_list", "memory", "gpus", "gpu_list"}. A claim
 * belongs to the owner of its file, regardless of the file's name. A file that is not locked
 * belongs to a dead process.
 */
#ifndef RECORDS_CLAIMS_DIR_H
#define RECORDS_CLAIMS_DIR_H

#include <stdatomic.h>

#include "records/claims.h"

/* $PENSTOCK_CLAIMS_DIR alone if it is set; else /run/lock/penstock if it exists or can be created,
 * and also /tmp/penstock-claims, because other users may be unable to use the first directory. */
enum { CLAIMS_DIRS = 2 };
struct claims_dirs {
	int fds[CLAIMS_DIRS]; /* -1 if the directory does not exist */
	int locks[CLAIMS_DIRS]; /* held between lock and unlock, else -1 */
	const char *paths[CLAIMS_DIRS];
	int own; /* index of the directory that we write to; -1 if there is none */
};

/* Opens the directories. With `create`, creates missing directories until we can write to one, and
 * fails if we can write to none; does not check that we can write to $PENSTOCK_CLAIMS_DIR. */
int claims_dirs_open(struct claims_dirs *dirs, bool create, struct penstock_error *err);
void claims_dirs_release(struct claims_dirs *dirs);

/* Locks all directories, in order. Waits for at most 30 s, or until *cancel is set. */
int claims_dirs_lock(
	struct claims_dirs *dirs, const atomic_int *cancel, struct penstock_error *err);
void claims_dirs_unlock(struct claims_dirs *dirs);

struct claims_file {
	char name[96];
	struct claim_holder who; /* a ticket if `waiting` is set; the strings are owned */
	bool held; /* waits for other runs of its user, and blocks no other user */
	uint64_t sequence; /* place of a ticket in the line */
	int *cpu_list; /* owned; `who.cpus` numbers; NULL for a ticket */
	int *gpu_list; /* owned; `who.gpus` numbers; NULL for a ticket */
};

/* The files of living processes. */
struct claims_scan {
	struct claims_file *files;
	size_t n;
};
/* Reads the files; `sweep` removes the files of dead processes if permitted. */
int claims_scan_read(struct claims_scan *scan, const struct claims_dirs *dirs, bool sweep,
	struct penstock_error *err);
void claims_scan_release(struct claims_scan *scan);

/* Writes and locks a file. The file counts as long as its descriptor (*out, close-on-exec) is
 * open. */
int claims_file_write(const struct claims_dirs *dirs, const struct claims_file *file, int *out,
	struct penstock_error *err);

#endif
