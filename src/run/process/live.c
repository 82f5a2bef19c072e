#include "run/process/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "run/process/cgroups.h"
#include "s3/sum/checksum.h"

/* A reader that finds an incomplete line reads again: the writer completes the line at once, unless
 * the machine is very busy. After TORN_ATTEMPTS reads the writer counts as killed. */
enum { TORN_ATTEMPTS = 50, TORN_PAUSE_MS = 2, CRC_DIGITS = 8 };

void live_step_release(struct live_step *step)
{
	free(step->name);
	free(step->path);
	free(step->cwd);
	free(step->node);
	free(step->pids);
	strlist_release(&step->cgroups);
	strlist_release(&step->enter);
	*step = (struct live_step){0};
}

static char *path_of(const char *run_dir, unsigned long serial)
{
	return str_printf("%s/live/%lu", run_dir, serial);
}

static json_t *json_list(const struct strlist *list)
{
	json_t *array = json_array();

	for (size_t i = 0; i < list->n; i++)
		json_array_append_new(array, json_string(list->items[i]));
	return array;
}

/*
 * A file has two lines: the data known before the tasks start, and the data of the tasks. Files are
 * overwritten while other processes read them, so each line has a checksum and the serial of the
 * execution.
 */
static int add_line(struct buf *out, json_t *object)
{
	_cleanup_free_ char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	json_decref(object);
	return text ? buf_printf(
			      out, "%08" PRIx32 " %s\n", crc32c_update(0, text, strlen(text)), text)
		    : -1;
}

static int add_groups(struct buf *out, const struct live_step *step)
{
	char boot[PROCESS_BOOT_ID_SIZE];

	process_boot_id(boot);
	return add_line(out, json_pack("{s:I, s:s, s:s, s:s*, s:s, s:o, s:s*}", "serial",
				     (json_int_t)step->serial, "boot", boot, "name", step->name,
				     "path", step->path, "cwd", step->cwd, "cgroups",
				     json_list(&step->cgroups), "node", step->node));
}

static int add_tasks(struct buf *out, const struct live_step *step)
{
	json_t *tasks = json_array();

	for (size_t i = 0; i < step->n && !step->cluster; i++) {
		struct process_info info = {0};

		process_info(step->pids[i], &info);
		json_array_append_new(tasks, json_pack("{s:i, s:I}", "pid", (int)step->pids[i],
						     "start", (json_int_t)info.start_ticks));
	}
	return add_line(out, json_pack("{s:I, s:o, s:o, s:i}", "serial", (json_int_t)step->serial,
				     "tasks", tasks, "enter", json_list(&step->enter), "cluster",
				     step->cluster ? (int)step->n : 0));
}

static int make_dir(const char *dir, struct penstock_error *err)
{
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make '%s'", dir);
	return 0;
}

/* The record is useless after a crash of the machine, so nothing is synced. */
int live_write(const char *run_dir, const struct live_step *step, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(run_dir, "live");
	_cleanup_free_ char *path = path_of(run_dir, step->serial);
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	_cleanup_free_ char *fresh = str_printf("%s/live/.%lu", run_dir, step->serial);
	_cleanup_close_ int fd = -1;
	int r;

	if (!dir || !path || !fresh || add_groups(&text, step) < 0 || add_tasks(&text, step) < 0)
		return error_memory(err);
	r = make_dir(dir, err);
	if (r < 0)
		return r;
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || fs_write_all(fd, text.data, text.len) < 0 || rename(fresh, path) < 0)
		return error_errno(err, errno, "cannot write '%s'", path);
	return 0;
}

void live_remove(const char *run_dir, unsigned long serial)
{
	_cleanup_free_ char *path = path_of(run_dir, serial);

	if (path)
		unlink(path);
}

/* ---- reused files ---- */

struct live_file {
	struct live_file *next; /* the next free file */
	unsigned long number; /* name of the file */
	int fd;
	off_t tasks_at; /* offset of the second line */
};

struct live_files {
	char *dir; /* owned; runs/ID */
	struct live_file *free;
	unsigned long n; /* number of files made */
};

/* Number of the first file: above all serials that live_write() uses. */
#define FIRST_NUMBER (1UL << 31)

int live_files_new(struct live_files **out, const char *run_dir, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(run_dir, "live");
	struct live_files *files;
	int r = dir ? make_dir(dir, err) : error_memory(err);

	if (r < 0)
		return r;
	files = calloc(1, sizeof(*files));
	if (files)
		files->dir = strdup(run_dir);
	if (!files || !files->dir) {
		free(files);
		return error_memory(err);
	}
	*out = files;
	return 0;
}

void live_files_free(struct live_files *files)
{
	if (!files)
		return;
	while (files->free) {
		struct live_file *file = files->free;

		files->free = file->next;
		live_remove(files->dir, file->number);
		close(file->fd);
		free(file);
	}
	free(files->dir);
	free(files);
}

