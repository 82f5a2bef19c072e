#include "run/cgroups.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "base/banned.h"

enum { MAX_PARTS = 3, GONE_WAIT_MS = 5000, LOOK_AGAIN_MS = 1 };
#define NAME_PREFIX "penstock-"

/* One hierarchy of this machine. */
enum kind { V1_MEMORY, V1_CPUSET, V2 };

/* Where groups are made in it; found once. */
struct base {
	enum kind kind;
	char *dir; /* owned */
	bool memory;
	bool cpus;
};

struct part {
	const struct base *base;
	char *dir; /* owned */
	int procs_fd;
};

struct cgroup {
	struct part parts[MAX_PARTS];
	int fds[MAX_PARTS];
	size_t n;
	bool holds_memory;
	bool holds_cpus;
};

/* Owned by the thread that starts steps. */
static struct {
	const char *mount;
	const char *membership; /* NULL: /proc/self/cgroup */
	struct base bases[MAX_PARTS];
	size_t n;
	bool found;
	unsigned long made;
} machine = {.mount = "/sys/fs/cgroup"};

/* ---- files ---- */

static bool write_value(const char *dir, const char *name, const char *value)
{
	_cleanup_free_ char *path = path_join(dir, name);
	_cleanup_close_ int fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
	size_t len = strlen(value);

	return fd >= 0 && write(fd, value, len) == (ssize_t)len;
}

/* Without the newline at the end; NULL: it cannot be read. */
static const char *read_value(const char *dir, const char *name, struct buf *b)
{
	_cleanup_free_ char *path = path_join(dir, name);

	buf_clear(b);
	if (!path || fs_read(path, b, NULL) < 0)
		return NULL;
	while (b->len && b->data[b->len - 1] == '\n')
		buf_truncate(b, b->len - 1);
	return buf_str(b);
}

static uint64_t read_number(const char *dir, const char *name)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	const char *text = read_value(dir, name, &b);
	uint64_t n;

	return text && str_to_u64(text, 0, UINT64_MAX, &n) ? n : 0;
}

/* Of a file of lines "name number". */
static bool read_field(const char *dir, const char *name, const char *field, uint64_t *out)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(64 * KIB);
	const char *text = read_value(dir, name, &b);
	size_t len = strlen(field);

	while (text && *text) {
		if (strncmp(text, field, len) == 0 && text[len] == ' ') {
			*out = strtoull(text + len + 1, NULL, 10);
			return true;
		}
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	return false;
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; p && (p = strstr(p, word)); p += len) {
		if ((p == text || p[-1] == ' ' || p[-1] == ',') &&
			(p[len] == '\0' || p[len] == ' ' || p[len] == ','))
			return true;
	}
	return false;
}

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- where groups can be made ---- */

static void add_base(enum kind kind, const char *dir, bool memory, bool cpus)
{
	struct base *base = &machine.bases[machine.n];
	char *copy = strdup(dir);

	if (!copy || machine.n == MAX_PARTS) {
		free(copy);
		return;
	}
	*base = (struct base){kind, copy, memory, cpus};
	machine.n++;
}

/* Within a container the path of our group may not be there: its root is ours, then. */
static char *own_dir(const char *hierarchy, const char *path)
{
	char *dir = NULL;

	if (asprintf(&dir, "%s%s", hierarchy, strcmp(path, "/") == 0 ? "" : path) < 0)
		return NULL;
	if (!is_dir(dir)) {
		free(dir);
		dir = strdup(hierarchy);
	}
	return dir;
}

static void find_v1(const char *controllers, const char *path)
{
	static const struct {
		const char *name;
		enum kind kind;
	} wanted[] = {{"memory", V1_MEMORY}, {"cpuset", V1_CPUSET}};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		_cleanup_free_ char *hierarchy = NULL;
		_cleanup_free_ char *dir = NULL;

		if (!has_word(controllers, wanted[i].name))
			continue;
		hierarchy = path_join(machine.mount, wanted[i].name);
		dir = hierarchy ? own_dir(hierarchy, path) : NULL;
		if (dir && access(dir, W_OK) == 0)
			add_base(wanted[i].kind, dir, wanted[i].kind == V1_MEMORY,
				wanted[i].kind == V1_CPUSET);
	}
}

