#include "run/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process.h"
#include "run/cgroups.h"
#include "base/banned.h"

void live_step_release(struct live_step *step)
{
	free(step->name);
	free(step->cwd);
	free(step->node);
	free(step->pids);
	strlist_release(&step->cgroups);
	strlist_release(&step->enter);
	*step = (struct live_step){0};
}

static char *path_of(const char *run_dir, unsigned long serial)
{
	char *path = NULL;

	return asprintf(&path, "%s/live/%lu", run_dir, serial) < 0 ? NULL : path;
}

static json_t *json_list(const struct strlist *list)
{
	json_t *array = json_array();

	for (size_t i = 0; i < list->n; i++)
		json_array_append_new(array, json_string(list->items[i]));
	return array;
}

static char *format(const struct live_step *step)
{
	char boot[PROCESS_BOOT_ID_SIZE];
	json_t *tasks = json_array();
	json_t *object;
	char *text;

	process_boot_id(boot);
	for (size_t i = 0; i < step->n && !step->cluster; i++) {
		struct process_info info = {0};

		process_info(step->pids[i], &info);
		json_array_append_new(tasks, json_pack("{s:i, s:I}", "pid", (int)step->pids[i],
						     "start", (json_int_t)info.start_ticks));
	}
	object = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s*, s:i}", "boot", boot, "name",
		step->name, "cwd", step->cwd, "tasks", tasks, "cgroups", json_list(&step->cgroups),
		"enter", json_list(&step->enter), "node", step->node, "cluster",
		step->cluster ? (int)step->n : 0);
	text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	return text;
}

/* Of no use after a crash of the machine, so nothing is made durable. */
int live_write(const char *run_dir, const struct live_step *step, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(run_dir, "live");
	_cleanup_free_ char *path = path_of(run_dir, step->serial);
	_cleanup_free_ char *text = format(step);
	_cleanup_free_ char *fresh = NULL;
	_cleanup_close_ int fd = -1;

	if (!dir || !path || !text || asprintf(&fresh, "%s/.%lu", dir, step->serial) < 0) {
		fresh = NULL;
		return error_memory(err);
	}
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make %s", dir);
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0 || rename(fresh, path) < 0)
		return error_errno(err, errno, "cannot write %s", path);
	return 0;
}

void live_remove(const char *run_dir, unsigned long serial)
{
	_cleanup_free_ char *path = path_of(run_dir, serial);

	if (path)
		unlink(path);
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

/* 0 in place of one that has ended, whoever has its number now. */
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

	step->name = copy_of(object, "name");
	step->cwd = copy_of(object, "cwd");
	step->cluster = cluster > 0 && cluster <= INT_MAX;
	step->n = step->cluster ? (size_t)cluster : json_array_size(tasks);
	step->pids = calloc(step->n + 1, sizeof(*step->pids));
	if (!step->name || !step->cwd || !step->pids ||
		read_list(json_object_get(object, "cgroups"), &step->cgroups) < 0 ||
		read_list(json_object_get(object, "enter"), &step->enter) < 0)
		return -1;
	for (size_t i = 0; i < step->n; i++)
		step->pids[i] = read_task(json_array_get(tasks, i));
	return 0;
}

/* NULL: there is none; json_decref() it. */
static json_t *load(const char *run_dir, unsigned long serial)
{
	_cleanup_free_ char *path = path_of(run_dir, serial);
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);

	return path && fs_read(path, &text, NULL) == 0
		       ? json_loadb(buf_str(&text), text.len, 0, NULL)
		       : NULL;
}

static int each_file(const char *run_dir, unsigned long serial, bool cluster,
	int (*fn)(void *cookie, const struct live_step *step), void *cookie)
{
	_cleanup_(live_step_release) struct live_step step = {.serial = serial};
	json_auto_t *object = load(run_dir, serial);
	const char *recorded = json_string_value(json_object_get(object, "boot"));
	char boot[PROCESS_BOOT_ID_SIZE];

	process_boot_id(boot);
	if (!recorded || (!cluster && strcmp(recorded, boot) != 0) ||
		read_step(object, &step) < 0 || step.cluster != cluster)
		return 0;
	return fn(cookie, &step);
}

static int compare_serials(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a;
	unsigned long y = *(const unsigned long *)b;

	return x < y ? -1 : x > y;
}

/* The files of the directory; owned. */
static unsigned long *list_serials(const char *run_dir, size_t *n)
{
	_cleanup_free_ char *path = path_join(run_dir, "live");
	_cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;
	unsigned long *all = NULL;
	size_t cap = 0;

	*n = 0;
	for (struct dirent *e; dir && (e = readdir(dir));) {
		uint64_t serial;

		if (!str_to_u64(e->d_name, 0, UINT64_MAX / 2, &serial))
			continue;
		if (*n == cap) {
			unsigned long *grown = realloc(all, (cap + 64) * sizeof(*all));

			if (!grown)
				break;
			all = grown;
			cap += 64;
		}
		all[(*n)++] = (unsigned long)serial;
	}
	if (*n)
		qsort(all, *n, sizeof(*all), compare_serials);
	return all;
}

static void each(const char *run_dir, bool cluster,
	int (*fn)(void *cookie, const struct live_step *step), void *cookie)
{
	size_t n;
	_cleanup_free_ unsigned long *all = list_serials(run_dir, &n);

	for (size_t i = 0; i < n; i++) {
		if (each_file(run_dir, all[i], cluster, fn, cookie))
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
