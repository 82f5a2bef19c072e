#include "run/process/family.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/str.h"

enum { KILL_WAIT_MS = 10000, POLL_MS = 2, MAX_BEFORE = 16 };

/* Owned by the thread that runs the tasks. */
static struct {
	struct family_member *members;
	unsigned long marks;
	/* Children that existed before any task (the owner of an embedded store, for example)
	 * belong to no task. */
	struct process_info before[MAX_BEFORE];
	size_t n_before;
} family;

static bool remember(void *cookie, const struct process_info *info)
{
	(void)cookie;
	if (family.n_before < MAX_BEFORE)
		family.before[family.n_before++] = *info;
	return false;
}

void family_mark(char mark[static FAMILY_MARK_SIZE])
{
	if (!family.members) {
		family.n_before = 0;
		if (process_has_children())
			process_descendants(getpid(), remember, NULL);
	}
	snprintf(mark, FAMILY_MARK_SIZE, "PENSTOCK_TASK=%ld.%lu", (long)getpid(), ++family.marks);
}

void family_join(struct family_member *member, pid_t leader, const char *mark)
{
	member->leader = leader;
	member->reaped = false;
	snprintf(member->mark, sizeof(member->mark), "%s", mark);
	member->next = family.members;
	family.members = member;
}

void family_leave(struct family_member *member)
{
	for (struct family_member **p = &family.members; *p; p = &(*p)->next) {
		if (*p == member) {
			*p = member->next;
			return;
		}
	}
}

struct marked {
	const char *mark;
	bool found;
};

static bool match_mark(void *cookie, const char *pair)
{
	struct marked *marked = cookie;

	marked->found = strcmp(pair, marked->mark) == 0;
	return !marked->found;
}

struct killing {
	const struct family_member *member;
	bool alone; /* no other task is alive */
	size_t found;
};

/* Returns true if our child belongs to the task. */
static bool is_ours(const struct killing *k, const struct process_info *info)
{
	for (size_t i = 0; i < family.n_before; i++) {
		if (family.before[i].pid == info->pid &&
			family.before[i].start_ticks == info->start_ticks)
			return false;
	}
	/* Leaders of other tasks, and their helpers, do not belong to the task. */
	if (info->pid != k->member->leader && process_is_spawned(info->pid))
		return false;
	if (k->alone || info->pid == k->member->leader || info->session == k->member->leader)
		return true;
	for (const struct family_member *m = family.members; m; m = m->next) {
		if (m != k->member && m->leader == info->session)
			return false;
	}
	/* Check if the environment of the process contains the mark; the environment of another
	 * user's process cannot be read. */
	struct marked marked = {.mark = k->member->mark};

	process_environment(info->pid, match_mark, &marked, NULL);
	return marked.found;
}

static bool kill_one(void *cookie, const struct process_info *info)
{
	struct killing *k = cookie;

	/* Descendants of a child belong to the same task. */
	if (info->parent == getpid() && !is_ours(k, info))
		return false;
	k->found++;
	kill(info->pid, SIGKILL);
	return true;
}

/* Reads the children of one of our threads. Returns false if the kernel does not list them. */
static bool read_children(const char *thread, struct buf *out)
{
	_cleanup_free_ char *path = str_printf("/proc/self/task/%s/children", thread);
	_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char piece[1024];
	ssize_t n;

	while (fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0)
		buf_add(out, piece, (size_t)n);
	return fd >= 0 && !buf_failed(out);
}

/* Counts leaders, their helpers, and children that existed before any task. */
static size_t count_known(void)
{
	size_t n = 0;

	for (size_t i = 0; i < family.n_before; i++) {
		struct process_info info;

		n += process_info(family.before[i].pid, &info) && info.parent == getpid() &&
		     !process_is_spawned(info.pid) &&
		     info.start_ticks == family.before[i].start_ticks;
	}
	return n + process_count_spawned();
}

/* Returns true if this process has only known children. The caller then need not scan all processes
 * of the machine, which is slow if there are many. */
static bool has_known_only(void)
{
	_cleanup_(buf_release) struct buf pids = BUF_INIT(LIMIT_STRING);
	_cleanup_closedir_ DIR *threads = opendir("/proc/self/task");
	const struct dirent *e;
	size_t n = 0;

	while (threads && (e = readdir(threads))) {
		if (*e->d_name != '.' && !read_children(e->d_name, &pids))
			return false;
	}
	for (const char *p = buf_str(&pids); *p; p++)
		n += *p == ' ';
	return threads && n <= count_known();
}

static bool find_one(void *cookie, const struct process_info *info)
{
	struct killing *k = cookie;

	if (info->parent == getpid() && !is_ours(k, info))
		return false;
	k->found += info->pid != k->member->leader;
	return !k->found;
}

bool family_left(const struct family_member *member)
{
	struct killing k = {.member = member, .alone = family.members == member && !member->next};

	if (process_has_children() && !has_known_only())
		process_descendants(getpid(), find_one, &k);
	return k.found > 0;
}

void family_kill(struct family_member *member)
{
	int64_t until = clock_monotonic_ms() + KILL_WAIT_MS;
	struct killing k = {.member = member, .alone = family.members == member && !member->next};

	for (;;) {
		process_reap_orphans();
		if (!process_has_children())
			return;
		k.found = 0;
		process_descendants(getpid(), kill_one, &k);
		if (!k.found || clock_monotonic_ms() > until)
			break;
		clock_sleep_ms(POLL_MS);
	}
	process_reap_orphans();
}
