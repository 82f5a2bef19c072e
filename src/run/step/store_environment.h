/* The variables by which the clients of a step find its store. */
#ifndef RUN_STEP_STORE_ENVIRONMENT_H
#define RUN_STEP_STORE_ENVIRONMENT_H

#include "base/str.h"

struct credentials;
struct environment_spec;
struct s3_settings;

/* Sets the endpoint and the region, for all clients that AWS or s5cmd has made. */
int store_environment_place(struct strlist *env, const struct s3_settings *settings);
/* Sets the keys, and removes a token that belongs to others. */
int store_environment_keys(struct strlist *env, const struct credentials *keys);

/* The endpoint of the step's store; NULL if it has none that S3 clients can use. */
const char *store_environment_endpoint(const struct environment_spec *spec);
/*
 * Adds endpoint, region, and keys or the endpoint of the keys. Clients query that endpoint last:
 * variables of other sources are removed, and a profile with credentials is replaced by one of the
 * run without any.
 */
int store_environment(struct strlist *env, const struct environment_spec *spec);

#endif
