/*
 * Patterns of files that stay behind, as .gitignore has them: one a line, the last that matches
 * decides. `!` in front keeps, `/` at the end means directories only, `/` elsewhere binds the pattern to
 * its directory; `*`, `?` and `[a-z]` do not match `/`, `**` does.
 */
#ifndef RUN_IGNORE_H
#define RUN_IGNORE_H

#include <stdbool.h>
#include <stddef.h>

struct ignore_rule {
	char *pattern; /* owned */
	size_t base;   /* length of the directory's path that it came from, with its `/` */
	bool keep;
	bool dirs_only;
	bool bound; /* to the whole path below its directory, not to the last name */
};

struct ignore {
	struct ignore_rule *rules;
	size_t n;
};

void ignore_release(struct ignore *ignore);
/* Adds each line of `text`; `base` is the length of its directory's path as ignore_match() gets it, 0 at
 * the top. -1: no memory. */
int ignore_add(struct ignore *ignore, const char *text, size_t base);
/* Forgets all but the first `n` rules. */
void ignore_truncate(struct ignore *ignore, size_t n);
/* Whether `path`, relative to the top, stays behind. Nothing is asked below a directory that does. */
bool ignore_match(const struct ignore *ignore, const char *path, bool is_dir);

#endif
