#include "cli/frame/words.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"

#define BLANKS " \t\r\n"

/* Reads one word from `*at`. */
static int read_word(const char **at, struct buf *word, struct penstock_error *err)
{
	const char *s = *at;
	char quote = 0;

	for (; *s && (quote || !strchr(BLANKS, *s)); s++) {
		bool escapes = *s == '\\' && quote != '\'' &&
			       (!quote || s[1] == '"' || s[1] == '\\');

		if (escapes && (!s[1] || s[1] == '\n'))
			return error_set(err, PENSTOCK_E_INVALID, "the last '\\' escapes nothing");
		if (escapes)
			buf_add_char(word, *++s);
		else if (quote ? *s == quote : *s == '"' || *s == '\'')
			quote = quote ? 0 : *s;
		else
			buf_add_char(word, *s);
	}
	if (quote)
		return error_set(err, PENSTOCK_E_INVALID, "missing closing %c", quote);
	*at = s;
	return 0;
}

int words_split(struct strlist *out, const char *line, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf word = BUF_INIT(LIMIT_STRING);

	for (const char *at = line + strspn(line, BLANKS); *at && *at != '#';
		at += strspn(at, BLANKS)) {
		buf_clear(&word);
		if (read_word(&at, &word, err) < 0)
			return -(int)PENSTOCK_E_INVALID;
		if (buf_failed(&word))
			return buf_error(&word, "a word", err);
		if (strlist_add(out, buf_str(&word)) < 0)
			return error_memory(err);
	}
	return 0;
}
