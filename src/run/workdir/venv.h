/*
 * Python packages for steps on the host: environments in HOME/venvs, one for each content of a
 * requirements file, made once and shared by runs. An environment sees the machine's own packages,
 * so that a site's builds (PyTorch for its GPUs) are used if the requirements allow them.
 */
#ifndef RUN_WORKDIR_VENV_H
#define RUN_WORKDIR_VENV_H

#include <stdatomic.h>
#include <stdbool.h>

struct penstock_error;

struct venv_spec {
	const char *home;
	const char *requirements; /* path */
	const char *shown; /* its name for display */
	const char *version; /* "3.11"; NULL for the default python3 */
	bool system_packages;
	int log_fd; /* destination of pip's output */
	const atomic_int *cancel;
};

/* Gets the directory of the complete environment; the caller frees it. Blocks while another run
 * makes it. */
int venv_get(char **out, const struct venv_spec *spec, struct penstock_error *err);
/* Checks that a Python of this version is installed. */
int venv_check_version(const char *version, struct penstock_error *err);

#endif
