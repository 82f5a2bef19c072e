/* A line of text as words, with the quotes of a shell but without anything that it expands. */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include "base/str.h"

struct penstock_error;

/*
 * Blanks divide; '...' is literal, in "..." a backslash quotes '"' and '\', elsewhere anything; '#' at the
 * beginning of a word makes the rest a comment. PENSTOCK_E_INVALID: a quote is not closed.
 */
int words_split(struct strlist *out, const char *line, struct penstock_error *err);

#endif