static bool has_limit(const char *dir, const char *name)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	const char *text = read_value(dir, name, &b);

	return text && !str_starts(text, "max");
}

/* Whether children of the group can have `controller`; it is turned on where that is allowed. */
static bool hands_on(const char *dir, const char *controller)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	char word[32];

	if (has_word(read_value(dir, "cgroup.subtree_control", &b), controller))
		return true;
	if (!has_word(read_value(dir, "cgroup.controllers", &b), controller))
		return false;
	/* EBUSY where processes live in it, unless it is the root. */
	snprintf(word, sizeof(word), "+%s", controller);
	return write_value(dir, "cgroup.subtree_control", word);
}

/*
 * Upwards from our own group to the first that hands on memory, not past one with a limit; where none does, our
 * own, if only to count CPU time and to find whom a step left behind.
 */
static void find_v2(const char *hierarchy, const char *path)
{
	_cleanup_free_ char *own = own_dir(hierarchy, path);
	_cleanup_free_ char *dir = own ? strdup(own) : NULL;
	size_t top = strlen(hierarchy);

	while (dir && strlen(dir) >= top) {
		char *slash;

		if (access(dir, W_OK) == 0 && hands_on(dir, "memory")) {
			add_base(V2, dir, true, hands_on(dir, "cpuset"));
			return;
		}
		slash = strrchr(dir + top, '/');
		if (!slash || has_limit(dir, "memory.max") || has_limit(dir, "cpu.max"))
			break;
		*slash = '\0';
	}
	if (own && access(own, W_OK) == 0)
		add_base(V2, own, false, false);
}

/* A line of /proc/self/cgroup: "4:memory:/a/b", or "0::/a/b" for version 2. */
static void find_line(char *line)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	_cleanup_free_ char *hybrid = path_join(machine.mount, "unified");

	if (!path || path[1] != '/' || strstr(path, "/../"))
		return;
	*path++ = '\0';
	controllers++;
	if (*controllers)
		find_v1(controllers, path);
	else if (hybrid)
		find_v2(is_dir(hybrid) ? hybrid : machine.mount, path);
}

/* Empty groups of runs that were killed and that nobody goes on with; a group with processes stays. */
static void sweep(const char *dir)
{
	_cleanup_closedir_ DIR *d = opendir(dir);

	for (struct dirent *e; d && (e = readdir(d));) {
		int pid;

		if (sscanf(e->d_name, NAME_PREFIX "%*12[0-9a-f]-%d-%*u", &pid) == 1 && pid > 0 &&
			kill(pid, 0) < 0 && errno == ESRCH)
			unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	}
}

static void find_bases(void)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	_cleanup_free_ char *copy = NULL;
	char *rest;
	char *line;

	if (machine.found)
		return;
	machine.found = true;
	if (machine.membership)
		buf_add_str(&text, machine.membership);
	else if (fs_read("/proc/self/cgroup", &text, NULL) < 0)
		return;
	copy = strdup(buf_str(&text));
	rest = copy;
	while (rest && (line = strsep(&rest, "\n")))
		find_line(line);
	for (size_t i = 0; i < machine.n; i++)
		sweep(machine.bases[i].dir);
}

int cgroup_place(struct buf *out)
{
	find_bases();
	for (size_t i = 0; i < machine.n; i++) {
		const struct base *base = &machine.bases[i];

		if (buf_printf(out, "%s%s%s\n", base->dir, base->memory ? " memory" : "",
			    base->cpus ? " cpus" : "") < 0)
			return -1;
	}
	return 0;
}

void cgroup_set_root(const char *mount, const char *membership)
{
	for (size_t i = 0; i < machine.n; i++)
		free(machine.bases[i].dir);
	machine.n = 0;
	machine.found = false;
	machine.mount = mount;
	machine.membership = membership;
}

