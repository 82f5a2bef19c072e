/*
 * The table of all names of the directory. The table is small, because 100,000 files must fit in 20
 * MB: a file without an unpublished change is one entry of about 130 bytes and its name; everything
 * about a change is in its `work`, which is freed when the change is published.
 *
 * Nothing here locks; the caller's lock covers the whole table.
 */
#ifndef SYNC_PLAN_TABLE_H
#define SYNC_PLAN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"

struct dir;
struct proc;

/* The identity of a file's content: a file with the same identity counts as unchanged. */
struct ident {
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint64_t ino;
};
void ident_of_stat(struct ident *ident, const struct stat *st);
bool ident_equal(const struct ident *a, const struct ident *b);

enum entry_state {
	ENTRY_CLEAN, /* published as it is, or a link or directory: nothing to publish */
	ENTRY_OPEN, /* changed, and a writer has the file open */
	ENTRY_HELD, /* closed by the exit of a writer; how the writer ended is not known yet */
	ENTRY_CLOSED, /* to be published */
	ENTRY_SUSPECT, /* closed by a kill: sent to partial/, not under its name */
	ENTRY_GONE, /* missing locally */
	ENTRY_PARKED, /* to be published, in the line after the queue: no work yet, no object */
};

/* The cause of a change of state; plan/state.c has the table of legal transitions. */
enum entry_event {
	/* recorded by the journal, the manifest or a restore, with no task running */
	EVENT_RECORDED,
	EVENT_WRITTEN, /* a writer has the file open, or has written to it */
	EVENT_CLOSED, /* the file was closed, or moved into place */
	EVENT_KILLED, /* the writer was killed */
	EVENT_TRUSTED, /* the writer exited normally, or its result did not arrive in time */
	EVENT_REMOVED, /* the file is gone */
	EVENT_RETURNED, /* the name exists again, or for the first time */
	EVENT_TURN, /* the entry is now the first in the line */
	EVENT_SENT, /* the object has the content of the file */
	EVENT_TORN, /* the file does not begin with the published lines of the log */
	EVENT_RESEND, /* the object is missing, replaced, or has other content */
	N_EVENTS
};

enum entry_flag {
	ENTRY_PUBLISHED = 1 << 0, /* this run published the object; `etag` is its ETag */
	ENTRY_HAS_CRC = 1 << 1, /* `crc` is of the published bytes */
	/* the object holds the first published.size bytes of an open file */
	ENTRY_APPENDED = 1 << 2,
	ENTRY_KEEP = 1 << 3, /* gone, but perhaps not deleted by a task: stays in the manifest */
	ENTRY_IN_PARTIAL = 1 << 4, /* partial/ holds a version of the file */
	ENTRY_SEEN = 1 << 5, /* the current scan has found the name */
	ENTRY_WARNED = 1 << 6, /* a warning about this name was given */
	ENTRY_OLDER = 1 << 7, /* the object is from before the run started over */
	ENTRY_THERE = 1 << 8, /* the current review has handled the object */
	ENTRY_LINE = 1 << 9, /* the entry has a place in the line, in any state */
	ENTRY_AGAIN = 1 << 10, /* the file was closed again while it had that place */
	ENTRY_UNSEEN = 1 << 11, /* PARKED: closed before its writer was found */
	ENTRY_RETIRED = 1 << 12, /* the object is deleted with the file, even without deleteSync */
	ENTRY_COMPARED = 1 << 13, /* this flush has compared the file with its object */
	ENTRY_SYNCED = 1 << 14, /* CLOSED: the file is on the disk */
	/* a request for the object was sent, and no reply arrived: the object may hold the file
	 * `unsure_ino`, or be gone */
	ENTRY_UNSURE = 1 << 15,
};

/* An ETag: the usual MD5 with an optional part count takes 18 bytes; another ETag is a string. */
struct etag {
	unsigned char md5[16];
	uint16_t parts; /* 0 if there is no "-N" */
	uint8_t form; /* 0: no ETag, 1: md5 and parts, 2: in entry.text */
};

#define UNSURE_ANY UINT64_MAX

