/*
 * Decides which file is published next: the state machine of the sync, without input or output.
 * Events come in with their time, jobs go out to workers, results come back.
 *
 * The main transitions of a file (state.c has all):
 *
 *	CLEAN   -> OPEN		changed
 *	OPEN    -> CLOSED	closed
 *	OPEN    -> HELD		closed by an exit whose result is not known yet
 *	OPEN    -> SUSPECT	the writer was killed
 *	HELD    -> CLOSED	after 1 s, or when the task ends normally
 *	HELD    -> SUSPECT	the task or the writer was killed
 *	SUSPECT -> CLOSED	the next true close
 *	CLOSED  -> OPEN		opened again by a writer
 *	CLOSED  -> CLEAN	a job has published the file; a file that changed meanwhile stays
 *				CLOSED and is sent again (enum work_how in table.h)
 *
 * Each directory has a queue in the order of closes, and only the head of the queue is with a
 * worker. So a marker (a small file that names other files) that was written after its data is
 * published after its data. A head that was opened again keeps its place for PLAN_REOPEN_MS,
 * because its first version was never published; after that time the other files are sent.
 *
 * The caller's lock covers everything here; times are clock_monotonic_ms().
 */
#ifndef SYNC_PLAN_PLAN_H
#define SYNC_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "sync/record/journal.h"
#include "sync/plan/table.h"
#include "sync/kernel/writers.h"

#define PLAN_HOLD_MS	1000 /* time that a close by an exit waits for the result of the exit */
#define PLAN_REOPEN_MS	30000 /* time that a directory waits for a file that was opened again */
#define PLAN_DELETE_MS	2000 /* wait before a deletion: the file may come back under another name */
#define PLAN_SWEEP_MS	250 /* interval of the checks of open and suspect files */
#define PLAN_PARTIAL_MS 30000 /* interval of the uploads of an open file to partial/ */
#define PLAN_RETRY_MS	30000 /* time until a file that cannot be sent is tried again */
#define PLAN_DYING_MS	50 /* a close within this time before a kill may be caused by the kill */
#define PLAN_LARGE	(64 * 1024 * 1024) /* bytes; two workers are kept for smaller files */
#define PLAN_MARKER	(256 * 1024) /* bytes; a larger file does not refer to other files */
#define PLAN_FROZEN	64 /* small files of a directory that are copied together */
/* files in the queues; further files wait in the line */
#define PLAN_QUEUED	2048
#define PLAN_QUEUED_DIR 512 /* files in the queue of one directory, whose head may take long */
#define PLAN_DATA_MS	20 /* interval of the checks for the data of a commit */
#define PLAN_RATE_MS	100 /* time of sending after which the rate is known */
/* a file that is closed again and again gets its turn after this time */
#define PLAN_RESTLESS_MS 250

enum close_kind {
	CLOSE_TRUE, /* closed by a process that lives or exited by itself, or moved into place */
	CLOSE_UNSEEN, /* the writer was not seen */
	CLOSE_EXIT, /* the writer is gone, and the exit code is unknown */
	CLOSE_KILLED /* the writer was killed */
};

enum job_kind {
	JOB_WHOLE, /* the file, under its name */
	/* the present content of an open file, under its name if it only grew, else to partial/ */
	JOB_GROWN,
	JOB_PARTIAL, /* a suspect file, to partial/ */
	JOB_DELETE, /* the object of a file that is gone */
	JOB_FREEZE /* copy the small files of `dir` that were closed; plan_done() is not called */
};

