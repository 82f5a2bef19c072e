/*
 * What sync knows about every name of the directory. Kept small: 100,000 files are to fit in
 * 20 MB, so a file without an unpublished change is one entry of about 130 bytes and its name;
 * everything about a change under way is in its `work`, which goes away with it.
 *
 * Nothing here locks; the caller's lock covers the whole table.
 */
#ifndef SYNC_TABLE_H
#define SYNC_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"

struct dir;
struct proc;

/* What must be the same for a file to count as unchanged. */
struct ident {
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint64_t ino;
};
void ident_of_stat(struct ident *ident, const struct stat *st);
bool ident_equal(const struct ident *a, const struct ident *b);

enum entry_state {
	ENTRY_CLEAN,   /* published as it is (or a link or directory: nothing to publish) */
	ENTRY_OPEN,    /* changed, and a writer has it open */
	ENTRY_HELD,    /* closed by the exit of a writer, of which nobody knows yet how it ended */
	ENTRY_CLOSED,  /* to be published */
	ENTRY_SUSPECT, /* closed by a death; goes to partial/, never under its name */
	ENTRY_GONE,    /* not there locally */
	ENTRY_PARKED, /* to be published, in the line behind the queue: no work yet, and no object */
};

enum entry_flag {
	ENTRY_PUBLISHED = 1 << 0,  /* this run published the object; `etag` is its ETag */
	ENTRY_HAS_CRC = 1 << 1,	   /* `crc` is of the published bytes */
	ENTRY_APPENDED = 1 << 2,   /* the object holds the first pub.size bytes of an open file */
	ENTRY_KEEP = 1 << 3,	   /* gone, but not known to be deleted: stays in the manifest */
	ENTRY_IN_PARTIAL = 1 << 4, /* partial/ holds something of it */
	ENTRY_SEEN = 1 << 5,	   /* found by the scan under way */
	ENTRY_WARNED = 1 << 6,	   /* one warning per name */
	ENTRY_OLDER = 1 << 7,	   /* the object is of an attempt before the run began anew */
	ENTRY_THERE = 1 << 8,	   /* the review under way found its object */
	ENTRY_LINE = 1 << 9,	   /* it has a place in the line, whatever its state */
	ENTRY_AGAIN = 1 << 10,	   /* it was closed again in that place */
	ENTRY_UNSEEN = 1 << 11,	   /* PARKED: closed before its writer was found */
	ENTRY_RETIRED = 1 << 12,   /* its object is to go with the file, deleteSync or not */
	ENTRY_COMPARED = 1 << 13,  /* its bytes are those of the object, this flush has found */
	ENTRY_SYNCED = 1 << 14,	   /* CLOSED: it is on the disk */
};

/* An ETag: the usual MD5 with an optional part count takes 18 bytes, others a string. */
struct etag {
	unsigned char md5[16];
	uint16_t parts; /* 0: no "-N" */
	uint8_t form;	/* 0: none, 1: md5 and parts, 2: in entry.text */
};

struct entry {
	struct entry *sibling, *before; /* of the same directory */
	struct dir *dir;
	struct work *work; /* owned; NULL: nothing unpublished */
	struct dir *below; /* owned; of a directory */
	struct entry *line_next;
	char *text;	   /* owned: a link's target, or an unusual ETag */
	struct ident seen; /* as last looked at; as published where the state is CLEAN */
	uint64_t crc;	   /* of what is published; of a PARKED one the number of its close */
	uint16_t mode;	   /* with the type */
	struct etag etag;
	uint16_t flags; /* enum entry_flag */
	uint8_t state;	/* enum entry_state */
	char name[];
};

#define WORK_WRITERS 4

/* Of a change whose file is open, or was closed by a death. */
struct opening {
	struct proc *writers[WORK_WRITERS]; /* who has, or had, it open for writing */
	struct ident sent;		    /* what partial/ or the grown object holds */
	int64_t opened_ms;
	int64_t grown_ms;      /* last publication, or try, while it was open */
	int64_t grown_cost_ms; /* how long that took */
	int64_t partial_ms;    /* when it last went to partial/, 0: never */
	uint8_t looked;	       /* how often its writers were looked for */
};

/* A small file as it was at one moment, to be published so whatever becomes of it (freeze.c). */
struct frozen {
	struct ident ident;
	uint32_t mode;
	uint64_t close; /* which close it is the content of, in the order of all */
	size_t len;
	unsigned char data[];
};

