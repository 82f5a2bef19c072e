/* Recognises files that are not workflows of any dialect; a message names the file's format. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"

#define OTHER "penstock does not run it; a penstock workflow has `steps`, see penstock-workflow(5)"

/* Formats of maps, by keys that the map must have. The first match is used. */
static const struct {
	const char *keys[2];
	const char *is, *instead;
} maps[] = {
	{{"jobs", "on"}, "a GitHub Actions workflow", OTHER},
	{{"runs"}, "a GitHub action", OTHER},
	{{"jobs", "version"}, "a CircleCI pipeline", OTHER},
	{{"apiVersion", "kind"}, "a Kubernetes manifest", OTHER},
	{{"services"}, "a Docker Compose file", OTHER},
	{{"stages"}, "a GitLab pipeline", OTHER},
	{{"channels", "dependencies"}, "a conda environment",
		"install it, or name it in a step of a workflow"},
	{{"minimumResources"}, "a module", "a step of a workflow runs it by `use`"},
	{{"variables"}, "the variables of dstack's workflows",
		"give the name of a workflow of .dstack/workflows.yaml"},
};

/* Recognises files by their first line of code. A word ends with a blank if more text must follow
 * the word. */
static const struct {
	const char *begins, *contains, *is, *instead;
} texts[] = {
	{"\"\"\"", "", "a Python program", "a step of a workflow runs it by its `command`"},
	{"import ", "", "a Python program", "a step of a workflow runs it by its `command`"},
	{"from ", " import ", "a Python program", "a step of a workflow runs it by its `command`"},
	{"def ", ":", "a Python program", "a step of a workflow runs it by its `command`"},
	{"resource \"", "{", "a Terraform module", OTHER},
	{"provider \"", "{", "a Terraform module", OTHER},
	{"variable \"", "{", "a Terraform module", OTHER},
	{"module \"", "{", "a Terraform module", OTHER},
	{"data \"", "{", "a Terraform module", OTHER},
	{"terraform {", "", "a Terraform module", OTHER},
	{"FROM ", "", "a Dockerfile",
		"build an image from it, and name the image in the `container` of a step"},
};

static bool is_of(const struct node *root, const char *const keys[2])
{
	return node_find(root, keys[0]) && (!keys[1] || node_find(root, keys[1]));
}

bool foreign_map(struct reader *rd, const struct node *root)
{
	const struct node *kind = node_get(root, "kind"), *stages = node_get(root, "stages");

	if (root->kind != NODE_MAP || node_find(root, "job"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
		const char *is = maps[i].is;

		/* A map with `steps` is a workflow, unless it has the key of a module. */
		if (!is_of(root, maps[i].keys) ||
			(node_find(root, "steps") && strcmp(is, "a module") != 0))
			continue;
		if (kind && kind->kind == NODE_SCALAR && strstr(kind->text, "Workflow"))
			is = "an Argo workflow";
		if (stages && stages->kind == NODE_MAP)
			is = "a DVC pipeline";
		reader_error(rd, &root->at, "this is %s: %s", is, maps[i].instead);
		return true;
	}
	return false;
}

/* Returns the first line that is neither empty nor a comment. */
static const char *first_code(const char *text)
{
	while (*text) {
		text += strspn(text, " \t\r\n");
		if (*text != '#' && !str_starts(text, "//"))
			break;
		text += strcspn(text, "\n");
	}
	return text;
}

bool foreign_text(struct reader *rd, const char *data, size_t len)
{
	const struct workflow_place at = {.line = 1, .column = 1};
	const char *text = workflow_arena_copy(rd->arena, data, len), *line;

	if (!text)
		return false;
	if (str_starts(text, "#!") && strcspn(text, "\n") > 2) {
		const char *sh = workflow_arena_copy(rd->arena, text, strcspn(text, "\n"));

		if (sh && (strstr(sh, "python") || str_ends(sh, "sh"))) {
			reader_error(rd, &at,
				"this is a script: a step of a workflow runs it by its `command`");
			return true;
		}
	}
	line = first_code(text);
	line = workflow_arena_copy(rd->arena, line, strcspn(line, "\n"));
	for (size_t i = 0; line && i < ARRAY_SIZE(texts); i++) {
		if (!str_starts(line, texts[i].begins) || !strstr(line, texts[i].contains))
			continue;
		reader_error(rd, &at, "this is %s: %s", texts[i].is, texts[i].instead);
		return true;
	}
	return false;
}
