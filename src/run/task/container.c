/*
 * Steps in containers. The processes of a container are our init (init.c), the first process of the
 * container's namespaces, and below the init the processes started by crun. So the end of the init,
 * for any reason, ends all these processes and their mounts; the init dies with penstock.
 */
#include "run/task/executor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "base/process/process.h"
#include "base/str.h"
#include "image/image.h"
#include "run/task/box.h"
#include "run/task/bundle.h"
#include "run/task/boxed.h"
#include "run/task/init.h"

#define BOX BOXED_PREFIX
/* Bytes of mount options that the kernel accepts. */
#define OPTIONS_SIZE 4096

/* State of a start in progress. */
struct starting {
	const struct task_spec *spec;
	struct boxed_task *task;
	struct init_plan plan; /* the strings are owned */
	char *state, *crun;
	bool has_places; /* CONTAINER_PLACES exists next to the layers */
	struct network_setup network;
};

static void starting_release(struct starting *s)
{
	const struct init_plan *p = &s->plan;
	char *all[] = {p->config, p->bundle, p->config_path, p->rootfs, p->memory, p->pid_file,
		p->log, p->program, p->layers_dir, p->overlay, p->overlay_synced, p->overlay_memory,
		s->state, s->crun};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		free(all[i]);
	network_release(&s->network);
	if (p->report)
		munmap(p->report, sizeof(*p->report));
}

/* ---- the directory of a container ---- */

/* Formats the options. Layers are named relative to their directory, the topmost first. Returns -1
 * if the options are too long, or out of memory. */
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
		return error_set(err, PENSTOCK_E_INVALID, "cannot run the image: it has no layers");
	s->plan.layers_dir = strndup(
		layers->items[0], (size_t)(strrchr(layers->items[0], '/') - layers->items[0]));
	if (s->plan.layers_dir)
		last = str_printf(
			"%s/../" CONTAINER_PLACES "/" CONTAINER_PLACES_LAST, s->plan.layers_dir);
	if (!last)
		return error_memory(err);
	s->has_places = access(last, F_OK) == 0;
	if (strpbrk(s->task->box, ",:\\"))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use '%s' for containers: overlayfs does not support a path with a "
			"comma, colon or backslash; set another PENSTOCK_HOME, or TMPDIR on a node "
			"of a cluster",
			s->task->box);
	/* Unmounting an overlay that is not volatile syncs the whole file system below it. */
	if (overlay_options(s, s->task->box, ",volatile", &s->plan.overlay) < 0 ||
		overlay_options(s, s->task->box, "", &s->plan.overlay_synced) < 0 ||
		overlay_options(s, s->plan.memory, "", &s->plan.overlay_memory) < 0)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot run the image: it has too many layers for an overlay (%zu)",
			layers->n);
	return 0;
}

static int prepare(struct starting *s, struct penstock_error *err)
{
	const char *tmp = s->spec->container->tmp;
	int r = bundle_check(s->spec, err);

	if (r < 0)
		return r;
	s->crun = fs_find_tool("crun");
	if (!s->crun)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot start a container: crun is not installed; install it with 'apt "
			"install crun' (Debian, Ubuntu) or 'dnf install crun' (Fedora, RHEL)");
	r = box_take(&s->task->box, tmp, err);
	if (r < 0)
		return r;
	/* The bundle is a mount point, which all containers share if that is safe: each container
	 * sees its own mount there, and the directory stays. */
	s->plan.bundle = path_join(box_is_safe_in(tmp) ? tmp : s->task->box, "bundle");
	s->plan.memory = path_join(s->task->box, "memory");
	if (!s->plan.bundle || !s->plan.memory)
		return error_memory(err);
	if (mkdir(s->plan.bundle, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make '%s'", s->plan.bundle);
	s->plan.config_path = path_join(s->plan.bundle, "config.json");
	s->plan.rootfs = path_join(s->plan.bundle, "rootfs");
	s->plan.pid_file = path_join(s->plan.bundle, "pid");
	s->plan.log = path_join(s->plan.bundle, "log");
	s->state = path_join(s->plan.bundle, "state");
	s->plan.program = path_join(s->plan.bundle, "crun"); /* also the name in `ps` */
	if (!s->plan.config_path || !s->plan.rootfs || !s->plan.pid_file || !s->plan.log ||
		!s->state || !s->plan.program)
		return error_memory(err);
	r = plan_root(s, err);
	if (r == 0)
		r = network_prepare(&s->network, s->spec, s->task->box, err);
	if (r < 0)
		return r;
	s->plan.report = boxed_shared(sizeof(*s->plan.report));
	if (!s->plan.report)
		return error_memory(err);
	s->plan.config = bundle_text(s->task->box, s->spec, s->plan.rootless);
	return s->plan.config ? 0 : error_memory(err);
}

/* ---- start ---- */

/* Reports crun's error message without its time stamp. */
static int explain_crun(const struct starting *s, struct penstock_error *err)
{
	const char *program = s->spec->argv[0];
	char *log = s->plan.report->log;
	const char *why = NULL;

	if (*log) {
		log[strcspn(log, "\n")] = '\0';
		why = str_starts(log, "20") && strchr(log, ' ') ? strchr(log, ' ') + 1 : log;
	}
	if (why && (strstr(why, "executable file") || strstr(why, "open executable")))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot run '%s': image '%s' does not have it; select a shell of the image "
			"with `shell` (/bin/sh, /bin/bash, /bin/ash), or use the image's entry "
			"point with `shell: ENTRYPOINT`",
			program, s->spec->container->image->name);
	if (why && strstr(why, "chdir"))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot start in '%s': image '%s' has no such directory; set another "
			"`workDir`",
			s->spec->cwd ? s->spec->cwd : s->spec->container->image->config.working_dir,
			s->spec->container->image->name);
	return error_set(err, PENSTOCK_E_IO, "cannot start the container: crun: %s",
		why ? why : "no error message");
}

static int spawn(struct starting *s, struct penstock_error *err)
{
	const struct task_spec *spec = s->spec;
	/* "task" is a name within `state`, used nowhere else. */
	const char *const crun[] = {s->crun, "--root", s->state, "--cgroup-manager=disabled",
		"--log", s->plan.log, "run", "--detach", "--pid-file", s->plan.pid_file, "--bundle",
		s->plan.bundle, "task", NULL};
	int r;

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
	s->plan.crun = NULL; /* the array is local to this function */
	if (r < 0 && s->plan.report->crun_failed)
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
	s.plan.slave = bundle_has_slave(spec->container);
	snprintf(s.plan.uid_map, sizeof(s.plan.uid_map), "0 %u 1", geteuid());
	snprintf(s.plan.gid_map, sizeof(s.plan.gid_map), "0 %u 1", getegid());
	r = prepare(&s, err);
	if (r == 0)
		r = spawn(&s, err);
	if (r < 0) {
		boxed_free(&t->task);
		return r;
	}
	t->task.pid = boxed_find(t->process.pid, s.plan.report->task);
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
	BOXED_EXECUTOR,
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
