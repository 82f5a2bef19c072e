/*
 * What the files behind bulk.h share. A task is one pushed item on its way:
 *
 *	pushed -> line -> in the air ----+--> [batch of deletions -> a worker's] -> ended -> reported
 *	       +> queue -> a worker's ---+
 *
 * Small ones go through the air (bulk_flight.h): the engine carries them out without a thread of their own.
 * Everything but the lists under the lock belongs to whoever has the task.
 */
#ifndef TRANSFER_BULK_INTERNAL_H
#define TRANSFER_BULK_INTERNAL_H

#include <pthread.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "transfer/bulk.h"

#include <penstock/error.h>

#define BULK_FILE_SYSTEMS                                                                          \
	8 /* that are synced one by one at the end; more are synced all together */

struct bulk_flight;

/* A directory that files are made in, open, so that nobody can put a link in its place. */
struct bulk_dir {
	unsigned users; /* under the lock of the bulk */
	int fd;		/* O_PATH */
	char path[];	/* for messages */
};

struct bulk_list {
	struct bulk_task *first, *last;
	size_t n;
};

struct bulk_task {
	struct bulk_task *next;
	struct bulk *bulk;
	struct bulk_item item; /* its texts stand behind the struct */
	struct object_info known;
	size_t charge; /* bytes */

	struct bulk_flight *flight; /* NULL: it is not in the air */

	/* Its source, and those of the tasks behind it, are to be deleted in one request. */
	bool removing;
	struct bulk_list batch;

	/* What it came to. */
	struct object_info info;
	bool has_info;
	uint64_t bytes;
	struct penstock_error error;
};

struct bulk {
	struct http_engine *engine;
	/* For every second flight, when there are many: one thread's work would be all that moves. NULL: none yet. */
	struct http_engine *_Atomic twin;
	struct bulk_options options;
	struct object_put_options put;
	atomic_int stop; /* the cancel flag of every request */

	pthread_mutex_t lock;
	pthread_cond_t moved; /* for the thread that pushes: it is worth a look */
	pthread_cond_t work;  /* for the workers */
	/* Under the lock. */
	struct bulk_list line; /* for the air */
	unsigned flying;
	unsigned flying_twin; /* of these, with the twin */
	bool twin_tried;
	unsigned window;	/* that may fly at a time: grows while all is well, */
	unsigned window_credit; /* by one after so many good ends, */
	unsigned window_hold;  /* but not while what flew when the store was busy is still to end */
	pthread_cond_t landed; /* nothing flies */
	struct bulk_list queue; /* for workers */
	struct bulk_list ended;
	struct bulk_list removals; /* of one client and bucket, not asked for yet */
	size_t pending;		   /* tasks that were pushed and not reported */
	size_t charged;		   /* their bytes */
	size_t running;		   /* queued, or with a worker */
	unsigned idle;		   /* workers */
	bool flush;		   /* somebody waits for the end of all: small batches go, too */
	bool closing;		   /* the workers are to end */
	dev_t devices[BULK_FILE_SYSTEMS];
	int device_fds[BULK_FILE_SYSTEMS];
	unsigned n_devices;
	bool many_devices;
	bool dirty; /* since the last sync */

	pthread_mutex_t sync_lock; /* before `lock`: one sync at a time */
	int sync_errno;		   /* under it: of the first that failed */

	pthread_t workers[LIMIT_BULK_WORKERS];
	unsigned n_workers;
	/* The last ones, under the lock. */
	struct bulk_dir *root; /* what the first bytes of the paths name */
	struct bulk_dir *dir;  /* below it */

	bool no_proc;		  /* descriptors have no names */
	atomic_bool link_by_proc; /* a file without a name gets one by way of /proc only */
	atomic_bool named_parts;  /* the file system has no files without a name */

	/* The pushing thread's. */
	struct bulk_totals totals;
	struct penstock_error first;
};

void bulk_list_add(struct bulk_list *list, struct bulk_task *task);
struct bulk_task *bulk_list_take(struct bulk_list *list);

