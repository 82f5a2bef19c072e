#include "run/tracking/tracking.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "run/attempt/attempt.h"
#include "run/report/say.h"
#include "s3/sum/checksum.h"
#include "workflow/model.h"

enum {
	/* The steps, and the GPUs that the run holds, wait no longer than this. */
	BEGIN_MS = 20000,
	/* The machine may be about to end. */
	END_MS = 5000,
};

/* ---- the id ---- */

/* Adds the id of the home and the time at which the run was first recorded, unless the output is in
 * a store that several machines can share: such an output belongs to one run on all machines. Any
 * other run belongs to this home, and its records can be removed: a later run with the same name is
 * then a different run. */
static int add_home(const struct attempt *attempt, struct buf *text, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	char home_id[RECORDS_HOME_ID_SIZE];
	int r;

	if (attempt->workflow->output.kind == WORKFLOW_S3 && !attempt->workflow->output.s3.embedded)
		return 0;
	r = records_home_id(attempt->home, home_id, err);
	if (r == 0)
		r = records_find(attempt->records, attempt->id, &run, err);
	if (r == 0)
		buf_printf(text, " %s %lld", home_id, (long long)run.created_ns);
	return r;
}

static int make_id(struct tracking *tracking, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	const struct attempt *attempt = tracking->attempt;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int r;

	tracking->began = attempt->continuing ? run_layout_read_attempt(attempt->layout.began)
					      : attempt->number;
	buf_printf(&text, "%s %d", attempt->id, tracking->began);
	r = add_home(attempt, &text, err);
	if (r == 0 && buf_failed(&text))
		r = buf_error(&text, "the id of the tracked run", err);
	if (r == 0)
		r = checksum_of(CHECKSUM_SHA256, text.data, text.len, digest, err);
	if (r == 0)
		str_hex(digest, (TRACKING_ID_SIZE - 1) / 2, tracking->id);
	return r;
}

static struct mlflow_tags tags_of(const struct tracking *tracking)
{
	return (struct mlflow_tags){tracking->attempt->id, tracking->began, tracking->id};
}

/* ---- MLflow ---- */

/* Returns the value of a variable as the steps see it. */
static const char *variable(const struct workflow *workflow, const char *name)
{
	for (size_t i = workflow->env.n; i-- > 0;) {
		if (strcmp(workflow->env.items[i].key, name) == 0)
			return workflow->env.items[i].value.value;
	}
	return str_env(name);
}

static bool is_unresolved(const char *text)
{
	return text && strstr(text, "${{");
}

/* Gets the address of the server, and the login from the variables of MLflow's client. A user in
 * the address replaces that login. */
int tracking_login(const struct workflow *workflow, const char *recorded, struct buf *base,
	struct mlflow_login *login, struct penstock_error *err)
{
	const char *uri = workflow->tracking.mlflow.uri.value;

	if (!str_copy(&login->user, variable(workflow, "MLFLOW_TRACKING_USERNAME")) ||
		!str_copy(&login->password, variable(workflow, "MLFLOW_TRACKING_PASSWORD")) ||
		!str_copy(&login->token, variable(workflow, "MLFLOW_TRACKING_TOKEN")))
		return error_memory(err);
	if (recorded && is_unresolved(uri) && !strstr(uri, "secrets."))
		uri = recorded;
	if (is_unresolved(uri) || is_unresolved(login->user) || is_unresolved(login->password) ||
		is_unresolved(login->token))
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot log in to MLflow: a secret or a variable of the workflow is "
			"missing");
	/* Mask these values here: secrets in the environment of the machine are not registered
	 * yet. */
	if (login->password)
		log_redact(login->password);
	if (login->token)
		log_redact(login->token);
	return mlflow_split_uri(uri, base, login) < 0 ? error_memory(err) : 0;
}

static int find_run(struct tracking *tracking, const atomic_int *cancel, struct penstock_error *err)
{
	const struct workflow *workflow = tracking->attempt->workflow;
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};

	int r = tracking_login(workflow, NULL, &base, &login, err);

	if (r < 0)
		return r;
	return mlflow_server_find(
		&(struct mlflow_server){
			.base = buf_str(&base),
			.login = &login,
			.cancel = cancel,
			.patience_ms = BEGIN_MS,
		},
		&(struct mlflow_wanted){
			.experiment = workflow->tracking.mlflow.experiment.value,
			.name = workflow->name.value ? workflow->name.value : tracking->attempt->id,
			.tags = tags_of(tracking),
			.continues = tracking->attempt->continuing,
		},
		&tracking->mlflow, err);
}

