/*
 * Steps in containers. Seen from here the processes of a container are our init (init.c),
 * the first process of the container's namespaces, and below it the processes started by crun. So
 * the end of the init, for any reason, ends all of them and their mounts; it dies with us.
 */
#include "run/task/executor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/str.h"
#include "image/image.h"
#include "run/task/box.h"
#include "run/task/bundle.h"
#include "run/task/boxed.h"
#include "run/task/init.h"
#include "base/banned.h"

#define BOX BOXED_PREFIX
/* Bytes of mount options that the kernel accepts. */
#define OPTIONS_SIZE 4096

/* State of a start in progress. */
struct starting {
	const struct task_spec *spec;
	struct boxed_task *task;
	struct init_plan plan;
	struct init_report *report;
	char *config;
	char *bundle, *config_path, *rootfs, *memory, *pid_file, *log, *state, *program;
	char *layers_dir;
	bool has_places; /* next to the layers (run/step/containers.h) */
	char *overlay, *overlay_synced, *overlay_memory;
	char *crun;
	struct network_setup network;
};

static void starting_release(struct starting *s)
{
	char *all[] = {s->config, s->bundle, s->config_path, s->rootfs, s->memory, s->pid_file,
		s->log, s->state, s->program, s->layers_dir, s->overlay, s->overlay_synced,
		s->overlay_memory, s->crun};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		free(all[i]);
	network_release(&s->network);
	if (s->report)
		munmap(s->report, sizeof(*s->report));
}

/* ---- requirements ---- */

static int find_crun(struct starting *s, struct penstock_error *err)
{
	s->crun = fs_find_tool("crun");
	if (s->crun)
		return 0;
	return error_set(err, PENSTOCK_E_UNSUPPORTED,
		"containers need crun, which is not installed; install it with 'apt install "
		"crun' (Debian, Ubuntu) or 'dnf install crun' (Fedora, RHEL)");
}

/* ---- the directory of a container ---- */

/* Formats the options. Layers are named relative to their directory, the topmost first. Returns -1
 * if they are too long or memory runs out. */
static int overlay_options(
	const struct starting *s, const char *upper, const char *more, char **out)
{
	const struct strlist *layers = &s->spec->container->image->layers;
	_cleanup_(buf_release) struct buf text = BUF_INIT(OPTIONS_SIZE - 1);

	buf_add_str(&text, "lowerdir=");
	for (size_t i = layers->n; i-- > 0;)
		buf_printf(&text, "%s%s", strrchr(layers->items[i], '/') + 1, i ? ":" : "");
	if (s->has_places)
		buf_add_str(&text, ":../" CONTAINER_PLACES);
	buf_printf(&text, ",upperdir=%s/upper,workdir=%s/work%s%s", upper, upper,
		s->plan.rootless ? ",userxattr" : "", more);
	*out = buf_take(&text);
	return *out ? 0 : -1;
}

static int plan_root(struct starting *s, struct penstock_error *err)
{
	const struct strlist *layers = &s->spec->container->image->layers;
	_cleanup_free_ char *last = NULL;

	if (!layers->n)
		return error_set(err, PENSTOCK_E_INVALID, "the image has no layers");
	s->layers_dir = strndup(
		layers->items[0], (size_t)(strrchr(layers->items[0], '/') - layers->items[0]));
	if (!s->layers_dir || asprintf(&last, "%s/../" CONTAINER_PLACES "/" CONTAINER_PLACES_LAST,
				      s->layers_dir) < 0) {
		last = NULL;
		return error_memory(err);
	}
	s->has_places = access(last, F_OK) == 0;
	if (strpbrk(s->task->box, ",:\\"))
		return error_set(err, PENSTOCK_E_INVALID,
			"%s: overlayfs does not support a path with a comma, colon or "
			"backslash; set another PENSTOCK_HOME",
			s->task->box);
	/* Unmounting an overlay that is not volatile syncs the whole file system below it. */
	if (overlay_options(s, s->task->box, ",volatile", &s->overlay) < 0 ||
		overlay_options(s, s->task->box, "", &s->overlay_synced) < 0 ||
		overlay_options(s, s->memory, "", &s->overlay_memory) < 0)
		return error_set(err, PENSTOCK_E_LIMIT,
			"the image has too many layers for an overlay (%zu)", layers->n);
	return 0;
}

