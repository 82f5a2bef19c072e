/* `tracking`: experiment trackers that the steps report to. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/native.h"

#define PROJECT_MAX 128 /* characters that Weights & Biases allows */

/* Returns true for a valid name, which becomes a variable and a line of `penstock show`. */
static bool is_name(const char *text, size_t longest)
{
	for (const char *p = text; *p; p++) {
		if (iscntrl((unsigned char)*p))
			return false;
	}
	return *text && strlen(text) <= longest;
}

static void check_mlflow(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_mlflow *mlflow = out;

	(void)map;
	check_url(rd, "uri", &mlflow->uri);
	if (reader_knows(rd, &mlflow->uri) && mlflow->uri.value[strcspn(mlflow->uri.value, "?#")])
		reader_error_of(rd, &mlflow->uri.at, "uri",
			"must be the address of the server, without `?` and `#`");
	if (reader_knows(rd, &mlflow->experiment) &&
		!is_name(mlflow->experiment.value, LIMIT_TRACKING_NAME))
		reader_refuse(rd, &mlflow->experiment, "experiment", "be a name of 1 to %d bytes",
			LIMIT_TRACKING_NAME);
}

static const struct schema_key mlflow_keys[] = {
	{"uri", TEXT(workflow_mlflow, uri), .flags = KEY_REQUIRED | KEY_SHOWN, .value = "URL",
		.says = "the address of the server; it may have a user and a password, which are "
			"[secrets](#secrets-and-references)"},
	{"experiment", TEXT(workflow_mlflow, experiment), .flags = KEY_SHOWN,
		.preset_text = "Default",
		.says = "the name of the experiment, which is created if it is missing"},
};
static const struct schema schema_mlflow = {SCHEMA("mlflow", "`mlflow`", mlflow_keys),
	.given = offsetof(struct workflow_mlflow, given) + 1, AT(workflow_mlflow, at),
	.check = check_mlflow};

static void check_wandb(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow_wandb *wandb = out;

	(void)map;
	if (reader_knows(rd, &wandb->project) && (!is_name(wandb->project.value, PROJECT_MAX) ||
							 strpbrk(wandb->project.value, "/\\#?%:")))
		reader_refuse(rd, &wandb->project, "project",
			"be 1 to %d characters without / \\ # ? %% :", PROJECT_MAX);
	if (reader_knows(rd, &wandb->entity) &&
		(!*wandb->entity.value ||
			wandb->entity.value[strspn(wandb->entity.value, LETTERS_AND_DIGITS "._-")]))
		reader_refuse(rd, &wandb->entity, "entity",
			"be the name of a user or a team: letters, digits, `.`, `_`, `-`");
}

static const char *const wandb_modes[] = {"offline", "online", NULL};

static const struct schema_key wandb_keys[] = {
	{"project", TEXT(workflow_wandb, project), .flags = KEY_REQUIRED,
		.says = "the name of the project"},
	{"entity", TEXT(workflow_wandb, entity), .otherwise = "the owner of the API key",
		.value = "user or team", .says = "the owner of the project"},
	{"mode", WORD(workflow_wandb, online, wandb_modes), .flags = KEY_SHOWN,
		.says = "`offline` keeps the data in `wandb/` of the output, for `wandb sync`; "
			"`online` sends them while the steps run"},
};
static const struct schema schema_wandb = {SCHEMA("wandb", "`wandb`", wandb_keys),
	.given = offsetof(struct workflow_wandb, given) + 1, AT(workflow_wandb, at),
	.check = check_wandb};

static void check_aim(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow_aim *aim = out;

	(void)map;
	if (reader_knows(rd, &aim->repo) && strcmp(aim->repo.value, ".") != 0 &&
		*aim->repo.value != '/' && !str_starts(aim->repo.value, "aim://") &&
		(!*aim->repo.value || !is_below_output(aim->repo.value)))
		reader_refuse(rd, &aim->repo, "repo",
			"be a directory below the output, such as aim, or . for the output itself, "
			"an absolute path, or aim://HOST:PORT");
}

static const struct schema_key aim_keys[] = {
	{"repo", TEXT(workflow_aim, repo), .flags = KEY_SHOWN, .preset_text = ".",
		.value = "path below the output, absolute path, or `aim://HOST:PORT`",
		.says = "the directory of the `.aim` repository, or the address of an Aim server"},
};
static const struct schema schema_aim = {SCHEMA("aim", "`aim`", aim_keys),
	.given = offsetof(struct workflow_aim, given) + 1, AT(workflow_aim, at),
	.check = check_aim};

static void check_tracking(struct reader *rd, const struct node *map, void *out)
{
	(void)out;
	if (map->n == 0)
		reader_error_of(rd, &map->at, NULL, "is empty; name mlflow, wandb or aim");
}

static const struct schema_key tracking_keys[] = {
	{"mlflow", MAP(workflow_tracking, mlflow, &schema_mlflow),
		.shown = {SET(workflow_tracking, mlflow.given)},
		.says = "an MLflow server; one MLflow run there has all attempts of the run"},
	{"wandb", MAP(workflow_tracking, wandb, &schema_wandb),
		.shown = {SET(workflow_tracking, wandb.given)}, .says = "Weights & Biases"},
	{"aim", MAP(workflow_tracking, aim, &schema_aim),
		.shown = {SET(workflow_tracking, aim.given)}, .says = "Aim"},
};
const struct schema schema_tracking = {SCHEMA("tracking", "`tracking`", tracking_keys),
	.given = offsetof(struct workflow_tracking, given) + 1, AT(workflow_tracking, at),
	.check = check_tracking};
