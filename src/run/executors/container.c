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
#include "run/executors/bundle.h"
#include "run/executors/init.h"
#include "run/executors/litter.h"
#include "base/banned.h"

#define BOX	     "container-"
#define KILL_WAIT_MS 10000
/* Bytes of mount options that the kernel takes. */
#define OPTIONS_SIZE 4096

struct container_task {
	struct task task; /* first: the interface's view */
	struct process process;
	char *box;     /* the directory of this container */
	int status_fd; /* gets the task's status */
	int status;    /* of the init */
	bool own_network;
};

/* What a start needs until it is done. */
struct starting {
	const struct task_spec *spec;
	struct container_task *task;
	struct init_plan plan;
	struct init_told *told;
	char *config;
	char *bundle, *config_path, *rootfs, *memory, *pid_file, *log, *state, *resolv, *netns;
	char *layers_dir;
	char *overlay, *overlay_synced, *overlay_memory;
	char *crun, *network;
};

static void starting_release(struct starting *s)
{
	char *all[] = {s->config, s->bundle, s->config_path, s->rootfs, s->memory, s->pid_file,
		s->log, s->state, s->resolv, s->netns, s->layers_dir, s->overlay, s->overlay_synced,
		s->overlay_memory, s->crun, s->network};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		free(all[i]);
	if (s->told)
		munmap(s->told, sizeof(*s->told));
}

/* ---- what is needed ---- */

/* A program, also where a user's PATH lacks the places of administrators; free() it. */
static char *find_program(const char *name)
{
	const char *given = str_env("PATH");
	_cleanup_free_ char *path = NULL;

	if (asprintf(&path, "%s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
		    given ? given : "/usr/bin") < 0) {
		path = NULL;
		return NULL;
	}
	for (const char *p = path; *p;) {
		size_t len = strcspn(p, ":");
		char *candidate = NULL;

		if (len && asprintf(&candidate, "%.*s/%s", (int)len, p, name) < 0)
			return NULL;
		if (candidate && access(candidate, X_OK) == 0)
			return candidate;
		free(candidate);
		p += len + (p[len] == ':');
	}
	return NULL;
}

static int find_programs(struct starting *s, struct penstock_error *err)
{
	const char *network = s->spec->container->network == CONTAINER_NETWORK_PASTA
				      ? "pasta"
				      : "slirp4netns";

	s->crun = find_program("crun");
	if (!s->crun)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"containers need crun, which is not installed (Debian and Ubuntu: apt "
			"install crun; Fedora and "
			"RHEL: dnf install crun)");
	if (s->spec->container->network == CONTAINER_NETWORK_HOST)
		return 0;
	s->network = find_program(network);
	if (!s->network)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"`network: %s` needs the program of that name, which is not installed",
			network);
	return 0;
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
	buf_printf(&text, ",upperdir=%s/upper,workdir=%s/work%s%s", upper, upper,
		s->plan.rootless ? ",userxattr" : "", more);
	*out = buf_take(&text);
	return *out ? 0 : -1;
}

static int make_box(struct starting *s, struct penstock_error *err)
{
	const struct task_container *container = s->spec->container;
	char *box = path_join(container->tmp, BOX "XXXXXX");

	if (!box)
		return error_memory(err);
	s->task->box = box;
	if (!mkdtemp(box)) {
		int saved = errno;

		free(take_pointer(s->task->box));
		return error_errno(err, saved, "cannot make a directory in %s", container->tmp);
	}
	s->bundle = path_join(box, "bundle");
	s->memory = path_join(box, "memory");
	s->resolv = path_join(box, "resolv.conf");
	s->netns = path_join(box, "netns");
	if (!s->bundle || !s->memory || !s->resolv || !s->netns)
		return error_memory(err);
	s->config_path = path_join(s->bundle, "config.json");
	s->rootfs = path_join(s->bundle, "rootfs");
	s->pid_file = path_join(s->bundle, "pid");
	s->log = path_join(s->bundle, "log");
	s->state = path_join(s->bundle, "crun");
	if (!s->config_path || !s->rootfs || !s->pid_file || !s->log || !s->state)
		return error_memory(err);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"bundle", "work", "upper"};
		_cleanup_free_ char *path = path_join(box, names[i]);

		if (!path)
			return error_memory(err);
		/* The upper one becomes "/" of the container. */
		if (mkdir(path, i == 2 ? 0755 : 0700) < 0 || (i == 2 && chmod(path, 0755) < 0))
			return error_errno(err, errno, "cannot make %s", path);
	}
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

	if (!layers->n)
		return error_set(err, PENSTOCK_E_INVALID, "the image has no layers");
	s->layers_dir = strndup(
		layers->items[0], (size_t)(strrchr(layers->items[0], '/') - layers->items[0]));
	if (!s->layers_dir)
		return error_memory(err);
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

