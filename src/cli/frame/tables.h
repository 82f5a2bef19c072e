/*
 * Tables of the manual: the keys of a workflow, environment variables and exit codes. In docs/ and
 * the man pages, tools/fill-tables writes the tables between markers:
 *
 *	<!-- table: resources -->
 *	...
 *	<!-- end -->
 */
#ifndef CLI_FRAME_TABLES_H
#define CLI_FRAME_TABLES_H

#include "base/buf.h"

struct schema_key;

struct fact {
	const char *name; /* a variable or an exit code; NULL ends a table */
	const char *otherwise; /* the default without the variable; NULL if there is none */
	const char *says; /* Markdown */
};

/* The environment variables that penstock itself reads, and that a user may set for penstock. */
extern const struct fact environment_table[];
/* Exit codes of `penstock run`; other verbs have a subset. */
extern const struct fact exit_table[];

/* Appends the table `name`: `environment`, `exit-codes`, or the name of a schema. Writes scdoc(5),
 * or Markdown if `markdown`. Returns false if there is no such table. */
bool table_write(struct buf *out, const char *name, bool markdown);
/* Appends Markdown as plain text: without backquotes, asterisks and the targets of links. */
void table_add_plain(struct buf *out, const char *text);
/* Appends the meaning of a key, its values and its default as one plain sentence. */
void table_add_meaning(struct buf *out, const struct schema_key *key);

#endif
