/*
 * The running sync, as its parts see it:
 *
 *	sync.c	  the interface, the threads, flush and status
 *	observe.c what the watch and the scan see becomes events of the plan
 *	upload.c  what a worker does for one job
 *	freeze.c  small files that are rewritten all the time
 *	boot.c	  whether what is here survived a stop of the machine
 *	keep.c	  what stood there before is kept before it is overwritten
 *	recheck.c whether files still hold what was published of them
 *	review.c  whether what was published is still there
 *	state.c	  journal and manifest: attach to what is there, keep them current
 *	restore.c bringing a directory back (needs no running sync)
 *	leftovers.c what a killed sync left in the bucket
 *
 * One lock covers the table, the plan and everything marked "under lock". It is never held during
 * a request; it is held during short looks at local files.
 */
#ifndef SYNC_SYNC_INTERNAL_H
#define SYNC_SYNC_INTERNAL_H

#include <dirent.h>
#include <pthread.h>

#include <penstock/error.h>

/* Clang takes uthash's default hash, which falls through its cases, for a mistake. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#include <uthash.h>

#include "base/process.h"
#include "sync/journal.h"
#include "sync/lease.h"
#include "sync/manifest.h"
#include "sync/plan.h"
#include "sync/sync.h"
#include "sync/table.h"
#include "sync/watch.h"
#include "sync/writers.h"
#include "transfer/objects.h"

#define SYNC_WORKERS_MAX 32

/* Somebody else's object that was kept before it was overwritten. */
struct kept {
	char *path, *etag, *key;
	uint64_t size;
	UT_hash_handle hh; /* by key */
};

/* An event that on_event was not told yet. */
struct event_line {
	struct event_line *next;
	enum sync_event event;
	uint64_t bytes;
	char *path; /* NULL: none */
	char *detail;
};

struct sync {
	/* Set at the start, never changed. */
	struct sync_options o; /* strings are owned copies */
	char *strings[8];
	char *state;	/* "<prefix><state_prefix>/" */
	char *sent_dir; /* what was last sent of large files: below private_dir */
	char nonce[17];
	char boot[PROCESS_BOOT_ID_SIZE]; /* "": not known */
	int root_fd;
	bool leases_unreliable; /* network file system: events and leases tell nothing */
	int n_workers;
	pthread_t owner, workers[SYNC_WORKERS_MAX];
	int n_started;
	bool owner_started;
	int wake_fd;
	atomic_int cancel; /* uploads under way end */

	pthread_mutex_t event_lock; /* of the next three */
	struct event_line *events, *events_last;
	bool delivering;

	pthread_mutex_t lock;
	pthread_cond_t work; /* something to do for a worker */
	pthread_cond_t idle; /* something was done: for sync_flush() */

	/* Under lock. */
	bool stop;
	struct table table;
	struct procs procs;
	struct plan plan;
	struct journal *journal;
	bool journal_warned;
	int64_t journal_sync_ms;    /* next fdatasync */
	uint64_t journal_live_size; /* after the last rewrite */
	bool journal_syncing;
	bool journal_dirty;			 /* written and not synced */
	char journal_boot[PROCESS_BOOT_ID_SIZE]; /* in which what it says was seen to be so */
	bool doubt;				 /* that was before the machine stopped */
	bool settling;		    /* the disk is at it: no record says that a file is there */
	struct kept *kept;	    /* in the order in which they were kept */
	struct strlist nonces;	    /* of the syncs that wrote to this journal */
	struct leftover *leftovers; /* uploads in parts that are not over */
	bool attached, attaching;
	int64_t attach_ms;	  /* next try */
	bool conditions;	  /* the store honours If-Match and If-None-Match on PUT */
	bool complete_conditions; /* also on the Complete of an upload in parts */
	bool remove_conditions;	  /* If-Match on DELETE */
	bool restored;		  /* the restore of the manifest that is there was verified here */
	uint64_t journal_generation, restored_generation;
	bool manifest_busy;
	int64_t manifest_ms; /* not before */
	uint64_t generation;
	char manifest_etag[OBJECT_ETAG_SIZE];
	int64_t manifest_ns; /* when the store got it, if it was there at the start */
	uint64_t uploads;    /* counts the names of uploads */
	uint64_t n_compared;
	uint64_t scans_wanted, scans_done; /* a flush wants one that began after it */
	struct penstock_error flush_error; /* the first of this flush */
	struct penstock_error attach_error;
	uint64_t files_published, bytes_published, n_deleted;
	bool lost;
	char last_error[256];
	int64_t last_publish_ms;