/* Names are resolved by what gives the container its network, unless the workflow says by whom. */
static int write_resolv(const struct starting *s, struct penstock_error *err)
{
	const struct task_container *container = s->spec->container;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_close_ int fd = -1;

	if (container->network == CONTAINER_NETWORK_HOST)
		return 0;
	if (mknod(s->netns, S_IFREG | 0600, 0) < 0)
		return error_errno(err, errno, "cannot make %s", s->netns);
	for (size_t i = 0; container->dns && container->dns[i]; i++)
		buf_printf(&text, "nameserver %s\n", container->dns[i]);
	if (!text.len && container->network == CONTAINER_NETWORK_SLIRP4NETNS)
		buf_add_str(&text, "nameserver 10.0.2.3\n");
	else if (!text.len && fs_read("/etc/resolv.conf", &text, NULL) < 0)
		buf_clear(&text);
	fd = open(s->resolv, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (buf_failed(&text) || fd < 0 || fs_write_all(fd, buf_str(&text), text.len) < 0)
		return error_errno(err, errno, "cannot write %s", s->resolv);
	return 0;
}

static int prepare(struct starting *s, struct penstock_error *err)
{
	int r = find_programs(s, err);

	if (r == 0)
		r = make_box(s, err);
	if (r == 0)
		r = plan_root(s, err);
	if (r == 0)
		r = write_resolv(s, err);
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
	/* Neither lets it reach what listens on the machine's loopback address only. */
	const char *const slirp[] = {s->network, "--configure", "--mtu=65520",
		"--disable-host-loopback", "--ready-fd=7", "1", "tap0", NULL};
	const char *const pasta[] = {s->network, "--config-net", "--no-map-gw", "--quiet",
		"--runas", "0:0", "--netns-only", "--netns", s->netns, NULL};
	_cleanup_close_ int write_end = -1;
	int ends[2];
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
	s->plan.netns = s->netns;
	s->plan.network_tells = spec->container->network == CONTAINER_NETWORK_SLIRP4NETNS;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	s->task->status_fd = ends[0];
	write_end = ends[1];
	s->plan.crun = crun;
	if (spec->container->network == CONTAINER_NETWORK_SLIRP4NETNS)
		s->plan.network = slirp;
	else if (spec->container->network == CONTAINER_NETWORK_PASTA)
		s->plan.network = pasta;
	r = process_spawn(&s->task->process,
		&(struct process_spec){
			.stdin_fd = -1,
			.stdout_fd = spec->stdout_fd,
			.stderr_fd = spec->stderr_fd,
			.new_session = true,
			.die_with_parent = true,
			.cpus = spec->cpus,
			.n_cpus = spec->n_cpus,
			.cgroups = spec->cgroups,
			.n_cgroups = spec->n_cgroups,
			.born_in = spec->born_in,
			.namespaces = init_namespaces(&s->plan),
			.body = init_run,
			.cookie = &s->plan,
			.body_fd = write_end,
			.explain = init_explain,
		},
		err);
	s->plan.crun = s->plan.network = NULL; /* they end with this function */
	if (r == -(int)PENSTOCK_E_UNSUPPORTED)
		r = explain_crun(s, err);
	return r;
}

static void free_task(struct task *task)
{
	struct container_task *t = (struct container_task *)task;

	if (!t)
		return;
	process_release(&t->process);
	if (t->status_fd >= 0)
		close(t->status_fd);
	litter_remove(t->box);
	free(t);
}

/* ---- which of them is the task ---- */

struct looking {
	pid_t inner; /* as the container knows it */
	pid_t found;
};

/* The number that a process has in the innermost namespace that it is in; 0: it has ended. */
static pid_t inner_number(pid_t pid)
{
	char path[32];
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &cap, f) > 0) {
		const char *last;
		uint64_t number;

		if (!str_starts(line, "NSpid:"))
			continue;
		line[strcspn(line, "\n")] = '\0';
		last = strrchr(line, '\t');
		return last && str_to_u64(last + 1, 1, INT32_MAX, &number) ? (pid_t)number : 0;
	}
	return 0;
}

/* The one among the children of `parent`, and theirs: crun's helper may still stand between. False: the kernel does
 * not tell whose children there are. */
