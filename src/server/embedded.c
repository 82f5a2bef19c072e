#include "server/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/str.h"
#include "server/request/account.h"

#define DEFAULT_TIMEOUT_MS 30000
#define POLL_MS		   5
#define STARTS		   3 /* maximum attempts to start an owner that is killed while it starts */

/* The content of the current owner's owner.json. */
struct owner_info {
	char *endpoint;
	char *access_key_id;
	bool keys_from_environment;
	int pid;
};

static void owner_info_release(struct owner_info *info)
{
	free(info->endpoint);
	free(info->access_key_id);
	*info = (struct owner_info){0};
}

static int open_in(const char *root, const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(root, name);
	int fd;

	if (!path)
		return error_memory(err);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? error_errno(err, errno, "cannot open '%s'", path) : fd;
}

static int lock_whole(int fd, int how, const char *what, struct penstock_error *err)
{
	while (flock(fd, how) < 0)
		if (errno != EINTR)
			return error_errno(
				err, errno, "cannot lock the file '%s' of the store", what);
	return 0;
}

/* --- existing owner --------------------------------------------------------------------------- */

/* Returns 1 if ROOT/lock is held, 0 if it is free. */
static int owner_alive(const char *root, struct penstock_error *err)
{
	_cleanup_close_ int fd = open_in(root, "lock", err);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd < 0 ? fd : 0;
	return errno == EWOULDBLOCK ? 1 : error_errno(err, errno, "cannot lock '%s/lock'", root);
}

static bool read_text(const char *root, const char *name, struct buf *out)
{
	_cleanup_free_ char *path = path_join(root, name);

	return path && fs_read(path, out, NULL) == 0 && out->len;
}

/* Reads owner.json. Returns false if the file does not exist yet, or was left by an earlier
 * owner. */
static bool read_owner(const char *root, struct owner_info *info)
{
	_cleanup_(buf_release) struct buf lock = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	const char *token = NULL, *endpoint = NULL, *id = NULL, *keys = NULL;
	json_auto_t *json = NULL;

	if (!read_text(root, "lock", &lock) || !read_text(root, "owner.json", &text))
		return false;
	json = json_loadb(text.data, text.len, 0, NULL);
	if (!json ||
		json_unpack(json, "{s:i,s:s,s:s,s:s,s:s}", "pid", &info->pid, "token", &token,
			"endpoint", &endpoint, "access_key_id", &id, "keys", &keys) < 0 ||
		strcmp(token, lock.data) != 0)
		return false;
	info->endpoint = strdup(endpoint);
	info->access_key_id = strdup(id);
	info->keys_from_environment = strcmp(keys, "environment") == 0;
	return info->endpoint && info->access_key_id;
}

/* Gets the address to connect to; an owner that listens on all addresses is reached over
 * loopback. */
static bool endpoint_address(const char *endpoint, struct sockaddr_storage *out, socklen_t *len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
	const char *colon = strrchr(endpoint, ':');
	char host[64];
	uint64_t port;
	size_t n;

	if (!str_starts(endpoint, "http://") || !str_to_u64(colon + 1, 1, UINT16_MAX, &port))
		return false;
	endpoint += strlen("http://");
	n = (size_t)(colon - endpoint);
	if (*endpoint == '[') {
		endpoint++;
		n -= 2;
	}
	if (n >= sizeof(host))
		return false;
	memcpy(host, endpoint, n);
	host[n] = '\0';
	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		*len = sizeof(*v4);
		return true;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	*len = sizeof(*v6);
	return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1;
}

/* Returns true if the owner replies to a request with at least one byte. An accepted connection
 * proves nothing: the kernel also accepts connections for an owner that is exiting or was
 * killed. */
static bool answers(const char *endpoint, int64_t deadline_ms)
{
	static const char request[] =
		"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	struct sockaddr_storage address;
	_cleanup_close_ int fd = -1;
	struct pollfd p = {.events = POLLIN};
	int64_t left = deadline_ms - clock_monotonic_ms();
	socklen_t len;
	char byte;

	if (!endpoint_address(endpoint, &address, &len))
		return false;
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, len) < 0 ||
		send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
		return false;
	p.fd = fd;
	return poll(&p, 1, left > 0 ? (int)left : 0) == 1 && recv(fd, &byte, 1, 0) == 1;
}

