/* Files that lie next to shards. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "dataset/internal.h"

/* Returns true if `name` ends in `suffix` and there is a file of the same name with the suffix
 * `other` instead. */
static bool has_other(
	const struct source *source, const char *name, const char *suffix, const char *other)
{
	_cleanup_free_ char *path = NULL;

	if (!str_ends(name, suffix))
		return false;
	path = str_printf("%.*s%s", (int)(strlen(name) - strlen(suffix)), name, other);
	return path && source_find(source, path) != SIZE_MAX;
}

bool dataset_is_aside(const struct source *source, const char *name)
{
	static const char *const known[] = {".json", ".yaml", ".yml", ".txt", ".md", ".csv",
		".html", ".pkl", "LICENSE", "README"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (str_ends(name, known[i]))
			return true;
	}
	return has_other(source, name, ".idx", ".bin") || has_other(source, name, ".gz", "");
}
