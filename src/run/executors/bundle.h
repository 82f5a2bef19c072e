/* The bundle that crun is given: `config.json` by the OCI runtime specification. */
#ifndef RUN_EXECUTORS_BUNDLE_H
#define RUN_EXECUTORS_BUNDLE_H

#include <stdbool.h>

struct task_spec;

/*
 * The text of config.json, owned by the caller; NULL: no memory. The root is `rootfs` beside it, and DIR has the
 * container's resolv.conf. `rootless`: we are root only in a user namespace.
 */
char *bundle_text(const char *dir, const struct task_spec *spec, bool rootless);

#endif
