/*
 * Python packages for steps on the host: environments below HOME/venvs, one for each contents of a
 * requirements file, made once and shared by runs. An environment sees the machine's own packages, so
 * that a site's builds (PyTorch for its GPUs) are used where the requirements allow them.
 */
#ifndef RUN_VENV_H
#define RUN_VENV_H

#include <stdatomic.h>
#include <stdbool.h>

struct penstock_error;

struct venv_spec {
	const char *home;
	const char *requirements; /* path */
	const char *shown;	  /* its name for people */
	const char *version;	  /* "3.11"; NULL: whatever python3 is */
	bool system_packages;
	int log_fd; /* where pip's output goes */
	const atomic_int *cancel;
};

/* The directory of the environment, complete; free() it. Blocks while another run makes it. */
int venv_get(char **out, const struct venv_spec *spec, struct penstock_error *err);
/* Whether there is a Python of this version. */
int venv_check_version(const char *version, struct penstock_error *err);

#endif
