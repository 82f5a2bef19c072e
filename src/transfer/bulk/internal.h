/*
 * Shared by the files that implement bulk.h. A task is one pushed item:
 *
 *	pushed -> line -> in flight -----+--> [batch of deletions -> worker] -> ended -> reported
 *	       +> queue -> worker -------+
 *
 * Small items are flights (flight.h): requests of the engine without a thread of their own. All
 * members of a task belong to its current owner, except while a list under the lock has it.
 */
#ifndef TRANSFER_BULK_INTERNAL_H
#define TRANSFER_BULK_INTERNAL_H

#include <pthread.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "transfer/bulk.h"

#include <penstock/error.h>

#define BULK_FILE_SYSTEMS                                                                          \
	8 /* file systems synced one by one at the end; if there are more, sync() is used */

struct bulk_flight;

/* An open directory for new files, so that no link can take its place. */
struct bulk_dir {
	unsigned users; /* references; under the lock of the bulk */
	int fd; /* O_PATH */
	char path[]; /* for messages */
};

/* The file that an upload sends. */
struct upload_source {
	struct bulk_task *task;
	int fd; /* -1 if not open */
	struct stat st; /* state of the file when it was opened */
	uint64_t resumed; /* bytes that were reported as resumed */
};

struct bulk_list {
	struct bulk_task *first, *last;
	size_t n;
};

struct bulk_task {
	struct bulk_task *next;
	struct bulk *bulk;
	struct bulk_item item; /* the strings of the item follow the struct */
	struct object_info known;
	size_t charge; /* bytes of memory that the task counts for */

	struct bulk_flight *flight; /* NULL if not in flight */

	/* The sources of this task and of the tasks in `batch` are deleted in one request. */
	bool removing;
	struct bulk_list batch;

	/* The result of the task. */
	struct object_info info;
	bool has_info;
	uint64_t bytes;
	struct penstock_error error;
};

struct bulk {
	struct http_engine *engine;
	/* Used for every second flight if there are many, because one engine thread is not enough.
	 * NULL until it is needed. */
	struct http_engine *_Atomic twin;
	void (*run)(struct bulk_task *task); /* the work of a worker */
	struct bulk_options options;
	struct object_put_options put;
	atomic_int stop; /* the cancel flag of every request */

	pthread_mutex_t lock;
	pthread_cond_t moved; /* wakes the pushing thread */
	pthread_cond_t work; /* wakes the workers */
	/* Under the lock. */
	struct bulk_list line; /* queued flights */
	unsigned flying;
	unsigned flying_twin; /* flights on the second engine */
	bool twin_tried;
	unsigned window; /* limit of flights */
	/* flights that succeeded since the window last grew; the window grows by one after `window`
	 * flights */
	unsigned window_credit;
	/* flights left from before the window was halved; the window does not grow until they have
	 * ended */
	unsigned window_hold;
	pthread_cond_t landed; /* signals that no flight is left */
	struct bulk_list queue; /* tasks for workers */
	struct bulk_list ended;
	struct bulk_list removals; /* deletions in one bucket of one client, not yet requested */
	size_t pending; /* tasks pushed and not reported */
	size_t charged; /* bytes that these tasks count for */
	size_t running; /* tasks that have neither ended nor wait in `removals` */
	unsigned idle; /* workers without a task */
	bool flush; /* the pushing thread waits: send small batches, too */
	bool closing; /* the workers should exit */
	dev_t devices[BULK_FILE_SYSTEMS];
	int device_fds[BULK_FILE_SYSTEMS];
	unsigned n_devices;
	bool many_devices;
	bool dirty; /* files were written since the last sync */

	pthread_mutex_t sync_lock; /* taken before `lock`: one sync at a time */
	int sync_errno; /* under sync_lock: errno of the first failed sync */

	pthread_t workers[LIMIT_BULK_WORKERS];
	unsigned n_workers;
	/* The directories that were used last; under the lock. */
	struct bulk_dir *root; /* directory of the first path_root bytes */
	struct bulk_dir *dir; /* directory below `root` */

	bool no_proc; /* /proc is missing */
	atomic_bool link_by_proc; /* unnamed files can only be named through /proc */
	atomic_bool named_parts; /* the file system has no unnamed files */

	/* Owned by the pushing thread. */
	struct bulk_totals totals;
	struct penstock_error first;
};

void bulk_list_add(struct bulk_list *list, struct bulk_task *task);
struct bulk_task *bulk_list_take(struct bulk_list *list);

