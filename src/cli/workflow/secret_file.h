/*
 * Secrets that `penstock secret` stores for this user: HOME/secrets.json, mode 0600, or the
 * desktop's keyring (secret-tool), in which case the file only has the name.
 */
#ifndef CLI_WORKFLOW_SECRET_FILE_H
#define CLI_WORKFLOW_SECRET_FILE_H

#include <stdbool.h>

#include "base/buf.h"

struct penstock_error;

/* Appends the secret's value: PENSTOCK_SECRET_NAME of the environment, otherwise the stored value.
 * Returns false if there is no value. */
bool secret_find(const char *name, struct buf *value);
/* Returns true if the name consists of letters, digits and _, and does not begin with a digit. */
bool secret_name_is_valid(const char *name);

/* Stores the value, replacing an earlier one. */
int secret_set(const char *name, const char *value, bool in_keyring, struct penstock_error *err);
/* Removes the secret. Fails with PENSTOCK_E_NOT_FOUND if there is no such secret. */
int secret_remove(const char *name, struct penstock_error *err);
/* Calls fn for each secret, sorted by name. */
int secret_list(void (*fn)(void *cookie, const char *name, bool in_keyring), void *cookie,
	struct penstock_error *err);

#endif
