/*
 * What is to be published next: the state machine of sync, without any input or output. Events
 * come in with their time, jobs go out to workers, results come back.
 *
 *	                 changed                  closed
 *	    CLEAN ──────────────────▶ OPEN ──────────────────▶ CLOSED ──▶ job ──▶ CLEAN
 *	      ▲                        │ ▲  by an exit           ▲  │ changed meanwhile: again,
 *	      │                        │ └── HELD ───────────────┘  │ from a snapshot
 *	      │                        │      │ known after 1 s,    │
 *	      └── next true close ── SUSPECT ◀┘ or by task_ended()  └▶ OPEN (a writer came)
 *
 * Each directory has a queue in the order of closes, and only its head is with a worker, so that a
 * marker written after its data is published after it. A head that was opened again keeps its place
 * (its first version was never published) for PLAN_REOPEN_MS; then the others go ahead.
 *
 * The caller's lock covers everything here; times are clock_monotonic_ms().
 */
#ifndef SYNC_PLAN_H
#define SYNC_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "sync/journal.h"
#include "sync/table.h"
#include "sync/writers.h"

#define PLAN_HOLD_MS	 1000  /* a close by an exit waits so long for news of the exit */
#define PLAN_REOPEN_MS	 30000 /* a file opened again holds up its directory so long */
#define PLAN_DELETE_MS	 2000  /* a file that is gone may be on its way to another name */
#define PLAN_SWEEP_MS	 250   /* open and suspect files are looked at so often */
#define PLAN_PARTIAL_MS	 30000 /* how often a file that is held open goes to partial/ */
#define PLAN_RETRY_MS	 30000 /* a file that cannot be sent as it is */
#define PLAN_DYING_MS	 50    /* a close so shortly before a death may be the death's */
#define PLAN_LARGE	 (64 * 1024 * 1024) /* bytes; two workers are kept for smaller files */
#define PLAN_MARKER	 (256 * 1024)	    /* bytes; what is larger points to nothing */
#define PLAN_FROZEN	 64   /* small files of a directory that are copied at a time */
#define PLAN_QUEUED	 2048 /* files in the queues; what is closed beyond them waits in the line */
#define PLAN_QUEUED_DIR	 512  /* the same of one directory, which may be held up */
#define PLAN_DATA_MS	 20   /* between two looks whether the data of a commit is published */
#define PLAN_RATE_MS	 100  /* of sending that tell how fast it goes */
#define PLAN_RESTLESS_MS 250 /* a file that is closed again and again gets its turn after so long */

enum close_kind {
	CLOSE_TRUE,   /* by a living process, or moved into place */
	CLOSE_UNSEEN, /* nobody saw who had it open */
	CLOSE_EXIT,   /* its writer is gone, and nobody knows how */
	CLOSE_KILLED  /* its writer was killed */
};

enum job_kind {
	JOB_WHOLE, /* the file, under its name */
	JOB_GROWN, /* what an open file has now, under its name if it only grew, else to partial/ */
	JOB_PARTIAL, /* a suspect file, to partial/ */
	JOB_DELETE,  /* the object of a file that is gone */
	JOB_FREEZE   /* copy the small files of `dir` that were closed: no plan_done() */
};

struct job {
	enum job_kind kind;
	struct entry *entry; /* stays valid while the job is out */
	struct work *work;
	struct dir *dir;	     /* of JOB_FREEZE only */
	const struct frozen *frozen; /* send this; stays while the job is out */
	uint64_t close;		     /* what is sent is not older than this one */
	bool snapshot;		     /* take one first */
	bool patient;		     /* let a writer wait for the end of a short copy */
	bool large;		     /* counts against the limit of large ones */
	bool closed;		     /* of JOB_GROWN: nobody has it open any more */
	bool queued;		     /* its directory waits for it */
	int64_t open_ms;	     /* of JOB_GROWN: how long it has been open */
	int64_t started_ms;
	bool flushing;
	bool appender; /* a writer has, or had, it open with O_APPEND */
	/* Of JOB_GROWN: what the object holds of it, and what partial/ does. */
	bool grown_known, grown_has_crc;
	struct ident grown, sent;
	uint64_t grown_crc;
	int64_t partial_ms;	    /* since it went there; INT64_MAX: never */
	char etag[ENTRY_ETAG_SIZE]; /* of the object; "": this run published none */
	bool older;		    /* what is there is of an attempt before the run began anew */
};

