#include "cli/runs/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

/* ---- a sealed copy of the program ---- */

static int copy_program(int from, struct penstock_error *err)
{
	_cleanup_close_ int to = memfd_create("penstock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	if (to < 0 || fstat(from, &st) < 0)
		return error_errno(err, errno, "cannot copy penstock to memory");
	for (off_t at = 0; at < st.st_size;) {
		ssize_t n = sendfile(to, from, &at, (size_t)(st.st_size - at));

		if (n <= 0)
			return error_errno(err, n ? errno : EIO, "cannot copy penstock to memory");
	}
	if (fcntl(to, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return error_errno(err, errno, "cannot seal the copy of penstock");
	return take_fd(to);
}

int enter_prepare(struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_EXEC_WORDS);
	_cleanup_(strlist_release) struct strlist argv = {0};
	_cleanup_close_ int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int copy = -1;
	int r;

	if (own < 0)
		return error_errno(err, errno, "cannot open /proc/self/exe");
	r = fcntl(own, F_GET_SEALS);
	if (r >= 0 && (r & F_SEAL_WRITE))
		return 0;
	r = fs_read("/proc/self/cmdline", &text, err);
	if (r < 0)
		return r;
	for (size_t at = 0; at < text.len; at += strlen(text.data + at) + 1) {
		if (strlist_add(&argv, text.data + at) < 0)
			return error_memory(err);
	}
	copy = argv.items ? copy_program(own, err)
			  : error_set(err, PENSTOCK_E_INTERNAL,
				    "cannot read the command line of penstock");
	if (copy < 0)
		return copy;
	fexecve(copy, argv.items, environ);
	return error_errno(err, errno, "cannot run the copy of penstock in memory");
}

/* ---- privileges ---- */

struct privileges {
	uint64_t bounding, permitted;
	bool no_new; /* the process has no_new_privs set */
};

static int read_privileges(pid_t pid, struct privileges *out, struct penstock_error *err)
{
	char path[32], line[256];
	_cleanup_fclose_ FILE *f = NULL;
	int found = 0;

	*out = (struct privileges){0};
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (str_starts(line, "CapPrm:") && ++found)
			out->permitted = strtoull(line + 7, NULL, 16);
		else if (str_starts(line, "CapBnd:") && ++found)
			out->bounding = strtoull(line + 7, NULL, 16);
		else if (str_starts(line, "NoNewPrivs:") && ++found)
			out->no_new = strtoull(line + 11, NULL, 10) != 0;
	}
	/* Every task has no_new_privs set; a process without no_new_privs sets up or cleans up a
	 * container. */
	if (found == 3 && out->no_new)
		return 0;
	return error_set(
		err, PENSTOCK_E_NOT_FOUND, "the step has no container, or the container has ended");
}

static int limit_to(const struct privileges *p)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
		if (!(p->bounding >> cap & 1) && prctl(PR_CAPBSET_DROP, cap) < 0)
			return -1;
	}
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = (uint32_t)(p->permitted >> (32 * i));
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
		syscall(SYS_capset, &header, data) < 0)
		return -1;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* ---- joining ---- */

static int flags_of(const struct strlist *namespaces)
{
	static const struct {
		const char *name;
		int flag;
	} known[] = {{"mnt", CLONE_NEWNS}, {"pid", CLONE_NEWPID}, {"ipc", CLONE_NEWIPC},
		{"net", CLONE_NEWNET}, {"user", CLONE_NEWUSER}};
	int flags = 0;

	for (size_t i = 0; i < namespaces->n; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(known); k++) {
			if (strcmp(namespaces->items[i], known[k].name) == 0)
				flags |= known[k].flag;
		}
	}
	return flags;
}

/* Waits for the child, then exits with its status. If a signal killed the child, kills this process
 * with the same signal, as shells and terminals expect. */
static void wait_and_end(pid_t child)
{
	int status;

	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	for (;;) {
		pid_t n = waitpid(child, &status, WUNTRACED);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			_exit(70);
		if (!WIFSTOPPED(status))
			break;
		kill(getpid(), SIGSTOP);
		kill(child, SIGCONT);
	}
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	signal(WTERMSIG(status), SIG_DFL);
	kill(getpid(), WTERMSIG(status));
	_exit(128 + WTERMSIG(status));
}

int enter_container(pid_t pid, const struct strlist *namespaces, struct penstock_error *err)
{
	struct privileges privileges;
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), directory = -1;
	int r = read_privileges(pid, &privileges, err);
	char path[32];
	pid_t child;

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pid);
	directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (pidfd < 0 || directory < 0)
		return error_errno(err, errno, "cannot open the step's task");
	if (setns(pidfd, flags_of(namespaces)) < 0)
		return error_errno(err, errno, "cannot enter the step's container");
	/* setns() puts only the later children of a process into a PID namespace, not the process
	 * itself. */
	child = fork();
	if (child < 0)
		return error_errno(err, errno, "cannot fork");
	if (child > 0)
		wait_and_end(child);
	if (fchdir(directory) < 0)
		return error_errno(err, errno, "cannot enter the step's directory");
	if (limit_to(&privileges) < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
		return error_errno(err, errno, "cannot drop privileges");
	return 0;
}
