/* `penstock schema`: the JSON Schema of workflow files, for editors. */
#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/print/util.h"
#include "workflow/workflow.h"

static int run_schema(const struct cli *cli)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_JSON_DOCUMENT);
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (workflow_json_schema(&text) < 0) {
		buf_error(&text, "the schema", &err);
		return cli_fail(cli, &err);
	}
	return show_json(json_loads(buf_str(&text), 0, NULL));
}

const struct command command_schema = {
	.name = "schema",
	.summary = "print the JSON Schema of workflow files, for editors",
	.description =
		"Prints the JSON Schema (draft 7) of workflow files: their keys, the types of "
		"values and one line on each, for the completion and the checks of an editor. "
		"The schema accepts every file that 'penstock validate' accepts, which also checks "
		"rules that a schema cannot express. 'make install' writes the same to "
		"PREFIX/share/penstock/workflow.schema.json.",
	.examples = EXAMPLES({"penstock schema > workflow.schema.json",
		"Write the schema; an editor uses it if the workflow has the line # "
		"yaml-language-server: $schema=workflow.schema.json"}),
	.run = run_schema,
};