struct job {
	enum job_kind kind;
	struct entry *entry; /* stays valid until plan_done() */
	struct work *work;
	struct dir *dir; /* for JOB_FREEZE only */
	/* sent instead of the file; stays valid until plan_done() */
	const struct frozen *frozen;
	uint64_t close; /* the version sent is not older than this close */
	bool snapshot; /* take a snapshot first */
	bool patient; /* let a writer wait for the end of a short copy */
	bool large; /* counts against the limit of large files in flight */
	bool closed; /* for JOB_GROWN: the file is not open any more */
	bool queued; /* the queue of the file's directory waits for this job */
	int64_t open_ms; /* for JOB_GROWN: how long the file has been open */
	int64_t started_ms;
	bool flushing;
	bool appender; /* a writer has, or had, the file open with O_APPEND */
	/* For JOB_GROWN: the versions in the object and in partial/. */
	bool grown_known, grown_has_crc;
	struct ident grown, sent;
	uint64_t grown_crc;
	int64_t partial_ms; /* time since the file went to partial/; INT64_MAX if never */
	char etag[ENTRY_ETAG_SIZE]; /* ETag of the object; "" if there is no ETag, or if `older` */
	bool older; /* the object is of an attempt before the run started over */
};

enum job_outcome {
	JOB_DONE,
	JOB_CHANGED, /* the file changed during the upload; nothing was published */
	JOB_WRITER, /* a writer has the file open */
	JOB_MISSING, /* the file does not exist */
	JOB_NOTHING, /* JOB_GROWN: too early, or nothing new */
	JOB_FAILED, /* an error; if `retryable`, the same job may succeed later */
	JOB_WAIT, /* a commit: a file that it names is not published yet */
	JOB_DAMAGED, /* a commit: a file that it names does not match, or the commit is invalid */
};

struct job_result {
	enum job_outcome outcome;
	enum job_kind kind; /* JOB_GROWN may have ended as JOB_PARTIAL */
	struct ident ident; /* identity of the version that was sent */
	uint64_t sent; /* bytes sent: less than the size if the store copied a part */
	/* ETag of the object under the file's name; owned by the caller of plan_done() */
	char *etag;
	uint64_t crc; /* CRC-64 of the bytes that were sent */
	bool has_crc;
	bool retryable;
	bool unsure; /* the upload failed, but the store may have the object */
	int error; /* enum penstock_code */
};

/* Adds a record about the version `ident` of a file to the journal. */
typedef void (*plan_note_fn)(
	void *cookie, enum journal_type type, struct entry *e, const struct ident *ident);

struct plan {
	struct table *table;
	struct procs *procs;
	plan_note_fn note;
	void *cookie;
	int quiet_ms, append_ms, workers;
	bool continuous; /* if false, there are jobs only during a flush */
	bool may_delete; /* deleteSync, and the restore is complete */
	bool may_retire; /* the restore is complete, or the run started over */
	/* writes through mmap leave no trace on this file system: a close counts as a change */
	bool always_dirty;
	bool flushing;
	bool stopped; /* ownership was lost: no more jobs */
	struct dir *active;
	int large_busy;
	int64_t pause_until_ms; /* no jobs before this time, because the store does not reply */
	int pause_ms;
	int64_t sweep_ms; /* time of the next check of open and suspect files */
	/* The time when the machine stops, 0 if unknown. If an upload would replace a good
	 * object and would not finish in time, a flush does not start the upload, and sets
	 * `late`. */
	int64_t deadline_ms;
	bool late;
	unsigned n_busy;
	int64_t busy_since_ms, busy_ms; /* busy_ms: total time in which jobs ran */
	uint64_t busy_bytes; /* bytes of the objects that were published in that time */
	size_t n_queued; /* works with a place in a queue */
	struct dir *lined;
	size_t n_parked;
	uint64_t parked_bytes;
	bool manifest_dirty;
	uint64_t closes; /* number of the last close */
	size_t frozen_bytes; /* bytes of all copies of small files */
	char fault[160]; /* the defect that PLAN_MUST() (state.h) has found; "" if there is none */
};

/* Sets the state of a file; no other function does. A transition that state.c does not list is a
 * defect. */
void plan_set_state(struct plan *p, struct entry *e, enum entry_event event, enum entry_state to);

/* Reports that the file was written to, or that a writer has it open. Returns 0, or -1 if out of
 * memory. */
int plan_changed(struct plan *p, struct entry *e, int64_t now_ms);
/* Like plan_changed(), but only a refused lease shows the writer. `kind` is the kind of the last
 * close. */
