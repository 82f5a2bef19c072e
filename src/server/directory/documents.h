/*
 * A cache of parsed policies by their texts. Identities share the policies: a managed policy
 * belongs to many users, and a user may have many temporary keys.
 *
 *	struct documents documents = {0};
 *
 *	if (documents_get(&documents, text, &policy))
 *		...
 *	policy_free(policy);
 *	documents_release(&documents);
 */
#ifndef SERVER_DIRECTORY_DOCUMENTS_H
#define SERVER_DIRECTORY_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "s3/access/policy.h"

struct document;

struct documents {
	struct document *table;
	size_t bytes; /* bytes of the texts */
};

/* Gets a reference to the policy of a user, group, role or session with this text; NULL if the text
 * is unreadable. Returns false if out of memory. */
bool documents_get(struct documents *documents, const char *text, struct policy **out);
/* Forgets all documents; references stay valid. */
void documents_release(struct documents *documents);

#endif
