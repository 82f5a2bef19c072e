/* Splits a line of text into words, with the quotes of a shell but without expansions. */
#ifndef CLI_FRAME_WORDS_H
#define CLI_FRAME_WORDS_H

#include "base/str.h"

struct penstock_error;

/*
 * Blanks separate words; '...' is literal, in "..." a backslash quotes '"' and '\', elsewhere any
 * character; '#' at the beginning of a word starts a comment. Fails with PENSTOCK_E_INVALID if a
 * quote is not closed, or if the last backslash quotes nothing.
 */
int words_split(struct strlist *out, const char *line, struct penstock_error *err);

#endif
