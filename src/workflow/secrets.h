/*
 * Which fields of a document hold secrets, whatever dialect or form it has: credentials by their
 * key, variables by their name, and URLs that carry a password or a signature.
 */
#ifndef WORKFLOW_SECRETS_H
#define WORKFLOW_SECRETS_H

#include <stdbool.h>

#include "base/buf.h"
#include "workflow/document.h"

enum secret_kind {
	SECRET_NONE,
	SECRET_CREDENTIAL, /* accessKeyId, password, … */
	SECRET_VARIABLE,   /* the value of a variable that is called like a secret */
	SECRET_URL,	   /* the URL within is public but for its user and query */
};

/* Of the scalar `entry` in `map`; `map_key` is the key of `map` in its parent, NULL at the top and
 * in lists. */
enum secret_kind secret_kind_of(
	const struct node *map, const struct node_entry *entry, const char *map_key);
/* "WANDB_API_KEY", "HF_TOKEN": the variable's value is taken for a secret if it is long enough. So is what
 * can only be a key of a well-known service, whatever it is called. */
bool secret_variable(const char *name, const char *value);
/* "SIGNING_KEY" with something random: a guess, good for a warning; what is sorted by has such names, too. */
bool secret_may_be_key(const char *name, const char *value);
/* Appends `url` with its user and a signing query as "***". Returns whether there was any. */
bool secret_mask_url(const char *url, struct buf *out);
/* Passes the secret parts of `url` to log_redact(). */
void secret_redact_url(const char *url);

/* Sets `field` of each secret below `root` (the job, without its wrapper), and passes those that stand
 * there to log_redact(). */
void secrets_mark(struct workflow_arena *arena, struct node *root);

#endif