/* ---- making ---- */

static void format_cpus(const struct cgroup_wanted *wanted, struct buf *out)
{
	for (size_t i = 0; i < wanted->n_cpus; i++)
		buf_printf(out, "%s%d", i ? "," : "", wanted->cpus[i]);
}

static bool limit_v1_memory(const char *dir, uint64_t bytes)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, bytes);
	if (!write_value(dir, "memory.limit_in_bytes", text))
		return false;
	/* With swap, where the kernel counts that. */
	write_value(dir, "memory.memsw.limit_in_bytes", text);
	return true;
}

static bool limit_v2_memory(const char *dir, uint64_t bytes)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, bytes);
	if (!write_value(dir, "memory.max", text))
		return false;
	write_value(dir, "memory.swap.max", "0");
	return true;
}

/* A group of version 1 takes nobody before it has memory nodes. */
static bool limit_v1_cpus(const struct part *part, const char *cpus)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	const char *nodes = read_value(part->base->dir, "cpuset.mems", &b);

	return nodes && write_value(part->dir, "cpuset.mems", nodes) &&
	       write_value(part->dir, "cpuset.cpus", cpus);
}

static void drop_part(struct part *part)
{
	if (part->procs_fd >= 0)
		close(part->procs_fd);
	if (part->dir)
		rmdir(part->dir);
	free(part->dir);
}

/* False: without it there is no use in this part. */
static bool limit_part(struct cgroup *group, struct part *part, const struct cgroup_wanted *wanted,
	const char *cpus)
{
	const struct base *base = part->base;
	bool ok;

	if (base->kind == V1_MEMORY) {
		ok = !wanted->memory || limit_v1_memory(part->dir, wanted->memory);
		group->holds_memory |= ok && wanted->memory;
		return ok;
	}
	if (base->kind == V1_CPUSET) {
		ok = *cpus && limit_v1_cpus(part, cpus);
		group->holds_cpus |= ok;
		return ok;
	}
	if (base->memory && wanted->memory)
		group->holds_memory |= limit_v2_memory(part->dir, wanted->memory);
	if (base->cpus && *cpus)
		group->holds_cpus |= write_value(part->dir, "cpuset.cpus", cpus);
	return true;
}

