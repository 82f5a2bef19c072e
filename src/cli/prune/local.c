/* Prunes outputs that were set aside, logs, caches and files of transfers below the home. */
#include "cli/prune/prune.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "deploy/deploy.h"
#include "image/kept.h"
#include "records/layout.h"
#include "records/supervisor.h"
#include "run/workdir/venv.h"

static int64_t changed_ns(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 ? st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec : 0;
}

/* Compares names such that numbers within them are in numeric order. */
static int by_name(const void *a, const void *b)
{
	return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds the sorted names in a directory that end in `ending`, except hidden names. Adds nothing
 * if there is no such directory. */
static int names_in(
	struct strlist *names, const char *dir, const char *ending, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *stream = opendir(dir);

	if (!stream && errno != ENOENT)
		return error_errno(err, errno, "cannot list '%s'", dir);
	for (struct dirent *e; stream && (e = readdir(stream));) {
		if (*e->d_name != '.' && str_ends(e->d_name, ending) &&
			strlist_add(names, e->d_name) < 0)
			return error_memory(err);
	}
	if (names->n)
		qsort(names->items, names->n, sizeof(*names->items), by_name);
	return 0;
}

static void remove_tree(struct pruning *p, const struct prune_item *item)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (fs_remove_tree(item->what, &err) < 0)
		prune_failed(p, item, &err);
}

/* ---- things of each run ---- */

typedef int (*run_fn)(struct pruning *p, const struct records_run *run, const char *dir, bool live,
	struct penstock_error *err);

struct listed {
	struct strlist ids;
	bool no_memory;
};

static int note_id(void *cookie, const struct records_run *run)
{
	struct listed *listed = cookie;

	listed->no_memory = strlist_add(&listed->ids, run->id) < 0;
	return listed->no_memory;
}

static int on_run(struct pruning *p, const char *id, run_fn fn, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_free_ char *dir = run_path(p->home, id, RUN_FILE_DIR);
	int r = dir ? records_find(p->records, id, &run, err) : error_memory(err);

	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		return 0; /* removed meanwhile */
	return r < 0 ? r : fn(p, &run, dir, supervisor_lives(p->home, id), err);
}

/* Calls `fn` for each run. Collects the ids first, because records_list() holds the lock of the
 * records. */
static int each_run(struct pruning *p, run_fn fn, struct penstock_error *err)
{
	struct listed listed = {0};
	int r = records_list(p->records, note_id, &listed, err);

	if (r == 0 && listed.no_memory)
		r = error_memory(err);
	for (size_t i = 0; r == 0 && i < listed.ids.n; i++)
		r = on_run(p, listed.ids.items[i], fn, err);
	strlist_release(&listed.ids);
	return r;
}

static int output_of_run(struct pruning *p, const struct records_run *run, const char *dir,
	bool live, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist names = {0};
	int r = names_in(&names, dir, "", err);

	for (size_t i = 0; r == 0 && i < names.n; i++) {
		_cleanup_free_ char *path = path_join(dir, names.items[i]);
		struct prune_item item = {
			.kind = "output", .run = run->id, .in_use = live, .only_copy = true};

		if (!path)
			return error_memory(err);
		item.what = path;
		item.used_ns = changed_ns(path);
		if (!str_starts(names.items[i], RUN_ASIDE_PREFIX) || item.used_ns > p->before_ns)
			continue;
		item.bytes = fs_disk_bytes(path);
		if (prune_takes(p, &item))
			remove_tree(p, &item);
	}
	return r;
}

int prune_output(struct pruning *p, struct penstock_error *err)
{
	return each_run(p, output_of_run, err);
}

/* Returns true if the workflow stores its logs next to its output. */
static bool stores_logs(const char *dir, const struct records_run *run)
{
	_cleanup_free_ char *path = path_join(dir, run_file_name(RUN_FILE_WORKFLOW));
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	json_auto_t *root = NULL;
	const json_t *job;

	if (!path || !run->output || fs_read(path, &text, NULL) < 0)
		return false;
	root = json_loadb(buf_str(&text), text.len, 0, NULL);
	job = json_object_get(root, "job") ? json_object_get(root, "job") : root;
	return json_is_true(json_object_get(job, "enableLogging")) &&
	       (json_object_get(json_object_get(job, "output"), "s3") ||
		       json_object_get(json_object_get(job, "output"), "gs"));
}

struct stored {
	bool *logs; /* for each attempt: true if its log is in the store */
	int attempts;
};

