#include "server/directory/documents.h"

#include <stdlib.h>
#include <string.h>

/* Replaces uthash's default hash, in which Clang reports a fall-through. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#define HASH_NONFATAL_OOM	       1
#include <uthash.h>

#include <penstock/error.h>

#include "s3/access/policy.h"

struct document {
	struct policy *policy; /* NULL if the text is unreadable */
	UT_hash_handle hh;
	char text[];
};

/* Caches a document. If out of memory, the document is parsed again for the next identity. */
static void keep(struct documents *documents, const char *text, size_t len, struct policy *policy)
{
	struct document *document = malloc(sizeof(*document) + len + 1);

	if (!document)
		return;
	memcpy(document->text, text, len + 1);
	document->policy = policy;
	HASH_ADD_KEYPTR(hh, documents->table, document->text, len, document);
	if (!document->hh.tbl) {
		free(document);
		return;
	}
	policy_ref(policy);
	documents->bytes += len;
}

bool documents_get(struct documents *documents, const char *text, struct policy **out)
{
	size_t len = strlen(text);
	struct document *found;
	struct policy *policy = NULL;

	HASH_FIND(hh, documents->table, text, len, found);
	if (found) {
		*out = policy_ref(found->policy);
		return true;
	}
	if (policy_parse(text, len, POLICY_OF_IDENTITY, NULL, &policy, NULL) == -PENSTOCK_E_MEMORY)
		return false;
	keep(documents, text, len, policy);
	*out = policy;
	return true;
}

void documents_release(struct documents *documents)
{
	struct document *document, *next;

	HASH_ITER (hh, documents->table, document, next) {
		HASH_DEL(documents->table, document);
		policy_free(document->policy);
		free(document);
	}
	documents->bytes = 0;
}