	/* Owned by the owner thread, used under lock. */
	struct watch *watch; /* NULL: polling */
	bool polling;
	bool events_lost; /* too many came at once */
	struct dir *wd_map[4096];
	struct dir *scan_first, *scan_last;
	struct dir *scan_dir; /* being read */
	DIR *scan_stream;
	bool scan_all;	   /* a pass over everything is under way */
	uint64_t scan_for; /* scans_wanted when it began */
	int64_t scan_ms, scan_cost_ms;
	bool look_again;  /* some name waits for what stood there before */
	int64_t again_ms; /* the next look at it */
	int64_t again_pause_ms;
	uint64_t scans;	  /* of everything */
	int64_t short_ms; /* the last warning that memory or descriptors are short */
	bool initial;	  /* the first scan, before the tasks start */
	bool continued;	  /* the journal has earlier attempts */
	int64_t look_ms;  /* next search for writers */
};

/* sync.c. One without threads; sync_free() it. */
int sync_new(struct sync **out, const struct sync_options *options, struct penstock_error *err);
/* Takes what has happened so far, also where the owner of the watch had no turn for long. Under lock. */
void sync_catch_up(struct sync *s);
/* Remembers an event for on_event; with or without the lock. */
void sync_emit(struct sync *s, enum sync_event event, const char *path, uint64_t bytes,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Calls on_event for what was remembered. Without the lock. */
void sync_deliver(struct sync *s);

/* observe.c; under lock */
void observe_start(struct sync *s);
/* Reads what the watch has; true: there was something. */
bool observe_events(struct sync *s);
/* Reads a part of what is to be scanned; returns how long it may wait for the next call, in ms. */
int observe_scan(struct sync *s, int64_t now_ms);
void observe_scan_all(struct sync *s);
/* Finds who has changed files open. Returns when it wants to be called again, INT64_MAX: not. */
int64_t observe_writers(struct sync *s, int64_t now_ms);
/* The next close of what has a writer now is that of a death. */
void observe_doomed(struct sync *s);
void observe_stop(struct sync *s);

/* freeze.c */
/* JOB_FREEZE. Under lock. */
void freeze_dir(struct sync *s, struct dir *d);
/* What a small file holds; NULL: it has a writer, changed meanwhile, is too large, or memory is short. */
struct frozen *freeze_file(int fd, enum lease *lease);

/* upload.c; without the lock. `result->etag` is owned by the caller. */
void upload_run(struct sync *s, const struct job *job, const char *path, struct job_result *result,
	struct penstock_error *err);
/* The key of a path below the prefix; -PENSTOCK_E_LIMIT: longer than S3 allows. */
int upload_key(struct sync *s, const char *middle, const char *path, struct buf *key,
	struct penstock_error *err);
/* Sends what a suspect file holds to partial/; also for restore.c. */
int upload_partial(struct sync *s, int fd, const char *path, uint64_t size,
	const atomic_int *cancel, struct penstock_error *err);

/* boot.c */
/* After the replay. */
void boot_judge(struct sync *s);
/* What the journal says was seen to be so in this boot. */
void boot_believe(struct sync *s);

/* recheck.c */
/* Whether content alone tells what is to be sent. Under lock. */
bool recheck_counts(const struct sync *s);
/* What an object holds. */
struct published {
	uint64_t size, crc;
	bool has_crc;
	struct etag etag;
	char etag_text[ENTRY_ETAG_SIZE];
};
/* Of an entry whose `seen` is that. */
void published_of(const struct entry *e, struct published *p);
/* Whether the file holds the same. 1: it does; 0: it does not, or nobody can tell. Without the lock. */
int recheck_content(struct sync *s, int fd, const char *path, uint64_t size,
	const struct published *p, struct penstock_error *err);
/* Without the lock, when nothing waits. Compares each file with what was published of it; those that differ are sent again,
 * or are suspect where the machine stopped since: `again` counts them. PENSTOCK_E_TIMEOUT: it was not through with all; the next call goes on. */
int recheck_output(
	struct sync *s, int64_t deadline_ms, uint64_t *again, struct penstock_error *err);
/* The flush is complete: the next one compares all anew. Under lock. */
void recheck_over(struct sync *s);

/* review.c; without the lock, when nothing waits. Lists the output once, compares it with the table, and has what somebody
 * removed or replaced sent again: `again` counts it. An error names what is neither there nor here. */
int review_output(struct sync *s, uint64_t *again, struct penstock_error *err);

/* leftovers.c. In the journal, under lock: */
void leftovers_fill(const struct sync *s, struct journal *to);
int leftovers_replay(struct sync *s, const struct journal_record *r); /* -1: out of memory */
void leftovers_free(struct sync *s);
/* Without the lock: an upload in parts begins, has a name, is over, as object_put_options.parts says. */
void leftovers_parts(struct sync *s, const char *key, const char *id, bool over);
/* Ends what the journal says was begun, and removes probes; `earlier`: somebody wrote a manifest before.
 * Without the lock, before the sync is attached. */
void leftovers_end(struct sync *s, bool earlier);
/* Whether a sync of this journal wrote that manifest, whether or not it lived to note it. Under lock. */
bool leftovers_is_ours(const struct sync *s, const struct object_info *manifest);

/* keep.c; without the lock */
/* Whether this run published it, in this attempt or in one that it continues; `older`: what stands there
 * is known to be of an attempt before the run began anew. */
bool keep_is_ours(const struct sync *s, const struct object_info *there, bool older);
/* Keeps what `there` says stands under `key`. 1: it is kept, and on record; 0: it is another one by now, or
 * gone: look again. */
int keep_object(struct sync *s, const char *path, const char *key, const struct object_info *there,
	struct penstock_error *err);
/* Notes the copies that an earlier attempt made and died before it could note them. */
int keep_find(struct sync *s, struct penstock_error *err);

/* state.c */
int state_string(const struct sync_options *o, char **state, struct penstock_error *err);
/* What the journal says, into the table. Before the threads. */
int state_replay(struct sync *s, struct penstock_error *err);
/* Compares it with the files: what is published, closed, suspect. Before the threads. */
int state_reconcile(struct sync *s, struct penstock_error *err);
/* Reads the manifest of the bucket through a file in `tmp_dir`. -PENSTOCK_E_NOT_FOUND: none. */
int state_fetch_manifest(const struct sync_options *o, const char *state,
	struct manifest_head *head, struct object_info *info, manifest_fn fn, void *cookie,
	struct penstock_error *err);
void state_note(void *cookie, enum journal_type type, struct entry *e, const struct ident *ident);
int state_rewrite_journal(struct sync *s, struct penstock_error *err);
/* Does nothing where the key is known. -1: out of memory. */
int state_add_kept(
	struct sync *s, const char *path, const char *etag, const char *key, uint64_t size);
bool state_has_kept(const struct sync *s, const char *key);
void state_free_kept(struct sync *s);
/* Finds out what the bucket has. Without the lock. */
int state_attach(struct sync *s, struct penstock_error *err);
/* Writes the manifest. Without the lock. PENSTOCK_E_PRECONDITION: ownership was lost. */
int state_write_manifest(struct sync *s, struct penstock_error *err);
/* Whether the manifest in the bucket is still the one this run wrote. Without the lock. */
int state_still_owner(struct sync *s, bool *owner, struct penstock_error *err);
void state_lost(struct sync *s);

/* restore_aside.c; a file that is set aside is sent to partial/ and removed once it is there. */
/* Where it goes until then, below a directory that is there; free() it. */
int restore_aside_place(
	const struct sync *s, const char *path, char **out, struct penstock_error *err);
/* 1: it could not be sent and stays where it is, which was told. */
int restore_aside_send(
	struct sync *s, const char *path, const char *file, struct penstock_error *err);
/* What restores before this one have set aside and not sent. */
int restore_aside_send_left(struct sync *s, struct penstock_error *err);

/* restore_parts.c: what a restore that was killed has fetched in part is what we publish, and nobody's output. */
/* Of a file that is fetched anew. */
bool restore_is_own_part(const struct sync *s, const char *path);
/* Of a large one, or the journal beside it: the fetch goes on from there. */
bool restore_is_begun(const struct sync *s, const char *path);

#endif