/* Notes whether the log of an attempt is in the store. The log is only on this machine if the
 * attempt was killed, started no upload, could not finish the upload, or lost the run to another
 * owner. */
static int note_stored(void *cookie, const struct records_attempt *a)
{
	struct stored *stored = cookie;

	if (a->attempt > 0 && a->attempt <= stored->attempts)
		stored->logs[a->attempt] = a->ended_ns && a->state != RUN_LOST && !a->unflushed &&
					   !records_was_fenced(a) && a->sync_at_ns;
	return 0;
}

static int prune_log(struct pruning *p, const char *path, struct prune_item *item)
{
	_cleanup_free_ char *times = run_log_times(path);
	_cleanup_free_ char *usage = run_log_usage(path);
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!times || !usage)
		return -1;
	item->what = path;
	item->bytes = fs_disk_bytes(path) + fs_disk_bytes(times) + fs_disk_bytes(usage);
	if (!prune_takes(p, item))
		return 0;
	if (fs_remove_tree(path, &err) < 0)
		prune_failed(p, item, &err);
	else
		run_log_move_rest(path, NULL);
	return 0;
}

static int logs_of_run(struct pruning *p, const struct records_run *run, const char *dir, bool live,
	struct penstock_error *err)
{
	_cleanup_free_ char *logs = path_join(dir, "log");
	_cleanup_(strlist_release) struct strlist names = {0};
	_cleanup_free_ bool *is_stored = calloc((size_t)run->last.attempt + 1, sizeof(bool));
	struct stored stored = {is_stored, run->last.attempt};
	int r = logs && is_stored ? names_in(&names, logs, "", err) : error_memory(err);

	if (r == 0 && names.n && stores_logs(dir, run))
		r = records_attempts(p->records, run->id, note_stored, &stored, err);
	for (size_t i = 0; r == 0 && i < names.n; i++) {
		_cleanup_free_ char *path = path_join(logs, names.items[i]);
		struct prune_item item = {.kind = "logs", .run = run->id, .in_use = live};
		uint64_t attempt;

		if (!path)
			return error_memory(err);
		item.used_ns = changed_ns(path);
		if (!str_to_u64(names.items[i], 1, INT32_MAX, &attempt) ||
			(int)attempt >= run->last.attempt || item.used_ns > p->before_ns)
			continue;
		item.only_copy = !is_stored[attempt];
		if (prune_log(p, path, &item) < 0)
			return error_memory(err);
	}
	return r;
}

int prune_logs(struct pruning *p, struct penstock_error *err)
{
	return each_run(p, logs_of_run, err);
}

/* ---- caches ---- */

int prune_venvs(struct pruning *p, struct penstock_error *err)
{
	_cleanup_free_ char *all = path_join(p->home, "venvs");
	_cleanup_(strlist_release) struct strlist names = {0};
	int r = all ? names_in(&names, all, "", err) : error_memory(err);

	for (size_t i = 0; r == 0 && i < names.n; i++) {
		_cleanup_free_ char *dir = path_join(all, names.items[i]);
		struct penstock_error why = PENSTOCK_ERROR_INIT;
		struct prune_item item = {.kind = "venvs"};
		int removed;

		if (!dir)
			return error_memory(err);
		if (strchr(names.items[i], '.'))
			continue; /* a lock */
		item.what = dir;
		item.in_use = venv_in_use(dir, &item.used_ns);
		if (item.used_ns > p->before_ns)
			continue;
		item.bytes = fs_disk_bytes(dir);
		removed = prune_takes(p, &item) ? venv_remove(dir, &why) : 0;
		if (removed < 0)
			prune_failed(p, &item, &why);
		else if (removed > 0)
			prune_stays(p, &item, "in use", 1, item.bytes);
	}
	return r;
}

int prune_images(struct pruning *p, struct penstock_error *err)
{
	_cleanup_(image_kept_release) struct image_kept_list list = {0};
	_cleanup_free_ char *dir = path_join(p->home, "images");
	_cleanup_free_ bool *gone = NULL;
	uint64_t freed = 0;
	size_t n = 0;
	int r = dir ? image_kept_read(&list, dir, err) : error_memory(err);

	gone = r == 0 ? calloc(list.n + 1, sizeof(*gone)) : NULL;
	if (r < 0 || !gone)
		return r < 0 ? r : error_memory(err);
	for (size_t i = 0; i < list.n; i++) {
		const struct image_kept *image = &list.items[i];
		uint64_t before = image_kept_bytes(&list, gone);
		struct penstock_error why = PENSTOCK_ERROR_INIT;
		struct prune_item item = {.kind = "images",
			.what = image->names.n ? image->names.items[0] : image->digest,
			.used_ns = image->used_ns,
			.in_use = image->in_use};

		if (image->used_ns > p->before_ns)
			continue;
		/* Count only the layers that no remaining image has. */
		gone[i] = true;
		item.bytes = before - image_kept_bytes(&list, gone);
		gone[i] = !image->in_use;
		if (!prune_takes(p, &item))
			continue;
		n++;
		if (image_kept_remove(dir, image, &why) < 0)
			prune_failed(p, &item, &why);
	}
	return n ? image_kept_sweep(dir, &freed, err) : 0;
}

