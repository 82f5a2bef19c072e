/*
 * Devices by the Container Device Interface: files in /etc/cdi and /var/run/cdi say what a container needs for each
 * (nodes, mounts, variables, hooks).
 */
#ifndef RUN_EXECUTORS_CDI_H
#define RUN_EXECUTORS_CDI_H

#include <stddef.h>

struct json_t;
struct penstock_error;

/*
 * The edits for these GPUs, as the machine numbers them: an array of `containerEdits`; decref it. `dirs` is
 * NULL-terminated, of later ones wins; NULL: those above. NOT_FOUND: nothing there knows such a GPU.
 */
int cdi_find(struct json_t **out, const char *const *dirs, const int *gpus, size_t n,
	struct penstock_error *err);
/* Adds them to a configuration of the OCI runtime. -1: no memory. */
int cdi_apply(struct json_t *config, const struct json_t *edits);

#endif
