/*
 * The grammar of the native dialect as tables: which keys each map has, and what stands below them. Reading, the nearest valid key and `--set` paths all use it.
 */
#ifndef WORKFLOW_SCHEMA_H
#define WORKFLOW_SCHEMA_H

#include <stddef.h>

struct schema;

struct schema_field {
	const char *name;
	const struct schema *below; /* of a map, or of each member of a list; NULL: a scalar */
};

struct schema {
	const char *what; /* "a step", "`resources`", for messages */
	const struct schema_field *fields;
	size_t n;
};

extern const struct schema schema_job;
extern const struct schema schema_resources;
extern const struct schema schema_env;
extern const struct schema schema_input; /* `input`, and each of `inputs` */
extern const struct schema schema_output;
extern const struct schema schema_http;
extern const struct schema schema_s3, schema_gs;
extern const struct schema schema_local;
extern const struct schema schema_artifacts_of; /* `artifacts` of an input */
extern const struct schema schema_context;
extern const struct schema schema_python;
extern const struct schema schema_step;
extern const struct schema schema_run;
extern const struct schema schema_notify;
extern const struct schema schema_preemption, schema_notice_source, schema_metadata;
extern const struct schema schema_checkpoints, schema_keep, schema_best;
extern const struct schema schema_retry;
extern const struct schema schema_step_resources;
extern const struct schema schema_container, schema_mount;
extern const struct schema schema_for, schema_range, schema_launch, schema_use;
/* The document behind `use.source`; `use.module` holds it in the copy that a run keeps. */
extern const struct schema schema_module, schema_module_input, schema_module_output;
extern const struct schema schema_interface, schema_wireguard, schema_peer, schema_bore,
	schema_vnet;
extern const struct schema schema_virtual_network;

/* NULL: there is no such key. */
const struct schema_field *schema_find(const struct schema *schema, const char *name);
/* The supported or known key that is nearest to `name`, or NULL. Also where only case or
 * separators differ. */
const char *schema_nearest(const struct schema *schema, const char *name);

#endif