struct entry {
	struct entry *sibling, *before; /* entries of the same directory */
	struct dir *dir;
	struct work *work; /* owned; NULL if there is no unpublished change */
	struct dir *below; /* owned; NULL if the entry is not a directory */
	struct entry *line_next;
	char *text; /* owned: the target of a link, or an unusual ETag */
	struct ident seen; /* as last seen; as published if the state is CLEAN or GONE */
	uint64_t crc; /* CRC-64 of the published bytes; if PARKED, the number of the file's close */
	/* ENTRY_UNSURE: inode of the file whose upload failed; UNSURE_ANY for several files, 0 for
	 * no file */
	uint64_t unsure_ino;
	uint16_t mode; /* with the type */
	struct etag etag;
	uint16_t flags; /* enum entry_flag */
	uint8_t state; /* enum entry_state */
	char name[];
};

#define WORK_WRITERS 4

/* Data of a change whose file is open, or was closed by a kill. */
struct opening {
	/* processes that have, or had, the file open for writing */
	struct proc *writers[WORK_WRITERS];
	struct ident sent; /* the version that partial/ or the grown object holds */
	int64_t opened_ms;
	int64_t grown_ms; /* last publication, or attempt, while the file was open */
	int64_t grown_cost_ms; /* duration of that publication */
	int64_t partial_ms; /* time at which the file last went to partial/; 0 if never */
	uint8_t looked; /* number of searches for the writers */
	/* Set if only a refused lease shows that the file is open; `closed_as` is then the kind of
	 * its last close. The kernel reports a close before it grants leases again. So the lease
	 * may be refused after the last close was reported, and then no further close is
	 * reported. */
	bool by_lease;
	uint8_t closed_as; /* enum close_kind */
};

/* A copy of a small file at one moment. The copy is published even if the file changes
 * (freeze.c). */
struct frozen {
	struct ident ident;
	uint32_t mode;
	uint64_t close; /* number of the close that left this content */
	size_t len;
	unsigned char data[];
};

/* The state of the upload of a change, and of the file since the job was made. */
enum work_send {
	SEND_IDLE, /* no worker has the change */
	SEND_SAME, /* unchanged since the job was made */
	SEND_CHANGED, /* written to, removed, or suspect since */
	SEND_RECLOSED, /* closed again, and perhaps changed after that */
};

/* The way to send a file when its turn comes. */
enum work_how {
	HOW_FILE, /* directly from the file */
	HOW_SNAPSHOT, /* from a snapshot: a large file that changed during an upload */
	HOW_COPY, /* from a copy (freeze.c): a small file that was closed again */
	HOW_REST, /* the unpublished lines of a log whose writer was killed, if it has only grown */
};

/* Reason why a file waits. The file is retried at `ready_ms`. */
enum work_wait {
	WAIT_NONE,
	WAIT_DATA, /* a commit that names unpublished files; it stays in the queue, at the end */
	WAIT_RETRY, /* the file cannot be published now (see `error`), and has left the queue */
};

/*
 * A change that is not published yet. Every OPEN, HELD, CLOSED or SUSPECT entry has a work; a GONE
 * entry has one while its object is to be deleted, and a directory has one while the object of an
 * earlier file of the same name is to be deleted. CLEAN and PARKED entries have none. The fields
 * that each state uses:
 *
 *	OPEN	 opening, changed_ms, doomed, modified, appender; the work keeps its place in the
 *		 queue
 *	HELD	 ready_ms: time at which the exit of its writer counts as normal
 *	CLOSED	 ready_ms, how, wait, close, first_close, waiting_ms, behind, unseen, found, frozen
 *	SUSPECT	 opening->sent: the version in partial/; the work is not in the queue
 *	GONE	 ready_ms: time at which its object is deleted
 */
struct work {
	struct entry *entry;
	struct frozen *frozen; /* owned; sent instead of the file; NULL if there is no copy */
	struct opening *opening; /* owned; set while OPEN, may be set in other states */
	struct work *next, *prev; /* neighbours in the directory's queue, in the order of closes */
	struct work *all_next, *all_prev; /* neighbours in the list of all works */
	struct ident published; /* the version that the object holds; only with ENTRY_PUBLISHED */
	int64_t dirty_ms; /* first unpublished change */
	int64_t changed_ms; /* last change or close that was seen */
	int64_t ready_ms; /* earliest time of the next job */
	int64_t waiting_ms; /* time since which a close is unpublished; 0 if there is none */
	/* Numbers of the last close, and of the first close that is not published. */
	uint64_t close, first_close;
	/* waits until this number of entries of its directory have left the line */
	uint64_t behind;
	uint16_t broken; /* snapshots that failed because a writer changed the file */
	uint8_t error; /* enum penstock_code of the last failure */
	uint8_t send; /* enum work_send */
	uint8_t how; /* enum work_how */
	uint8_t wait; /* enum work_wait */
	bool queued; /* in the directory's queue */
	bool settled; /* this flush did all that it could, and nothing has changed since */
	bool unseen; /* closed before its writer was found */
	bool found; /* the scan found the file closed; the event of that close may still arrive */
	bool doomed; /* the writer is being killed, which causes the next close */
	bool modified; /* a write was seen since the last close */
	bool appender; /* a writer has, or had, the file open with O_APPEND */
};

