/*
 * A file of the operator with accounts: a JSON array of objects with the members "number", "name",
 * "access_key_id" and "secret_access_key", and optionally "id" (the canonical id) and "email". An
 * account with "access_key_id": null is revoked: no key of the account, of its users or of its
 * roles is valid.
 */
#ifndef SERVER_DIRECTORY_ACCOUNTS_H
#define SERVER_DIRECTORY_ACCOUNTS_H

struct directory;
struct penstock_error;

/* Adds the accounts of the file, all or none. For an account that exists, replaces its name, its id
 * and email address if the file has them, and the root key that an earlier file has given it. */
int accounts_read(struct directory *directory, const char *path, struct penstock_error *err);

#endif