/* A change that is not published yet. */
struct work {
	struct entry *entry;
	struct frozen *frozen;	  /* owned; what is to appear, else what the file has then */
	struct opening *opening;  /* owned; there while it is open or suspect, else maybe */
	struct work *next, *prev; /* of the directory's queue, in the order of closes */
	struct work *all_next, *all_prev; /* of all works */
	struct ident published;		  /* what the object holds; only with ENTRY_PUBLISHED */
	int64_t dirty_ms;		  /* first unpublished change */
	int64_t changed_ms;		  /* last sign of life */
	int64_t ready_ms;		  /* not before */
	int64_t waiting_ms;		  /* since when a close is not published; 0: none is */
	uint64_t close,
		first_close; /* numbers of the last one and of the first that is not published */
	uint16_t tries;
	uint16_t broken; /* snapshots that a writer broke */
	uint8_t error;	 /* enum penstock_code of the last failure */
	bool queued;	 /* in the directory's queue */
	bool busy;	 /* a worker has it */
	bool changed;	 /* while a worker had it */
	bool reclosed;	 /* after `changed` */
	bool snapshot;	 /* it changed under an upload: take a snapshot */
	bool restless;	 /* small, and closed again in its place: not to appear as it is */
	bool unseen;	 /* closed before its writer was found */
	bool found;	 /* closed, as a look has found: its event may be to come */
	uint64_t behind; /* not before so many of its directory have left the line */
	bool doomed;	 /* its writer is being killed: the next close is a death's */
	bool modified;	 /* a store was seen since the last close */
	bool appender;	 /* a writer has it open with O_APPEND */
	bool give_up;	 /* cannot be published as it is (see error); tried again now and then */
	bool settled; /* this flush did what it could, and nothing has changed since it began to */
	bool tail;    /* the rest of a log whose writer was killed: only if it only grew */
	bool waits;   /* a commit whose data is not all published; looked at again at `ready_ms` */
};

struct dir {
	struct entry *self;  /* NULL: the top */
	struct entry *first; /* children */
	struct dir *wd_next;
	struct dir *all_next, *all_prev;       /* of all directories */
	struct work *head, *tail;	       /* publication queue */
	size_t n_queued;		       /* in it */
	struct dir *active_next, *active_prev; /* of those with a queue */
	struct entry *line, *line_tail;	       /* closed, and not in the queue yet */
	struct dir *lined_next;		       /* of those with a line */
	uint64_t line_in, line_out;	       /* how many ever came and left */
	int64_t line_ms;		       /* when the first of them came */
	bool lined;
	struct dir *scan_next, *scan_prev; /* of those to be read */
	uint32_t id;
	int wd;			 /* inotify; -1: none */
	bool busy;		 /* a worker has one of the queue */
	unsigned n_frozen;	 /* of the queue, and not published yet */
	int64_t freeze_ms;	 /* the next try to freeze its restless ones */
	int64_t freeze_since_ms; /* the first try of them; 0: none */
	bool scan;		 /* in the list of those to be read */
};

struct table {
	struct dir *top;
	struct dir *dirs; /* all of them */
	struct entry **slots;
	size_t n_slots, n_entries, n_used;
	uint32_t next_dir;
	struct work *works;
	size_t n_works;
};

int table_init(struct table *t); /* -1: out of memory */
void table_release(struct table *t);

struct entry *table_find(const struct table *t, const struct dir *dir, const char *name);
/* Finds or makes it (state CLEAN, no identity). NULL: out of memory. */
struct entry *table_get(struct table *t, struct dir *dir, const char *name);
/* The same by a path relative to the top; makes the directories on the way. NULL: errno is
 * ENOMEM, or ENOTDIR where one of them is a file. */
struct entry *table_get_path(struct table *t, const char *path);
struct entry *table_find_path(const struct table *t, const char *path);
/* Turns an entry into a directory. NULL: out of memory. */
struct dir *table_make_dir(struct table *t, struct entry *e);
/* Forgets an entry, its work, and for a directory everything below. */
void table_remove(struct table *t, struct entry *e);

/* Finds or makes it. NULL: out of memory. */
struct work *table_work(struct table *t, struct entry *e, int64_t now_ms);
/* Puts it in front of all others. */
void table_touch_work(struct table *t, struct work *w);
/* Finds or makes it. NULL: out of memory. */
struct opening *work_open(struct work *w);
/* Must not be queued, frozen or busy. */
void table_drop_work(struct table *t, struct entry *e);

/* Every entry, parents before children, siblings in no order. Non-zero stops. */
int table_each(const struct table *t, int (*fn)(void *cookie, struct entry *e), void *cookie);

/* Appends the path relative to the top. */
void entry_path(const struct entry *e, struct buf *out);
void dir_path(const struct dir *d, struct buf *out);
/* -1: out of memory. NULL or "" forgets it. */
int entry_set_etag(struct entry *e, const char *etag);
#define ENTRY_ETAG_SIZE 136
/* With its quotes; "" where there is none. */
void entry_etag(const struct entry *e, char out[static ENTRY_ETAG_SIZE]);

#endif
