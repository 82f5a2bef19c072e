/* Writing a document tree as JSON: for its identity, and for the copy in a record. */
#ifndef WORKFLOW_DOCUMENT_CANONICAL_H
#define WORKFLOW_DOCUMENT_CANONICAL_H

#include "workflow/document/document.h"

/* Appends `s` as a JSON string. */
void json_add_text(struct buf *out, const char *s);
/* Appends a tree on one line; `scalar` appends the text of each scalar. With `mask`, secrets become
 * null; `key` is the key of `node` in its parent, or NULL. */
void json_add_tree(struct buf *out, const struct node *node, const char *key, bool mask,
	void (*scalar)(struct buf *out, const struct node *node));
/* Begins a line, indented by `depth` levels. */
void json_add_line(struct buf *out, size_t depth);

/*
 * Computes the digest of a workflow: SHA-256, in lower-case hexadecimal, of its JSON. The JSON has
 * keys sorted by their bytes, and no space; nulls and credentials are left out, variables with
 * secrets are null, and users and signatures of URLs are "***". Comments, order of keys, JSON or
 * YAML, and the `job:` wrapper make no difference. Returns -PENSTOCK_E_LIMIT if the JSON is too
 * large, or -PENSTOCK_E_MEMORY.
 */
int canonical_digest(const struct node *job, char digest[static 65]);

/* Appends the tree with its order of keys, and with inline secrets as `${{ file.FIELD }}` or `${{
 * option.FIELD }}`. Returns -1 if the text is too large, or if out of memory. */
int record_write(const struct node *job, struct buf *out);

#endif
