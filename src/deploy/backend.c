/* One server: its start, its health, its end. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "deploy/internal.h"
#include "net/http/http.h"

enum { ASK_MS = 2000 };

/*
 * The shell waits for a line on its standard input. This process sends the line after it has
 * recorded the shell's pid: otherwise a kill of this process could leave a server that no other
 * process knows. The shell gets the socket as descriptor PROCESS_HANDED_FD, and moves it to
 * descriptor 3, where servers expect it (sd_listen_fds(3)).
 */
#define WAIT "read -r go || exit 1; exec 0</dev/null; "
static const char start_script[] = WAIT "exec \"$@\"";
static const char socket_script[] = WAIT
	"exec 3<&4 4<&-; LISTEN_PID=$$; export LISTEN_PID; exec \"$@\"";

void backend_release(struct backend *s)
{
	if (s->phase != BACKEND_NONE)
		process_release(&s->process);
	if (s->gate > 0)
		close(s->gate);
	model_release(&s->model);
	free(s->dir);
	free(s->why);
	*s = (struct backend){0};
}

void backend_set(struct backend *s, enum backend_phase phase)
{
	s->phase = phase;
	s->since_ms = clock_monotonic_ms();
	s->unhealthy = 0;
	free(take_pointer(s->why));
}

/* ---- the command ---- */

/* A value, and the names of its placeholder and of its environment variable. */
struct values {
	const char *name;
	const char *environment;
	char *value;
};
enum { MODEL, BASE, REPOSITORY, VERSION, PORT, HOST, HEALTH_PORT, VALUES };

static void values_release(struct values (*values)[VALUES])
{
	for (size_t i = 0; i < VALUES; i++)
		free((*values)[i].value);
}

static int fill_values(struct values values[static VALUES], const struct backend *s,
	const struct deploy_options *o, uint16_t port, struct penstock_error *err)
{
	static const struct values names[VALUES] = {
		[MODEL] = {"{model}", "PENSTOCK_MODEL", NULL},
		[BASE] = {"{base}", "PENSTOCK_MODEL_BASE", NULL},
		[REPOSITORY] = {"{repository}", "PENSTOCK_MODEL_REPOSITORY", NULL},
		[VERSION] = {"{version}", "PENSTOCK_MODEL_VERSION", NULL},
		[PORT] = {"{port}", "PORT", NULL},
		[HOST] = {"{host}", "HOST", NULL},
		[HEALTH_PORT] = {"{health_port}", "PENSTOCK_HEALTH_PORT", NULL},
	};
	_cleanup_free_ char *name = model_name(o);
	size_t len = strlen(s->model.directory);
	/* With DEPLOY_SIGNAL, s->dir is a link to the version's directory. {base} is that
	 * directory, or its parent if the version has a directory of its own. */
	bool link = o->traffic == DEPLOY_SIGNAL;

	memcpy(values, names, sizeof(names));
	if (!name)
		return error_memory(err);
	if (link) {
		values[MODEL].value = strdup(s->dir);
		values[BASE].value = str_printf("%s%s", s->dir, len ? "/.." : "");
		values[REPOSITORY].value = str_printf("%s/..%s", s->dir, len ? "/.." : "");
	} else {
		values[MODEL].value = str_printf("%s/%s%s%.*s", s->dir, name, len ? "/" : "",
			(int)(len ? len - 1 : 0), s->model.directory);
		values[BASE].value = str_printf("%s/%s", s->dir, name);
		values[REPOSITORY].value = strdup(s->dir);
	}
	values[VERSION].value = strdup(s->model.name);
	values[PORT].value = str_printf("%u", port);
	values[HOST].value = strdup(o->host);
	values[HEALTH_PORT].value = str_printf("%u", s->health_port);
	for (size_t i = 0; i < VALUES; i++) {
		if (!values[i].value)
			return error_memory(err);
	}
	return 0;
}

/* Returns `text` with its placeholders replaced, or NULL if out of memory; free() the result. */
static char *expand(const char *text, const struct values values[static VALUES])
{
	struct buf out = BUF_INIT(LIMIT_STATE_OBJECT);
	char *result;

	while (*text) {
		size_t i;

		for (i = 0; i < VALUES && !str_starts(text, values[i].name); i++)
			;
		if (i < VALUES) {
			buf_add_str(&out, values[i].value);
			text += strlen(values[i].name);
		} else {
			buf_add_char(&out, *text++);
		}
	}
	result = out.len ? buf_take(&out) : strdup("");
	buf_release(&out);
	return result;
}

static int fill_command(struct strlist *argv, const struct deploy_options *o,
	const struct values values[static VALUES], bool socket, struct penstock_error *err)
{
	if (strlist_add(argv, "/bin/sh") < 0 || strlist_add(argv, "-c") < 0 ||
		strlist_add(argv, socket ? socket_script : start_script) < 0 ||
		strlist_add(argv, "sh") < 0)
		return error_memory(err);
	for (size_t i = 0; o->command[i]; i++) {
		_cleanup_free_ char *word = expand(o->command[i], values);
		_cleanup_free_ char *program = NULL;

		if (word && i == 0 && !strchr(word, '/')) {
			program = fs_find_tool(word);
			if (!program)
				return error_set(err, PENSTOCK_E_NOT_FOUND,
					"cannot find the program '%s'; check the command and PATH",
					word);
		}
		if (!word || strlist_add(argv, program ? program : word) < 0)
			return error_memory(err);
	}
	return 0;
}

