/* Users, groups and roles as records of the directory: what their actions share. */
#ifndef SERVER_IAM_ENTITY_H
#define SERVER_IAM_ENTITY_H

#include <jansson.h>

#include "server/iam/query.h"

struct entity_kind {
	const char *word; /* of records and ARNs */
	const char *title; /* of elements: "User" */
	const char *parameter; /* with its name */
	const char *id_prefix;
	uint64_t quota; /* of an account, as at AWS */
};

/* The kind that the name of the action ends in, or has before "Policy" and "Policies". */
const struct entity_kind *entity_kind_of(const char *action);
extern const struct entity_kind entity_user, entity_group, entity_role, entity_policy;

/* Returns true for a name of at most that many characters. */
bool entity_is_name(const char *name, size_t most);
/* Gets the path of a request, "/" if it has none, or NULL with the reply set. */
const char *entity_path(struct query *q, const char *parameter);

/* Returns the name of the record; NULL with the reply set. */
const char *entity_record(struct query *q, const struct entity_kind *kind, const char *name);
/* Finds the entity that a parameter names, and the name of its record. Returns NULL with the reply
 * set. */
const json_t *entity_find(struct query *q, const struct entity_kind *kind, const char **record);
/* Returns the ARN of what the request is about, which may be missing; "*" if it is about all. NULL
 * with the reply set. */
const char *entity_resource(struct query *q);
/* The user of an action that without a UserName is about the sender itself. */
const json_t *entity_find_user(struct query *q, const char **record);
/* Returns a copy of a record with the object `member`, which is set to *part. Returns NULL with the
 * reply set. */
json_t *entity_copy_with(struct query *q, const json_t *entity, const char *member, json_t **part);
/* Stores a changed copy, unless the change failed for lack of memory. Returns false with the reply
 * set. */
bool entity_store(struct query *q, const char *record, json_t *copy, int failed);
/* Stores an entity whose list `member` has a text at its end, or has it no more. Returns false with
 * the reply set. */
bool entity_store_listed(struct query *q, const char *record, const json_t *entity,
	const char *member, const char *text, bool add);
/* Returns false with the reply set if the account has as many of them as it may. */
bool entity_may_add(struct query *q, const struct entity_kind *kind);
/* Writes the members of an entity. */
void entity_write(struct query *q, const struct entity_kind *kind, const json_t *entity);
/* Returns the ARN, or NULL with the reply set. */
const char *entity_arn(struct query *q, const struct entity_kind *kind, const json_t *entity);
/* As at AWS. */
#define ENTITY_KEYS_MAX	    2 /* of a user */
#define ENTITY_ATTACHED_MAX 10 /* managed policies of one entity */
#define ENTITY_GROUPS_MAX   10 /* of a user */
#define ENTITY_TRUST_MAX    2048 /* characters of the trust policy of a role */
/* Parses a document, and counts its characters other than spaces. Returns false with the reply set
 * if it is invalid, or has more than `most` with `others`. */
bool entity_check_policy(
	struct query *q, const char *document, enum policy_kind kind, size_t others, size_t most);
/* The characters of a document that count. */
size_t entity_policy_size(const char *document);
/* Generates the id of an entity, or of a key: a prefix and letters. Returns NULL with the reply
 * set. */
const char *entity_id(struct query *q, const char *prefix, size_t n, const char *alphabet);
#define ENTITY_ID_ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

/* A page of a list: names in order, from the Marker on. */
struct entity_page {
	const char **names;
	size_t n;
	bool truncated;
};
/* Pages `n` names, which it sorts. Returns false with the reply set. */
bool entity_page(struct query *q, const char **names, size_t n, struct entity_page *out);
/* Writes the end of a page. */
void entity_page_end(struct query *q, const struct entity_page *page);

#endif
