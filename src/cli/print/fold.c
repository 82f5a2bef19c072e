#include "cli/print/fold.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

/* Returns the length of `name` if it is a whole word at `at`, else 0. */
static size_t word_length(const char *at, const char *name)
{
	size_t len = strlen(name);

	return len && strncmp(at, name, len) == 0 && (!at[len] || strchr(" :,;'\")", at[len])) ? len
											       : 0;
}

/* Returns the length of the item's name at `at`: the whole name, or its last part. */
static size_t name_length(const char *at, const char *name)
{
	const char *slash = name ? strrchr(name, '/') : NULL;
	size_t len = name ? word_length(at, name) : 0;

	return len || !slash ? len : word_length(at, slash + 1);
}

/* Adds the words of a message, except names of items, paths and numbers. */
static void add_cause(struct buf *out, const char *message, const char *from, const char *to)
{
	_cleanup_(buf_release) struct buf plain = BUF_INIT(4 * LIMIT_LOG_LINE);

	for (const char *at = message; *at;) {
		bool begins = at == message || strchr(" '\"(/", at[-1]);
		size_t skip = begins ? name_length(at, from) : 0;

		if (begins && !skip)
			skip = name_length(at, to);
		if (skip)
			buf_add_char(&plain, '/');
		else
			buf_add_char(&plain, *at);
		at += skip ? skip : 1;
	}
	for (const char *at = buf_str(&plain); *at;) {
		size_t word = strcspn(at, " ");

		if (strcspn(at, "/0123456789") >= word)
			buf_printf(out, "%s%.*s", out->len ? " " : "", (int)word, at);
		at += word;
		at += strspn(at, " ");
	}
}

bool fold_shows(
	struct fold *fold, const char *from, const char *to, const struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf cause = BUF_INIT(4 * LIMIT_LOG_LINE);
	unsigned i = 0;

	add_cause(&cause, err->message ? err->message : penstock_code_name(err->code), from, to);
	while (i < fold->n && strcmp(fold->causes[i].text, buf_str(&cause)) != 0)
		i++;
	if (i == FOLD_CAUSES)
		return true;
	if (i == fold->n) {
		fold->causes[i] = (struct fold_cause){
			.text = strdup(buf_str(&cause)), .repeats = err->repeats != 0};
		if (!fold->causes[i].text)
			return true;
		fold->n++;
	}
	fold->causes[i].n++;
	return fold->causes[i].n <= (fold->causes[i].repeats ? 1 : FOLD_SHOWN);
}

void fold_end(struct fold *fold, void (*note)(void *cookie, const char *text), void *cookie)
{
	for (unsigned i = 0; i < fold->n; i++) {
		struct fold_cause *cause = &fold->causes[i];

		if (!cause->repeats && cause->n > FOLD_SHOWN) {
			_cleanup_free_ char *text = str_printf("and %" PRIu64
							       " more errors like: %s",
				cause->n - FOLD_SHOWN, cause->text);

			if (text)
				note(cookie, text);
		}
		free(cause->text);
	}
	*fold = (struct fold){0};
}