/* --- starting an owner ----------------------------------------------------------------------- */

/* Selects the environment of the owner, which outlives this process and serves other processes. The
 * environment must not contain values meant for this run, such as cloud keys and ${{ secrets }},
 * but needs the keys of the store itself. */
static int owner_environment(struct strlist *env)
{
	static const char *const wanted[] = {
		"PATH=", "HOME=", "TMPDIR=", "TZ=", "LANG=", "LC_ALL=", "LD_LIBRARY_PATH=",
		"XDG_DATA_HOME=", "XDG_CACHE_HOME=", "PENSTOCK_HOME=", "PENSTOCK_LOG=",
		"PENSTOCK_ACCESS_KEY_ID=", "PENSTOCK_SECRET_ACCESS_KEY=", "ASAN_OPTIONS=",
		"UBSAN_OPTIONS=", "TSAN_OPTIONS=", "LSAN_OPTIONS=", "LLVM_PROFILE_FILE="};

	for (char **pair = environ; *pair; pair++) {
		for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
			if (str_starts(*pair, wanted[i]) && strlist_add(env, *pair) < 0)
				return -1;
		}
	}
	return env->n ? 0 : strlist_add(env, "PATH=/usr/bin:/bin");
}

/* Runs in the child of a process that may have threads, and so makes only system calls. Never
 * returns. */
static void exec_owner(
	const char *executable, char *const argv[], char *const envp[], int out_fd, int null_fd)
{
	static const char failed[] = "cannot execute 'penstock serve'\n";
	sigset_t none;
	pid_t pid;

	setsid();
	pid = fork();
	if (pid != 0)
		_exit(pid < 0 ? 1 : 0); /* the owner is not our child, so we need not reap it */
	sigemptyset(&none);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(null_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(out_fd, 2) < 0)
		_exit(1);
	process_close_from(3);
	if (chdir("/") < 0)
		_exit(1);
	execve(executable, argv, envp);
	(void)!write(2, failed, sizeof(failed) - 1);
	_exit(127);
}

/* Reads the output of the owner until it closes the pipe, or until the deadline. */
static void read_until_closed(int fd, int64_t deadline_ms, struct buf *out)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = deadline_ms - clock_monotonic_ms();
		char block[512];
		ssize_t n;

		if (left <= 0 || (poll(&p, 1, (int)left) <= 0 && errno != EINTR))
			return;
		n = read(fd, block, sizeof(block));
		if (n == 0 || (n < 0 && errno != EINTR))
			return;
		if (n > 0)
			buf_add(out, block, (size_t)n);
	}
}

static int run_owner(const struct embedded_store_options *o, const char *root, int64_t deadline_ms,
	struct buf *output, struct penstock_error *err)
{
	const char *executable = o->executable ? o->executable : "/proc/self/exe";
	const char *const argv[] = {"penstock", "serve", "--root", root, "--listen", "127.0.0.1:0",
		"--embedded", "--durability", o->relaxed ? "relaxed" : "full", NULL};
	_cleanup_close_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	_cleanup_close_ int read_fd = -1;
	_cleanup_close_ int write_fd = -1;
	_cleanup_(strlist_release) struct strlist env = {0};
	int fds[2], status = 0;
	pid_t pid;

