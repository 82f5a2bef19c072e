/*
 * Declarations that the parts of the running sync share:
 *
 *	sync.c            the interface and the threads
 *	events.c          reports to the caller
 *	flush.c           flush and status
 *	dirs.c            the watched directories, and the list of directories to be read
 *	observe.c         turns the watch and the scan into events of the plan
 *	scan.c            watches and reads directories, finds the writers of files
 *	upload.c          one job of a worker
 *	freeze.c          copies of small files that are rewritten while they wait
 *	keep.c            keeps objects of other programs and runs before they are overwritten
 *	recheck.c         compares files with their objects
 *	review.c          checks that the published objects still exist
 *	checkpoints.c     commits of checkpoints
 *	state_journal.c   the journal: writing, replay, and checks after a restart of the machine
 *	state_manifest.c  the manifest: reading it at the start, writing the next one
 *	restore/          restores a directory (needs no running sync)
 *	leftovers.c       removes what a killed sync left in the bucket
 *
 * One lock covers the table, the plan and everything marked "under lock". The lock is never held
 * during a request, but it is held during short checks of local files.
 */
#ifndef SYNC_INTERNAL_H
#define SYNC_INTERNAL_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>

#include <penstock/error.h>

/* Replaces uthash's default hash, in which Clang reports a fall-through. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#define HASH_NONFATAL_OOM	       1
#include <uthash.h>

#include "base/process/process.h"
#include "sync/record/journal.h"
#include "sync/kernel/lease.h"
#include "sync/record/manifest.h"
#include "sync/plan/plan.h"
#include "sync/replaced.h"
#include "sync/sync.h"
#include "sync/plan/table.h"
#include "sync/kernel/watch.h"
#include "sync/kernel/writers.h"
#include "transfer/objects.h"

#define SYNC_WORKERS_MAX 32

/* An object of another program or run that was kept before this run overwrote it. */
struct kept {
	char *path, *etag, *key;
	uint64_t size;
	bool fresh; /* this sync has made or seen the copy */
	bool there; /* a listing has shown the copy */
	UT_hash_handle hh; /* by key */
};

/* An event that on_event has not received yet. */
struct event_line {
	struct event_line *next, *prev;
	enum sync_event event;
	uint64_t bytes;
	char *path; /* NULL if the event is not about one file */
	char *detail;
};

struct sync {
	/* Set at the start, never changed. */
	struct sync_options o; /* strings are owned copies */
	char *strings[8];
	char *state; /* "<prefix><state_prefix>/" */
	char *manifest; /* key of the manifest */
	char *sent_dir; /* directory in private_dir with the last sent versions of large files */
	char nonce[17];
	char boot[PROCESS_BOOT_ID_SIZE]; /* id of this boot; "" if unknown */
	int64_t started_ns; /* start time, wall clock */
	int root_fd;
	bool leases_unreliable; /* network file system: no events, no leases */
	int n_workers;
	pthread_t owner, workers[SYNC_WORKERS_MAX];
	int n_started;
	bool owner_started;
	int wake_fd;
	atomic_int cancel; /* ends uploads in flight */

	pthread_mutex_t event_lock; /* protects `events` and `delivering` */
	struct event_line *events;
	bool delivering;

	pthread_mutex_t lock;
	pthread_cond_t work; /* signalled when a worker has something to do */
	pthread_cond_t idle; /* wakes sync_flush() */

