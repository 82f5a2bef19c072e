/* The variables by which the clients of a step find its store. */
#ifndef RUN_STEP_STORE_ENVIRONMENT_H
#define RUN_STEP_STORE_ENVIRONMENT_H

#include "base/str.h"

struct environment_spec;

/*
 * Adds endpoint, region, and keys or the endpoint of the keys. Clients query that endpoint last:
 * variables of other sources are removed, and a profile with credentials is replaced by one of the
 * run without any.
 */
int store_environment(struct strlist *env, const struct environment_spec *spec);

#endif
