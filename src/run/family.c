#include "run/family.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/banned.h"

enum { KILL_WAIT_MS = 10000, LOOK_AGAIN_MS = 2, MAX_BEFORE = 16 };

/* Owned by the thread that runs the tasks. */
static struct {
	struct family_member *members;
	unsigned long marks;
	/* Children that we had before any task (the owner of an embedded store, say) are nobody's. */
	struct process_info before[MAX_BEFORE];
	size_t n_before;
} family;

static bool has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

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
		if (has_children())
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

/* Whether the environment of the process has the mark. Others' processes cannot be read. */
static bool has_mark(pid_t pid, const char *mark)
{
	char path[32];
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_free_ char *item = NULL;
	size_t cap = 0;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	f = fopen(path, "re");
	while (f && getdelim(&item, &cap, '\0', f) > 0) {
		if (strcmp(item, mark) == 0)
			return true;
	}
	return false;
}

struct killing {
	const struct family_member *member;
	bool alone; /* nobody else lives */
	size_t found;
	struct {
		pid_t *items;
		size_t n, cap;
	} killed; /* to be reaped */
};

/* Whether a child of ours is of the task. */
static bool is_ours(const struct killing *k, const struct process_info *info)
{
	for (size_t i = 0; i < family.n_before; i++) {
		if (family.before[i].pid == info->pid &&
			family.before[i].start_ticks == info->start_ticks)
			return false;
	}
	if (k->alone || info->pid == k->member->leader || info->session == k->member->leader)
		return true;
	for (const struct family_member *m = family.members; m; m = m->next) {
		if (m != k->member && (m->leader == info->pid || m->leader == info->session))
			return false;
	}
	return has_mark(info->pid, k->member->mark);
}

static bool kill_one(void *cookie, const struct process_info *info)
{
	struct killing *k = cookie;

	/* What is below a child is of the same task. */
	if (info->parent == getpid() && !is_ours(k, info))
		return false;
	k->found++;
	kill(info->pid, SIGKILL);
	if (k->killed.n == k->killed.cap) {
		size_t cap = k->killed.cap ? 2 * k->killed.cap : 16;
		pid_t *items = reallocarray(k->killed.items, cap, sizeof(*items));

		if (!items)
			return true; /* it is reaped with the last task */
		k->killed.items = items;
		k->killed.cap = cap;
	}
	k->killed.items[k->killed.n++] = info->pid;
	return true;
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

	if (has_children())
		process_descendants(getpid(), find_one, &k);
	return k.found > 0;
}

/* Zombies that became ours when their parents ended; leaders are left to their owners. */
static void reap_all(const struct family_member *member)
{
	siginfo_t info;

	for (;;) {
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
			return;
		if (!member->reaped && info.si_pid == member->leader)
			return;
		waitpid(info.si_pid, NULL, WNOHANG);
	}
}

/* The same beside others, whose leaders may have ended, too. */
static void reap_own(struct killing *k)
{
	size_t kept = 0;

	for (size_t i = 0; i < k->killed.n; i++) {
		pid_t pid = k->killed.items[i];

		if (pid != k->member->leader && waitpid(pid, NULL, WNOHANG) == 0)
			k->killed.items[kept++] = pid;
	}
	k->killed.n = kept;
	while (k->member->reaped && waitpid(-k->member->leader, NULL, WNOHANG) > 0) {
	}
}

void family_kill(struct family_member *member)
{
	int64_t until = clock_monotonic_ms() + KILL_WAIT_MS;
	struct killing k = {.member = member, .alone = family.members == member && !member->next};

	for (;;) {
		if (k.alone)
			reap_all(member);
		else
			reap_own(&k);
		if (!has_children())
			break;
		k.found = 0;
		process_descendants(getpid(), kill_one, &k);
		if (!k.found || clock_monotonic_ms() > until)
			break;
		clock_sleep_ms(LOOK_AGAIN_MS);
	}
	if (k.alone)
		reap_all(member);
	else
		reap_own(&k);
	free(k.killed.items);
}