/* The task is over: `err` (NULL: success) is taken. */
void bulk_task_end(struct bulk_task *task, struct penstock_error *err);
/* The same, but after a success its source goes where it was to be moved. */
void bulk_task_over(struct bulk_task *task, struct penstock_error *err);
/* For the next free worker. */
void bulk_queue(struct bulk_task *task);
static inline bool bulk_stopped(const struct bulk *bulk)
{
	return atomic_load(&bulk->stop) != 0;
}

/* bulk_blocking.c: the whole of an upload, download or copy. */
int bulk_run(struct bulk_task *task, struct penstock_error *err);
/* Opens a regular file for reading. */
int bulk_open_source(const char *path, struct stat *st, int *fd, struct penstock_error *err);
/* Whether a file is still what it was. */
bool bulk_same_file(const struct stat *a, const struct stat *b);
/* What an item and the options of all ask of an upload. */
void bulk_put_options(const struct bulk_task *task, const struct strlist *metadata,
	struct object_put_options *out);
/* Removes the file where it was to be moved; `sent` is what was sent of it, and a newer one stays. */
int bulk_upload_done(struct bulk_task *task, const struct stat *sent, struct penstock_error *err);

/* bulk_stream.c: an object of one store through this machine into another. */
int bulk_stream(struct bulk_task *task, struct penstock_error *err);

/* bulk_delete.c */
/* Deletes the sources of a task and its batch, and ends them. */
void bulk_delete(struct bulk_task *head);

/* bulk_flight.c */
void bulk_window_init(struct bulk *bulk);

/* bulk_file.c: the local side. */
/*
 * The directory of the item's file. Below the item's root missing ones are made, and no link is followed, also none that
 * somebody puts there meanwhile: what is made in it is made by way of its descriptor.
 */
int bulk_dir_open(struct bulk_task *task, struct bulk_dir **out, struct penstock_error *err);
/* NULL is fine. */
void bulk_dir_close(struct bulk *bulk, struct bulk_dir *dir);
/* The path of the item's file for calls that want one, by way of the descriptor. free() it. */
int bulk_dir_path(const struct bulk_task *task, const struct bulk_dir *dir, char **out,
	struct penstock_error *err);
/* Puts the directory's name into a message that has the descriptor's. Returns the error's code. */
int bulk_dir_named(const struct bulk_dir *dir, struct penstock_error *err);

/*
 * A new file that gets the item's name when it is whole. `part` is the name that it has meanwhile, NULL
 * where it has none. Until it is published the caller closes and unlinks.
 */
int bulk_file_create(struct bulk_task *task, const struct bulk_dir *dir, int *fd, char **part,
	struct penstock_error *err);
int bulk_file_publish(struct bulk_task *task, const struct bulk_dir *dir, int fd, char **part,
	struct penstock_error *err);
/* What the metadata of an upload is: that of the options, and mtime and mode. Release it. */
int bulk_file_metadata(struct bulk_task *task, const struct stat *st, struct strlist *out,
	struct penstock_error *err);
/* Times and mode that a download gets. */
int bulk_file_times(
	struct bulk_task *task, int fd, const struct object_info *from, struct penstock_error *err);
/* Whether the metadata say that the object is a link. */
bool bulk_file_is_link(const struct bulk_task *task, const struct object_info *from);
/* A link that leads to the `len` bytes of `target`, under the name of the item; `new_only`: not over what is there. */
int bulk_file_make_link(const struct bulk_task *task, const struct bulk_dir *dir,
	const char *target, size_t len, bool new_only, struct penstock_error *err);
/* Remembers that the file system has something to be synced: when the file has its name. */
int bulk_note_device(struct bulk *bulk, int fd, struct penstock_error *err);
/* The same for what has no descriptor that could be synced. */
int bulk_note_dir(struct bulk *bulk, const struct bulk_dir *dir, struct penstock_error *err);
/* Everything downloaded so far is durable afterwards. */
int bulk_sync(struct bulk *bulk, struct penstock_error *err);

#endif
