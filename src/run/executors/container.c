/*
 * Steps in containers. The processes of one are, seen from here: an init of our own (executors/init.c), the first in
 * namespaces that it is alone in with all of the container's, and below it what crun has started. So the end of
 * the init, however it comes, is the end of all of them and of their mounts; it dies with us.
 */
#include "run/executor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/str.h"
#include "image/image.h"
#include "run/executors/box.h"
#include "run/executors/bundle.h"
#include "run/executors/boxed.h"
#include "run/executors/init.h"
#include "run/executors/litter.h"
#include "base/banned.h"

#define BOX BOXED_PREFIX
/* Bytes of mount options that the kernel takes. */
#define OPTIONS_SIZE 4096

/* What a start needs until it is done. */
struct starting {
	const struct task_spec *spec;
	struct boxed_task *task;
	struct init_plan plan;
	struct init_told *told;
	char *config;
	char *bundle, *config_path, *rootfs, *memory, *pid_file, *log, *state, *program;
	char *layers_dir;
	bool has_places; /* beside it (run/containers.h) */
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
	if (s->told)
		munmap(s->told, sizeof(*s->told));
}

/* ---- what is needed ---- */

static int find_crun(struct starting *s, struct penstock_error *err)
{
	s->crun = fs_find_tool("crun");
	if (s->crun)
		return 0;
	return error_set(err, PENSTOCK_E_UNSUPPORTED,
		"containers need crun, which is not installed (Debian and Ubuntu: apt install "
		"crun; "
		"Fedora and RHEL: dnf install crun)");
}

/* ---- the directory of a container ---- */

/* Layers are named relative to their directory, the topmost first. -1: too long, or no memory. */
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

static int make_box(struct starting *s, struct penstock_error *err)
{
	const char *tmp = s->spec->container->tmp;
	int r = box_take(&s->task->box, tmp, err);

	if (r < 0)
		return r;
	/* A place to mount, for all containers where that is safe: each sees its own mount there, and this one stays. */
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
	s->program = path_join(s->bundle, "crun"); /* its name in `ps`, too */
	if (!s->config_path || !s->rootfs || !s->pid_file || !s->log || !s->state || !s->program)
		return error_memory(err);
	return 0;
}

/* What the init tells us while it starts the task. */
static int share_memory(struct starting *s, struct penstock_error *err)
{
	void *memory = mmap(
		NULL, sizeof(*s->told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return error_memory(err);
	s->told = memory;
	return 0;
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
			"%s: overlayfs takes no path with a comma, colon or backslash; choose "
			"another PENSTOCK_HOME",
			s->task->box);
	/* Unmounting one that is not volatile syncs the whole file system below it. */
	if (overlay_options(s, s->task->box, ",volatile", &s->overlay) < 0 ||
		overlay_options(s, s->task->box, "", &s->overlay_synced) < 0 ||
		overlay_options(s, s->memory, "", &s->overlay_memory) < 0)
		return error_set(err, PENSTOCK_E_LIMIT,
			"the image has too many layers to lay over each other (%zu)", layers->n);
	return 0;
}

static int prepare(struct starting *s, struct penstock_error *err)
{
	int r = find_crun(s, err);

	if (r == 0)
		r = make_box(s, err);
	if (r == 0)
		r = plan_root(s, err);
	if (r == 0)
		r = network_prepare(&s->network, &s->spec->network, s->task->box, err);
	if (r == 0)
		r = share_memory(s, err);
	if (r < 0)
		return r;
	s->config = bundle_text(s->task->box, s->spec, s->plan.rootless);
	return s->config ? 0 : error_memory(err);
}

/* ---- starting ---- */

/* What crun says about its failure, without the time that it puts before it. */
static int explain_crun(const struct starting *s, struct penstock_error *err)
{
	const char *program = s->spec->argv[0];
	const char *why = NULL;

	if (s->told->log[0]) {
		s->told->log[strcspn(s->told->log, "\n")] = '\0';
		why = str_starts(s->told->log, "20") && strchr(s->told->log, ' ')
			      ? strchr(s->told->log, ' ') + 1
			      : s->told->log;
	}
	if (why && (strstr(why, "executable file") || strstr(why, "open executable")))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the image %s has no %s; name a shell that it has with `shell` (/bin/sh, "
			"/bin/bash, /bin/ash), or "
			"use its own entry point with `shell: ENTRYPOINT`",
			s->spec->container->image->name, program);
	if (why && strstr(why, "chdir"))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the image %s has no directory %s; give another `workDir`",
			s->spec->container->image->name,
			s->spec->cwd ? s->spec->cwd
				     : s->spec->container->image->config.working_dir);
	return error_set(err, PENSTOCK_E_IO, "crun could not start the container: %s",
		why ? why : "it does not say why");
}

static int spawn(struct starting *s, struct penstock_error *err)
{
	const struct task_spec *spec = s->spec;
	/* A name within `state`; nobody else looks there. */
	const char *const crun[] = {s->crun, "--root", s->state, "--cgroup-manager=disabled",
		"--log", s->log, "run", "--detach", "--pid-file", s->pid_file, "--bundle",
		s->bundle, "task", NULL};
	int r;

	s->plan.layers_dir = s->layers_dir;
	s->plan.overlay = s->overlay;
	s->plan.overlay_synced = s->overlay_synced;
	s->plan.overlay_memory = s->overlay_memory;
	s->plan.told = s->told;
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
	s->plan.crun = NULL; /* it ends with this function */
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
	t->task.pid = boxed_find(t->process.pid, s.told->task);
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
