/* Splits a line of text into words, with the quotes of a shell but without expansions. */
#ifndef CLI_FRAME_WORDS_H
#define CLI_FRAME_WORDS_H

#include "base/str.h"

struct penstock_error;

/*
 * Blanks separate words. Text in '...' is literal. In "..." a backslash quotes '"' and '\'; outside
 * of quotes it quotes any character. '#' at the beginning of a word starts a comment. Fails with
 * PENSTOCK_E_INVALID if a quote is not closed, or if the line ends in a backslash that quotes
 * nothing.
 */
int words_split(struct strlist *out, const char *line, struct penstock_error *err);

#endif
