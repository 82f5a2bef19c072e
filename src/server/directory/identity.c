#include "server/directory/identity.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/directory/documents.h"

struct identity *identity_new(void)
{
	struct identity *identity = calloc(1, sizeof(*identity));

	if (identity)
		atomic_init(&identity->refs, 1);
	return identity;
}

struct identity *identity_ref(struct identity *identity)
{
	atomic_fetch_add_explicit(&identity->refs, 1, memory_order_relaxed);
	return identity;
}

static void wipe(const char *secret)
{
	if (secret)
		explicit_bzero((char *)(uintptr_t)secret, strlen(secret));
}

static void free_documents(struct identity_documents *documents)
{
	for (size_t i = 0; i < documents->n; i++)
		policy_free(documents->policies[i]);
	free(documents->policies);
}

void identity_unref(struct identity *identity)
{
	if (!identity || atomic_fetch_sub(&identity->refs, 1) > 1)
		return;
	wipe(identity->secret_access_key);
	wipe(identity->token);
	free_documents(&identity->own);
	free_documents(&identity->boundary);
	free_documents(&identity->session);
	arena_release(&identity->arena);
	free(identity);
}

bool identity_add_document(struct identity *identity, struct identity_documents *to,
	const char *text, struct documents *shared)
{
	struct policy **grown = array_grow(to->policies, to->n, sizeof(void *));

	if (!grown)
		return false;
	to->policies = grown;
	if (!documents_get(shared, text, &to->policies[to->n]))
		return false;
	to->n++;
	identity->has_policies = true;
	return true;
}

/* --- the result of policies ----------------------------------------------------------------- */

/* Returns the greatest of the documents' results: a denial outweighs a permission. */
static enum policy_result evaluate(
	const struct identity_documents *documents, const struct policy_question *question)
{
	enum policy_result best = POLICY_NEITHER;

	for (size_t i = 0; i < documents->n; i++) {
		enum policy_result result = documents->policies[i]
						    ? policy_evaluate(
							      documents->policies[i], question)
						    : POLICY_DENY;

		best = result > best ? result : best;
	}
	return best;
}

/* Narrows a result: if there are any documents, they must allow the action, too. */
static enum policy_result narrow(enum policy_result result,
	const struct identity_documents *documents, const struct policy_question *question)
{
	enum policy_result limit = documents->n ? evaluate(documents, question) : POLICY_ALLOW;

	if (result >= POLICY_DENY || limit >= POLICY_DENY)
		return result > limit ? result : limit;
	return result < limit ? result : limit;
}

enum policy_result identity_evaluate(
	const struct identity *identity, const struct policy_question *question)
{
	enum policy_result result = identity->is_root ? POLICY_ALLOW
						      : evaluate(&identity->own, question);

	result = narrow(result, &identity->boundary, question);
	return narrow(result, &identity->session, question);
}

bool identity_is_limited(const struct identity *identity, const struct policy_question *question)
{
	return narrow(POLICY_ALLOW, &identity->session, question) != POLICY_ALLOW;
}

struct policy_caller identity_caller(const struct identity *who)
{
	return (struct policy_caller){.account = who->is_anonymous ? NULL : who->account,
		.canonical_id = who->is_anonymous ? NULL : who->owner->id,
		.arn = who->is_anonymous ? NULL : who->arn,
		.role_arn = who->kind == IDENTITY_ROLE ? who->principal_arn : NULL,
		.is_root = who->is_root};
}
