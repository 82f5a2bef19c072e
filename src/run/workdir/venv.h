/*
 * Python packages for steps on the host: environments in HOME/venvs, one for each combination of a
 * Python and the contents of a requirements file, made once and shared by runs. With
 * `system_packages` an environment sees the machine's own packages, so that a site's builds
 * (PyTorch for its GPUs) are used if the requirements allow them.
 */
#ifndef RUN_WORKDIR_VENV_H
#define RUN_WORKDIR_VENV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct penstock_error;

struct venv_spec {
	const char *home;
	const char *requirements; /* path */
	const char *shown; /* name of the file for display */
	const char *version; /* "3.11"; NULL for the default python3 */
	bool system_packages;
	int log_fd; /* destination of pip's output */
	const atomic_int *cancel;
};

/* An environment in use, which `penstock prune` does not remove. */
struct venv {
	char *dir; /* NULL if the run needs no environment */
	int use_fd; /* holds a shared lock of DIR.use, whose time is that of the last use */
};
void venv_release(struct venv *venv);

/* Gets the environment, and makes it if it is missing. Blocks while another run makes it. */
int venv_get(struct venv *out, const struct venv_spec *spec, struct penstock_error *err);
/* Removes the environment `dir`; its lock files stay. Returns 1, and removes nothing, if a run uses
 * or makes the environment. */
int venv_remove(const char *dir, struct penstock_error *err);
/* Returns true if a run uses or makes the environment; `used_ns` gets the time of the last use, 0
 * if unknown. */
bool venv_in_use(const char *dir, int64_t *used_ns);
/* Checks that a Python of this version is installed. */
int venv_check_version(const char *version, struct penstock_error *err);

#endif
