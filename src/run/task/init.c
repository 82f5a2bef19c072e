#include "run/task/init.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <linux/magic.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process/process.h"

#define CGROUPS "/sys/fs/cgroup"

enum init_step {
	INIT_USER = PROCESS_BODY_STEP,
	INIT_MOUNTS,
	INIT_ROOT,
	INIT_PROC,
	INIT_NETWORK,
	INIT_FORK,
	INIT_CRUN,
};

/* Environment of the programs that the init starts, instead of penstock's own. */
static char *const environment[] = {
	(char *)(uintptr_t) "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	NULL};

unsigned long init_namespaces(const struct init_plan *plan)
{
	return CLONE_NEWPID | CLONE_NEWNS | (plan->rootless ? CLONE_NEWUSER : 0);
}

/* ---- preparation ---- */

int init_become_root(const char *uid_map, const char *gid_map)
{
	int r;

	/* While the process is not dumpable, its files in /proc belong to root. Being dumpable is
	 * safe here: the namespace has no other process yet. */
	prctl(PR_SET_DUMPABLE, 1);
	r = network_write_file("/proc/self/setgroups", 0, "deny");
	if (r == 0)
		r = network_write_file("/proc/self/gid_map", 0, gid_map);
	if (r == 0)
		r = network_write_file("/proc/self/uid_map", 0, uid_map);
	prctl(PR_SET_DUMPABLE, 0);
	return r;
}

/* Makes the directory of crun's files in memory, where the files vanish with the mounts: creating
 * and removing a dozen files and directories on a disk takes longer than all the work of crun. */
static int make_bundle(const struct init_plan *plan)
{
	const unsigned long flags = MS_NODEV | MS_NOSUID | MS_NOEXEC;

	if (mount("tmpfs", plan->bundle, "tmpfs", flags, "mode=0700,size=64m") < 0 ||
		mkdir(plan->rootfs, 0700) < 0)
		return -1;
	return network_write_file(plan->config_path, O_CREAT | O_EXCL, plan->config);
}

static int mount_overlay(const struct init_plan *plan)
{
	const unsigned long flags = MS_NODEV | MS_NOSUID;

	if (chdir(plan->layers_dir) < 0)
		return -1;
	if (mount("overlay", plan->rootfs, "overlay", flags, plan->overlay) == 0 ||
		mount("overlay", plan->rootfs, "overlay", flags, plan->overlay_synced) == 0)
		return 0;
	/* Network file systems, and overlays themselves, cannot be the upper directory. */
	if (mkdir(plan->memory, 0700) < 0 ||
		mount("tmpfs", plan->memory, "tmpfs", flags, "mode=0700") < 0)
		return -1;
	if (chdir(plan->memory) < 0 || mkdir("upper", 0755) < 0 || mkdir("work", 0700) < 0 ||
		chdir(plan->layers_dir) < 0)
		return -1;
	return mount("overlay", plan->rootfs, "overlay", flags, plan->overlay_memory);
}

/* If the machine has control groups of both versions, covers their mounts with an empty directory:
 * crun checks the mounts, and rejects such a machine even with --cgroup-manager=disabled. */
static int hide_cgroups(void)
{
	struct statfs st;

	if (statfs(CGROUPS, &st) < 0 || st.f_type != TMPFS_MAGIC ||
		statfs(CGROUPS "/unified", &st) < 0 || st.f_type != CGROUP2_SUPER_MAGIC)
		return 0;
	return mount("tmpfs", CGROUPS, "tmpfs", MS_NODEV | MS_NOSUID | MS_NOEXEC, "mode=0755");
}

/*
 * A container could write to crun's file through /proc while crun starts it. crun prevents that by
 * copying itself and executing the copy, except (since 1.8) if its file is on a read-only mount. So
 * make such a mount, which avoids the second execution, a quarter of crun's time. Returns the path
 * to execute.
 */
static const char *protect_crun(const struct init_plan *plan)
{
	const unsigned long kept = MS_NODEV | MS_NOSUID | MS_NOEXEC;
	const char *place = plan->program;
	struct statfs st;
	int fd = open(place, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	if (fd < 0 || mount(plan->crun[0], place, NULL, MS_BIND, NULL) < 0)
		return plan->crun[0];
	/* In a user namespace the existing flags must be kept. */
	if (statfs(place, &st) < 0 ||
		mount(NULL, place, NULL,
			MS_REMOUNT | MS_BIND | MS_RDONLY | ((unsigned long)st.f_flags & kept),
			NULL) < 0)
		return plan->crun[0];
	return place;
}

/* ---- the task ---- */

/* Makes the kernel continue with the pid after `last_pid`. Without CONFIG_CHECKPOINT_RESTORE the
 * pids are used up one by one. */
static void begin_numbers_at(int last_pid, struct seen *seen)
{
	char text[16];
	int n = last_pid;
	char *p = text + sizeof(text) - 1;

	if (!last_pid)
		return;
	*p = '\0';
	for (; n > 0; n /= 10)
		*--p = (char)('0' + n % 10);
	if (network_write_file("/proc/sys/kernel/ns_last_pid", 0, p) == 0)
		return;
	for (pid_t pid = 0; pid < last_pid;) {
		int status;

		pid = process_fork_in_body();
		if (pid == 0)
			_exit(0);
		if (pid < 0 || seen_wait(pid, &status, seen) < 0)
			return;
	}
}

/* Starts crun by vfork(), which copies nothing: the child executes another program at once. */
static pid_t start_crun(const struct init_plan *plan, const char *program)
{
	pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */

	if (pid == 0) {
		execve(program, (char *const *)(uintptr_t)plan->crun, environment);
		_exit(127);
	}
	return pid;
}

static pid_t read_pid(const char *path)
{
	char text[16];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	pid_t pid = 0;

	if (fd >= 0)
		close(fd);
	for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		pid = pid * 10 + (text[i] - '0');
	return pid;
}

static void fail(int report_fd, int step)
{
	process_body_failed(report_fd, step, errno);
}

int init_run(void *cookie, int report_fd, int body_fd)
{
	const struct init_plan *plan = cookie;
	struct seen seen = {.n = 0};
	int status = 0;
	pid_t pid;

	if (plan->rootless && init_become_root(plan->uid_map, plan->gid_map) < 0)
		fail(report_fd, INIT_USER);
	if (mount(NULL, "/", NULL, MS_REC | (plan->slave ? MS_SLAVE : MS_PRIVATE), NULL) < 0 ||
		hide_cgroups() < 0 || make_bundle(plan) < 0)
		fail(report_fd, INIT_MOUNTS);
	if (mount_overlay(plan) < 0)
		fail(report_fd, INIT_ROOT);
	/* Mount the proc of the namespace, in which crun finds its own pids. */
	if (mount("proc", "/proc", "proc", MS_NODEV | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		fail(report_fd, INIT_PROC);
	if (network_start(&plan->network, body_fd, &seen) < 0)
		fail(report_fd, INIT_NETWORK);
	begin_numbers_at(plan->last_pid, &seen);
	pid = start_crun(plan, protect_crun(plan));
	if (pid < 0)
		fail(report_fd, INIT_FORK);
	if (seen_wait(pid, &status, &seen) < 0 || status != 0) {
		/* Copy the log, because the parent cannot see our mounts. */
		int fd = open(plan->log, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1
				   : read(fd, plan->report->log, sizeof(plan->report->log) - 1);

		plan->report->log[n > 0 ? n : 0] = '\0';
		if (fd >= 0)
			close(fd);
		plan->report->crun_failed = true;
		errno = EIO;
		fail(report_fd, INIT_CRUN);
	}
	/* crun has ended, and the task is our child now. */
	pid = read_pid(plan->pid_file);
	plan->report->task = pid;
	close(report_fd);
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	if (pid <= 0 || seen_wait(pid, &status, &seen) < 0)
		return 1;
	return write(body_fd, &status, sizeof(status)) == sizeof(status) ? 0 : 1;
}

int init_explain(void *cookie, int step, int errnum, struct penstock_error *err)
{
	const struct init_plan *plan = cookie;

	switch ((enum init_step)step) {
	case INIT_USER:
		return error_errno(err, errnum,
			"cannot create a user namespace for the container; allow unprivileged ones "
			"with the sysctls kernel.unprivileged_userns_clone and "
			"user.max_user_namespaces");
	case INIT_ROOT:
		return error_errno(err, errnum, "cannot mount the image's layers (overlayfs)");
	case INIT_PROC:
		return error_errno(err, errnum,
			"cannot mount /proc for the container; if penstock itself runs in a "
			"container, that container needs permission to mount it (podman and "
			"docker: --security-opt unmask=ALL, --privileged)");
	case INIT_NETWORK:
		return network_explain(&plan->network, errnum, err);
	case INIT_CRUN:
		/* crun's log has the reason; the caller reads that log. */
		return error_set(err, PENSTOCK_E_IO, "cannot start the container: crun failed");
	default:
		return error_errno(err, errnum, "cannot prepare the container");
	}
}