static bool look_below(pid_t parent, struct looking *looking, int depth)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	char path[48];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	if (fs_read(path, &text, NULL) < 0)
		return depth > 0;
	p = buf_str(&text);
	while (*p && !looking->found) {
		char *end;
		pid_t child = (pid_t)strtol(p, &end, 10);

		if (end == p)
			break;
		p = end + strspn(end, " ");
		if (inner_number(child) == looking->inner)
			looking->found = child;
		else if (depth < 2)
			look_below(child, looking, depth + 1);
	}
	return true;
}

static bool look(void *cookie, const struct process_info *info)
{
	struct looking *looking = cookie;

	if (!looking->found && inner_number(info->pid) == looking->inner)
		looking->found = info->pid;
	return true;
}

/* What others are told: where the task's environment and namespaces are. The init where it has ended already. */
static pid_t task_pid(const struct starting *s)
{
	struct looking looking = {.inner = s->told->task};

	if (looking.inner <= 0)
		return s->task->process.pid;
	/* To look at every process takes long where there are many. */
	if (!look_below(s->task->process.pid, &looking, 0))
		process_descendants(s->task->process.pid, look, &looking);
	return looking.found ? looking.found : s->task->process.pid;
}

static int start(struct task **out, const struct task_spec *spec, struct penstock_error *err)
{
	struct container_task *t = calloc(1, sizeof(*t));
	_cleanup_(starting_release) struct starting s = {.spec = spec, .task = t};
	int r;

	if (!t)
		return error_memory(err);
	t->process = (struct process)PROCESS_INIT;
	t->status_fd = -1;
	s.plan.rootless = geteuid() != 0;
	snprintf(s.plan.uid_map, sizeof(s.plan.uid_map), "0 %u 1", geteuid());
	snprintf(s.plan.gid_map, sizeof(s.plan.gid_map), "0 %u 1", getegid());
	r = prepare(&s, err);
	if (r == 0)
		r = spawn(&s, err);
	if (r < 0) {
		free_task(&t->task);
		return r;
	}
	t->task.pid = task_pid(&s);
	t->own_network = spec->container->network != CONTAINER_NETWORK_HOST;
	t->task.event_fd = t->process.pidfd;
	*out = &t->task;
	return 0;
}

/* ---- its life ---- */

static bool ended(struct task *task, struct task_end *end)
{
	struct container_task *t = (struct container_task *)task;
	int status;

	if (!process_wait(&t->process, 0, &t->status))
		return false;
	*end = (struct task_end){0};
	/* Without a word of the task, the init was killed, and the task with it. */
	if (read(t->status_fd, &status, sizeof(status)) != (ssize_t)sizeof(status))
		status = SIGKILL;
	if (WIFSIGNALED(status))
		end->signal = WTERMSIG(status);
	else
		end->code = WEXITSTATUS(status);
	return true;
}

struct signalling {
	int signal;
	int told;
	bool all;
};

static bool tell(void *cookie, const struct process_info *info)
{
	struct signalling *s = cookie;

	if (!s->all && !process_catches(info->pid, s->signal))
		return true;
	if (kill(info->pid, s->signal) == 0)
		s->told++;
	return s->all;
}

/*
 * As for processes: the topmost that have a handler get it; where nobody has, it goes to all. The task is not the
 * first of its namespace, for which the kernel would ignore what it does not handle.
 */
static void signal_task(struct task *task, int signal)
{
	const struct container_task *t = (const struct container_task *)task;
	struct signalling s = {.signal = signal};

	process_descendants(t->process.pid, tell, &s);
	if (s.told)
		return;
	s.all = true;
	process_descendants(t->process.pid, tell, &s);
}

static void kill_task(struct task *task)
{
	struct container_task *t = (struct container_task *)task;

	/* The kernel ends the others before it says that this one has ended. */
	process_signal(&t->process, SIGKILL);
	process_wait(&t->process, KILL_WAIT_MS, &t->status);
}

static int enter(const struct task *task, struct strlist *namespaces)
{
	const struct container_task *t = (const struct container_task *)task;
	const char *const all[] = {
		"mnt", "pid", "ipc", t->own_network ? "net" : NULL, geteuid() ? "user" : NULL};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (all[i] && strlist_add(namespaces, all[i]) < 0)
			return -1;
	}
	return 0;
}

const struct executor executor_container = {
	.name = "container",
	.start = start,
	.ended = ended,
	.signal = signal_task,
	.kill = kill_task,
	.enter = enter,
	.free = free_task,
};

void executor_container_finish(void)
{
	litter_finish();
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
