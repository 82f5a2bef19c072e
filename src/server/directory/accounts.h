/*
 * A file of the operator with accounts: a JSON array of objects with the members "number", "name",
 * "access_key_id" and "secret_access_key", and, if wanted, "id" (the canonical id) and "email".
 */
#ifndef SERVER_DIRECTORY_ACCOUNTS_H
#define SERVER_DIRECTORY_ACCOUNTS_H

struct directory;
struct penstock_error;

/* Adds the accounts of the file, or replaces name, email and root key of those that exist. */
int accounts_read(struct directory *directory, const char *path, struct penstock_error *err);

#endif