static int prepare(struct starting *s, struct penstock_error *err)
{
	int r = find_crun(s, err);

	if (r < 0)
		return r;
	const char *tmp = s->spec->container->tmp;
	r = box_take(&s->task->box, tmp, err);
	if (r < 0)
		return r;
	/* A mount point, shared by all containers if that is safe: each sees its own mount there,
	 * and the directory stays. */
	s->bundle = path_join(box_is_safe_in(tmp) ? tmp : s->task->box, "bundle");
	s->memory = path_join(s->task->box, "memory");
	if (!s->bundle || !s->memory)
		return error_memory(err);
	if (mkdir(s->bundle, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make %s", s->bundle);
	s->config_path = path_join(s->bundle, "config.json");
	s->rootfs = path_join(s->bundle, "rootfs");
	s->pid_file = path_join(s->bundle, "pid");
	s->log = path_join(s->bundle, "log");
	s->state = path_join(s->bundle, "state");
	s->program = path_join(s->bundle, "crun"); /* also its name in `ps` */
	if (!s->config_path || !s->rootfs || !s->pid_file || !s->log || !s->state || !s->program)
		return error_memory(err);
	r = plan_root(s, err);
	if (r == 0)
		r = network_prepare(&s->network, &s->spec->network, s->task->box, err);
	if (r < 0)
		return r;
	/* Memory for the reports of the init. */
	void *memory = mmap(NULL, sizeof(*s->report), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return error_memory(err);
	s->report = memory;
	s->config = bundle_text(s->task->box, s->spec, s->plan.rootless);
	return s->config ? 0 : error_memory(err);
}

/* ---- start ---- */

/* Reports crun's error message without its time stamp. */
static int explain_crun(const struct starting *s, struct penstock_error *err)
{
	const char *program = s->spec->argv[0];
	const char *why = NULL;

	if (s->report->log[0]) {
		s->report->log[strcspn(s->report->log, "\n")] = '\0';
		why = str_starts(s->report->log, "20") && strchr(s->report->log, ' ')
			      ? strchr(s->report->log, ' ') + 1
			      : s->report->log;
	}
	if (why && (strstr(why, "executable file") || strstr(why, "open executable")))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the image %s has no %s; select a shell that it has with `shell` "
			"(/bin/sh, /bin/bash, /bin/ash), or use its own entry point with "
			"`shell: ENTRYPOINT`",
			s->spec->container->image->name, program);
	if (why && strstr(why, "chdir"))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the image %s has no directory %s; set another `workDir`",
			s->spec->container->image->name,
			s->spec->cwd ? s->spec->cwd
				     : s->spec->container->image->config.working_dir);
	return error_set(err, PENSTOCK_E_IO, "crun cannot start the container: %s",
		why ? why : "no error message");
}

static int spawn(struct starting *s, struct penstock_error *err)
{
	const struct task_spec *spec = s->spec;
	/* A name within `state`; used nowhere else. */
	const char *const crun[] = {s->crun, "--root", s->state, "--cgroup-manager=disabled",
		"--log", s->log, "run", "--detach", "--pid-file", s->pid_file, "--bundle",
		s->bundle, "task", NULL};
	int r;

	s->plan.layers_dir = s->layers_dir;
	s->plan.overlay = s->overlay;
	s->plan.overlay_synced = s->overlay_synced;
	s->plan.overlay_memory = s->overlay_memory;
	s->plan.report = s->report;
	s->plan.bundle = s->bundle;
	s->plan.config = s->config;
	s->plan.config_path = s->config_path;
	s->plan.log = s->log;
	s->plan.rootfs = s->rootfs;
	s->plan.memory = s->memory;
	s->plan.pid_file = s->pid_file;
	s->plan.program = s->program;
	s->plan.network = s->network.plan;
	s->plan.last_pid = spec->container->last_pid;
	s->plan.crun = crun;
	r = boxed_spawn(s->task, spec,
		&(struct process_spec){
			.namespaces = init_namespaces(&s->plan),
			.body = init_run,
			.cookie = &s->plan,
			.explain = init_explain,
		},
		err);
	s->plan.crun = NULL; /* it is local to this function */
	if (r == -(int)PENSTOCK_E_UNSUPPORTED)
		r = explain_crun(s, err);
	return r;
}

static int start(struct task **out, const struct task_spec *spec, struct penstock_error *err)
{
	struct boxed_task *t = boxed_new();
	_cleanup_(starting_release) struct starting s = {.spec = spec, .task = t};
	int r;

	if (!t)
		return error_memory(err);
	s.plan.rootless = geteuid() != 0;
	snprintf(s.plan.uid_map, sizeof(s.plan.uid_map), "0 %u 1", geteuid());
	snprintf(s.plan.gid_map, sizeof(s.plan.gid_map), "0 %u 1", getegid());
	r = prepare(&s, err);
	if (r == 0)
		r = spawn(&s, err);
	if (r < 0) {
		boxed_free(&t->task);
		return r;
	}
	t->task.pid = boxed_find(t->process.pid, s.report->task);
	t->own_ipc = true;
	t->own_user = s.plan.rootless || spec->container->uid || spec->container->gid;
	t->own_network = spec->network.kind != TASK_NETWORK_HOST;
	t->task.event_fd = t->process.pidfd;
	*out = &t->task;
	return 0;
}

const struct executor executor_container = {
	.name = "container",
	.start = start,
	.ended = boxed_ended,
	.signal = boxed_signal,
	.kill = boxed_kill,
	.enter = boxed_enter,
	.free = boxed_free,
};

void executor_container_finish(void)
{
	litter_finish();
	box_finish();
}

void executor_container_sweep(const char *tmp)
{
	_cleanup_closedir_ DIR *dir = opendir(tmp);

	for (struct dirent *e; dir && (e = readdir(dir));) {
		_cleanup_free_ char *path = str_starts(e->d_name, BOX) ? path_join(tmp, e->d_name)
								       : NULL;

		if (path)
			fs_remove_tree(path, NULL);
	}
}