int plan_refused(struct plan *p, struct entry *e, enum close_kind kind, int64_t now_ms);
/* Reports that the file was closed, or moved into place, with its present `ident` and `mode`.
 * Returns 0, or -1 if out of memory. */
int plan_closed(struct plan *p, struct entry *e, const struct ident *ident, uint32_t mode,
	enum close_kind kind, int64_t now_ms);
/* Notes that the file has other content at the next plan_closed(), although no write was seen. */
void plan_rewritten(struct entry *e);
/* Notes that the scan found the file closed, so the event of that close may still arrive. */
void plan_found(struct entry *e);
/* Reports the event of a close that plan_closed() has already handled: the file was `moved` into
 * place, or closed by a writer that was not found. */
void plan_seen(struct entry *e, bool moved);
/* If `doomed`, the file's writer is being killed now, and the next close counts as caused by the
 * kill. */
void plan_doom(struct work *w, bool doomed);
/* Reports that the file is gone. May free `e`. */
void plan_gone(struct plan *p, struct entry *e, int64_t now_ms);
/* Deletes the object of a file that is gone, if deletion is allowed. */
void plan_delete(struct plan *p, struct entry *e, int64_t now_ms);
/* Deletes an object that this sync uploaded under a name that no file has. */
void plan_late(struct plan *p, struct entry *e, int64_t now_ms);
/* Reports that a name that was gone exists again. No worker may be deleting its object. */
void plan_returned(struct plan *p, struct entry *e);
/* Handles a file whose last close is not confirmed. A log (a file that is only appended to) is
 * queued, so that its unpublished lines are sent; any other file becomes suspect. Returns -1 if out
 * of memory. */
int plan_suspect(struct plan *p, struct entry *e, const struct ident *ident, int64_t now_ms);
/* Sends again a file whose object is missing (`missing`) or was replaced. Returns -1 if out of
 * memory. */
int plan_again(struct plan *p, struct entry *e, bool missing, int64_t now_ms);
void plan_task_ended(struct plan *p, bool killed, int64_t now_ms);
/* Returns how the writers that were seen ended, or CLOSE_UNSEEN if none was seen. */
enum close_kind plan_judge(const struct work *w);
void plan_add_writer(struct work *w, struct proc *proc, bool append);

/*
 * When its turn comes, a small file that was closed again before it was published, such as
 * `latest`, may refer to files that were closed later. JOB_FREEZE requests copies of all small
 * files of a directory at the same moment, at most PLAN_FROZEN: plan_freeze() takes ownership of
 * each copy. Then the caller reports everything that was closed before that moment, and
 * plan_queue_frozen() puts the copies at the end of the queue, in the order of their closes.
 */
void plan_freeze(struct plan *p, struct work *w, struct frozen *frozen);
void plan_queue_frozen(struct plan *p, struct dir *d);
/* Moves the head of the queue to the end if no copy could be made. The head is then sent from its
 * file, unless the file is closed again. */
void plan_freeze_failed(struct plan *p, struct dir *d);
/* Forgets the copy, if there is one. */
void plan_thaw(struct plan *p, struct work *w);

/* Stores the next job in `*job`. If there is no job now, returns false and lowers `*wake_ms` to the
 * time of the next call. */
bool plan_next(struct plan *p, int64_t now_ms, struct job *job, int64_t *wake_ms);
/* Returns true if the upload of the job may still become visible, or if the job may still delete
 * the object. */
bool plan_still_valid(const struct plan *p, const struct job *job);
/* Reports the result of a job. May free the entry. */
void plan_done(struct plan *p, const struct job *job, const struct job_result *r, int64_t now_ms);

void plan_flush_begin(struct plan *p);
void plan_flush_end(struct plan *p);
/* Returns the number of changes that the flush has not handled yet, including the files in the
 * line. */
size_t plan_flush_pending(const struct plan *p);
/* Returns true if the change of `w` is still to be published. Returns false for a suspect file
 * whose present content is in partial/. */
bool plan_is_waiting(const struct work *w);

#endif
