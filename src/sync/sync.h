/*
 * Continuous output sync: publishes the files of one local directory to a prefix of a bucket while
 * the files are written, and restores them.
 *
 *	struct sync *s = NULL;
 *	struct sync_options o = { .dir = output, .private_dir = tmp, .client = s3,
 *		.bucket = "cifar10", .prefix = "run7/", .state_prefix = ".penstock/runs/ID",
 *		.run_id = "ID", .journal_path = journal, .continuous = true };
 *
 *	if (resuming)
 *		sync_restore(&o, &restored, err);	// before the steps
 *	sync_start(&s, &o, err);	// before the first step
 *	... run the steps, and after each task that ended:
 *	sync_kill_coming(s);	// leftover processes are killed next
 *	sync_task_ended(s, killed_by_signal);
 *	... at every end of the run, when the tasks have ended:
 *	sync_flush(s, deadline_ms, err);
 *	sync_free(s);
 *
 * Publication: a file is published once it was closed by its writer (or moved into place) and then
 * stayed unchanged for a short moment; the object appears whole or not at all. A file that changes
 * during its upload is taken from a snapshot the next time. Within one directory files are
 * published in the order of their closes. Files that stay open are published as they grow if their
 * beginning is useful by itself (opened with O_APPEND, text, events of TensorBoard; never if
 * is_whole() returns true), else they are sent to `<state_prefix>/partial/` until they are closed.
 * Files that were closed by a kill of their writer are suspect: they are also sent to `partial/`,
 * and the last good object stays. Logs that only grew are published to their end.
 *
 * Keys. A file `a/b` becomes the object `prefix + "a/b"`. Names that are not UTF-8 are published
 * percent-encoded, with a warning. Nothing below `.penstock/` of the directory is published.
 * `<prefix><state_prefix>/manifest.json` records size, time, mode and ETag of each file, links,
 * directories, and which objects of other programs were kept under `<state_prefix>/replaced/`
 * before they were overwritten.
 *
 * Threads: sync_start() starts one owner thread and `workers` upload threads. Every function here
 * may be called from any thread, but sync_free() must not run while another call uses the same
 * `struct sync`. A running sync never deletes local files.
 */
#ifndef SYNC_SYNC_H
#define SYNC_SYNC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct penstock_error;
struct object_client;
struct replaced_bound;
struct replaced_sum;
struct strlist;
struct sync;

/* An event that is worth a line in the run's log. `path` is relative to the directory and may be
 * NULL. */
enum sync_event {
	SYNC_PUBLISHED, /* the object of `path` is complete and durable; detail: its ETag */
	SYNC_PUBLISHED_OPEN, /* the object has the present content of a file that is still open */
	SYNC_PARTIAL, /* `path` is suspect or stays open; detail: the key of its copy in partial/ */
	SYNC_DELETED, /* deleteSync or retention removed the object */
	/*
	 * an object of another program was kept before it was overwritten; detail: the key of the
	 * copy, or "version:ID". Without a path, detail has the number of files from before the run
	 * started over, whose objects will be kept if they are overwritten
	 */
	SYNC_KEPT,
	SYNC_WARNING, /* detail: one line */
	SYNC_LOST /* ownership lost: another run writes here; nothing is published now */
};
typedef void (*sync_event_fn)(
	void *cookie, enum sync_event event, const char *path, uint64_t bytes, const char *detail);

/*
 * Calls add(arg, pid) for each process of the steps that may write to the directory. Called from
 * the owner thread.
 */
typedef void (*sync_pids_fn)(void *cookie, void (*add)(void *arg, pid_t pid), void *arg);

/* Returns true if the file is useless while it is incomplete, even if it is text. Called from any
 * thread. */
typedef bool (*sync_whole_fn)(void *cookie, const char *path);

