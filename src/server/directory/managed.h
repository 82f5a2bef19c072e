/*
 * Managed policies, which users, groups, roles and sessions name by their ARN: the policies of the
 * directory, and a few that every account of AWS has.
 *
 * A record "policy/NUMBER/name" has the members "name", "path", "id", "description", "created",
 * "updated", "default" (the version in effect), "next" (the number of the next version) and
 * "versions", an object of "v1", … with "document" and "created".
 */
#ifndef SERVER_DIRECTORY_MANAGED_H
#define SERVER_DIRECTORY_MANAGED_H

#include <jansson.h>
#include <stddef.h>

struct managed_builtin {
	const char *name; /* the ARN is MANAGED_BUILTIN_ARN and the name */
	const char *id;
	const char *document;
};
#define MANAGED_BUILTIN_ARN "arn:aws:iam::aws:policy/"
/* Returns policy `i`, or NULL after the last policy. */
const struct managed_builtin *managed_builtin(size_t i);
const struct managed_builtin *managed_builtin_find(const char *arn);

/* Returns the document of the default version of a policy, which may be a builtin, or NULL if the
 * policy is missing. */
const char *managed_document(const json_t *records, const char *arn);

#endif