	/* Under lock. */
	bool stop;
	struct table table;
	struct procs procs;
	struct plan plan;
	struct journal *journal;
	bool journal_warned;
	int64_t journal_sync_ms; /* earliest time of the next fdatasync */
	uint64_t journal_live_size; /* size of the journal after its last rewrite */
	bool journal_syncing;
	bool journal_dirty; /* some records are written but not synced */
	char journal_boot[PROCESS_BOOT_ID_SIZE]; /* the boot that the records are valid for */
	bool doubt; /* the machine was restarted since that boot */
	bool settling; /* syncfs() is running: records do not get JOURNAL_SYNCED */
	struct kept *kept; /* in the order in which the objects were kept */
	struct strlist nonces; /* nonces of the syncs that wrote to this journal */
	struct leftover *leftovers; /* uploads in parts that have not ended */
	/* state_attach() has read the manifest, or is running */
	bool attached, attaching;
	int64_t attach_ms; /* time of the next attempt to call state_attach() */
	bool conditions; /* the store honours If-Match and If-None-Match on PUT */
	/* the store also honours conditions on the Complete of an upload in parts */
	bool complete_conditions;
	bool remove_conditions; /* the store honours If-Match on DELETE */
	uint64_t journal_generation, restored_generation;
	bool manifest_busy;
	int64_t manifest_ms; /* earliest time of the next manifest */
	uint64_t generation;
	char manifest_etag[OBJECT_ETAG_SIZE];
	/* time at which the store received the manifest that was read at the start; 0 without a
	 * manifest */
	int64_t manifest_ns;
	uint64_t uploads; /* number of the last upload, for its metadata */
	/* numbers of scans; a flush waits for a scan that starts after the flush has begun */
	uint64_t scans_wanted, scans_done;
	struct penstock_error flush_error; /* first error of this flush */
	struct penstock_error attach_error;
	struct sync_status status; /* sync_get_status() fills in the sums */

	/* Owned by the owner thread, used under lock. */
	struct watch *watch; /* NULL if inotify cannot be used */
	bool events_lost; /* the queue of inotify has overflowed */
	struct dir *wd_map[4096];
	struct dir *scan_first;
	struct dir *scan_dir; /* directory that is being read */
	DIR *scan_stream;
	bool scan_all; /* a scan of all directories is in progress */
	uint64_t scan_for; /* scans_wanted when that scan started */
	int64_t scan_ms, scan_cost_ms;
	bool look_again; /* another scan is due soon: see observe_again() */
	int64_t again_ms; /* time of that scan */
	int64_t again_pause_ms;
	int64_t short_ms; /* time of the last warning of observe_short() */
	bool initial; /* the first scan, before the tasks start */
	bool continued; /* the journal has records of earlier attempts */
	int64_t look_ms; /* time of the next search for writers */
};

