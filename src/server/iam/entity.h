/* Functions that the actions on users, groups, roles and managed policies share. Each of these
 * entities is a record of the directory. */
#ifndef SERVER_IAM_ENTITY_H
#define SERVER_IAM_ENTITY_H

#include <jansson.h>

#include "server/iam/query.h"

struct entity_kind {
	const char *word; /* word in records and ARNs */
	const char *title; /* name of XML elements: "User" */
	const char *parameter; /* request parameter with the name of the entity */
	const char *id_prefix;
	uint64_t quota; /* maximum number in an account, as with AWS */
};

/* Returns the kind of entity that the name of an action contains. */
const struct entity_kind *entity_kind_of(const char *action);
extern const struct entity_kind entity_user, entity_group, entity_role, entity_policy;

/* Returns true for a valid name of at most `most` characters. */
bool entity_is_name(const char *name, size_t most);
/* Gets the IAM path in `parameter` ("Path" or "NewPath"), or "/" if the request lacks it. Sets the
 * reply and returns NULL on failure. */
const char *entity_path(struct query *q, const char *parameter);

/* Returns the name of the record. Sets the reply and returns NULL on failure. */
const char *entity_record(struct query *q, const struct entity_kind *kind, const char *name);
/* Finds the entity that a parameter names, and the name of its record. Sets the reply and returns
 * NULL on failure. */
const json_t *entity_find(struct query *q, const struct entity_kind *kind, const char **record);
/* Returns the ARN of the entity or policy that the request is about, even if it does not exist.
 * Returns "*" if the request is about a whole account. Sets the reply and returns NULL on
 * failure. */
const char *entity_resource(struct query *q);
/* Like entity_find(), for the user of an action; without UserName the user is the sender itself. */
const json_t *entity_find_user(struct query *q, const char **record);
/* Returns a copy of a record, or a new record if `entity` is NULL. *part is the object `member` of
 * the copy; a missing object is added. Sets the reply and returns NULL on failure. */
json_t *entity_copy_with(struct query *q, const json_t *entity, const char *member, json_t **part);
/* Stores a changed copy, and takes the reference to `copy`. Stores nothing if `failed` is not 0,
 * because the change ran out of memory. Sets the reply and returns false on failure. */
bool entity_store(struct query *q, const char *record, json_t *copy, int failed);
/* Stores an entity after adding a text to its list `member`, or removing the text if `add` is
 * false. Sets the reply and returns false on failure. */
bool entity_store_listed(struct query *q, const char *record, const json_t *entity,
	const char *member, const char *text, bool add);
/* Checks the quota. Sets the reply and returns false if the account may have no more entities of
 * this kind. */
bool entity_may_add(struct query *q, const struct entity_kind *kind);
/* Writes the members of an entity. */
void entity_write(struct query *q, const struct entity_kind *kind, const json_t *entity);
/* Returns the ARN. Sets the reply and returns NULL on failure. */
const char *entity_arn(struct query *q, const struct entity_kind *kind, const json_t *entity);
/* Limits, as with AWS. */
#define ENTITY_KEYS_MAX	       2 /* access keys of a user */
#define ENTITY_ATTACHED_MAX    10 /* managed policies of one entity */
#define ENTITY_GROUPS_MAX      10 /* groups of a user */
#define ENTITY_TRUST_MAX       2048 /* characters of the trust policy of a role */
#define ENTITY_DESCRIPTION_MAX 1000 /* characters */
/* Checks a policy document, and returns it without white space between tokens. Sets the reply and
 * returns NULL if it is invalid, or if its size plus `others` is more than `most`. */
const char *entity_check_policy(
	struct query *q, const char *document, enum policy_kind kind, size_t others, size_t most);
/* Returns the number of bytes of a document without white space between tokens. */
size_t entity_policy_size(const char *document);
/* Returns the Description of the request, or NULL if the request lacks it. Sets the reply and
 * returns NULL if it is too long. */
const char *entity_description(struct query *q);
/* Generates the id of an entity, or of a key: a prefix and letters. Sets the reply and returns NULL
 * on failure. */
const char *entity_id(struct query *q, const char *prefix, size_t n, const char *alphabet);
#define ENTITY_ID_ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

/* A page of a list: sorted names after the Marker. */
struct entity_page {
	const char **names;
	size_t n;
	bool truncated;
};
/* Sorts `n` names, and selects a page of them. Sets the reply and returns false on failure. */
bool entity_page(struct query *q, const char **names, size_t n, struct entity_page *out);
/* Ends the page after `n` entities if the reply may lack room for another one. */
void entity_page_fit(struct query *q, struct entity_page *page, size_t n);
/* Writes the end of a page. */
void entity_page_end(struct query *q, const struct entity_page *page);

#endif
