/*
 * Devices by the Container Device Interface: files in /etc/cdi and /var/run/cdi list what a
 * container needs for each device (device nodes, mounts, variables, hooks).
 */
#ifndef RUN_TASK_CDI_H
#define RUN_TASK_CDI_H

#include <stddef.h>

struct json_t;
struct penstock_error;

/*
 * Gets the edits for these GPUs, numbered as on the machine: an array of `containerEdits`, to be
 * released by the caller. `dirs` is NULL-terminated, and later directories take precedence; NULL
 * means /etc/cdi and /var/run/cdi. Fails with PENSTOCK_E_NOT_FOUND if no specification has all
 * these GPUs.
 */
int cdi_find(struct json_t **out, const char *const *dirs, const int *gpus, size_t n,
	struct penstock_error *err);
/* Adds the edits to a configuration of the OCI runtime. Returns -1 if out of memory. */
int cdi_apply(struct json_t *config, const struct json_t *edits);

#endif
