/* The environment variables with which the clients of a step find its store. */
#ifndef RUN_STEP_STORE_ENVIRONMENT_H
#define RUN_STEP_STORE_ENVIRONMENT_H

#include "base/str.h"

struct credentials;
struct environment_spec;
struct s3_settings;

/* Sets the endpoint and the region, for s5cmd and for all clients of AWS. */
int store_environment_place(struct strlist *env, const struct s3_settings *settings);
/* Sets the keys, and removes a session token that belongs to other keys. */
int store_environment_keys(struct strlist *env, const struct credentials *keys);

/* Returns the endpoint of the step's store; NULL if there is no store that S3 clients can use. */
const char *store_environment_endpoint(const struct environment_spec *spec);
/*
 * Adds endpoint, region, and keys or the endpoint of the keys. Clients query the endpoint of the
 * keys last, so the variables of other sources are removed, and a profile with credentials is
 * replaced by a profile of the run without credentials.
 */
int store_environment(struct strlist *env, const struct environment_spec *spec);

#endif
