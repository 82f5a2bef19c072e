/* Records of the directory: their names, members and ARNs. */
#ifndef SERVER_DIRECTORY_RECORD_H
#define SERVER_DIRECTORY_RECORD_H

#include <jansson.h>

#include "server/directory/identity.h"

struct record_account {
	char number[STORE_OWNER_SIZE];
};
/* Returns the number of the account in the name of a record. */
struct record_account record_account(const char *name);
/* Returns a text, or NULL if the record, which may be NULL, lacks the member. */
const char *record_member(const json_t *record, const char *member);
/* Returns a text, or "" if the record, which may be NULL, lacks the member. */
const char *record_text(const json_t *record, const char *member);
/* Finds the user, group, role or policy that an ARN names, "arn:aws:iam::NUMBER:KIND/path/name",
 * and the name of its record, which is valid until the next change; `name` may be NULL. Returns
 * NULL if there is no such record. */
const json_t *record_by_arn(const json_t *records, const char *arn, const char **name);

#endif
