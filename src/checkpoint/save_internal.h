/* Shared by save.c and ranks.c. */
#ifndef CHECKPOINT_SAVE_INTERNAL_H
#define CHECKPOINT_SAVE_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

/* Clang reports a fall-through in uthash's default hash. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#define HASH_NONFATAL_OOM	       1
#include <uthash.h>

#include "checkpoint/save.h"
#include "s3/sum/checksum.h"

#define SAVE_WORD      33 /* including its NUL */
#define SAVE_WORD_NAME COMMIT_HIDDEN "save"

struct save_file {
	char *name;
	uint64_t size;
	struct checksum sum; /* of the bytes written; unused once `done` */
	uint64_t crc;
	bool done; /* added by save_add(): nothing can be appended */
	UT_hash_handle hh; /* by name, in the order in which they were added */
};

struct save {
	char *dir; /* of all checkpoints */
	char *path; /* of this one */
	int fd; /* of this one, O_PATH-like, for everything below */
	struct save_options o; /* run_id is owned */
	char *run;
	uint64_t step;
	struct save_file *files;
	struct save_file *open; /* the file that `out` belongs to */
	int out; /* -1 if closed */
	struct commit *metrics; /* a commit with only these */
	/* with several ranks: rank 0's own, or the one that this rank has answered */
	char word[SAVE_WORD];
	bool failed, committed;
	pid_t pid; /* the process that saves: a forked child touches nothing */
};

/* Writes these bytes to `name` in the checkpoint: a hidden file, synced, renamed. */
int save_place(
	const struct save *s, const char *name, const struct buf *text, struct penstock_error *err);
/* Builds COMMIT.json or the part of a rank, with `run` as its run. */
struct commit *save_describe(const struct save *s, const char *run);

/* The same in any directory `dir`, by way of the name `hidden`; `path` is for the message. */
int save_place_at(int dir, const char *path, const char *hidden, const char *name,
	const struct buf *text, struct penstock_error *err);
/* Syncs the directory `fd`; `path` is for the message. */
int save_sync_dir(int fd, const char *path, struct penstock_error *err);

/* ---- ranks.c ---- */
/* Rank 0, at its start: from now on others may answer. */
int ranks_open(struct save *s, struct penstock_error *err);
/* Others, at their start: removes their answer to an earlier save. */
void ranks_join(const struct save *s);
/* Rank 0: waits for the parts of all others and adds them. */
int ranks_gather(struct save *s, struct commit *whole, struct penstock_error *err);
/* Others: writes the part of this rank and waits for the commit. */
int ranks_answer(struct save *s, struct penstock_error *err);
/* Others: rank 0 need not wait for this rank. */
void ranks_give_up(struct save *s);
/* Removes the files of the ranks. */
void ranks_close(const struct save *s);

#endif
