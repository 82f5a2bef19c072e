#include "workflow/native/schema.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

const struct schema_key *schema_find(const struct schema *schema, const char *name)
{
	for (size_t i = 0; i < schema->n; i++) {
		if (strcmp(schema->keys[i].name, name) == 0 &&
			!(schema->keys[i].flags & KEY_LEGACY))
			return &schema->keys[i];
	}
	return NULL;
}

/* Compares without case, `_` and `-`: cpus_per_task is cpusPerTask. */
static bool is_same_word(const char *a, const char *b)
{
	for (;;) {
		while (*a == '_' || *a == '-')
			a++;
		while (*b == '_' || *b == '-')
			b++;
		if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

/* Returns true for the same letters in another order. To str_nearest(), two swapped letters are two
 * edits, which are too many for a short word. */
static bool is_shuffled(const char *a, const char *b)
{
	int counts[256] = {0};

	for (; *a; a++)
		counts[(unsigned char)*a]++;
	for (; *b; b++)
		counts[(unsigned char)*b]--;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		if (counts[i])
			return false;
	}
	return true;
}

/* Returns the only key that begins with `name`, such as endpointUrl for endpoint; NULL if there is
 * none or several. */
static const char *only_longer(const struct schema *schema, const char *name)
{
	const char *longer = NULL;

	for (size_t i = 0; strlen(name) >= 3 && i < schema->n; i++) {
		if (!str_starts(schema->keys[i].name, name) || (schema->keys[i].flags & KEY_LEGACY))
			continue;
		if (longer)
			return NULL;
		longer = schema->keys[i].name;
	}
	return longer;
}

/* Returns true if `name` is an abbreviation of `key`: some of its letters in their order, with the
 * first and the last letter, such as "cmd" of "command". */
static bool is_short_for(const char *name, const char *key)
{
	bool ends = *name == *key && name[strlen(name) - 1] == key[strlen(key) - 1];

	for (; *key && *name; key++)
		name += *key == *name;
	return ends && !*name;
}

/* Returns the only key that `name` is short for; NULL if there is none or several. */
static const char *only_short(const struct schema *schema, const char *name)
{
	const char *found = NULL;

	for (size_t i = 0; strlen(name) >= 3 && i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];

		if ((key->flags & KEY_LEGACY) || !is_short_for(name, key->name))
			continue;
		if (found)
			return NULL;
		found = key->name;
	}
	return found;
}

const char *schema_nearest(const struct schema *schema, const char *name)
{
	const char *names[40];
	const char *nearest;
	size_t n = 0;

	for (size_t i = 0; i < schema->n && n < ARRAY_SIZE(names); i++) {
		if (schema->keys[i].flags & KEY_LEGACY)
			continue;
		if (is_same_word(schema->keys[i].name, name) ||
			is_shuffled(schema->keys[i].name, name))
			return schema->keys[i].name;
		names[n++] = schema->keys[i].name;
	}
	/* The time for an edit distance grows with the product of both lengths. */
	if (strlen(name) > 64)
		return NULL;
	nearest = str_nearest(name, names, n);
	if (!nearest)
		nearest = only_longer(schema, name);
	return nearest ? nearest : only_short(schema, name);
}