struct dir {
	struct entry *self; /* NULL for the top directory */
	struct entry *first; /* children */
	struct dir *wd_next;
	struct dir *all_next, *all_prev; /* list of all directories */
	struct work *head, *tail; /* publication queue */
	size_t n_queued; /* length of that queue */
	struct dir *active_next, *active_prev; /* list of the directories with a queue */
	struct entry *line, *line_tail; /* the line: closed files that are not in the queue yet */
	struct dir *lined_next, *lined_prev; /* list of the directories with a line */
	uint64_t line_in, line_out; /* numbers of entries that ever joined the line, and left it */
	int64_t line_ms; /* time at which the line began */
	bool lined;
	struct dir *scan_next, *scan_prev; /* list of the directories to be read */
	uint32_t id;
	int wd; /* inotify watch; -1 if there is no watch */
	bool busy; /* a worker has a file of the queue */
	unsigned n_frozen; /* copies of files in the queue that are not published yet */
	int64_t freeze_ms; /* time of the next attempt to copy the small files */
	int64_t freeze_since_ms; /* time of the first attempt; 0 if there was none */
	bool scan; /* the directory is in the list of the directories to be read */
};

struct table {
	struct dir *top;
	struct dir *dirs; /* list of all directories */
	struct entry **slots;
	size_t n_slots, n_entries;
	uint32_t next_dir;
	struct work *works;
	size_t n_works;
};

int table_init(struct table *t); /* returns -1 if out of memory */
void table_release(struct table *t);

struct entry *table_find(const struct table *t, const struct dir *dir, const char *name);
/* Finds or makes the entry of a name (state CLEAN, no identity). Returns NULL if out of memory. */
struct entry *table_get(struct table *t, struct dir *dir, const char *name);
/* Like table_get(), by a path relative to the top; creates the directories on the way. Returns NULL
 * with errno ENOMEM, or with ENOTDIR if one of these directories is a file or if a name is empty or
 * has more than 255 bytes. */
struct entry *table_get_path(struct table *t, const char *path);
struct entry *table_find_path(const struct table *t, const char *path);
/* Turns an entry into a directory. Returns NULL if out of memory. */
struct dir *table_make_dir(struct table *t, struct entry *e);
/* Forgets an entry, its work and, for a directory, all entries below it. */
void table_remove(struct table *t, struct entry *e);

/* Finds or makes the work of `e`. Returns NULL if out of memory. */
struct work *table_work(struct table *t, struct entry *e, int64_t now_ms);
/* Moves the work to the front of the list of all works. */
void table_touch_work(struct table *t, struct work *w);
/* Finds or makes the opening of `w`. Returns NULL if out of memory. */
struct opening *work_open(struct work *w);
/* Frees the work of `e`. The work must be neither queued nor with a worker. */
void table_drop_work(struct table *t, struct entry *e);

/* Calls `fn` for every entry, parents before children, siblings in any order. Stops when `fn`
 * returns non-zero, and returns that result. */
int table_each(const struct table *t, int (*fn)(void *cookie, struct entry *e), void *cookie);
int table_each_below(const struct dir *d, int (*fn)(void *cookie, struct entry *e), void *cookie);

/* Appends the path relative to the top. */
void entry_path(const struct entry *e, struct buf *out);
void dir_path(const struct dir *d, struct buf *out);
/* Sets the ETag; NULL, "" or an ETag of ENTRY_ETAG_SIZE bytes or more removes it. Returns -1 if out
 * of memory. */
int entry_set_etag(struct entry *e, const char *etag);
#define ENTRY_ETAG_SIZE 136
/* Returns true if the entry has this ETag, or if its ETag is unknown. */
bool entry_may_have_etag(const struct entry *e, const char *etag);
/* Stores the ETag with its quotes in `out`; "" if there is none. */
void entry_etag(const struct entry *e, char out[static ENTRY_ETAG_SIZE]);

#endif