	if (owner_environment(&env) < 0)
		return error_memory(err);
	if (null_fd < 0 || pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(
			err, errno, "cannot start 'penstock serve' for the embedded store");
	read_fd = fds[0];
	write_fd = fds[1];
	pid = fork();
	if (pid < 0)
		return error_errno(
			err, errno, "cannot start 'penstock serve' for the embedded store");
	if (pid == 0)
		exec_owner(executable, (char *const *)argv, env.items, write_fd, null_fd);
	close(take_fd(write_fd));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	read_until_closed(read_fd, deadline_ms, output);
	return 0;
}

/* Finds the owner, or starts one. Requires the start lock. */
static int find_owner(struct embedded_store *store, const struct embedded_store_options *o,
	int64_t deadline_ms, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf output = BUF_INIT(LIMIT_LOG_LINE);
	_cleanup_(owner_info_release) struct owner_info info = {0};
	int starts = 0, rc;

	for (;;) {
		int alive = owner_alive(store->root, err);

		if (alive < 0)
			return alive;
		if (alive && read_owner(store->root, &info) && answers(info.endpoint, deadline_ms))
			break;
		owner_info_release(&info);
		/* Do not start the owner again if it has reported an error, which would only recur.
		 * An owner that was killed reports nothing. */
		if (!alive && (output.len || starts == STARTS))
			return error_set(err, PENSTOCK_E_UNAVAILABLE,
				"cannot start the store at '%s': %.*s", store->root,
				output.len ? (int)strcspn(buf_str(&output), "\n") : INT_MAX,
				output.len ? buf_str(&output)
					   : "its 'penstock serve' was killed each time");
		if (clock_monotonic_ms() > deadline_ms)
			return error_set(err, PENSTOCK_E_UNAVAILABLE,
				"cannot use the store at '%s': the process that has locked it does "
				"not reply; see '%s/server.log'",
				store->root, store->root);
		if (!alive) {
			rc = run_owner(o, store->root, deadline_ms, &output, err);
			if (rc < 0)
				return rc;
			store->started = true;
			starts++;
			continue;
		}
		clock_sleep_ms(POLL_MS);
	}
	store->endpoint = take_pointer(info.endpoint);
	store->pid = info.pid;
	rc = account_load(&store->account, store->root, false, err);
	if (rc < 0)
		return error_prefix(err, "cannot use the store at '%s'", store->root);
	if (strcmp(store->account.access_key_id, info.access_key_id) == 0)
		return 0;
	return error_set(err, PENSTOCK_E_PERMISSION,
		"cannot use the store at '%s': process %d serves it with other keys%s", store->root,
		info.pid,
		info.keys_from_environment
			? ", from its environment; set PENSTOCK_ACCESS_KEY_ID and "
			  "PENSTOCK_SECRET_ACCESS_KEY to the same values"
			: "; unset PENSTOCK_ACCESS_KEY_ID and PENSTOCK_SECRET_ACCESS_KEY");
}

int embedded_store_acquire(struct embedded_store **out,
	const struct embedded_store_options *options, struct penstock_error *err)
{
	int64_t deadline_ms = clock_monotonic_ms() +
			      (options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS);
	_cleanup_(embedded_store_freep) struct embedded_store *store = calloc(1, sizeof(*store));
	_cleanup_close_ int start_fd = -1;
	int rc;

	if (!store)
		return error_memory(err);
	store->users_fd = -1;
	rc = fs_mkdirs(options->root, 0700, err);
	if (rc < 0)
		return rc;
	store->root = realpath(options->root, NULL); /* the owner has another working directory */
	if (!store->root)
		return error_errno(err, errno, "cannot resolve '%s'", options->root);
	store->users_fd = open_in(store->root, "users", err);
	if (store->users_fd < 0)
		return store->users_fd;
	/* Waits while an owner exits; with this lock held, no owner exits. */
	rc = lock_whole(store->users_fd, LOCK_SH, "users", err);
	if (rc < 0)
		return rc;
	start_fd = open_in(store->root, "start", err);
	if (start_fd < 0)
		return start_fd;
	rc = lock_whole(start_fd, LOCK_EX, "start", err);
	if (rc == 0)
		rc = find_owner(store, options, deadline_ms, err);
	if (rc < 0)
		return rc;
	*out = take_pointer(store);
	return 0;
}

void embedded_store_free(struct embedded_store *store)
{
	if (!store)
		return;
	if (store->users_fd >= 0)
		close(store->users_fd);
	account_release(&store->account);
	free(store->endpoint);
	free(store->root);
	free(store);
}
