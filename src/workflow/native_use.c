/* `use` of a step: a module, which is a group of steps from elsewhere. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native.h"
#include "base/banned.h"

static void read_source(struct reader *rd, const struct node *map, struct workflow_use *use)
{
	char quoted[QUOTE_SIZE];
	const char *source;

	if (!node_get(map, "source"))
		reader_missing(rd, map, &schema_use, "source",
			"a directory, or a Git repository as github.com/OWNER/NAME@TAG");
	if (!reader_text(rd, map, "source", &use->source) || reader_is_open(rd, &use->source))
		return;
	source = use->source.value;
	if (*source == '/' || *source == '.' || strstr(source, "://"))
		return;
	if (!strchr(source, '/') || str_ends(source, "@") || strpbrk(source, " \t\n"))
		reader_error(rd, &use->source.at,
			"`%s` is a directory (beginning with `/` or `./`) or a Git repository as "
			"github.com/OWNER/NAME@TAG, not %s",
			reader_field(rd, "source"), quote(workflow_shown(&use->source), quoted));
}

void read_use(struct reader *rd, const struct node *map, struct workflow_step *step)
{
	struct workflow_use *use = &step->use;

	if (!reader_check_map(rd, map, &schema_use))
		return;
	read_source(rd, map, use);
	read_variables(rd, map, "args", &use->args);
	if (reader_text(rd, map, "exportEnvAs", &use->export_env_as))
		check_variable_name(rd, use->export_env_as.value, &use->export_env_as.at);
	read_steps_of(rd, map, "steps", &step->steps);
}
