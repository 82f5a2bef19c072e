/* The bundle for crun: `config.json` of the OCI runtime specification. */
#ifndef RUN_TASK_BUNDLE_H
#define RUN_TASK_BUNDLE_H

#include <stdbool.h>

struct penstock_error;
struct task_container;
struct task_spec;

/* Fails if config.json, which is UTF-8, cannot hold an argument, a variable or a mount. */
int bundle_check(const struct task_spec *spec, struct penstock_error *err);
/*
 * Returns the text of config.json, freed by the caller, or NULL if out of memory. The root is
 * `rootfs` in the directory of config.json, and `dir` has the container's resolv.conf. `rootless`
 * is set if penstock is root only in a user namespace.
 */
char *bundle_text(const char *dir, const struct task_spec *spec, bool rootless);
/* Returns true if a mount of the container sees later mounts of the machine. */
bool bundle_has_slave(const struct task_container *container);

#endif