/* Ends the task, and takes the contents of `err`; NULL after a success. */
void bulk_task_end(struct bulk_task *task, struct penstock_error *err);
/* Like bulk_task_end(), but after a success the source object of a move is deleted first. */
void bulk_task_over(struct bulk_task *task, struct penstock_error *err);
/* Queues the task for the next free worker. */
void bulk_queue(struct bulk_task *task);
/* Queues the deletion of the task's source, together with other deletions. */
void bulk_remove_source(struct bulk_task *task);
/* Under the lock: queues a small batch of deletions if the pushing thread waits and no item is
 * running that could join the batch. */
void bulk_flush_removals(struct bulk *bulk);
/* Under the lock: returns true if the pushing thread should wake up. While enough items are queued,
 * the pushing thread can sleep, because a wake-up for each item would cost both threads more time
 * than the work. */
bool bulk_wants_pusher(const struct bulk *bulk);
static inline bool bulk_stopped(const struct bulk *bulk)
{
	return atomic_load(&bulk->stop) != 0;
}

/* blocking.c: runs a whole upload, download or copy. */
int bulk_run(struct bulk_task *task, struct penstock_error *err);
/* Opens the task's file, which must be a regular one. */
int bulk_source_open(struct upload_source *source, struct penstock_error *err);
/* Callbacks of the upload, with the source as the cookie. */
void bulk_source_progress(void *cookie, int64_t bytes);
bool bulk_source_valid(void *cookie);
/* Builds the options of one upload from the item and the bulk's options. */
void bulk_put_options(const struct bulk_task *task, const struct strlist *metadata,
	struct object_put_options *out);
/* Removes the source file of a move. If the file has changed since it was sent, keeps the file and
 * fails with PENSTOCK_E_CHANGED. */
int bulk_source_done(const struct upload_source *source, struct penstock_error *err);

/* stream.c: copies an object of one store through this machine into another. */
int bulk_stream(struct bulk_task *task, struct penstock_error *err);

/* ---- delete.c ---- */
/* Deletes the sources of a task and of its batch, and ends these tasks. */
void bulk_delete(struct bulk_task *head);

/* ---- flight.c ---- */
void bulk_window_init(struct bulk *bulk);

/* ---- file.c: the local side ---- */
/*
 * Opens the directory of the item's file. Below the item's root, missing directories are created
 * and no link is followed, not even one that is created meanwhile: new files are created relative
 * to the descriptor.
 */
int bulk_dir_open(struct bulk_task *task, struct bulk_dir **out, struct penstock_error *err);
/* `dir` may be NULL. */
void bulk_dir_close(struct bulk *bulk, struct bulk_dir *dir);
/* Builds the path of the item's file through the descriptor, for calls that need a path. free()
 * it. */
int bulk_dir_path(const struct bulk_task *task, const struct bulk_dir *dir, char **out,
	struct penstock_error *err);
/* Replaces the descriptor's path with the directory's name in the message. Returns the error's
 * code. */
int bulk_dir_named(const struct bulk_dir *dir, struct penstock_error *err);

/* Creates a file that gets the item's name once the file is complete. `*part` is the temporary
 * name, or NULL for an unnamed file. The caller closes the file, and unlinks `*part` unless the
 * file was published. */
int bulk_file_create(struct bulk_task *task, const struct bulk_dir *dir, int *fd, char **part,
	struct penstock_error *err);
int bulk_file_publish(struct bulk_task *task, const struct bulk_dir *dir, int fd, char **part,
	struct penstock_error *err);
/* Builds the metadata of an upload: those of the options, plus mtime and mode with `preserve`.
 * Release `out`. */
int bulk_file_metadata(struct bulk_task *task, const struct stat *st, struct strlist *out,
	struct penstock_error *err);
/* Sets times and mode of a downloaded file. */
int bulk_file_times(
	struct bulk_task *task, int fd, const struct object_info *from, struct penstock_error *err);
/* Returns true if the metadata describe a link. */
bool bulk_file_is_link(const struct bulk_task *task, const struct object_info *from);
/* Creates a link to the `len` bytes of `target` under the item's name; `new_only`: fails if the
 * name exists. */
int bulk_file_make_link(const struct bulk_task *task, const struct bulk_dir *dir,
	const char *target, size_t len, bool new_only, struct penstock_error *err);
/* Like bulk_note_device(), for a new name in `dir` that has no descriptor to sync, such as a
 * link. */
int bulk_note_dir(struct bulk *bulk, const struct bulk_dir *dir, struct penstock_error *err);
/* Makes all downloads so far durable. */
int bulk_sync(struct bulk *bulk, struct penstock_error *err);

#endif
