/*
 * The directory keeps accounts, users, groups, roles and managed policies in memory. A change is a
 * transaction of the store; other threads see the change once it is durable. Each entity is an
 * immutable JSON object: a change replaces the object.
 *
 *	r = directory_open(&directory, &(struct directory_options){ .store = store,
 *		.access_key_id = id, .secret_access_key = secret }, err);
 *	...
 *	who = directory_identify(directory, "AKIA…", NULL, &problem);
 *	...
 *	identity_unref(who);
 *	directory_close(directory);
 *
 * Records are named "account/NUMBER", "user/NUMBER/name", "group/NUMBER/name", "role/NUMBER/name"
 * and "policy/NUMBER/name". The "name" is in lower case, because names are unique regardless of
 * case. docs/decisions/access-identities.md describes the members of the records.
 */
#ifndef SERVER_DIRECTORY_DIRECTORY_H
#define SERVER_DIRECTORY_DIRECTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "s3/message/errors.h"
#include "server/directory/identity.h"
#include "server/directory/session.h"

struct directory;
struct penstock_error;
struct store;

struct directory_options {
	struct store *store;
	/* The keys of the root of ACCOUNT_FIRST; borrowed. */
	const char *access_key_id;
	const char *secret_access_key;
};
int directory_open(struct directory **out, const struct directory_options *options,
	struct penstock_error *err);
/* `directory` may be NULL. */
void directory_close(struct directory *directory);

/* Finds the identity of an access key. `token` is the session token of the request, or NULL.
 * Returns NULL and sets *problem if there is no such key, or its token is invalid or has expired.
 * Release the reference. */
struct identity *directory_identify(struct directory *directory, const char *access_key_id,
	const char *token, enum s3_error *problem);
struct identity *directory_anonymous(struct directory *directory);

/* Returns true if there is more than one account. */
bool directory_is_shared(struct directory *directory);
/* Find an account, which stays valid until directory_close(). Return NULL if there is no such
 * account. */
const struct account_info *directory_account(struct directory *directory, const char *number);
const struct account_info *directory_account_by_id(struct directory *directory, const char *id);
const struct account_info *directory_account_by_email(
	struct directory *directory, const char *email);

/* --- changes -------------------------------------------------------------------------------- */

/* Excludes other changes: records that are read afterwards stay the same until directory_end(). */
void directory_begin(struct directory *directory);
void directory_end(struct directory *directory);

/* Between begin and end: returns a record, which is valid until it is changed, or NULL. */
const json_t *directory_get(const struct directory *directory, const char *name);
/* Between begin and end: returns all records by name, in no order; valid until the next change. */
const json_t *directory_records(const struct directory *directory);
/* Between begin and end: returns the name of the record with an access key, or NULL. */
const char *directory_key_holder(const struct directory *directory, const char *access_key_id);

struct directory_change {
	const char *name;
	json_t *value; /* borrowed, and not changed afterwards; NULL removes the record */
};
/* Between begin and end: makes all changes, or none. */
enum store_status directory_change(struct directory *directory,
	const struct directory_change *changes, size_t n, struct penstock_error *err);

/* Between begin and end: gets the key that session tokens are signed with, and creates it at the
 * first call. */
enum store_status directory_session_key(
	struct directory *directory, struct session_key *out, struct penstock_error *err);

#endif
