/*
 * Patterns of excluded files, in the format of .gitignore: one per line; the last match decides. A
 * leading `!` includes, a trailing `/` matches directories only, `/` elsewhere binds the pattern to
 * its directory; `*`, `?` and `[a-z]` do not match `/`, but `**` does.
 */
#ifndef RUN_WORKDIR_IGNORE_H
#define RUN_WORKDIR_IGNORE_H

#include <stdbool.h>
#include <stddef.h>

struct ignore_rule {
	char *pattern; /* owned */
	size_t base; /* length of the path of its directory, including the `/` */
	bool keep;
	bool dirs_only;
	bool bound; /* matches the whole path below its directory instead of the last name */
};

struct ignore {
	struct ignore_rule *rules;
	size_t n;
};

void ignore_release(struct ignore *ignore);
/* Adds each line of `text`; `base` is the length of the path of the directory to which the lines
 * apply, including the `/`, as passed to ignore_match(); 0 at the top. Returns -1 if out of
 * memory. */
int ignore_add(struct ignore *ignore, const char *text, size_t base);
/* Removes all but the first `n` rules. */
void ignore_truncate(struct ignore *ignore, size_t n);
/* Returns true if `path`, relative to the top, is excluded. Do not call it for paths below an
 * excluded directory. */
bool ignore_match(const struct ignore *ignore, const char *path, bool is_dir);

#endif
