/*
 * Finds the user's registry login in the files of Docker and podman and through the credential
 * helpers they name.
 */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"
#include "image/source.h"

#define HELPER_MS 30000

/* ---- helpers: docker-credential-NAME get ---- */

static void ask_helper(
	struct image_login *login, const char *program, const char *host, const atomic_int *cancel)
{
	const char *const argv[] = {program, "get", NULL};
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_IMAGE_LOGIN);
	json_auto_t *root = NULL;
	const char *username, *secret;
	int status = 0;
	int r = process_run(&(struct process_spec){.argv = argv,
				    .stderr_fd = -1,
				    .new_session = true,
				    .die_with_parent = true},
		&(struct process_run_options){.name = program,
			.timeout_ms = HELPER_MS,
			.cancel = cancel,
			.input = host,
			.out.text = &text},
		&status, NULL);

	if (r == 0 && status == 0)
		root = json_loadb(buf_str(&text), text.len, 0, NULL);
	username = json_string_value(json_object_get(root, "Username"));
	secret = json_string_value(json_object_get(root, "Secret"));
	/* "<token>" marks an identity token, which cannot be used as a password. */
	if (!username || !secret || !*username || strcmp(username, "<token>") == 0)
		return;
	login->username = strdup(username);
	login->password = strdup(secret);
}

static void resolve_helper(struct image_login *login, const struct image_reference *reference,
	const atomic_int *cancel)
{
	_cleanup_free_ char *name = str_printf("docker-credential-%s", login->helper);
	_cleanup_free_ char *program = name ? fs_find_program(str_env("PATH"), name) : NULL;
	bool hub = strcmp(reference->shown_host, "docker.io") == 0;

	if (program)
		ask_helper(login, program, hub ? "https://index.docker.io/v1/" : reference->host,
			cancel);
	else if (login->named)
		log_warn("cannot read the login for '%s': '%s' is not installed",
			reference->shown_host, name ? name : "the credential helper");
}

/* ---- files ---- */

static int from_file(struct image_login *login, char *owned,
	const struct image_reference *reference, const atomic_int *cancel,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = owned;
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
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
	/* A broken login file must not prevent the pull of a public image. */
	if (r < 0 && why.code != PENSTOCK_E_MEMORY) {
		log_warn("cannot read the logins in '%s': %s", path, why.message);
		r = 0;
	}
	if (r > 0 && login->helper)
		resolve_helper(login, reference, cancel);
	if (r < 0)
		return error_memory(err);
	if (login->username)
		return 1;
	image_login_release(login); /* the next file may have an entry */
	return 0;
}

int login_find(struct image_login *login, const struct image_reference *reference,
	const atomic_int *cancel, struct penstock_error *err)
{
	const char *file = str_env("REGISTRY_AUTH_FILE");
	const char *docker = str_env("DOCKER_CONFIG");
	const char *runtime = str_env("XDG_RUNTIME_DIR");
	const char *home = str_env("HOME");
	const struct {
		const char *dir, *name;
	} files[] = {
		{file, ""},
		{file ? NULL : runtime, "containers/auth.json"},
		{home, ".config/containers/auth.json"},
		{docker, "config.json"},
		{docker ? NULL : home, ".docker/config.json"},
	};
	int r = 0;

	*login = (struct image_login){0};
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
		if (files[i].dir)
			r = from_file(login,
				*files[i].name ? path_join(files[i].dir, files[i].name)
					       : strdup(files[i].dir),
				reference, cancel, err);
	}
	if (r > 0 && log_redact(login->password) < 0)
		r = error_memory(err);
	if (r < 0)
		image_login_release(login);
	return r < 0 ? r : 0;
}
