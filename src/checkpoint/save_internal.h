/* Shared by save.c, place.c and ranks.c. */
#ifndef CHECKPOINT_SAVE_INTERNAL_H
#define CHECKPOINT_SAVE_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

/* Replaces uthash's default hash, in which Clang reports a fall-through. */
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
	struct checksum sum; /* checksum of the bytes written; unused if `done` */
	uint64_t crc;
	bool done; /* added by save_add(): nothing can be appended */
	UT_hash_handle hh; /* files by name, in the order in which the files were added */
};

struct save {
	char *dir; /* the directory of all checkpoints */
	char *path; /* the directory of this checkpoint */
	int fd; /* the open directory `path` */
	struct save_options o; /* o.run_id may be freed after save_begin(): `run` is a copy */
	char *run;
	uint64_t step;
	struct save_file *files;
	struct save_file *open; /* the file that `out` belongs to */
	int out; /* -1 if closed */
	struct commit *metrics; /* a commit with only the metrics */
	/* with several ranks: rank 0's own word, or the word that this rank has answered */
	char word[SAVE_WORD];
	bool failed, committed;
	pid_t pid; /* the process that called save_begin(); its children cannot save */
};

/* Writes `text` to a hidden file in the checkpoint, syncs it and renames it to `name`. */
int save_place(
	const struct save *s, const char *name, const struct buf *text, struct penstock_error *err);
/* Builds COMMIT.json or the part of a rank, with `run` as its run. */
struct commit *save_describe(const struct save *s, const char *run);

/* Like save_place(), in any directory `dir` with the hidden name `hidden`; `path` is for the
 * message. */
int save_place_at(int dir, const char *path, const char *hidden, const char *name,
	const struct buf *text, struct penstock_error *err);
/* Syncs the directory `fd`; `path` is for the message. */
int save_sync_dir(int fd, const char *path, struct penstock_error *err);

/* ---- ranks.c ---- */
/* Rank 0, at its start: writes the word that allows other ranks to answer. */
int ranks_open(struct save *s, struct penstock_error *err);
/* Other ranks, at their start: removes the part of this rank that an earlier save left. */
void ranks_join(const struct save *s);
/* Rank 0: waits for the parts of all other ranks and adds them. */
int ranks_gather(struct save *s, struct commit *whole, struct penstock_error *err);
/* Other ranks: writes the part of this rank and waits for the commit. */
int ranks_answer(struct save *s, struct penstock_error *err);
/* Other ranks: informs rank 0 that this rank has given up. */
void ranks_give_up(struct save *s);
/* Rank 0: removes the parts of the other ranks and the word. */
void ranks_close(const struct save *s);

#endif
