/* Files that lie next to shards. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "dataset/internal.h"

/* A file "x" whose twin has the other suffix in place of this one. */
static bool has_twin(
	const struct source *source, const char *name, const char *suffix, const char *other)
{
	_cleanup_free_ char *twin = NULL;

	if (!str_ends(name, suffix))
		return false;
	twin = str_printf("%.*s%s", (int)(strlen(name) - strlen(suffix)), name, other);
	return twin && source_find(source, twin) != SIZE_MAX;
}

bool dataset_is_aside(const struct source *source, const char *name)
{
	static const char *const known[] = {".json", ".yaml", ".yml", ".txt", ".md", ".csv",
		".html", ".pkl", "LICENSE", "README"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (str_ends(name, known[i]))
			return true;
	}
	return has_twin(source, name, ".idx", ".bin") || has_twin(source, name, ".gz", "");
}
