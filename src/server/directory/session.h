/*
 * Temporary keys, as AssumeRole and GetSessionToken give them. The store keeps no temporary keys:
 * the session token, which the store signs, has all that the store needs, and the secret key is
 * derived from the access key.
 *
 *	session_secret(&key, access_key_id, secret);
 *	r = session_seal(&key, terms, &token);
 *	...
 *	terms = session_open(&key, token);	// NULL if it is not a token of this store
 *
 * The terms are a JSON object:
 *	"key"		the temporary access key
 *	"record"	name of the record of the role, user or account in the directory
 *	"id"		id of the role or user; a later entity of that name has another id
 *	"by"		the access key that requested the key; missing for a role
 *	"name"		name of a session of a role
 *	"account"	account of the sender that assumed the role
 *	"policy", "arns"	the policies of the session, if there are any
 *	"issued", "expires"	times in seconds
 */
#ifndef SERVER_DIRECTORY_SESSION_H
#define SERVER_DIRECTORY_SESSION_H

#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"

#define SESSION_KEY_SIZE 32
struct session_key {
	uint8_t bytes[SESSION_KEY_SIZE];
};

#define SESSION_ID_PREFIX   "ASIA" /* prefix of access keys */
#define SESSION_SECRET_SIZE 41 /* 40 characters and NUL */

/* Derives the secret key. Returns -1 if out of memory, like session_seal(). */
int session_secret(const struct session_key *key, const char *access_key_id,
	char out[static SESSION_SECRET_SIZE]);
/* Appends the token. */
int session_seal(const struct session_key *key, const json_t *terms, struct buf *token);
/* Returns the terms, which the caller releases, or NULL if the store did not make the token, or if
 * out of memory. */
json_t *session_open(const struct session_key *key, const char *token);

#endif
