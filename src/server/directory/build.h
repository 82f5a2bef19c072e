/* Identities from the records of the directory. */
#ifndef SERVER_DIRECTORY_BUILD_H
#define SERVER_DIRECTORY_BUILD_H

#include <jansson.h>

#include "s3/message/errors.h"
#include "server/directory/identity.h"

struct build_source {
	const json_t *records;
	struct documents *documents; /* parsed policies */
	const char *name; /* name of the record of the user, role or account */
	const struct account_info *owner;
	const char *access_key_id;
	const char *secret_access_key; /* NULL if it is in the record */
	/* The terms (server/directory/session.h) and the token of a temporary key; NULL for any
	 * other key. */
	const json_t *session;
	const char *token;
};
/* Returns NULL with *problem set if the key may not be used, or if out of memory. */
struct identity *build_identity(const struct build_source *from, enum s3_error *problem);

#endif
