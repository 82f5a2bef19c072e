#include "run/process/cgroups.h"

#include <ctype.h>
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
#include "records/claims.h"
#include "run/process/cgroups_internal.h"
#include "run/process/device_filter.h"

enum { GONE_WAIT_MS = 5000, POLL_MS = 1 };

/* The directory of a group in one hierarchy. */
struct part {
	struct cgroup_base *base;
	char *dir; /* owned */
	/* descriptor of the file that a child writes to; -1 in the group of a whole run, which has
	 * no processes of its own */
	int join_fd;
};

struct cgroup {
	struct part parts[CGROUP_MAX_PARTS];
	int fds[CGROUP_MAX_PARTS];
	size_t n;
	int born_fd; /* descriptor of the directory in version 2; -1 before it is opened */
	bool holds_memory;
	bool holds_cpus;
	bool holds_pids;
	bool holds_devices;
};

/* ---- making ---- */

static bool write_number(const char *dir, const char *name, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, n);
	return cgroup_write(dir, name, text);
}

static bool limit_v1_memory(const char *dir, uint64_t bytes, bool of_run)
{
	/* Before Linux 5.11, the memory of groups inside this group counts only with this
	 * setting. */
	if (of_run)
		cgroup_write(dir, "memory.use_hierarchy", "1");
	if (!write_number(dir, "memory.limit_in_bytes", bytes))
		return false;
	/* Limit memory and swap together, if the kernel counts swap. */
	write_number(dir, "memory.memsw.limit_in_bytes", bytes);
	return true;
}

static bool limit_v2_memory(const char *dir, uint64_t bytes)
{
	if (!write_number(dir, "memory.max", bytes))
		return false;
	cgroup_write(dir, "memory.swap.max", "0");
	return true;
}

/*
 * A group of version 1 accepts no processes before it has memory nodes. If the parent group
 * balances load, it also balances the load of our group. In that case switch off load balancing in
 * our group: otherwise the kernel would rebuild its scheduling domains whenever such a group comes
 * and goes, which stops all processes for milliseconds.
 */
static bool limit_v1_cpus(const struct part *part, const char *cpus)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_LOG_LINE);
	const char *nodes;

	if (cgroup_number(part->base->dir, "cpuset.sched_load_balance"))
		cgroup_write(part->dir, "cpuset.sched_load_balance", "0");
	nodes = cgroup_text(part->base->dir, "cpuset.mems", &b);
	return nodes && cgroup_write(part->dir, "cpuset.mems", nodes) &&
	       cgroup_write(part->dir, "cpuset.cpus", cpus);
}

/* Counts the CPUs of a list such as "0-3,8". Returns 0 if the list is invalid. */
static size_t count_cpus(const char *list)
{
	size_t n = 0;

	while (list && isdigit((unsigned char)*list)) {
		char *end;
		unsigned long from = strtoul(list, &end, 10);
		unsigned long to = *end == '-' ? strtoul(end + 1, &end, 10) : from;

		if (to < from || to > CLAIMS_MAX_CPUS)
			return 0;
		n += to - from + 1;
		list = *end == ',' ? end + 1 : end;
	}
	return list && !*list ? n : 0;
}

/* Returns true if the wanted CPUs are all CPUs of the base. */
static bool narrows_nothing(const struct cgroup_base *base, const struct cgroup_wanted *wanted)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_STRING);

	return wanted->n_cpus > 0 &&
	       count_cpus(cgroup_text(base->dir, "cpuset.effective_cpus", &b)) == wanted->n_cpus;
}

/* Sets the limits of a part. Returns false if the part would be useless. */
static bool limit_part(struct cgroup *group, struct part *part, const struct cgroup_wanted *wanted,
	const char *cpus)
{
	const struct cgroup_base *base = part->base;
	bool v1 = base->kind != V2;
	bool ok = true;

	if (base->memory && wanted->memory) {
		ok = v1 ? limit_v1_memory(part->dir, wanted->memory, wanted->of_run)
			: limit_v2_memory(part->dir, wanted->memory);
		group->holds_memory |= ok;
	}
	if (base->cpus) {
		ok = *cpus && (v1 ? limit_v1_cpus(part, cpus)
				  : cgroup_write(part->dir, "cpuset.cpus", cpus));
		group->holds_cpus |= ok;
	}
	if (base->pids) {
		ok = wanted->pids && write_number(part->dir, "pids.max", wanted->pids);
		group->holds_pids |= ok;
	}
	return ok || !v1;
}