enum job_outcome {
	JOB_DONE,
	JOB_CHANGED, /* the file changed under the upload; nothing was published */
	JOB_WRITER,  /* somebody has it open for writing */
	JOB_MISSING, /* the file is not there */
	JOB_NOTHING, /* JOB_GROWN: too early, or nothing new */
	JOB_FAILED,  /* error; `retryable`: the same may succeed later */
	JOB_WAIT,    /* a commit: what it names is not published yet */
	JOB_DAMAGED, /* a commit: what it names is not what is here */
};

struct job_result {
	enum job_outcome outcome;
	enum job_kind kind; /* JOB_GROWN may have ended as JOB_PARTIAL */
	struct ident ident; /* what was sent */
	char *etag;	    /* of the object under its name; owned by the caller of plan_done() */
	uint64_t crc;	    /* of what was sent */
	bool has_crc;
	bool retryable;
	int error; /* enum penstock_code */
};

/* Something for the journal: `ident` is what the record is about. */
typedef void (*plan_note_fn)(
	void *cookie, enum journal_type type, struct entry *e, const struct ident *ident);

struct plan {
	struct table *table;
	struct procs *procs;
	plan_note_fn note;
	void *cookie;
	int quiet_ms, append_ms, workers;
	bool continuous;   /* else jobs come only while flushing */
	bool may_delete;   /* deleteSync, and what had to be restored was */
	bool may_retire;   /* what had to be restored was, or it begins anew */
	bool always_dirty; /* stores through mmap leave no trace here: a close is a change */
	bool flushing;
	bool stopped; /* ownership lost */
	struct dir *active, *active_tail;
	int large_busy;
	int64_t pause_until_ms; /* the store does not answer */
	int pause_ms;
	int64_t sweep_ms; /* the next look at open and suspect files */
	/* The machine ends then (0: not known): what would replace a good object and would not be through is not begun
	 * in a flush, and `late` set. */
	int64_t deadline_ms;
	bool late;
	unsigned n_busy;
	int64_t busy_since_ms, busy_ms; /* what it took ... */
	uint64_t busy_bytes;		/* ... to send so many */
	size_t n_queued;		/* works with a place in a queue */
	struct dir *lined, *lined_tail;
	size_t n_parked;
	uint64_t parked_bytes;
	bool manifest_dirty;
	uint64_t closes;     /* so many were there */
	size_t frozen_bytes; /* of all frozen ones */
};

/* The file was written to, or is there and a writer has it open. 0, or -1: out of memory. */
int plan_changed(struct plan *p, struct entry *e, int64_t now_ms);
/* It was closed, or moved into place; `ident` and `mode` are of now. */
int plan_closed(struct plan *p, struct entry *e, const struct ident *ident, uint32_t mode,
	enum close_kind kind, int64_t now_ms);
/* It is not there any more. May free `e`. */
void plan_gone(struct plan *p, struct entry *e, int64_t now_ms);
/* It is suspect, as the journal of an earlier attempt tells. */
int plan_suspect(struct plan *p, struct entry *e, const struct ident *ident, int64_t now_ms);
/* Its object is not there any more (`missing`), or is somebody else's: it is sent again. -1: out of memory. */
int plan_again(struct plan *p, struct entry *e, bool missing, int64_t now_ms);
void plan_task_ended(struct plan *p, bool killed, int64_t now_ms);
/* How the writers that were seen ended; CLOSE_UNSEEN: none was seen. */
enum close_kind plan_judge(const struct work *w);
void plan_add_writer(struct plan *p, struct work *w, struct proc *proc, bool append);

/*
 * Small files that are closed again before they were published (`latest`, beside what it names): what they hold
 * when their turn comes may need what was closed after them. So JOB_FREEZE asks for a copy of each at one moment
 * (plan_freeze(), which owns it then), after which all that was closed before that moment is told, and then
 * plan_queue_frozen() puts them behind it, in the order of their closes. PLAN_FROZEN of a directory at most.
 */
void plan_freeze(struct plan *p, struct work *w, struct frozen *frozen);
void plan_queue_frozen(struct plan *p, struct dir *d);
/* Forgets the copy, if there is one. */
void plan_thaw(struct plan *p, struct work *w);

/* The next job; false: none now, and *wake_ms is lowered to when to ask again. */
bool plan_next(struct plan *p, int64_t now_ms, struct job *job, int64_t *wake_ms);
/* Whether what the job sends may still appear. */
bool plan_still_valid(const struct plan *p, const struct job *job);
/* May free the entry. */
void plan_done(struct plan *p, const struct job *job, const struct job_result *r, int64_t now_ms);

void plan_flush_begin(struct plan *p);
void plan_flush_end(struct plan *p);
/* Works that the flush has not dealt with. */
size_t plan_flush_pending(const struct plan *p);
/* Whether the change of `w` is still to be published; false for what is in partial/ as it is. */
bool plan_is_waiting(const struct work *w);

#endif
