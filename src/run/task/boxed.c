#include "run/task/boxed.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/task/box.h"
#include "run/task/keys.h"
#include "run/task/network.h"

#define KILL_WAIT_MS 10000

struct boxed_task *boxed_new(void)
{
	struct boxed_task *t = calloc(1, sizeof(*t));

	if (t) {
		t->process = (struct process)PROCESS_INIT;
		t->status_fd = -1;
	}
	return t;
}

void *boxed_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void boxed_free(struct task *task)
{
	struct boxed_task *t = (struct boxed_task *)task;

	if (!t)
		return;
	process_release(&t->process);
	if (t->status_fd >= 0)
		close(t->status_fd);
	key_listener_free(t->keys);
	litter_remove(t->box);
	free(t);
}

/* Serves the keys on a socket in the task's network. The init sent the socket before it reported
 * success. */
static int serve_keys(
	struct boxed_task *t, const struct key_server *server, struct penstock_error *err)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char c;
	struct iovec data = {&c, 1};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space)};
	const struct cmsghdr *header;
	int fd;

	if (recvmsg(t->status_fd, &message, MSG_CMSG_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot get the socket of the step's network");
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS)
		return error_set(
			err, PENSTOCK_E_IO, "the step's network has sent no socket for its keys");
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return key_listener_new(&t->keys, server, fd, err);
}

int boxed_spawn(struct boxed_task *t, const struct task_spec *spec, const struct process_spec *init,
	struct penstock_error *err)
{
	struct process_spec process = *init;
	_cleanup_close_ int write_end = -1;
	int ends[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return error_errno(err, errno, "cannot create a socket");
	t->status_fd = ends[0];
	process.body_fd = write_end = ends[1];
	process.stdin_fd = -1;
	process.stdout_fd = spec->stdout_fd;
	process.stderr_fd = spec->stderr_fd;
	process.new_session = true;
	process.die_with_parent = true;
	process.cpus = spec->cpus;
	process.n_cpus = spec->n_cpus;
	process.cgroups = spec->cgroups;
	process.n_cgroups = spec->n_cgroups;
	process.born_in = spec->born_in;
	r = process_spawn(&t->process, &process, err);
	if (r == 0 && spec->keys && spec->network.kind != TASK_NETWORK_HOST)
		r = serve_keys(t, spec->keys, err);
	if (r < 0 && t->process.pid > 0)
		boxed_kill(&t->task);
	return r;
}

/* ---- finding the task ---- */

struct search {
	pid_t inner; /* pid of the task in its namespace */
	pid_t found;
};

/* Returns the pid of a process in its innermost namespace, or 0 if it has ended. */
static pid_t inner_number(pid_t pid)
{
	char path[32];
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &cap, f) > 0) {
		const char *last;
		uint64_t number;

		if (!str_starts(line, "NSpid:"))
			continue;
		line[strcspn(line, "\n")] = '\0';
		last = strrchr(line, '\t');
		return last && str_to_u64(last + 1, 1, INT32_MAX, &number) ? (pid_t)number : 0;
	}
	return 0;
}

enum {
	HELPERS = 2, /* generations between the init and the task */
	SCANS = HELPERS + 1, /* each helper can end during one scan */
};

/* Searches the children of `parent`, and up to HELPERS generations below them, because crun's
 * helpers may still be between the init and the task. Returns false if the kernel does not list
 * children. */
static bool search_below(pid_t parent, struct search *search, int depth)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	char path[48];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	if (fs_read(path, &text, NULL) < 0)
		return depth > 0;
	p = buf_str(&text);
	while (*p && !search->found) {
		char *end;
		pid_t child = (pid_t)strtol(p, &end, 10);

		if (end == p)
			break;
		p = end + strspn(end, " ");
		if (inner_number(child) == search->inner)
			search->found = child;
		else if (depth < HELPERS)
			search_below(child, search, depth + 1);
	}
	return true;
}

static bool match(void *cookie, const struct process_info *info)
{
	struct search *search = cookie;

	if (!search->found && inner_number(info->pid) == search->inner)
		search->found = info->pid;
	return true;
}

pid_t boxed_find(pid_t init, pid_t inner)
{
	struct search search = {.inner = inner};

	if (inner <= 0)
		return init;
	/* A helper that ends after the scan of the init's children, and before the scan of its own
	 * children, passes its child to the init, which was scanned before. */
	for (int scans = 0; scans < SCANS && !search.found; scans++) {
		/* Scanning all processes is slow if there are many. */
		if (!search_below(init, &search, 0))
			process_descendants(init, match, &search);
	}
	return search.found ? search.found : init;
}

/* ---- end and signals ---- */

bool boxed_ended(struct task *task, struct task_end *end)
{
	struct boxed_task *t = (struct boxed_task *)task;
	int status;

	if (!process_wait(&t->process, 0, &t->status))
		return false;
	*end = (struct task_end){0};
	/* If the init has written no status, it was killed, and the task with it. */
	if (read(t->status_fd, &status, sizeof(status)) != (ssize_t)sizeof(status))
		status = SIGKILL;
	if (WIFSIGNALED(status))
		end->signal = WTERMSIG(status);
	else
		end->code = WEXITSTATUS(status);
	return true;
}

struct signalling {
	int signal;
	int signalled;
	bool all;
};

static bool signal_one(void *cookie, const struct process_info *info)
{
	struct signalling *s = cookie;

	/* Helpers of the network continue: the step may need the network before it ends. */
	if ((!s->all && !process_catches(info->pid, s->signal)) || network_is_helper(info))
		return true;
	if (kill(info->pid, s->signal) == 0)
		s->signalled++;
	return s->all;
}

/*
 * As outside of containers, the topmost processes that handle the signal get it; if none does, all
 * get it. The task is not the first process of its namespace, for which the kernel would ignore
 * unhandled signals.
 */
void boxed_signal(struct task *task, int signal)
{
	const struct boxed_task *t = (const struct boxed_task *)task;
	struct signalling s = {.signal = signal};

	process_descendants(t->process.pid, signal_one, &s);
	if (s.signalled)
		return;
	s.all = true;
	process_descendants(t->process.pid, signal_one, &s);
}

void boxed_kill(struct task *task)
{
	struct boxed_task *t = (struct boxed_task *)task;

	/* The kernel ends the other processes before it reports the end of the init. */
	process_signal(&t->process, SIGKILL);
	process_wait(&t->process, KILL_WAIT_MS, &t->status);
}

int boxed_enter(const struct task *task, struct strlist *namespaces)
{
	const struct boxed_task *t = (const struct boxed_task *)task;
	const char *const all[] = {"mnt", "pid", t->own_ipc ? "ipc" : NULL,
		t->own_network ? "net" : NULL, t->own_user ? "user" : NULL};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (all[i] && strlist_add(namespaces, all[i]) < 0)
			return -1;
	}
	return 0;
}