/* Returns the object `key` in the bucket of the output. */
static inline struct object_ref sync_at(const struct sync *s, const char *key)
{
	return object_at(s->o.client, s->o.bucket, key);
}
/* Opens a file of the output for reading. Returns -1 and sets errno on error. */
static inline int sync_open_file(const struct sync *s, const char *path)
{
	return openat(s->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* sync.c. Creates a sync without threads; free it with sync_free(). */
int sync_new(struct sync **out, const struct sync_options *options, struct penstock_error *err);

/* events.c. Queues an event for on_event. May be called with or without the lock. */
void sync_emit(struct sync *s, enum sync_event event, const char *path, uint64_t bytes,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Passes the queued events to on_event. Without the lock. */
void sync_deliver(struct sync *s);
void sync_wake_owner(struct sync *s);

/* flush.c; under lock. Returns true if the scan of this flush is complete and every file has been
 * sent or cannot be sent. */
bool flush_is_settled(const struct sync *s);

/* observe.c; under lock */
/* Handles up to 64 KiB of pending events of the watch. Returns true if an event was pending. */
bool observe_events(struct sync *s);
/* Reads all events up to now, even if the owner thread has not run for a long time. */
void observe_catch_up(struct sync *s);
/* Looks up a name in the directory, and reports changes to the plan. */
void observe_name(struct sync *s, struct dir *dir, const char *name, int64_t now_ms);
void observe_warn_name(struct sync *s, struct entry *e, const char *why);
enum lease observe_lease(struct sync *s, const char *path);

/* dirs.c; under lock */
void dirs_push_first(struct sync *s, struct dir *d);
void dirs_push_all(struct sync *s);
void dirs_remove(struct sync *s, struct dir *d);
struct dir *dirs_of_watch(struct sync *s, int wd);
void dirs_unwatch(struct sync *s, struct dir *d);
void dirs_watch(struct sync *s, struct dir *d, int fd);
/* Stops watching and reading a directory that is gone. */
void dirs_forget(struct sync *s, struct dir *d);
/* Schedules another scan soon, because a name cannot be handled now. A flush waits for that
 * scan. */
void observe_again(struct sync *s, int64_t now_ms);
/* Like observe_again(), with a warning that the output cannot be examined, at most one per minute.
 * Called if out of memory or descriptors, and if a read fails. */
void observe_short(struct sync *s, const char *what);
void observe_no_memory(struct sync *s);

/* scan.c; under lock */
void observe_start(struct sync *s);
/* Reads a limited number of names. Returns the time until the next call, in ms. */
int observe_scan(struct sync *s, int64_t now_ms);
/* Finds the processes that have the changed files open for writing. Returns the time of the next
 * call, or INT64_MAX if no call is needed. */
int64_t observe_writers(struct sync *s, int64_t now_ms);
/* Marks the files that have a writer now: their next close counts as caused by a kill. */
void observe_doomed(struct sync *s);
void observe_stop(struct sync *s);

/* freeze.c */
/* Runs JOB_FREEZE. Under lock. */
void freeze_dir(struct sync *s, struct dir *d);
/* Returns a copy of a small file, which the caller frees, or NULL if the file has a writer, changed
 * meanwhile, is too large or cannot be read, or if out of memory. Stores the outcome of the request
 * for a lease in `*lease`. */
struct frozen *freeze_file(int fd, enum lease *lease);

/* upload.c; without the lock. `result->etag` is owned by the caller. */
void upload_run(struct sync *s, const struct job *job, const char *path, struct job_result *result,
	struct penstock_error *err);
/* Appends the key of the file `path`. Returns -PENSTOCK_E_LIMIT if the key is longer than S3
 * allows, and -PENSTOCK_E_INVALID if the encoded name is that of another file. */
int upload_key(struct sync *s, const char *path, struct buf *key, struct penstock_error *err);
/* Sends the content of a suspect or open file to partial/; also used by restore/. */
int upload_partial(struct sync *s, int fd, const char *path, uint64_t size,
	const atomic_int *cancel, struct penstock_error *err);

/* recheck.c */
/* Returns true if only a comparison of files with their objects shows which files must be sent.
 * Under lock. */
bool recheck_counts(const struct sync *s);
/* The published content of an object. */
struct published {
	uint64_t size, crc;
	bool has_crc;
	struct etag etag;
	char etag_text[ENTRY_ETAG_SIZE];
};
/* Fills `p` from an entry whose `seen` is the published version. */
void published_of(const struct entry *e, struct published *p);
/* Compares a file with its object. Returns 1 if both hold the same bytes, 0 if not or if they
 * cannot be compared, and a negative code on another error. Without the lock. */
int recheck_content(struct sync *s, int fd, const char *path, uint64_t size,
	const struct published *p, struct penstock_error *err);
/*
 * Without the lock, when no file waits. Compares each file with its object. Files that differ are
 * sent again or, if the machine was restarted since they were written, become suspect. `again`
 * counts these files. Returns -PENSTOCK_E_TIMEOUT at the deadline; the next call continues.
 */
int recheck_output(
	struct sync *s, int64_t deadline_ms, uint64_t *again, struct penstock_error *err);
/* Forgets the comparisons of earlier flushes, so that the next flush compares all files. Under
 * lock. */
void recheck_forget(struct sync *s);

/*
 * review.c; without the lock, when no file waits. Lists the output once, compares it with the
 * table, and sends again each file whose object was removed or replaced. With deleteSync, also
 * deletes objects of this sync that have no file. `again` counts both. Fails if a file is neither
 * in the bucket nor on this machine, and names the first such file.
 */
int review_output(struct sync *s, uint64_t *again, struct penstock_error *err);

/* leftovers.c. Under lock: adds the uploads in parts that have not ended to the journal `to`. */
void leftovers_fill(const struct sync *s, struct journal *to);
/* Handles a record of an upload in parts. Returns -1 if out of memory. */
int leftovers_replay(struct sync *s, const struct journal_record *r);
void leftovers_free(struct sync *s);
/* Records that an upload in parts begins, gets its id, or has ended: see object_put_options.parts.
 * Without the lock. */
void leftovers_parts(void *sync, const char *key, const char *id, bool over);
/* Aborts the uploads that the journal records as not ended, and removes probes. `earlier` is true
 * if there is a manifest of an earlier sync. Without the lock, before the sync is attached. */
void leftovers_end(struct sync *s, bool earlier);
/* Returns true if a sync of this journal wrote `manifest`, even if the sync was killed before it
 * recorded the manifest. Under lock. */
bool leftovers_is_ours(const struct sync *s, const struct object_info *manifest);

/* keep.c */
/* Appends the key of the file `path` to an empty `key`; upload_key() also checks it. */
int sync_key(const struct sync *s, const char *path, struct buf *key, struct penstock_error *err);
/* Appends the key below partial/ of the file `path`. */
void sync_partial_key(const struct sync *s, const char *path, struct buf *key);
/* Sends a HEAD request for the object of the file `path`. */
int sync_head(
	struct sync *s, const char *path, struct object_info *there, struct penstock_error *err);
/* Lists objects. Lists nothing if the store refuses, because many access keys permit writes but not
 * lists. */
int sync_list(struct sync *s, const char *prefix, object_list_fn fn, void *cookie,
	struct penstock_error *err);
/* Under lock: */
/* Records a copy under `key`, unless that copy is already recorded. Returns -1 if out of memory. */
int keep_add(struct sync *s, const char *path, const char *etag, const char *key, uint64_t size);
/* Forgets a copy that was removed. */
void keep_drop(struct sync *s, const char *key);
void keep_free(struct sync *s);
/* Without the lock: */
/* Returns true if this run published the object, in this attempt or in one that this attempt
 * continues. `older` is true if the object is known to come from an attempt before the run started
 * over. */
bool keep_is_ours(const struct sync *s, const struct object_info *there, bool older);
/* Returns true if this sync, not an earlier sync of the run, uploaded the object. */
bool keep_is_of_sync(const struct sync *s, const struct object_info *there);
/* Returns true if any attempt of this run uploaded the object. */
bool keep_is_of_run(const struct sync *s, const struct object_info *there);
/* Keeps the object `there`, which has the key `key`. Returns 1 if the object is kept and recorded,
 * 0 if the object changed or is gone and must be examined again, or a negative code. */
int keep_object(struct sync *s, const char *path, const char *key, const struct object_info *there,
	struct penstock_error *err);
/* Records the copies of an earlier attempt that was killed before it recorded them, and forgets
 * copies that were removed. */
int keep_find(struct sync *s, struct penstock_error *err);

/* checkpoints.c; without the lock */
/* Checks the commit `path`, open as `fd`. Returns JOB_DONE if the commit may be published or is not
 * a commit, JOB_WAIT if a file that it names is not published yet, and JOB_DAMAGED if such a file
 * is missing or differs, or if the commit is invalid. */
enum job_outcome checkpoints_check(struct sync *s, const char *path, int fd, uint64_t size);
/* Returns 0 if `there`, the object under the file's key, may be kept and overwritten, and
 * -PENSTOCK_E_EXISTS if it belongs to a checkpoint that another run or program has committed. */
int checkpoints_may_replace(struct sync *s, const char *path, const struct object_info *there,
	struct penstock_error *err);

/* state_journal.c */
/* Reads the journal into the table, compares its boot with the current boot, and opens the journal.
 * Called before the threads start. */
int state_replay(struct sync *s, struct penstock_error *err);
/* Marks the records as valid for this boot. */
void boot_believe(struct sync *s);
/* Compares the table with the files, and sets the state of each entry: published, closed, suspect
 * or gone. Called before the threads start. */
int state_reconcile(struct sync *s, struct penstock_error *err);
void state_note(void *cookie, enum journal_type type, struct entry *e, const struct ident *ident);
int state_rewrite_journal(struct sync *s, struct penstock_error *err);
/* Passes pending records to the kernel; rewrites the journal if most of its records are outdated,
 * or if records were lost. */
void state_write_journal(struct sync *s);

/* state_manifest.c */
/* Probes which conditions the store honours, reads the manifest and the kept copies in the bucket,
 * and calls leftovers_end(). Without the lock. */
int state_attach(struct sync *s, struct penstock_error *err);
/* Writes the manifest. Without the lock. Returns -PENSTOCK_E_PRECONDITION if ownership was lost. */
int state_write_manifest(struct sync *s, struct penstock_error *err);
/* Sets `*owner` to false if another sync wrote the manifest that is in the bucket, else to true.
 * Without the lock. */
int state_still_owner(struct sync *s, bool *owner, struct penstock_error *err);
void state_lost(struct sync *s);

#endif
