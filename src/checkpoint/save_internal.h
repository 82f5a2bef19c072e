/* Between save.c and ranks.c. */
#ifndef CHECKPOINT_SAVE_INTERNAL_H
#define CHECKPOINT_SAVE_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "checkpoint/file_index.h"
#include "checkpoint/save.h"
#include "s3/checksum.h"

#define SAVE_WORD      33 /* and its NUL */
#define SAVE_WORD_NAME COMMIT_HIDDEN "save"

struct save_file {
	char *name;
	uint64_t size;
	struct checksum sum; /* of what was written; while it is not `done` */
	uint64_t crc;
	bool done; /* it was counted in by save_add(): nothing is appended any more */
};

struct save {
	char *dir;	       /* of all checkpoints */
	char *path;	       /* of this one */
	int fd;		       /* of it, O_PATH-like, for everything below */
	struct save_options o; /* run_id is owned */
	char *run;
	uint64_t step;
	struct save_file *files;
	size_t n_files, room;
	struct file_index names; /* of the files, by number */
	size_t open;		 /* the file that `out` is of */
	int out;		 /* -1: none */
	struct commit *metrics;	 /* holds only these */
	char word
		[SAVE_WORD]; /* of many ranks: rank 0's own, or the one that this rank has answered to */
	bool failed, committed;
	pid_t pid; /* who saves: in a child of fork() nothing of it is touched */
};

/* Gives `name` in the checkpoint these bytes: a hidden file, synced, renamed. */
int save_place(
	const struct save *s, const char *name, const struct buf *text, struct penstock_error *err);
/* COMMIT.json or the part of a rank: `run` stands in it. */
struct commit *save_describe(const struct save *s, const char *run);

/* ranks.c */
/* Rank 0, at its begin: from now on others may answer. */
int ranks_open(struct save *s, struct penstock_error *err);
/* Others, at their begin: what they said of an earlier save does not count. */
void ranks_join(const struct save *s);
/* Rank 0: waits for the parts of all others and adds them. */
int ranks_gather(struct save *s, struct commit *whole, struct penstock_error *err);
/* Others: says what it has and waits for the commit. */
int ranks_answer(struct save *s, struct penstock_error *err);
/* Others: rank 0 need not wait for it. */
void ranks_give_up(struct save *s);
/* Removes what the ranks needed. */
void ranks_close(const struct save *s);

#endif
