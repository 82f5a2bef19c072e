/* What the user has logged in with: the files of Docker and podman, and the helpers they name. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"
#include "image/source.h"
#include "base/banned.h"

#define HELPER_MS 30000

/* ---- helpers: docker-credential-NAME get ---- */

static int read_all(int fd, struct buf *out, int64_t until)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = until - clock_monotonic_ms();
		char *room = buf_reserve(out, 4 * KIB);
		ssize_t n;

		if (!room || left <= 0 || poll(&p, 1, (int)left) == 0)
			return -1;
		n = read(fd, room, 4 * KIB);
		if (n == 0)
			return 0;
		if (n > 0)
			buf_grown(out, (size_t)n);
		else if (errno != EINTR)
			return -1;
	}
}

static bool parse_helper(struct image_login *login, const struct buf *text)
{
	json_auto_t *root = json_loadb(buf_str(text), text->len, 0, NULL);
	const char *username = json_string_value(json_object_get(root, "Username"));
	const char *secret = json_string_value(json_object_get(root, "Secret"));

	/* "<token>" means an identity token, which is no password. */
	if (!username || !secret || !*username || strcmp(username, "<token>") == 0)
		return false;
	login->username = strdup(username);
	login->password = strdup(secret);
	return login->username && login->password;
}

static void ask_helper(struct image_login *login, const char *program, const char *host)
{
	const char *const argv[] = {program, "get", NULL};
	int64_t until = clock_monotonic_ms() + HELPER_MS;
	struct buf text = BUF_INIT(LIMIT_IMAGE_LOGIN);
	struct process process = PROCESS_INIT;
	int in[2], out[2], status = 0;

	if (pipe2(in, O_CLOEXEC) < 0)
		return;
	if (pipe2(out, O_CLOEXEC) < 0) {
		close(in[0]);
		close(in[1]);
		return;
	}
	/* A host is far shorter than what a pipe holds. */
	if (fs_write_all(in[1], host, strlen(host)) == 0 &&
		process_spawn(&process,
			&(struct process_spec){.argv = argv,
				.stdin_fd = in[0],
				.stdout_fd = out[1],
				.stderr_fd = -1,
				.new_session = true},
			NULL) == 0) {
		bool good;

		close(take_fd(in[1]));
		close(take_fd(out[1]));
		good = read_all(out[0], &text, until) == 0;
		if (!good || !process_wait(&process, HELPER_MS, &status)) {
			process_signal(&process, SIGKILL);
			process_wait(&process, -1, &status);
			good = false;
		}
		process_release(&process);
		if (good && WIFEXITED(status) && WEXITSTATUS(status) == 0)
			parse_helper(login, &text);
	}
	if (text.data)
		explicit_bzero(text.data, text.cap);
	buf_release(&text);
	close(in[0]);
	close(out[0]);
	if (in[1] >= 0)
		close(in[1]);
	if (out[1] >= 0)
		close(out[1]);
}

static void resolve_helper(struct image_login *login, const struct image_reference *reference)
{
	_cleanup_free_ char *name = NULL;
	_cleanup_free_ char *program = NULL;
	bool hub = strcmp(reference->shown_host, "docker.io") == 0;

	if (asprintf(&name, "docker-credential-%s", login->helper) < 0)
		name = NULL;
	program = name ? fs_find_program(str_env("PATH"), name) : NULL;
	if (program)
		ask_helper(login, program, hub ? "https://index.docker.io/v1/" : reference->host);
	else if (login->named)
		log_warn("the login for %s is kept by %s, which is not installed",
			reference->shown_host, name ? name : "a program");
}

/* ---- files ---- */

static int from_file(struct image_login *login, char *owned,
	const struct image_reference *reference, struct penstock_error *err)
{
	_cleanup_free_ char *path = owned;
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	int r;

	if (!path)
		return error_memory(err);
	r = fs_read(path, &text, &why);
	if (r == -(int)PENSTOCK_E_NOT_FOUND) {
		r = 0;
	} else if (r == 0) {
		r = image_login_parse(login, buf_str(&text), text.len, reference->host,
			reference->repository, &why);
	}
	/* A login file that is broken is no reason not to bring a public image. */
	if (r < 0 && why.code != PENSTOCK_E_MEMORY) {
		log_warn("the logins in %s cannot be read: %s", path, why.message);
		r = 0;
	}
	if (text.data)
		explicit_bzero(text.data, text.cap);
	buf_release(&text);
	if (r > 0 && login->helper)
		resolve_helper(login, reference);
	if (r < 0)
		return error_memory(err);
	if (login->username)
		return 1;
	image_login_release(login); /* the next file may know */
	return 0;
}

int login_find(struct image_login *login, const struct image_reference *reference,
	struct penstock_error *err)
{
	const char *file = str_env("REGISTRY_AUTH_FILE");
	const char *docker = str_env("DOCKER_CONFIG");
	const char *runtime = str_env("XDG_RUNTIME_DIR");
	const char *home = str_env("HOME");
	int r = 0;

	*login = (struct image_login){0};
	if (file)
		r = from_file(login, strdup(file), reference, err);
	if (r == 0 && !file && runtime)
		r = from_file(login, path_join(runtime, "containers/auth.json"), reference, err);
	if (r == 0 && home)
		r = from_file(
			login, path_join(home, ".config/containers/auth.json"), reference, err);
	if (r == 0 && docker)
		r = from_file(login, path_join(docker, "config.json"), reference, err);
	if (r == 0 && !docker && home)
		r = from_file(login, path_join(home, ".docker/config.json"), reference, err);
	if (r > 0 && log_redact(login->password) < 0)
		r = error_memory(err);
	if (r < 0)
		image_login_release(login);
	return r < 0 ? r : 0;
}