static int take_file(struct live_files *files, struct live_file **out, struct penstock_error *err)
{
	struct live_file *file = files->free;
	_cleanup_free_ char *path = path_of(files->dir, FIRST_NUMBER + files->n);

	if (file) {
		files->free = file->next;
		*out = file;
		return 0;
	}
	file = calloc(1, sizeof(*file));
	if (!file || !path) {
		free(file);
		return error_memory(err);
	}
	file->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (file->fd < 0) {
		int r = error_errno(err, errno, "cannot make '%s'", path);

		free(file);
		return r;
	}
	file->number = FIRST_NUMBER + files->n++;
	*out = file;
	return 0;
}

static int write_at(
	const struct live_file *file, const struct buf *text, off_t at, struct penstock_error *err)
{
	if (buf_failed(text))
		return error_memory(err);
	if (fs_pwrite_all(file->fd, text->data, text->len, at) < 0)
		return error_errno(err, errno, "cannot record the processes of a step");
	return 0;
}

int live_begin(struct live_files *files, const struct live_step *step, struct live_file **out,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	struct live_file *file = NULL;
	int r = add_groups(&text, step) < 0 ? error_memory(err) : take_file(files, &file, err);

	if (r < 0)
		return r;
	r = write_at(file, &text, 0, err);
	if (r < 0) {
		live_over(files, file);
		return r;
	}
	file->tasks_at = (off_t)text.len;
	*out = file;
	return 0;
}

int live_started(
	const struct live_file *file, const struct live_step *step, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);

	if (add_tasks(&text, step) < 0)
		return error_memory(err);
	return write_at(file, &text, file->tasks_at, err);
}

void live_over(struct live_files *files, struct live_file *file)
{
	/* Write an empty first line. If the write fails, the file still names groups and processes
	 * that are gone. */
	(void)!pwrite(file->fd, "\n", 1, 0);
	file->next = files->free;
	files->free = file;
}

/* ---- reading ---- */

static int read_list(const json_t *array, struct strlist *out)
{
	for (size_t i = 0; i < json_array_size(array); i++) {
		const char *item = json_string_value(json_array_get(array, i));

		if (item && strlist_add(out, item) < 0)
			return -1;
	}
	return 0;
}

/* Returns the leader's pid; 0 if the task has ended, even if the pid was reused. */
static pid_t read_task(const json_t *task)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(task, "pid"));
	uint64_t start = (uint64_t)json_integer_value(json_object_get(task, "start"));
	struct process_info info;

	return pid > 0 && process_info(pid, &info) && info.start_ticks == start ? pid : 0;
}

static char *copy_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return strdup(text ? text : "");
}

static int read_step(const json_t *object, struct live_step *step)
{
	const json_t *tasks = json_object_get(object, "tasks");

	json_int_t cluster = json_integer_value(json_object_get(object, "cluster"));

	step->serial = (unsigned long)json_integer_value(json_object_get(object, "serial"));
	step->name = copy_of(object, "name");
	step->path = copy_of(object, "path");
	step->cwd = copy_of(object, "cwd");
	step->cluster = cluster > 0 && cluster <= INT_MAX;
	step->n = step->cluster ? (size_t)cluster : json_array_size(tasks);
	step->pids = calloc(step->n + 1, sizeof(*step->pids));
	if (!step->name || !step->path || !step->cwd || !step->pids ||
		read_list(json_object_get(object, "cgroups"), &step->cgroups) < 0 ||
		read_list(json_object_get(object, "enter"), &step->enter) < 0)
		return -1;
	for (size_t i = 0; i < step->n; i++)
		step->pids[i] = read_task(json_array_get(tasks, i));
	return 0;
}

/* Reads a line and advances `rest`. Returns NULL if the line is incomplete or damaged; the caller
 * releases the result. */
static json_t *read_line(char **rest)
{
	char *line = strsep(rest, "\n");
	char *text = line ? strchr(line, ' ') : NULL;

	if (!*rest || !text || text - line != CRC_DIGITS ||
		strtoul(line, NULL, 16) != crc32c_update(0, text + 1, strlen(text + 1)))
		return NULL;
	return json_loads(text + 1, 0, NULL);
}

/* Loads a record. Returns 1 if loaded, 0 if there is no record, -1 if it is being written. */
static int load_once(const char *path, json_t **out)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	json_auto_t *groups = NULL;
	json_auto_t *tasks = NULL;
	char *rest;

	if (fs_read(path, &text, NULL) < 0 || !text.len || *buf_str(&text) == '\n')
		return 0;
	rest = text.data;
	groups = read_line(&rest);
	if (!groups)
		return -1;
	tasks = read_line(&rest);
	/* If the serials differ, the second line belongs to an earlier execution, or is missing. */
	if (json_equal(json_object_get(groups, "serial"), json_object_get(tasks, "serial")))
		json_object_update(groups, tasks);
	*out = json_incref(groups);
	return 1;
}

/* Returns the record, which the caller releases; NULL if there is no complete record. */
static json_t *load(const char *run_dir, unsigned long number)
{
	_cleanup_free_ char *path = path_of(run_dir, number);
	json_t *object = NULL;

	for (int i = 0; path && i < TORN_ATTEMPTS && load_once(path, &object) < 0; i++)
		clock_sleep_ms(TORN_PAUSE_MS);
	return object;
}

