/*
 * The fields of a document that are secrets, in every dialect and form: credentials by their key,
 * variables by their name, and URLs with a password or a signature.
 */
#ifndef WORKFLOW_DOCUMENT_SECRETS_H
#define WORKFLOW_DOCUMENT_SECRETS_H

#include <stdbool.h>

#include "base/buf.h"
#include "workflow/document/document.h"

enum secret_kind {
	SECRET_NONE,
	SECRET_CREDENTIAL, /* accessKeyId, password, … */
	SECRET_VARIABLE, /* the value of a variable with the name of a secret */
	SECRET_URL, /* a URL that is public except for its user and query */
};

/* Returns the kind of the scalar `entry` in `map`; `map_key` is the key of `map` in its parent,
 * NULL at the top and in lists. */
enum secret_kind secret_kind_of(
	const struct node *map, const struct node_entry *entry, const char *map_key);
/* Returns true for names such as "WANDB_API_KEY" or "HF_TOKEN" if the value has 8 bytes or more and
 * is neither digits alone nor an absolute path. Returns true for every name if the value can only
 * be a key of a well-known service. */
bool secret_variable(const char *name, const char *value);
/* Returns true for names such as "SIGNING_KEY" with a random value: a guess that is only good
 * enough for a warning. */
bool secret_may_be_key(const char *name, const char *value);
/* Appends `url` with its user and a signing query as "***". Returns true if either was replaced. */
bool secret_mask_url(const char *url, struct buf *out);
/* Passes the secret parts of `url` to log_redact(). */
void secret_redact_url(const char *url);

/* Sets `field` of each secret below `root` (the job, without its wrapper), and passes literal
 * secrets to log_redact(). */
void secrets_mark(struct workflow_arena *arena, struct node *root);

#endif
