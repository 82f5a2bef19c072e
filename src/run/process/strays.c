#include "run/process/strays.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process/process.h"
#include "base/str.h"
#include "records/layout.h"
#include "run/process/live.h"
#include "run/task/executor.h"

enum { KILL_WAIT_MS = 5000 };

static bool is_ancestor(int pid)
{
	struct process_info info;

	for (pid_t p = getpid(); p > 0; p = info.parent) {
		if (p == pid)
			return true;
		if (!process_info(p, &info))
			break;
	}
	return false;
}

/* Variables in the environment of every process of the run. */
struct marks {
	char *run; /* "PENSTOCK_RUN_ID=…" */
	char *storage; /* "STORAGE_PATH=…"; the environment of a step may replace it */
};

static void marks_release(struct marks *marks)
{
	free(marks->run);
	free(marks->storage);
}

/* Returns true if this storage belongs to a run with the same id under another home. */
static bool is_other_home(const char *item, const struct marks *wanted)
{
	const char *runs = strstr(item, "/runs/");
	const char *id = wanted->run + strlen("PENSTOCK_RUN_ID=");

	return runs && strncmp(runs + 6, id, strlen(id)) == 0 &&
	       strcmp(runs + 6 + strlen(id), "/storage") == 0 && strcmp(item, wanted->storage) != 0;
}

/* Returns true if the process has the storage of another run at the path that the storage has in
 * every container. */
static bool is_other_mount(int pid, const char *item, const struct marks *wanted)
{
	const char *own = wanted->storage + strlen("STORAGE_PATH=");
	char path[64];
	struct stat there, here;

	if (strcmp(item, "STORAGE_PATH=/" CONTAINER_PLACES_LAST) != 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/root/" CONTAINER_PLACES_LAST, pid);
	return stat(path, &there) == 0 && stat(own, &here) == 0 &&
	       (there.st_dev != here.st_dev || there.st_ino != here.st_ino);
}

struct belonging {
	const struct marks *wanted;
	int pid;
	bool ours, other;
};

static bool match_run(void *cookie, const char *pair)
{
	struct belonging *b = cookie;

	b->ours |= strcmp(pair, b->wanted->run) == 0;
	b->other |= str_starts(pair, "STORAGE_PATH=") &&
		    (is_other_home(pair, b->wanted) || is_other_mount(b->pid, pair, b->wanted));
	return true;
}

/* Returns true if the environment of the process names the run. Processes of other users cannot be
 * read. */
static bool belongs_to(int pid, const struct marks *wanted)
{
	struct belonging b = {.wanted = wanted, .pid = pid};

	process_environment(pid, match_run, &b, NULL);
	return b.ours && !b.other;
}

/* Signals each process of the run (unless `signal` is 0); returns their count. */
static int for_each(const struct marks *wanted, int signal)
{
	_cleanup_closedir_ DIR *dir = opendir("/proc");
	int count = 0;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		_cleanup_close_ int pidfd = -1;
		uint64_t pid;

		if (!str_to_u64(e->d_name, 2, 1 << 30, &pid))
			continue;
		pidfd = (int)syscall(SYS_pidfd_open, (int)pid, 0);
		if (pidfd < 0 || !belongs_to((int)pid, wanted) || is_ancestor((int)pid))
			continue;
		count++;
		if (signal)
			syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
	}
	return count;
}

/* Waits until all these processes have ended, for `ms` at most. Polls, because no event reports
 * their end. Returns false if some processes still live. */
static bool wait_gone(const struct marks *wanted, int ms)
{
	int64_t until = clock_monotonic_ms() + ms;

	for (int64_t pause = 2; for_each(wanted, 0) > 0; pause = pause < 50 ? 2 * pause : 50) {
		if (clock_monotonic_ms() > until)
			return false;
		clock_sleep_ms(pause);
	}
	return true;
}

int strays_end(const char *run_id, const struct run_layout *layout, int grace_ms,
	struct penstock_error *err)
{
	_cleanup_(marks_release) struct marks wanted = {
		.run = str_printf("PENSTOCK_RUN_ID=%s", run_id),
		.storage = str_printf("STORAGE_PATH=%s", layout->storage),
	};
	bool gone;
	int count;

	if (!wanted.run || !wanted.storage)
		return error_memory(err);
	count = for_each(&wanted, grace_ms > 0 ? SIGTERM : 0);
	gone = !count || (grace_ms > 0 && wait_gone(&wanted, grace_ms));
	/* A process may fork while it is being killed. */
	for (int round = 0; round < 3 && !gone; round++) {
		for_each(&wanted, SIGKILL);
		gone = wait_gone(&wanted, KILL_WAIT_MS);
	}
	if (!gone)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot end the processes of an earlier attempt of run '%s': they outlive "
			"SIGKILL; find them by PENSTOCK_RUN_ID in /proc/*/environ",
			run_id);
	return count + live_end(layout->dir);
}