struct found {
	struct live_step *steps; /* owned */
	size_t n;
};

static void found_release(struct found *found)
{
	for (size_t i = 0; i < found->n; i++)
		live_step_release(&found->steps[i]);
	free(found->steps);
}

static void load_file(const char *run_dir, unsigned long number, bool cluster, struct found *found)
{
	struct live_step *step = &found->steps[found->n];
	json_auto_t *object = load(run_dir, number);
	const char *recorded = json_string_value(json_object_get(object, "boot"));
	char boot[PROCESS_BOOT_ID_SIZE];

	process_boot_id(boot);
	if (!recorded || (!cluster && strcmp(recorded, boot) != 0))
		return;
	if (read_step(object, step) == 0 && step->cluster == cluster)
		found->n++;
	else
		live_step_release(step);
}

static int compare_serials(const void *a, const void *b)
{
	unsigned long x = ((const struct live_step *)a)->serial;
	unsigned long y = ((const struct live_step *)b)->serial;

	return x < y ? -1 : x > y;
}

/* Lists the files of the directory; the caller frees the result. */
static unsigned long *list_files(const char *run_dir, size_t *n)
{
	_cleanup_free_ char *path = path_join(run_dir, "live");
	_cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;
	unsigned long *all = NULL;

	*n = 0;
	for (struct dirent *e; dir && (e = readdir(dir));) {
		unsigned long *grown;
		uint64_t number;

		if (!str_to_u64(e->d_name, 0, UINT64_MAX / 2, &number))
			continue;
		grown = array_grow(all, *n, sizeof(*all));
		if (!grown)
			break;
		all = grown;
		all[(*n)++] = (unsigned long)number;
	}
	return all;
}

static void each(const char *run_dir, bool cluster,
	int (*fn)(void *cookie, const struct live_step *step), void *cookie)
{
	size_t n;
	_cleanup_free_ unsigned long *all = list_files(run_dir, &n);
	_cleanup_(found_release) struct found found = {
		.steps = calloc(n + 1, sizeof(*found.steps))};

	for (size_t i = 0; i < n && found.steps; i++)
		load_file(run_dir, all[i], cluster, &found);
	if (found.n)
		qsort(found.steps, found.n, sizeof(*found.steps), compare_serials);
	for (size_t i = 0; i < found.n; i++) {
		if (fn(cookie, &found.steps[i]))
			return;
	}
}

void live_each(
	const char *run_dir, int (*fn)(void *cookie, const struct live_step *step), void *cookie)
{
	each(run_dir, false, fn, cookie);
}

void live_each_of_cluster(
	const char *run_dir, int (*fn)(void *cookie, const struct live_step *step), void *cookie)
{
	each(run_dir, true, fn, cookie);
}

char *live_node(const char *step_dir, unsigned long rank)
{
	json_auto_t *object = load(step_dir, rank);
	const char *node = json_string_value(json_object_get(object, "node"));

	return node ? strdup(node) : NULL;
}

static int end_groups(void *cookie, const struct live_step *step)
{
	int *count = cookie;

	for (size_t i = 0; i < step->cgroups.n; i++)
		*count += cgroup_end_recorded(step->cgroups.items[i]);
	return 0;
}

int live_end(const char *run_dir)
{
	_cleanup_free_ char *path = path_join(run_dir, "live");
	int count = 0;

	live_each(run_dir, end_groups, &count);
	if (path)
		fs_remove_tree(path, NULL);
	return count;
}

/* ---- the record of one execution ---- */

/* Other machines of a cluster read the file, too, and may see late what is written to a file that
 * stays open, so the file is written and closed. */
static int write_alone(struct step_life *life, const struct run_life *run,
	const struct live_step *step, struct penstock_error *err)
{
	int r = live_write(run->dir, step, err);

	if (r == 0)
		life->alone = step->serial;
	return r;
}

void step_life_begin(struct step_life *life, struct run_life *run, const struct live_step *step)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = 0;

	if (step->cluster)
		r = write_alone(life, run, step, &err);
	else if (!run->files)
		r = live_files_new(&run->files, run->dir, &err);
	if (r == 0 && !step->cluster)
		r = live_begin(run->files, step, &life->file, &err);
	if (r < 0)
		log_warn("cannot record the processes of '%s': %s", step->name, err.message);
}

void step_life_started(struct step_life *life, struct run_life *run, const struct live_step *step)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = 0;

	if (step->cluster)
		r = write_alone(life, run, step, &err);
	else if (life->file)
		r = live_started(life->file, step, &err);
	if (r < 0)
		log_debug("%s", err.message);
}

void step_life_end(struct step_life *life, struct run_life *run)
{
	if (life->alone)
		live_remove(run->dir, life->alone);
	if (life->file)
		live_over(run->files, life->file);
	*life = (struct step_life){0};
}

void run_life_end(struct run_life *run)
{
	live_files_free(take_pointer(run->files));
}