/* Whether a child of ours can go there: systemd's scopes of a session cannot be left by their user. */
static bool can_join(int procs_fd)
{
	int status = 0;
	pid_t pid;

	if (geteuid() == 0)
		return true;
	pid = fork();
	if (pid == 0)
		_exit(write(procs_fd, "0", 1) == 1 ? 0 : 1);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int make_part(struct cgroup *group, const struct base *base, const char *name,
	const struct cgroup_wanted *wanted, const char *cpus, struct penstock_error *err)
{
	_cleanup_free_ char *procs = NULL;
	struct part part = {base, path_join(base->dir, name), -1};

	if (!part.dir)
		return error_memory(err);
	if (mkdir(part.dir, 0755) < 0) {
		log_debug("no control group at %s: %s", part.dir, strerror(errno));
		free(part.dir);
		return 0;
	}
	procs = path_join(part.dir, "cgroup.procs");
	if (procs)
		part.procs_fd = open(procs, O_WRONLY | O_CLOEXEC);
	if (part.procs_fd < 0 || !limit_part(group, &part, wanted, cpus) ||
		!can_join(part.procs_fd)) {
		log_debug("the control group %s is of no use", part.dir);
		drop_part(&part);
		return 0;
	}
	group->fds[group->n] = part.procs_fd;
	group->parts[group->n++] = part;
	return 0;
}

int cgroup_make(struct cgroup **out, const char *run_id, const struct cgroup_wanted *wanted,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf cpus = BUF_INIT(LIMIT_STRING);
	struct cgroup *group = calloc(1, sizeof(*group));
	char name[64];
	int r = 0;

	*out = NULL;
	if (!group)
		return error_memory(err);
	find_bases();
	format_cpus(wanted, &cpus);
	snprintf(
		name, sizeof(name), NAME_PREFIX "%s-%d-%lu", run_id, (int)getpid(), ++machine.made);
	for (size_t i = 0; r == 0 && i < machine.n; i++)
		r = make_part(group, &machine.bases[i], name, wanted, buf_str(&cpus), err);
	if (r < 0 || group->n == 0) {
		cgroup_end(group);
		return r;
	}
	*out = group;
	return 0;
}

const int *cgroup_fds(const struct cgroup *group, size_t *n)
{
	*n = group ? group->n : 0;
	return group ? group->fds : NULL;
}

bool cgroup_holds_memory(const struct cgroup *group)
{
	return group && group->holds_memory;
}

bool cgroup_holds_cpus(const struct cgroup *group)
{
	return group && group->holds_cpus;
}

/* ---- looking ---- */

void cgroup_read(const struct cgroup *group, struct cgroup_found *out)
{
	*out = (struct cgroup_found){.cpu_us = -1};
	for (size_t i = 0; group && i < group->n; i++) {
		const struct part *part = &group->parts[i];
		uint64_t n;

		if (part->base->kind == V1_MEMORY) {
			out->memory_peak = read_number(part->dir, "memory.max_usage_in_bytes");
			if (read_field(part->dir, "memory.oom_control", "oom_kill", &n))
				out->oom_kills = n;
		} else if (part->base->kind == V2) {
			if (part->base->memory) {
				out->memory_peak = read_number(part->dir, "memory.peak");
				if (read_field(part->dir, "memory.events", "oom_kill", &n))
					out->oom_kills = n;
			}
			if (read_field(part->dir, "cpu.stat", "usage_usec", &n))
				out->cpu_us = (int64_t)n;
		}
	}
}

/* ---- the end ---- */

/* Sends the signal to everything in the group; returns how many there were. */
static int signal_group(const char *dir, int signal)
{
	_cleanup_free_ char *path = path_join(dir, "cgroup.procs");
	_cleanup_fclose_ FILE *f = path ? fopen(path, "re") : NULL;
	int pid;
	int n = 0;

	while (f && fscanf(f, "%d", &pid) == 1) {
		if (pid <= 0 || pid == getpid())
			continue;
		n++;
		if (signal)
			kill(pid, signal);
	}
	return n;
}

/* A process may fork while it is being killed, so this repeats until nobody is left. */
static int end_group(const char *dir)
{
	int64_t until = clock_monotonic_ms() + GONE_WAIT_MS;
	int first = signal_group(dir, SIGKILL);

	while (rmdir(dir) < 0 && errno == EBUSY && clock_monotonic_ms() < until) {
		signal_group(dir, SIGKILL);
		clock_sleep_ms(LOOK_AGAIN_MS);
	}
	return first;
}

void cgroup_kill(const struct cgroup *group)
{
	for (size_t i = 0; group && i < group->n; i++) {
		if (group->parts[i].base->kind != V2 ||
			!write_value(group->parts[i].dir, "cgroup.kill", "1"))
			signal_group(group->parts[i].dir, SIGKILL);
	}
}

void cgroup_end(struct cgroup *group)
{
	if (!group)
		return;
	for (size_t i = 0; i < group->n; i++) {
		struct part *part = &group->parts[i];

		close(part->procs_fd);
		end_group(part->dir);
		free(part->dir);
	}
	free(group);
}

int cgroup_record(const struct cgroup *group, struct buf *out)
{
	for (size_t i = 0; group && i < group->n; i++) {
		if (buf_printf(out, "%s\n", group->parts[i].dir) < 0)
			return -1;
	}
	return 0;
}

int cgroup_end_recorded(const char *dir)
{
	const char *name = strrchr(dir, '/');

	if (!name || !str_starts(name + 1, NAME_PREFIX) || !str_starts(dir, machine.mount) ||
		strstr(dir, "/../"))
		return 0;
	return end_group(dir);
}
