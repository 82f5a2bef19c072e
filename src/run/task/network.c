#include "run/task/network.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "run/task/executor.h"
#include "run/task/keys.h"

#define NETWORK_MS 10000
#define READY_FD   7 /* descriptor that slirp4netns writes to when it is ready */
#define AGAIN_S	   1 /* delay before a program with `stays` is restarted */
#define MARK	   "PENSTOCK_NETWORK=1"

/* Environment of the programs that the init starts, without the caller's variables. */
static char *const environment[] = {
	(char *)(uintptr_t) "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	(char *)(uintptr_t)MARK, NULL};

/* ---- in the parent ---- */

struct tool {
	const char *name, *what, *source;
};
static const struct tool slirp4netns = {
	"slirp4netns", "`network: slirp4netns`", "Debian and Ubuntu: apt install slirp4netns"};
static const struct tool pasta = {
	"pasta", "`network: pasta`", "Debian and Ubuntu: apt install passt"};
static const struct tool wg_quick = {"wg-quick", "`wireguard`",
	"Debian and Ubuntu: apt install wireguard-tools, and wireguard-go where the kernel has no "
	"WireGuard"};
static const struct tool bore = {"bore", "`bore`", "github.com/jkuri/bore"};

/* Adds the path of the program to `argv`. */
static int need(struct strlist *argv, const struct tool *tool, struct penstock_error *err)
{
	_cleanup_free_ char *path = fs_find_tool(tool->name);

	if (path)
		return strlist_add(argv, path) < 0 ? error_memory(err) : 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot set up %s: the program '%s' is not installed (%s)", tool->what, tool->name,
		tool->source);
}

int network_check(const struct task_network *network, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist found = {0};
	int r = 0;

	if (network->kind != TASK_NETWORK_HOST)
		r = need(&found, network->kind == TASK_NETWORK_PASTA ? &pasta : &slirp4netns, err);
	for (size_t i = 0; r == 0 && i < network->n_interfaces; i++) {
		r = need(&found,
			network->interfaces[i].kind == TASK_INTERFACE_BORE ? &bore : &wg_quick,
			err);
	}
	return r;
}

/* Adds a WireGuard interface. wg-quick takes the interface's name from the name of the file. */
static int add_wireguard(struct network_setup *s, const struct task_interface *interface, size_t i,
	struct penstock_error *err)
{
	struct network_command *command = &s->plan.commands[i];
	int r = need(&s->argvs[i], &wg_quick, err);

	if (r < 0)
		return r;
	if (strlist_add(&s->argvs[i], "up") < 0 ||
		strlist_addf(&s->argvs[i], NETWORK_RUN "/wg%zu.conf", i) < 0)
		return error_memory(err);
	command->file = s->argvs[i].items[2];
	command->text = interface->config;
	return 0;
}

/* Adds DeepSquare's fork of the program bore, which forwards a port through SSH. */
static int add_bore(struct network_setup *s, const struct task_interface *interface, size_t i,
	struct penstock_error *err)
{
	const char *colon = strrchr(interface->server, ':');
	_cleanup_free_ char *host = strndup(interface->server, (size_t)(colon - interface->server));
	_cleanup_free_ char *port = str_printf("%d", interface->port);
	const char *const words[] = {"-s", host, "-p", colon + 1, "-ls", "127.0.0.1", "-lp", port,
		interface->secret ? "-id" : NULL, interface->secret, NULL};
	int r = need(&s->argvs[i], &bore, err);

	if (r < 0)
		return r;
	if (!host || !port || strlist_add_all(&s->argvs[i], words) < 0)
		return error_memory(err);
	s->plan.commands[i].stays = true;
	return 0;
}

int network_prepare(struct network_setup *s, const struct task_spec *spec, const char *box,
	struct penstock_error *err)
{
	const struct task_network *network = &spec->network;
	int r;