static int fill_environment(struct strlist *envp, const struct values values[static VALUES],
	bool socket, struct penstock_error *err)
{
	for (char **pair = environ; *pair; pair++) {
		if (!process_is_own_secret(*pair) && !str_starts(*pair, "LISTEN_") &&
			strlist_add(envp, *pair) < 0)
			return error_memory(err);
	}
	for (size_t i = 0; i < VALUES; i++) {
		if (strlist_set(envp, values[i].environment, values[i].value) < 0)
			return error_memory(err);
	}
	if (socket && (strlist_add(envp, "LISTEN_FDS=1") < 0 ||
			      strlist_add(envp, "LISTEN_FDNAMES=http") < 0))
		return error_memory(err);
	return 0;
}

int backend_start(struct backend *s, const struct deploy_options *o, uint16_t port, int socket,
	struct penstock_error *err)
{
	_cleanup_(values_release) struct values values[VALUES] = {0};
	_cleanup_(strlist_release) struct strlist argv = {0}, envp = {0};
	_cleanup_close_ int waits = -1;
	struct process_info info;
	int r, ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot create a pipe");
	waits = ends[0];
	s->gate = ends[1];
	s->health_port = 0;
	r = traffic_find("127.0.0.1", &s->health_port, err);
	if (r == 0)
		r = fill_values(values, s, o, port, err);
	if (r == 0)
		r = fill_command(&argv, o, values, socket >= 0, err);
	if (r == 0)
		r = fill_environment(&envp, values, socket >= 0, err);
	if (r < 0)
		return r;
	r = process_spawn(&s->process,
		&(struct process_spec){.argv = (const char *const *)argv.items,
			.envp = (const char *const *)envp.items,
			.stdin_fd = waits,
			.stdout_fd = STDOUT_FILENO,
			.stderr_fd = STDERR_FILENO,
			.handed_fd = socket >= 0 ? socket : 0,
			.new_session = true},
		err);
	if (r < 0)
		return r;
	s->start_ticks = process_info(s->process.pid, &info) ? info.start_ticks : 0;
	backend_set(s, BACKEND_STARTING);
	return 0;
}

/* ---- health ---- */

/* Returns the address at which this machine connects to sockets that listen on `host`. */
static const char *reach(const char *host)
{
	return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 ? "127.0.0.1" : host;
}

static char *health_url(const struct backend *s, const struct deploy_options *o, uint16_t port)
{
	struct values values[VALUES] = {0};
	const char *path = o->health ? o->health : "/";
	char *url = NULL;

	if (fill_values(values, s, o, port, NULL) == 0) {
		_cleanup_free_ char *text = expand(path, values);

		if (text && *text == '/')
			url = str_printf(
				strchr(reach(o->host), ':') ? "http://[%s]:%u%s" : "http://%s:%u%s",
				reach(o->host), port, text);
		else
			url = take_pointer(text);
	}
	values_release(&values);
	return url;
}

int backend_ask(struct backend *s, const struct deploy_options *o, uint16_t port, bool front,
	struct penstock_error *err)
{
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_(strlist_release) struct strlist headers = {0};
	_cleanup_free_ char *url = health_url(s, o, port);
	bool probe = o->traffic == DEPLOY_SOCKET && !front;
	int r;

	if (url && !s->asked_ms && s->phase == BACKEND_STARTING)
		log_info("version '%s' has started (process %d); waiting for its reply to GET '%s'",
			s->model.name, (int)s->process.pid, url);
	s->asked_ms = clock_monotonic_ms();
	if (!url || strlist_add(&headers, "Connection: close") < 0)
		return error_memory(err);
	r = http_perform(o->engine,
		&(struct http_request){.method = "GET",
			.url = url,
			.headers = headers,
			.deadline_ms = s->asked_ms + ASK_MS,
			.max_attempts = 1,
			.fresh_connection = true,
			.direct = true,
			.cancel = o->cancel,
			.from = probe ? TRAFFIC_PROBE : NULL},
		&reply, err);
	if (r < 0 && !o->health && reply.status >= 100 && reply.status < 500) {
		penstock_error_release(err);
		return 0;
	}
	return r;
}

/* ---- end ---- */

void backend_go(struct backend *s)
{
	if (s->gate > 0) {
		(void)!write(s->gate, "\n", 1); /* fails if the server has ended */
		close(s->gate);
	}
	s->gate = 0;
}

/* Kills the processes of the session that have outlived the server. */
static void kill_session(pid_t session)
{
	_cleanup_closedir_ DIR *d = opendir("/proc");
	const struct dirent *e;
	struct process_info info;
	uint64_t pid;

	while (d && (e = fs_next_entry(d))) {
		if (str_to_u64(e->d_name, 1, INT_MAX, &pid) && process_info((pid_t)pid, &info) &&
			info.session == session)
			kill((pid_t)pid, SIGKILL);
	}
}

bool backend_has_ended(struct backend *s, int *status)
{
	struct pollfd p = {s->process.pidfd, POLLIN, 0};

	*status = -1;
	if (poll(&p, 1, 0) != 1)
		return false;
	kill_session(s->process.pid);
	if (process_is_spawned(s->process.pid))
		process_wait(&s->process, 0, status);
	return true;
}
