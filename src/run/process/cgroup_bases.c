/* Finds the directories of this machine in which control groups can be made, and accesses their
 * files. */
#include "run/process/cgroups_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/process/cgroups.h"

static struct cgroup_bases machine = {.mount = "/sys/fs/cgroup"};

/* ---- files ---- */

bool cgroup_write(const char *dir, const char *name, const char *value)
{
	_cleanup_free_ char *path = path_join(dir, name);
	_cleanup_close_ int fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
	size_t len = strlen(value);

	return fd >= 0 && write(fd, value, len) == (ssize_t)len;
}

const char *cgroup_text(const char *dir, const char *name, struct buf *b)
{
	_cleanup_free_ char *path = path_join(dir, name);

	buf_clear(b);
	if (!path || fs_read(path, b, NULL) < 0)
		return NULL;
	while (b->len && b->data[b->len - 1] == '\n')
		buf_truncate(b, b->len - 1);
	return buf_str(b);
}

uint64_t cgroup_number(const char *dir, const char *name)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	const char *text = cgroup_text(dir, name, &b);
	uint64_t n;

	return text && str_to_u64(text, 0, UINT64_MAX, &n) ? n : 0;
}

bool cgroup_field(const char *dir, const char *name, const char *field, uint64_t *out)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(64 * KIB);
	const char *text = cgroup_text(dir, name, &b);
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

/* ---- places ---- */

static struct cgroup_base *add_base(enum cgroup_kind kind, const char *dir)
{
	struct cgroup_base *base = &machine.base[machine.n];
	char *copy = strdup(dir);

	if (!copy || machine.n == CGROUP_MAX_PARTS) {
		free(copy);
		return NULL;
	}
	*base = (struct cgroup_base){.kind = kind, .dir = copy};
	machine.n++;
	return base;
}

/* Returns the directory of our own group. Inside a container its path may be missing: then our
 * group is the root of the hierarchy. */
static char *own_dir(const char *hierarchy, const char *path)
{
	char *dir = str_printf("%s%s", hierarchy, strcmp(path, "/") == 0 ? "" : path);

	if (!dir || is_dir(dir))
		return dir;
	free(dir);
	return strdup(hierarchy);
}

static void find_v1(const char *controllers, const char *path)
{
	static const struct {
		const char *name;
		enum cgroup_kind kind;
	} wanted[] = {{"memory", V1_MEMORY}, {"cpuset", V1_CPUSET}, {"pids", V1_PIDS}};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		_cleanup_free_ char *hierarchy = NULL;
		_cleanup_free_ char *dir = NULL;
		struct cgroup_base *base = NULL;

		if (!has_word(controllers, wanted[i].name))
			continue;
		hierarchy = path_join(machine.mount, wanted[i].name);
		dir = hierarchy ? own_dir(hierarchy, path) : NULL;
		if (dir && access(dir, W_OK) == 0)
			base = add_base(wanted[i].kind, dir);
		if (!base)
			continue;
		base->memory = base->kind == V1_MEMORY;
		base->cpus = base->kind == V1_CPUSET;
		base->pids = base->kind == V1_PIDS;
	}
}

static bool has_limit(const char *dir, const char *name)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	const char *text = cgroup_text(dir, name, &b);

	return text && !str_starts(text, "max");
}

bool cgroup_delegates(const char *dir, const char *controller)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	char word[32];

	if (has_word(cgroup_text(dir, "cgroup.subtree_control", &b), controller))
		return true;
	if (!has_word(cgroup_text(dir, "cgroup.controllers", &b), controller))
		return false;
	/* The write fails with EBUSY if a group other than the root contains processes. */
	snprintf(word, sizeof(word), "+%s", controller);
	return cgroup_write(dir, "cgroup.subtree_control", word);
}

/*
 * Searches upwards from our own group for the first writable group that delegates memory, but not
 * past a group with a limit of memory or CPU time. If there is no such group, uses our own, if it
 * is writable, to count CPU time and to find processes left by a step.
 */
static void find_v2(const char *hierarchy, const char *path)
{
	_cleanup_free_ char *own = own_dir(hierarchy, path);
	_cleanup_free_ char *dir = own ? strdup(own) : NULL;
	size_t top = strlen(hierarchy);

	while (dir && strlen(dir) >= top) {
		char *slash;

		if (access(dir, W_OK) == 0 && cgroup_delegates(dir, "memory")) {
			struct cgroup_base *base = add_base(V2, dir);

			if (base) {
				base->memory = true;
				base->cpus = cgroup_delegates(dir, "cpuset");
				base->pids = cgroup_delegates(dir, "pids");
			}
			return;
		}
		slash = strrchr(dir + top, '/');
		/* pids.max does not count, because systemd sets it for every service; each step has
		 * its own pids.max. */
		if (!slash || has_limit(dir, "memory.max") || has_limit(dir, "cpu.max"))
			break;
		*slash = '\0';
	}
	if (own && access(own, W_OK) == 0)
		add_base(V2, own);
}

/* Parses a line of /proc/self/cgroup: "4:memory:/a/b", or "0::/a/b" for version 2. */
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

/* Removes the groups of supervisors that are gone, and the groups in them. A group with processes
 * stays. */
static void sweep(int parent, const char *name)
{
	_cleanup_closedir_ DIR *d = fs_list_at(parent, name);

	for (struct dirent *e; d && (e = readdir(d));) {
		int pid;

		if (sscanf(e->d_name, CGROUP_PREFIX "%*12[0-9a-f]-%d-%*u", &pid) != 1 || pid <= 0 ||
			kill(pid, 0) == 0 || errno != ESRCH)
			continue;
		if (unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			continue;
		sweep(dirfd(d), e->d_name);
		unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	}
}

struct cgroup_bases *cgroup_bases(void)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	_cleanup_free_ char *copy = NULL;
	char *rest;
	char *line;

	if (machine.found)
		return &machine;
	machine.found = true;
	if (machine.membership)
		buf_add_str(&text, machine.membership);
	else if (fs_read("/proc/self/cgroup", &text, NULL) < 0)
		return &machine;
	copy = strdup(buf_str(&text));
	rest = copy;
	while (rest && (line = strsep(&rest, "\n")))
		find_line(line);
	for (size_t i = 0; i < machine.n; i++) {
		/* The name of a version 1 hierarchy may be a link. */
		_cleanup_free_ char *base = path_join(machine.base[i].dir, ".");

		if (base)
			sweep(AT_FDCWD, base);
	}
	return &machine;
}

int cgroup_place(struct buf *out)
{
	cgroup_bases();
	for (size_t i = 0; i < machine.n; i++) {
		const struct cgroup_base *base = &machine.base[i];

		if (buf_printf(out, "%s%s%s%s\n", base->dir, base->memory ? " memory" : "",
			    base->cpus ? " cpus" : "", base->pids ? " pids" : "") < 0)
			return -1;
	}
	return 0;
}

void cgroup_set_root(const char *mount, const char *membership)
{
	for (size_t i = 0; i < machine.n; i++)
		free(machine.base[i].dir);
	machine.n = 0;
	machine.found = false;
	machine.mount = mount;
	machine.membership = membership;
}
