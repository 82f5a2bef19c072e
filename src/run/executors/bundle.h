/* The bundle that crun is given: `config.json` by the OCI runtime specification. */
#ifndef RUN_EXECUTORS_BUNDLE_H
#define RUN_EXECUTORS_BUNDLE_H

#include <stdbool.h>

struct penstock_error;
struct task_spec;

/* Writes DIR/config.json; the root is DIR/rootfs. `rootless`: we are root only in a user namespace. */
int bundle_write(
	const char *dir, const struct task_spec *spec, bool rootless, struct penstock_error *err);

#endif
