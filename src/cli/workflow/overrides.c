#include "cli/workflow/overrides.h"

#include <jansson.h>
#include <string.h>

#include "base/banned.h"

/* --name is a field like any other. */
int overrides_collect(const struct cli *cli, struct strlist *sets)
{
	const struct strlist *given = cli_values(cli, "set");
	const char *name = cli_value(cli, "name");

	for (size_t i = 0; i < given->n; i++) {
		if (strlist_add(sets, given->items[i]) < 0)
			return -1;
	}
	return name ? strlist_addf(sets, "name=\"%s\"", name) : 0;
}

/* Returns the overrides as JSON for the record. A value may be a secret, so only the names of
 * fields are kept. */
char *overrides_describe(const struct strlist *sets, const struct strlist *env)
{
	json_t *root = json_object();
	json_t *list = json_array();
	char *text;

	for (size_t i = 0; i < sets->n; i++)
		json_array_append_new(
			list, json_sprintf("--set %.*s", (int)strcspn(sets->items[i], "="),
				      sets->items[i]));
	for (size_t i = 0; i < env->n; i++)
		json_array_append_new(
			list, json_sprintf("--env %.*s", (int)strcspn(env->items[i], "="),
				      env->items[i]));
	json_object_set_new(root, "overrides", list);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}