int tracking_begin(struct tracking *tracking, const struct attempt *attempt,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r;

	if (!attempt->workflow->tracking.given)
		return 0;
	tracking->attempt = attempt;
	r = make_id(tracking, err);
	if (r < 0 || !attempt->workflow->tracking.mlflow.given)
		return r;
	/* An interrupted request is not a fault of the server. */
	if (find_run(tracking, cancel, &e) < 0 && e.code != PENSTOCK_E_CANCELLED)
		run_say(&attempt->voice, RUN_EVENT_WARNING,
			*tracking->mlflow.run
				? "cannot set the tracked run to RUNNING: %s"
				: "cannot find the tracked run: %s; the steps run without "
				  "MLFLOW_RUN_ID",
			e.message);
	return 0;
}

void tracking_end(const struct tracking *tracking, const char *status)
{
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool waits = strcmp(status, "SCHEDULED") == 0;
	int r;

	if (!*tracking->mlflow.run)
		return;
	r = tracking_login(tracking->attempt->workflow, NULL, &base, &login, &err);
	if (r == 0)
		r = mlflow_server_set_status(
			&(struct mlflow_server){
				.base = buf_str(&base), .login = &login, .patience_ms = END_MS},
			tracking->mlflow.run, status, waits ? 0 : clock_wall_ns() / NS_PER_MS,
			&err);
	if (r < 0)
		run_say(&tracking->attempt->voice, RUN_EVENT_WARNING,
			"cannot set the tracked run to '%s': %s", status, err.message);
}

/* ---- the variables ---- */

static int set_mlflow(const struct tracking *tracking, const char *endpoint, struct strlist *env)
{
	const struct workflow_mlflow *mlflow = &tracking->attempt->workflow->tracking.mlflow;
	const struct mlflow_tags tags = tags_of(tracking);
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};
	_cleanup_free_ char *context = NULL;
	bool found = *tracking->mlflow.run != '\0';

	/* The client prints addresses of pages, so pass the password in a variable of its own. */
	if (mlflow_split_uri(mlflow->uri.value, &base, &login) < 0 ||
		strlist_set(env, "MLFLOW_TRACKING_URI", buf_str(&base)) < 0 ||
		(login.user && (strlist_set(env, "MLFLOW_TRACKING_USERNAME", login.user) < 0 ||
				       strlist_set(env, "MLFLOW_TRACKING_PASSWORD",
					       login.password) < 0)) ||
		strlist_set(env, "MLFLOW_EXPERIMENT_NAME", mlflow->experiment.value) < 0 ||
		(endpoint && strlist_set(env, "MLFLOW_S3_ENDPOINT_URL", endpoint) < 0))
		return -1;
	/* The environment of the machine may name another experiment and another run: ignore
	 * them. */
	strlist_unset(env, "MLFLOW_EXPERIMENT_ID");
	strlist_unset(env, "MLFLOW_RUN_ID");
	if (found)
		return strlist_set(env, "MLFLOW_RUN_ID", tracking->mlflow.run);
	/* If the server did not reply, a step may make the run later. These tags let the next
	 * attempt find that run. */
	context = mlflow_context(&tags);
	return context ? strlist_set(env, "MLFLOW_RUN_CONTEXT", context) : -1;
}

static int set_wandb(const struct tracking *tracking, const char *output, struct strlist *env)
{
	const struct workflow *workflow = tracking->attempt->workflow;
	const struct workflow_wandb *wandb = &workflow->tracking.wandb;

	if (strlist_set(env, "WANDB_PROJECT", wandb->project.value) < 0 ||
		strlist_set(env, "WANDB_MODE", wandb->online ? "online" : "offline") < 0 ||
		strlist_set(env, "WANDB_DIR", output) < 0 ||
		strlist_set(env, "WANDB_RUN_ID", tracking->id) < 0 ||
		strlist_set(env, "WANDB_RESUME", "allow") < 0 ||
		(wandb->entity.value && strlist_set(env, "WANDB_ENTITY", wandb->entity.value) < 0))
		return -1;
	return workflow->name.value ? strlist_set(env, "WANDB_NAME", workflow->name.value) : 0;
}

/* Returns Aim's repository, a directory or a URL; NULL if out of memory. */
static char *aim_repo(const struct workflow_aim *aim, const char *output)
{
	const char *repo = aim->repo.value;

	if (strcmp(repo, ".") == 0)
		return strdup(output);
	return *repo == '/' || str_starts(repo, "aim://") ? strdup(repo) : path_join(output, repo);
}

