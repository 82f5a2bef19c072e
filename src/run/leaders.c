/* Whom of a task's processes a notice is told. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"
#include "run/reaction.h"
#include "base/banned.h"

/* Shells, and what only starts another program: they stand for what they run. */
static bool stands_for_its_child(pid_t pid)
{
	static const char *const names[] = {"sh", "bash", "dash", "ash", "busybox", "zsh", "ksh",
		"ksh93", "mksh", "fish", "tcsh", "csh", "time", "unshare", "nice", "env", "sudo",
		"su", "tini", "dumb-init", "catatonit"};
	char link[32];
	char path[4096];
	const char *name;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	name = strrchr(path, '/');
	name = name ? name + 1 : path;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t len = strlen(names[i]);

		/* "bash (deleted)" is one, too. */
		if (strncmp(name, names[i], len) == 0 && (!name[len] || name[len] == ' '))
			return true;
	}
	return false;
}

struct telling {
	int signal;
	unsigned told;
};

static bool tell(void *cookie, const struct process_info *info)
{
	struct telling *t = cookie;

	if (process_catches(info->pid, t->signal)) {
		t->told += kill(info->pid, t->signal) == 0;
		return false;
	}
	return stands_for_its_child(info->pid);
}

unsigned leaders_tell(pid_t leader, int signal)
{
	struct telling t = {.signal = signal};
	const struct process_info info = {.pid = leader};

	if (leader > 0 && tell(&t, &info))
		process_descendants(leader, tell, &t);
	return t.told;
}