	if (network->kind == TASK_NETWORK_HOST)
		return 0;
	s->plan.keys_port = spec->keys ? key_server_port(spec->keys) : 0;
	s->resolv = path_join(box, "resolv.conf");
	s->plan.netns = s->netns = path_join(box, "netns");
	s->plan.log = s->log = path_join(box, "network.log");
	if (!s->resolv || !s->netns || !s->log)
		return error_memory(err);
	if (mknod(s->netns, S_IFREG | 0600, 0) < 0)
		return error_errno(err, errno, "cannot create '%s'", s->netns);
	/* With these options neither program lets the step reach ports of the machine's loopback
	 * address. By default pasta forwards all ports in both directions. */
	const char *const slirp_words[] = {"--configure", "--mtu=65520", "--disable-host-loopback",
		"--ready-fd=7", "--netns-type=path", s->netns, "tap0", NULL};
	const char *const pasta_words[] = {"--config-net", "--no-map-gw", "-t", "none", "-u",
		"none", "-T", "none", "-U", "none", "--quiet", "--runas", "0:0", "--netns-only",
		"--netns", s->netns, NULL};
	bool is_slirp = network->kind == TASK_NETWORK_SLIRP4NETNS;
	r = need(&s->program, is_slirp ? &slirp4netns : &pasta, err);
	if (r == 0 && strlist_add_all(&s->program, is_slirp ? slirp_words : pasta_words) < 0)
		r = error_memory(err);
	s->plan.reports_ready = is_slirp;
	s->plan.program = (const char *const *)s->program.items;
	if (r < 0)
		return r;
	/* Unless the workflow names DNS servers, slirp4netns resolves names itself, and with pasta
	 * the step uses the DNS servers of the machine. */
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_close_ int fd = -1;

	for (size_t i = 0; network->dns && network->dns[i]; i++)
		buf_printf(&text, "nameserver %s\n", network->dns[i]);
	if (!text.len && network->kind == TASK_NETWORK_SLIRP4NETNS)
		buf_add_str(&text, "nameserver 10.0.2.3\n");
	else if (!text.len && fs_read("/etc/resolv.conf", &text, NULL) < 0)
		buf_clear(&text);
	if (buf_failed(&text))
		return buf_error(&text, s->resolv, err);
	fd = open(s->resolv, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || fs_write_all(fd, buf_str(&text), text.len) < 0)
		return error_errno(err, errno, "cannot write '%s'", s->resolv);
	s->plan.commands = calloc(network->n_interfaces + 1, sizeof(*s->plan.commands));
	s->argvs = calloc(network->n_interfaces + 1, sizeof(*s->argvs));
	if (!s->plan.commands || !s->argvs)
		return error_memory(err);
	s->plan.n_commands = network->n_interfaces;
	for (size_t i = 0; r == 0 && i < network->n_interfaces; i++) {
		const struct task_interface *interface = &network->interfaces[i];

		r = interface->kind == TASK_INTERFACE_WIREGUARD
			    ? add_wireguard(s, interface, i, err)
			    : add_bore(s, interface, i, err);
		s->plan.commands[i].argv = (const char *const *)s->argvs[i].items;
	}
	return r;
}

void network_release(struct network_setup *s)
{
	for (size_t i = 0; s->argvs && i < s->plan.n_commands; i++)
		strlist_release(&s->argvs[i]);
	free(s->argvs);
	free(s->plan.commands);
	strlist_release(&s->program);
	free(s->resolv);
	free(s->netns);
	free(s->log);
	*s = (struct network_setup){0};
}

/* ---- in the init ---- */

int seen_wait(pid_t pid, int *status, struct seen *seen)
{
	for (int i = 0; i < seen->n; i++) {
		if (seen->pid[i] == pid) {
			*status = seen->status[i];
			return 0;
		}
	}
	for (;;) {
		pid_t n = waitpid(-1, status, 0);

		if (n == pid)
			return 0;
		if (n < 0 && errno != EINTR)
			return -1;
		if (n > 0 && seen->n < SEEN) {
			seen->pid[seen->n] = n;
			seen->status[seen->n++] = *status;
		}
	}
}

static void become(const char *const *argv)
{
	execve(argv[0], (char *const *)(uintptr_t)argv, environment);
	_exit(127);
}

/* Runs in a child, which stays in the machine's network: executes the program once the parent is in
 * the step's network. */
static void run_program(const struct network_plan *plan, int wait_fd, int ready_fd)
{
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(wait_fd, &c, 1) != 1 || (plan->reports_ready && dup2(ready_fd, READY_FD) < 0))
		_exit(127);
	become(plan->program);
}

/* Waits for slirp4netns to report that it is ready, or for the first process of pasta to exit with
 * 0, which it does when pasta goes to the background. */
static int wait_until_ready(pid_t pid, int ready_fd, struct seen *seen)
{
	struct pollfd p = {ready_fd, POLLIN, 0};
	int status = 0;
	char c;

	errno = ETIMEDOUT;
	if (poll(&p, 1, NETWORK_MS) != 1)
		return -1;
	if (read(ready_fd, &c, 1) == 1)
		return 0;
	if (seen_wait(pid, &status, seen) == 0 && status == 0)
		return 0;
	errno = ENETUNREACH;
	return -1;
}

int network_write_file(const char *path, int flags, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0600);
	size_t len = strlen(text);

	return fd >= 0 && write(fd, text, len) == (ssize_t)len ? 0 : -1;
}

