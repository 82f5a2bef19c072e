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
};

/* The kind that the name of the action ends in, or has before "Policy" and "Policies". */
const struct entity_kind *entity_kind_of(const char *action);
extern const struct entity_kind entity_user, entity_group, entity_role;

/* Returns the name of the record; NULL with the reply set. */
const char *entity_record(struct query *q, const struct entity_kind *kind, const char *name);
/* Finds the entity that a parameter names, and the name of its record. Returns NULL with the reply
 * set. */
const json_t *entity_find(struct query *q, const struct entity_kind *kind, const char **record);
/* The user of an action that without a UserName is about the sender itself. */
const json_t *entity_find_user(struct query *q, const char **record);
/* Writes the members of an entity. */
void entity_write(struct query *q, const struct entity_kind *kind, const json_t *entity);
/* Returns the ARN, or NULL with the reply set. */
const char *entity_arn(struct query *q, const struct entity_kind *kind, const json_t *entity);
const char *entity_text(const json_t *entity, const char *member);
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