/* Returns true if our child can join the group: users cannot move processes out of systemd's
 * session scopes. */
static bool can_join(struct part *part)
{
	int status = 0;
	pid_t pid;

	if (geteuid() == 0 || part->base->joinable)
		return true;
	pid = fork();
	if (pid == 0)
		_exit(write(part->join_fd, "0", 1) == 1 ? 0 : 1);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	part->base->joinable = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return part->base->joinable;
}

/* Enables the controllers that the groups of executions need below this part. */
static bool delegate_all(const struct part *part)
{
	if (part->base->cpus && !cgroup_delegates(part->dir, "cpuset"))
		return false;
	if (part->base->pids && !cgroup_delegates(part->dir, "pids"))
		return false;
	return cgroup_delegates(part->dir, "memory");
}

/* Creates a part below `where`: the directory of the base, or the group of the whole run in that
 * directory. */
static int make_part(struct cgroup *group, struct cgroup_base *base, const char *where,
	const char *name, const struct cgroup_wanted *wanted, const char *cpus,
	struct penstock_error *err)
{
	struct part part = {base, path_join(where, name), -1};
	bool ok;

	if (!part.dir)
		return error_memory(err);
	if (mkdir(part.dir, 0755) < 0) {
		log_debug("cannot make control group '%s': %s", part.dir, strerror(errno));
		free(part.dir);
		return 0;
	}
	if (!wanted->of_run) {
		/* The child has one thread when it joins. To move a whole process, the kernel waits
		 * some milliseconds, until no thread of the machine is being created or ended.
		 * Version 1 can also move a single thread, without that wait. */
		_cleanup_free_ char *path = path_join(
			part.dir, part.base->kind == V2 ? "cgroup.procs" : "tasks");

		part.join_fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
	}
	ok = limit_part(group, &part, wanted, cpus);
	if (wanted->of_run)
		ok = ok && (base->kind != V2 || delegate_all(&part));
	else
		ok = ok && part.join_fd >= 0 && can_join(&part);
	if (!ok) {
		log_debug("cannot use control group '%s'", part.dir);
		if (part.join_fd >= 0)
			close(part.join_fd);
		if (part.dir)
			rmdir(part.dir);
		free(part.dir);
		return 0;
	}
	group->fds[group->n] = part.join_fd;
	group->parts[group->n++] = part;
	if (base->kind != V2 || wanted->of_run)
		return 0;
	group->born_fd = open(part.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	group->holds_devices = wanted->n_closed && group->born_fd >= 0 &&
			       device_filter_attach(
				       group->born_fd, wanted->closed, wanted->n_closed);
	return 0;
}

/* Returns the directory for the groups of executions. */
static const char *place_in(const struct cgroup *run, const struct cgroup_base *base)
{
	for (size_t i = 0; run && i < run->n; i++) {
		if (run->parts[i].base == base)
			return run->parts[i].dir;
	}
	return base->dir;
}

int cgroup_make(struct cgroup **out, const struct cgroup *run, const char *run_id,
	const struct cgroup_wanted *wanted, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf cpus = BUF_INIT(LIMIT_STRING);
	struct cgroup_bases *bases = cgroup_bases();
	struct cgroup *group = calloc(1, sizeof(*group));
	char name[64];
	int r = 0;

	*out = NULL;
	if (!group)
		return error_memory(err);
	group->born_fd = -1;
	for (size_t i = 0; i < wanted->n_cpus; i++)
		buf_printf(&cpus, "%s%d", i ? "," : "", wanted->cpus[i]);
	snprintf(name, sizeof(name), CGROUP_PREFIX "%s-%d-%lu", run_id, (int)getpid(),
		++bases->made);
	for (size_t i = 0; r == 0 && i < bases->n; i++) {
		struct cgroup_base *base = &bases->base[i];

		if (wanted->of_run && !(base->memory && wanted->memory))
			continue;
		if (base->kind == V1_CPUSET && narrows_nothing(base, wanted))
			group->holds_cpus = true;
		else
			r = make_part(group, base, place_in(run, base), name, wanted,
				buf_str(&cpus), err);
	}
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

const int *cgroup_born_fd(const struct cgroup *group)
{
	return group && group->born_fd >= 0 && group->parts[group->n - 1].base->kind == V2
		       ? &group->born_fd
		       : NULL;
}

bool cgroup_holds_memory(const struct cgroup *group)
{
	return group && group->holds_memory;
}

bool cgroup_holds_cpus(const struct cgroup *group)
{
	return group && group->holds_cpus;
}

bool cgroup_holds_pids(const struct cgroup *group)
{
	return group && group->holds_pids;
}

bool cgroup_holds_devices(const struct cgroup *group)
{
	return group && group->holds_devices;
}

bool cgroup_can_hold_devices(void)
{
	const struct cgroup_bases *bases = cgroup_bases();

	for (size_t i = 0; i < bases->n; i++) {
		if (bases->base[i].kind == V2)
			return device_filter_allowed();
	}
	return false;
}

/* ---- reading ---- */

static void read_part(const struct part *part, struct cgroup_found *out)
{
	bool v1 = part->base->kind != V2;
	uint64_t n;

	if (part->base->memory) {
		out->memory_peak = cgroup_number(
			part->dir, v1 ? "memory.max_usage_in_bytes" : "memory.peak");
		if (cgroup_field(
			    part->dir, v1 ? "memory.oom_control" : "memory.events", "oom_kill", &n))
			out->oom_kills = n;
	}
	if (part->base->pids && cgroup_field(part->dir, "pids.events", "max", &n))
		out->pids_refused = n;
	if (!v1 && cgroup_field(part->dir, "cpu.stat", "usage_usec", &n))
		out->cpu_us = (int64_t)n;
}

void cgroup_read(const struct cgroup *group, struct cgroup_found *out)
{
	*out = (struct cgroup_found){.cpu_us = -1};
	for (size_t i = 0; group && i < group->n; i++)
		read_part(&group->parts[i], out);
}

uint64_t cgroup_memory(const struct cgroup *group)
{
	for (size_t i = 0; group && i < group->n; i++) {
		const struct part *part = &group->parts[i];
		bool v1 = part->base->kind != V2;
		uint64_t used, idle = 0;

		if (!part->base->memory)
			continue;
		used = cgroup_number(part->dir, v1 ? "memory.usage_in_bytes" : "memory.current");
		cgroup_field(part->dir, "memory.stat", v1 ? "total_inactive_file" : "inactive_file",
			&idle);
		return used > idle ? used - idle : 0;
	}
	return 0;
}

/* ---- end ---- */

/* Signals all processes of the group except this one; returns their number. */
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

/* Kills the processes of a group and removes the group. Repeats the kill, for GONE_WAIT_MS at most,
 * because a process may fork while it is being killed. Returns the number of processes at first. */
static int end_group(const char *dir)
{
	int64_t until = clock_monotonic_ms() + GONE_WAIT_MS;
	int first = signal_group(dir, SIGKILL);

	while (rmdir(dir) < 0 && errno == EBUSY && clock_monotonic_ms() < until) {
		signal_group(dir, SIGKILL);
		clock_sleep_ms(POLL_MS);
	}
	return first;
}

void cgroup_kill(const struct cgroup *group)
{
	for (size_t i = 0; group && i < group->n; i++) {
		if (group->parts[i].base->kind != V2 ||
			!cgroup_write(group->parts[i].dir, "cgroup.kill", "1"))
			signal_group(group->parts[i].dir, SIGKILL);
	}
}

void cgroup_end(struct cgroup *group)
{
	if (!group)
		return;
	for (size_t i = 0; i < group->n; i++) {
		struct part *part = &group->parts[i];

		if (part->join_fd >= 0)
			close(part->join_fd);
		/* Usually the group is empty. */
		if (rmdir(part->dir) < 0)
			end_group(part->dir);
		free(part->dir);
	}
	if (group->born_fd >= 0)
		close(group->born_fd);
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

	if (!name || !str_starts(name + 1, CGROUP_PREFIX) ||
		!str_starts(dir, cgroup_bases()->mount) || strstr(dir, "/../"))
		return 0;
	return end_group(dir);
}