static int run_to_end(const struct network_command *command, int log)
{
	int status = -1;
	pid_t pid = process_fork_in_body();

	if (pid == 0) {
		if (dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
			_exit(127);
		become(command->argv);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* Runs in a child: starts the commands of the interfaces. */
static void make_interfaces(const struct network_plan *plan)
{
	int log = open(plan->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (log < 0 || unshare(CLONE_NEWNS) < 0 ||
		mount("tmpfs", "/run", "tmpfs", MS_NODEV | MS_NOSUID | MS_NOEXEC,
			"mode=0755,size=1m") < 0 ||
		mkdir(NETWORK_RUN, 0700) < 0)
		_exit(1);
	for (size_t i = 0; i < plan->n_commands; i++) {
		const struct network_command *command = &plan->commands[i];

		/* Only the programs of the interfaces see the file, which is in memory. */
		if (command->file &&
			network_write_file(command->file, O_CREAT | O_EXCL, command->text) < 0)
			_exit(1);
		if (!command->stays && run_to_end(command, log) != 0)
			_exit(1);
	}
	close(log);
	for (size_t i = 0; i < plan->n_commands; i++) {
		if (plan->commands[i].stays && process_fork_in_body() == 0) {
			/* The output of the command goes to the step's output: that output names
			 * the address that is reachable from outside. */
			for (;;) {
				pid_t pid = process_fork_in_body();

				if (pid == 0)
					become(plan->commands[i].argv);
				while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
					;
				sleep(AGAIN_S);
			}
		}
	}
	_exit(0);
}

/* Passes a socket for keys to the parent. The network's program has brought the loopback interface
 * up. */
static int share_keys(const struct network_plan *plan, int body_fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.space = {0}};
	char c = 0;
	struct iovec data = {&c, 1};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fd = key_socket(plan->keys_port);
	ssize_t sent;

	if (fd < 0)
		return -1;
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	sent = sendmsg(body_fd, &message, MSG_NOSIGNAL);
	close(fd);
	return sent == 1 ? 0 : -1;
}

int network_start(const struct network_plan *plan, int body_fd, struct seen *seen)
{
	int go[2];
	int ready[2];
	char c = 0;
	pid_t pid;
	int r;

	if (!plan->program)
		return 0;
	if (pipe2(go, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return -1;
	pid = process_fork_in_body();
	if (pid == 0)
		run_program(plan, go[0], ready[1]);
	close(go[0]);
	close(ready[1]);
	/* The namespace is named by a file, because not every user may see the namespace of this
	 * process in /proc. */
	if (pid < 0 || unshare(CLONE_NEWNET) < 0 ||
		mount("/proc/self/ns/net", plan->netns, NULL, MS_BIND, NULL) < 0 ||
		write(go[1], &c, 1) != 1)
		return -1;
	r = wait_until_ready(pid, ready[0], seen);
	close(go[1]);
	close(ready[0]);
	if (r == 0 && plan->keys_port)
		r = share_keys(plan, body_fd);
	if (r < 0)
		return r;
	int status = -1;

	if (!plan->n_commands)
		return 0;
	pid = process_fork_in_body();
	if (pid == 0)
		make_interfaces(plan);
	if (pid < 0 || seen_wait(pid, &status, seen) < 0)
		return -1;
	errno = EADDRNOTAVAIL;
	return status == 0 ? 0 : -1;
}

/* ---- errors ---- */

/* Returns the last line that is not one of wg-quick's progress lines, which are in brackets. */
static const char *reason(struct buf *text)
{
	const char *found = "no error message";
	char *rest = text->data;
	char *line;

	while (rest && (line = strsep(&rest, "\r\n"))) {
		if (*line && *line != '[')
			found = line;
	}
	return found;
}

int network_explain(const struct network_plan *plan, int errnum, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	if (!plan->n_commands || fs_read(plan->log, &text, NULL) < 0 || !text.len)
		return error_errno(err, errnum, "cannot set up the step's network%s%s",
			plan->program ? " with " : "", plan->program ? plan->program[0] : "");
	if (strstr(buf_str(&text), "wireguard-go: command not found"))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot set up `wireguard`: the kernel of this machine has no WireGuard, and "
			"wireguard-go is not installed");
	return error_set(err, PENSTOCK_E_UNSUPPORTED, "cannot create the step's interfaces: %s",
		reason(&text));
}

static bool is_not_mark(void *cookie, const char *pair)
{
	bool *found = cookie;

	*found = strcmp(pair, MARK) == 0;
	return !*found;
}

bool network_is_helper(const struct process_info *info)
{
	bool found = false;

	return process_environment(info->pid, is_not_mark, &found, NULL) == 0 && found;
}