int prune_modules(struct pruning *p, struct penstock_error *err)
{
	_cleanup_free_ char *all = path_join(p->home, "modules");
	_cleanup_(strlist_release) struct strlist names = {0};
	int r = all ? names_in(&names, all, ".git", err) : error_memory(err);

	for (size_t i = 0; r == 0 && i < names.n; i++) {
		_cleanup_free_ char *dir = path_join(all, names.items[i]);
		_cleanup_free_ char *lock = str_printf("%s/%.*s.lock", all,
			(int)(strlen(names.items[i]) - strlen(".git")), names.items[i]);
		struct prune_item item = {.kind = "modules", .what = dir};
		_cleanup_close_ int fd = -1;

		if (!dir || !lock)
			return error_memory(err);
		fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		item.used_ns = changed_ns(lock);
		item.in_use = fd < 0 || fs_lock(fd) != 0;
		if (item.used_ns > p->before_ns)
			continue;
		item.bytes = fs_disk_bytes(dir);
		if (prune_takes(p, &item))
			remove_tree(p, &item);
	}
	return r;
}

static int models_of_place(struct pruning *p, const char *place, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist names = {0};
	int r = names_in(&names, place, "", err);

	for (size_t i = 0; r == 0 && i < names.n; i++) {
		_cleanup_free_ char *dir = path_join(place, names.items[i]);
		struct prune_item item = {.kind = "models", .what = dir};
		struct stat st;

		if (!dir)
			return error_memory(err);
		if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
			continue; /* a lock */
		item.used_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
		if (item.used_ns > p->before_ns)
			continue;
		item.in_use = deploy_needs(p->home, names.items[i]);
		item.bytes = fs_disk_bytes(dir);
		if (prune_takes(p, &item) && !deploy_remove_version(p->home, place, names.items[i]))
			prune_stays(p, &item, "in use", 1, item.bytes);
	}
	return r;
}

int prune_models(struct pruning *p, struct penstock_error *err)
{
	_cleanup_free_ char *all = path_join(p->home, DEPLOY_MODELS);
	_cleanup_(strlist_release) struct strlist names = {0};
	int r = all ? names_in(&names, all, "", err) : error_memory(err);

	for (size_t i = 0; r == 0 && i < names.n; i++) {
		_cleanup_free_ char *place = path_join(all, names.items[i]);

		r = place ? models_of_place(p, place, err) : error_memory(err);
	}
	return r;
}

int prune_transfers(struct pruning *p, struct penstock_error *err)
{
	static const char *const dirs[] = {"transfers", "sent", "uploads", "ui-logs"};

	for (size_t d = 0; d < ARRAY_SIZE(dirs); d++) {
		_cleanup_free_ char *dir = path_join(p->home, dirs[d]);
		_cleanup_(strlist_release) struct strlist names = {0};
		int r = dir ? names_in(&names, dir, "", err) : error_memory(err);

		for (size_t i = 0; r == 0 && i < names.n; i++) {
			_cleanup_free_ char *path = path_join(dir, names.items[i]);
			struct prune_item item = {.kind = "transfers", .what = path};
			_cleanup_close_ int fd = -1;

			if (!path)
				return error_memory(err);
			item.used_ns = changed_ns(path);
			if (item.used_ns > p->before_ns)
				continue;
			/* A running transfer holds the lock of its record. */
			fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
			item.in_use = fd >= 0 && fs_lock_in_use(fd);
			item.bytes = fs_disk_bytes(path);
			if (!prune_takes(p, &item))
				continue;
			if (fd >= 0 && fs_lock(fd) > 0)
				prune_stays(p, &item, "in use", 1, item.bytes);
			else
				remove_tree(p, &item);
		}
		if (r < 0)
			return r;
	}
	return 0;
}