struct sync_options {
	const char *dir; /* the directory of the output, which is watched; must exist */
	/* directory for snapshots and for suspect files that a restore sets aside; created with
	 * mode 0700; on the file system of `dir` if possible */
	const char *private_dir;
	struct object_client *client; /* borrowed; must outlive the sync */
	const char *bucket; /* must exist */
	const char *prefix; /* "" or with a trailing slash: key prefix of the output */
	const char *state_prefix; /* below `prefix`, no trailing slash: ".penstock/runs/ID" */
	const char *run_id;
	int attempt; /* 1, 2, …; recorded in the manifest */
	/* attempt at which the run last started over, 0 if the run never started over: files of
	 * earlier attempts are neither restored nor deleted */
	int began;
	/* local file, created with mode 0600; NULL if there is no journal */
	const char *journal_path;
	/* locally deleted files are deleted in the bucket, if this run published them and the
	 * restore is complete */
	bool delete_sync;
	bool continuous; /* if false, nothing is sent before sync_flush() */
	pid_t root_pid; /* process whose descendants are the writers; 0 for this process */
	sync_pids_fn pids; /* used instead of root_pid; may be NULL */
	/* called from any thread, even from a thread that calls a function of this file; one call
	 * at a time; may be NULL */
	sync_event_fn on_event;
	sync_whole_fn is_whole; /* may be NULL */
	void *cookie; /* passed to pids, on_event and is_whole */
	int workers; /* number of upload threads, at most SYNC_WORKERS_MAX; 0 for SYNC_WORKERS */
	/* a file is sent when unchanged for this time after its close; 0 for SYNC_QUIET_MS */
	int quiet_ms;
	int append_ms; /* pause between two publications of an open file; 0 for SYNC_APPEND_MS */
	/* minimum time between two periodic scans; without inotify at most 1 s; 0 for
	 * SYNC_SCAN_MS */
	int scan_ms;
	const atomic_int *cancel; /* polled by sync_restore() and sync_flush(); may be NULL */
};

#define SYNC_WORKERS   6
#define SYNC_QUIET_MS  30
#define SYNC_APPEND_MS 2000
#define SYNC_SCAN_MS   10000

/*
 * Reads the journal, watches the directory and starts the threads. Does not wait for the bucket.
 * Files that the journal of an earlier attempt records as closed, and that are unchanged, are
 * published; after a restart of the machine, only those that sync_settle() synced are published.
 * Files that differ from the journal are suspect. Without a journal every existing file counts as
 * closed. Fails with PENSTOCK_E_INVALID if the journal belongs to another run.
 */
int sync_start(struct sync **out, const struct sync_options *options, struct penstock_error *err);

/*
 * Publishes everything that is not published yet, and the manifest; returns when all of it is
 * durable. Call sync_flush() when the tasks have ended. `deadline_ms` is a time of
 * clock_monotonic_ms(); 0 waits without a limit, even through temporary failures. The newest
 * checkpoint goes first. Returns the first failure, with the number of files and bytes not sent
 * (PENSTOCK_E_TIMEOUT, _PERMISSION, _NOT_FOUND, _NO_SPACE, …), or -PENSTOCK_E_PRECONDITION if
 * another run took the output over. The sync continues after a failure, and sync_flush() can be
 * called again.
 */
int sync_flush(struct sync *s, int64_t deadline_ms, struct penstock_error *err);
/* Continues a flush that failed: files that were checked are not checked again. No file may have
 * been written since. One check of all files may take longer than the caller waits in one call. */
int sync_flush_on(struct sync *s, int64_t deadline_ms, struct penstock_error *err);

/*
 * Reports that a task of the step ended. `killed` is true if a signal ended the task, or if the
 * task is a shell that exited with 128 + n because signal n ended its child. Files that a killed
 * task had open, or that were closed just before its end, become suspect. If the task was not
 * killed, files whose writer exited in an unknown way count as closed. On return the journal has
 * the task's closes, and a later kill does not make these files suspect.
 */
void sync_task_ended(struct sync *s, bool killed);

/*
 * Reports that the processes that may write are about to be killed, such as leftover processes of a
 * step. Files that are open for writing now become suspect when the kill closes them, even if it
 * cannot be determined afterwards how their writer ended. Then kill the processes and call
 * sync_task_ended().
 */
void sync_kill_coming(struct sync *s);
/* Reports that the kill is complete. Files that are still open for writing belong to processes that
 * stay alive. */
void sync_kill_over(struct sync *s);

/*
 * Makes the unsent files durable on the disk, so that a restore after a power loss accepts them.
 * May take seconds. Does nothing without a journal or on a network file system. Without this call,
 * a restore after a restart of the machine treats files that were closed and not sent as suspect.
 */
void sync_settle(struct sync *s);

