/*
 * Secrets that `penstock secret` keeps for this user: HOME/secrets.json, mode 0600, or the desktop's keyring
 * (secret-tool), of which the file then only has the name.
 */
#ifndef CLI_SECRET_FILE_H
#define CLI_SECRET_FILE_H

#include <stdbool.h>

#include "base/buf.h"

struct penstock_error;

/* Appends the secret's value: PENSTOCK_SECRET_NAME of the environment, else what is kept. */
bool secret_find(const char *name, struct buf *value);
/* Letters, digits and _, without a digit in front. */
bool secret_name_is_good(const char *name);

/* Replaces the value. */
int secret_set(const char *name, const char *value, bool keyring, struct penstock_error *err);
/* PENSTOCK_E_NOT_FOUND: there is none. */
int secret_remove(const char *name, struct penstock_error *err);
/* Calls fn for each, by name. */
int secret_list(void (*fn)(void *cookie, const char *name, bool keyring), void *cookie,
	struct penstock_error *err);

#endif
