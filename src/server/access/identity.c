#include "server/access/identity.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

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

void identity_unref(struct identity *identity)
{
	if (!identity || atomic_fetch_sub(&identity->refs, 1) > 1)
		return;
	wipe(identity->secret_access_key);
	wipe(identity->token);
	free(identity->own.texts);
	free(identity->boundary.texts);
	free(identity->session.texts);
	arena_release(&identity->arena);
	free(identity);
}

bool identity_add_document(
	struct identity *identity, struct identity_documents *to, const char *text)
{
	const char **grown = array_grow(to->texts, to->n, sizeof(*grown));

	if (!grown)
		return false;
	to->texts = grown;
	to->texts[to->n] = arena_copy(&identity->arena, text, strlen(text));
	return to->texts[to->n++] != NULL;
}