struct sync_status {
	uint64_t files_published; /* versions of files published since the start */
	uint64_t bytes_published; /* bytes sent, without the parts that the store copied */
	uint64_t files_waiting; /* names with an unpublished change */
	uint64_t bytes_waiting;
	int64_t lag_ms; /* age of the oldest unpublished change; 0 if there is no such change */
	uint64_t files_suspect;
	uint64_t deleted;
	uint64_t compared; /* number of comparisons of a file with its object by flushes */
	bool lost; /* another run took the output over */
	uint64_t scans; /* number of scans of the whole directory */
	bool polling; /* no inotify (limit reached, network file system): scans only */
	char last_error[256]; /* error of the last failed upload since the last success, else "" */
	/* wall clock, ns: the time since which uploads, or the manifest, fail because the store is
	 * unavailable; 0 if the store is available */
	int64_t away_ns;
	/* clock_monotonic_ms() of the last publication; 0 before the first */
	int64_t last_publish_ms;
};
void sync_get_status(struct sync *s, struct sync_status *status);

/*
 * Announces that the machine stops at `deadline_ms` of clock_monotonic_ms() (0 if the machine does
 * not stop). A flush does not start an upload over a good object if the upload would end after the
 * deadline at the current rate, and fails with PENSTOCK_E_TIMEOUT.
 */
void sync_hurry(struct sync *s, int64_t deadline_ms);

/*
 * For retention. When the file `path`, or a file below the directory `path`, is removed locally,
 * its object is deleted too if this run published the object (even without deleteSync). Objects of
 * files that are removed already, and objects from before the run started over that have no file,
 * are deleted now. Returns false, and changes nothing, until the manifest in the bucket was read
 * and the restore has been verified (or the run has started over).
 */
bool sync_retire(struct sync *s, const char *path);
/* Returns true if this run has an object of the file `path`, or of a file below the directory
 * `path`, in the bucket. */
bool sync_has_object(struct sync *s, const char *path);
/* Adds the paths of the commits that exist only as objects from before the run started over.
 * Returns 1, 0 if the commits are not known yet, or -PENSTOCK_E_MEMORY. */
int sync_older_commits(struct sync *s, struct strlist *commits, struct penstock_error *err);
/* Returns true if the file exists only as an object from before the run started over. */
bool sync_is_older(struct sync *s, const char *path);
/* Returns true if the file is published in its present version. */
bool sync_is_published(struct sync *s, const char *path);
/* Checks that the store still has the object of the file as it was published, with `size` bytes.
 * Returns -PENSTOCK_E_CHANGED if the present version of the file is not published yet,
 * -PENSTOCK_E_NOT_FOUND if the object is missing, and -PENSTOCK_E_CORRUPT if another program
 * replaced it. */
int sync_verify_object(struct sync *s, const char *path, uint64_t size, struct penstock_error *err);

/* Removes the copies of replaced objects that `bound` does not keep. Call sync_bound_replaced()
 * after a flush, when the replacements are published. Does nothing if the store refuses to list. */
int sync_bound_replaced(struct sync *s, const struct replaced_bound *bound,
	struct replaced_sum *removed, struct penstock_error *err);

/* Stops watching and publishing (uploads in flight are abandoned) and frees `s`. NULL is
 * allowed. */
void sync_free(struct sync *s);

struct sync_restored {
	bool found; /* there was a state to restore: a manifest, or a journal here */
	uint64_t files_kept; /* local files that already matched */
	uint64_t files_fetched;
	uint64_t bytes_fetched;
	uint64_t files_suspect; /* local files that were set aside, to be sent to partial/ */
	/* files closed before the crash; the next sync_start() publishes them */
	uint64_t files_unsent;
};
/*
 * Restores the run's last complete state to `options->dir`: the files of the manifest, and newer
 * objects of this run. A newer local file stays if the journal recorded its close, or if a complete
 * local checkpoint names it. Restores content, mtime, mode, symbolic links and empty directories;
 * every file is verified. Other local files are suspect: they are moved to `private_dir/suspect/`
 * until they have been sent to `partial/`. No sync may be running on the directory. On failure the
 * directory keeps what was restored so far, and a repeated call continues. deleteSync deletes
 * nothing until a restore has succeeded. `restored` may be NULL.
 */
int sync_restore(const struct sync_options *options, struct sync_restored *restored,
	struct penstock_error *err);

#endif