int tracking_environment(const struct tracking *tracking, const char *output, const char *endpoint,
	struct strlist *env)
{
	const struct workflow_tracking *what;
	_cleanup_free_ char *repo = NULL;

	if (!tracking->attempt)
		return 0;
	what = &tracking->attempt->workflow->tracking;
	if ((what->mlflow.given && set_mlflow(tracking, endpoint, env) < 0) ||
		(what->wandb.given && set_wandb(tracking, output, env) < 0))
		return -1;
	if (what->aim.given) {
		repo = aim_repo(&what->aim, output);
		if (!repo || strlist_set(env, "AIM_REPO", repo) < 0)
			return -1;
	}
	return strlist_set(env, "PENSTOCK_TRACKED_RUN", tracking->id);
}

/* ---- the records ---- */

/* Returns the address of a page as other users may see it: without a user, or JSON's null if the
 * address is a secret. */
static json_t *page_of(const struct tracking *tracking)
{
	const struct workflow_text *uri = &tracking->attempt->workflow->tracking.mlflow.uri;
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf link = BUF_INIT(LIMIT_STRING),
					  shown = BUF_INIT(2 * LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};
	const char *at = strrchr(workflow_shown(uri), '@');
	const char *reference = strstr(at ? at : workflow_shown(uri), "${{");

	if (!*tracking->mlflow.run || mlflow_split_uri(uri->value, &base, &login) < 0)
		return json_null();
	/* The user is left out, and may be a secret. If the rest of the address is a secret, return
	 * null. References of other kinds are allowed: the address of a resumed run may be a
	 * reference to a file. */
	if (reference && strstr(reference, "secrets."))
		return json_null();
	mlflow_link(buf_str(&base), tracking->mlflow.experiment, tracking->mlflow.run, &link);
	log_redact_into(&shown, buf_str(&link));
	return buf_failed(&link) || buf_failed(&shown) ? json_null() : json_string(buf_str(&shown));
}

static json_t *describe_wandb(const struct tracking *tracking)
{
	const struct workflow_wandb *wandb = &tracking->attempt->workflow->tracking.wandb;
	const char *url = variable(tracking->attempt->workflow, "WANDB_BASE_URL");
	json_t *page = NULL;

	/* Without an entity only the client knows the address of the project. */
	if (wandb->online && wandb->entity.value && !url)
		page = json_sprintf("https://wandb.ai/%s/%s/runs/%s",
			workflow_shown(&wandb->entity), workflow_shown(&wandb->project),
			tracking->id);
	return json_pack("{s:s, s:s, s:s, s:o, s:o}", "tracker", "wandb", "run", tracking->id,
		"project", workflow_shown(&wandb->project), "place",
		wandb->online ? json_null() : json_string("wandb/ of the output"), "url",
		page ? page : json_null());
}

/* Describes Aim. The id of the run is null, because Aim chooses the ids of its runs. */
static json_t *describe_aim(const struct workflow_aim *aim)
{
	const char *repo = workflow_shown(&aim->repo);
	bool below = *repo != '/' && !str_starts(repo, "aim://");

	return json_pack("{s:s, s:n, s:o, s:n}", "tracker", "aim", "run", "place",
		json_sprintf("%s%s", strcmp(repo, ".") == 0 ? ".aim" : repo,
			below ? " of the output" : ""),
		"url");
}

static int add(json_t *list, json_t *one)
{
	return one ? json_array_append_new(list, one) : -1;
}

char *tracking_describe(const struct tracking *tracking)
{
	json_auto_t *list = json_array();
	const struct workflow_tracking *what;

	if (!list)
		return NULL;
	if (!tracking->attempt)
		return json_dumps(list, JSON_COMPACT);
	what = &tracking->attempt->workflow->tracking;
	if (what->mlflow.given &&
		add(list, json_pack("{s:s, s:o, s:s, s:o}", "tracker", "mlflow", "run",
				  *tracking->mlflow.run ? json_string(tracking->mlflow.run)
							: json_null(),
				  "experiment", workflow_shown(&what->mlflow.experiment), "url",
				  page_of(tracking))) < 0)
		return NULL;
	if (what->wandb.given && add(list, describe_wandb(tracking)) < 0)
		return NULL;
	if (what->aim.given && add(list, describe_aim(&what->aim)) < 0)
		return NULL;
	return json_dumps(list, JSON_COMPACT);
}
