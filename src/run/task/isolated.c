/*
 * Steps as processes of this machine with their own network. The steps run below an init, like
 * containers: the init owns the namespaces, and the connection between the network of the step and
 * the network of the machine ends with the init.
 */
#include "run/task/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/process/process.h"
#include "run/task/box.h"
#include "run/task/boxed.h"
#include "run/task/init.h"
#include "run/task/network.h"

#define RESOLV "/etc/resolv.conf"

enum isolated_step {
	ISOLATED_USER = PROCESS_BODY_STEP,
	ISOLATED_MOUNTS,
	ISOLATED_PROC,
	ISOLATED_NETWORK,
	ISOLATED_NAMES,
	ISOLATED_FORK,
	ISOLATED_CWD,
	ISOLATED_EXEC,
};

/* All strings are made before the process is created. */
struct isolated_plan {
	const struct task_spec *spec;
	struct network_setup network;
	pid_t *task; /* in shared memory: the task's pid in the namespace */
	bool rootless;
	char uid_map[32], gid_map[32];
};

/* ---- in the init ---- */

static int run(void *cookie, int report_fd, int body_fd)
{
	const struct isolated_plan *plan = cookie;
	struct seen seen = {.n = 0};
	int status = 0;
	pid_t pid;

	if (plan->rootless && init_become_root(plan->uid_map, plan->gid_map) < 0)
		process_body_failed(report_fd, ISOLATED_USER, errno);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		process_body_failed(report_fd, ISOLATED_MOUNTS, errno);
	if (mount("proc", "/proc", "proc", MS_NODEV | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		process_body_failed(report_fd, ISOLATED_PROC, errno);
	if (network_start(&plan->network.plan, body_fd, &seen) < 0)
		process_body_failed(report_fd, ISOLATED_NETWORK, errno);
	if (access(RESOLV, F_OK) == 0 &&
		mount(plan->network.resolv, RESOLV, NULL, MS_BIND, NULL) < 0)
		process_body_failed(report_fd, ISOLATED_NAMES, errno);
	pid = process_fork_in_body();
	if (pid < 0)
		process_body_failed(report_fd, ISOLATED_FORK, errno);
	if (pid == 0) {
		const struct task_spec *spec = plan->spec;

		close(body_fd);
		/* `penstock exec` joins only processes that cannot gain privileges. */
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (spec->cwd && chdir(spec->cwd) < 0)
			process_body_failed(report_fd, ISOLATED_CWD, errno);
		execve(spec->argv[0], (char *const *)(uintptr_t)spec->argv,
			(char *const *)(uintptr_t)spec->envp);
		process_body_failed(report_fd, ISOLATED_EXEC, errno);
	}
	*plan->task = pid;
	close(report_fd);
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	if (seen_wait(pid, &status, &seen) < 0)
		return 1;
	return write(body_fd, &status, sizeof(status)) == sizeof(status) ? 0 : 1;
}

static int explain(void *cookie, int step, int errnum, struct penstock_error *err)
{
	const struct isolated_plan *plan = cookie;

	switch ((enum isolated_step)step) {
	case ISOLATED_USER:
		return error_errno(err, errnum,
			"cannot create a user namespace for a step with its own network; allow "
			"unprivileged ones with the sysctls kernel.unprivileged_userns_clone and "
			"user.max_user_namespaces");
	case ISOLATED_PROC:
		return error_errno(err, errnum,
			"cannot mount /proc for a step with its own network; if penstock itself "
			"runs in a container, that container needs permission to mount it (podman "
			"and docker: --security-opt unmask=ALL, --privileged)");
	case ISOLATED_NETWORK:
		return network_explain(&plan->network.plan, errnum, err);
	case ISOLATED_CWD:
		return error_errno(err, errnum, "cannot enter directory '%s'", plan->spec->cwd);
	case ISOLATED_EXEC:
		return error_errno(err, errnum, "cannot run '%s'", plan->spec->argv[0]);
	default:
		return error_errno(err, errnum, "cannot prepare the step's network");
	}
}

/* ---- start ---- */

static int start(struct task **out, const struct task_spec *spec, struct penstock_error *err)
{
	struct boxed_task *t = boxed_new();
	struct isolated_plan plan = {.spec = spec, .rootless = geteuid() != 0};
	int r;

	if (!t)
		return error_memory(err);
	snprintf(plan.uid_map, sizeof(plan.uid_map), "0 %u 1", geteuid());
	snprintf(plan.gid_map, sizeof(plan.gid_map), "0 %u 1", getegid());
	plan.task = boxed_shared(sizeof(*plan.task));
	r = plan.task ? box_make(&t->box, spec->tmp, "", err) : error_memory(err);
	if (r == 0)
		r = network_prepare(&plan.network, spec, t->box, err);
	if (r == 0)
		r = boxed_spawn(t, plan.spec,
			&(struct process_spec){
				.namespaces = CLONE_NEWPID | CLONE_NEWNS |
					      (plan.rootless ? CLONE_NEWUSER : 0),
				.body = run,
				.cookie = &plan,
				.explain = explain,
			},
			err);
	if (r == 0) {
		t->task.pid = boxed_find(t->process.pid, *plan.task);
		t->task.event_fd = t->process.pidfd;
		t->own_network = true;
		t->own_user = plan.rootless;
		*out = &t->task;
	} else {
		boxed_free(&t->task);
	}
	network_release(&plan.network);
	if (plan.task)
		munmap(plan.task, sizeof(*plan.task));
	return r;
}

const struct executor executor_isolated = {
	.name = "isolated",
	.start = start,
	BOXED_EXECUTOR,
};
