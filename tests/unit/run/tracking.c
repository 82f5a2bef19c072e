/* Experiment trackers: requests to MLflow, its replies, and the variables of the steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/attempt/attempt.h"
#include "run/tracking/mlflow.h"
#include "run/tracking/tracking.h"
#include "workflow/model.h"

#define TEXT(s) (s), strlen(s)

/* ---- requests ---- */

/* A name may contain any character, because it is quoted for JSON. */
static void names_are_quoted(void **state)
{
	const struct mlflow_tags tags = {"0123456789ab", 3, "0a1b2c"};
	_cleanup_free_ char *experiment = mlflow_experiment_body("a \"b\" \\ c");
	_cleanup_free_ char *create = mlflow_create_body("7", "run \"1\"", 1700000000000, &tags);
	_cleanup_free_ char *search = mlflow_search_body("7", tags.tracked);
	json_auto_t *root = json_loads(create, 0, NULL);
	json_t *pair = json_array_get(json_object_get(root, "tags"), 1);

	(void)state;
	assert_string_equal("{\"name\":\"a \\\"b\\\" \\\\ c\"}", experiment);
	assert_string_equal("run \"1\"", json_string_value(json_object_get(root, "run_name")));
	assert_true(json_integer_value(json_object_get(root, "start_time")) == 1700000000000);
	assert_string_equal("penstock.began", json_string_value(json_object_get(pair, "key")));
	assert_string_equal("3", json_string_value(json_object_get(pair, "value")));
	assert_non_null(strstr(search, "tags.`penstock.tracked` = '0a1b2c'"));
	assert_non_null(strstr(search, "\"max_results\":1"));
}

/* A run that was resumed has no end time. */
static void only_an_end_has_a_time(void **state)
{
	_cleanup_free_ char *running = mlflow_update_body("r", "RUNNING", 0);
	_cleanup_free_ char *finished = mlflow_update_body("r", "FINISHED", 1700000000000);

	(void)state;
	assert_string_equal("{\"run_id\":\"r\",\"status\":\"RUNNING\"}", running);
	assert_non_null(strstr(finished, "\"end_time\":1700000000000"));
}

/* ---- replies ---- */

static void ids_are_read(void **state)
{
	char id[MLFLOW_ID_SIZE] = "x";

	(void)state;
	assert_int_equal(0, mlflow_read_experiment(TEXT("{\"experiment\":{\"experiment_id\":\"12\","
							"\"lifecycle_stage\":\"active\"}}"),
				    id, NULL));
	assert_string_equal("12", id);
	assert_int_equal(0, mlflow_read_experiment(TEXT("{\"experiment_id\":\"13\"}"), id, NULL));
	assert_string_equal("13", id);
	assert_int_equal(
		0, mlflow_read_run(TEXT("{\"run\":{\"info\":{\"run_id\":\"ab\"}}}"), id, NULL));
	assert_string_equal("ab", id);
	assert_int_equal(0,
		mlflow_read_found(TEXT("{\"runs\":[{\"info\":{\"run_id\":\"cd\"}}]}"), id, NULL));
	assert_string_equal("cd", id);
	assert_int_equal(0, mlflow_read_found(TEXT("{}"), id, NULL));
	assert_string_equal("", id);
}

/* A run cannot be created in a deleted experiment. */
static void a_deleted_experiment_is_an_error(void **state)
{
	char id[MLFLOW_ID_SIZE] = "";

	(void)state;
	assert_int_equal(-PENSTOCK_E_EXISTS,
		mlflow_read_experiment(TEXT("{\"experiment\":{\"experiment_id\":\"12\","
					    "\"lifecycle_stage\":\"deleted\"}}"),
			id, NULL));
	assert_string_equal("", id);
}

/* An id becomes an environment variable and a part of a link, so other text is refused. */
static void other_replies_are_refused(void **state)
{
	static const char *const replies[] = {"", "<html>", "[]", "{}", "{\"run\":[]}",
		"{\"run\":{\"info\":{\"run_id\":7}}}", "{\"run\":{\"info\":{\"run_id\":\"\"}}}",
		"{\"run\":{\"info\":{\"run_id\":\"a/b\"}}}",
		"{\"run\":{\"info\":{\"run_id\":\"a b\"}}}",
		("{\"run\":{\"info\":{\"run_id\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		 "aaaaaaaaaaaaaaaaa\"}}}")};
	char id[MLFLOW_ID_SIZE] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(replies); i++)
		assert_int_equal(-PENSTOCK_E_PROTOCOL, mlflow_read_run(TEXT(replies[i]), id, NULL));
	assert_int_equal(-PENSTOCK_E_PROTOCOL,
		mlflow_read_found(TEXT("{\"runs\":[{\"info\":{}}]}"), id, NULL));
	assert_string_equal("", id);
}

/* ---- metrics ---- */

static int print_point(void *cookie, const char *name, const struct mlflow_point *point)
{
	buf_printf(cookie, "%s %lld %lld %g;", name, (long long)point->step,
		(long long)point->time_ms, point->value);
	return 0;
}

#define LAST(metrics) "{\"run\":{\"info\":{\"run_id\":\"r\"},\"data\":{\"metrics\":" metrics "}}}"

static void last_points_are_read(void **state)
{
	static const char *const replies[][2] = {
		{LAST("[{\"key\":\"loss\",\"value\":0.5,\"timestamp\":1700,\"step\":3},"
		      "{\"key\":\"n\",\"value\":\"NaN\",\"timestamp\":\"17\",\"step\":\"-4\"}]"),
			"loss 3 1700 0.5;n -4 17 nan;"},
		/* Protocol Buffers may omit a number that is 0. */
		{LAST("[{\"key\":\"a\",\"value\":\"-Infinity\"}]"), "a 0 0 -inf;"},
		{LAST("[{\"key\":\"a\",\"value\":1,\"timestamp\":-1,\"step\":\"x\"}]"), "a 0 0 1;"},
		{LAST("[1,{},{\"key\":\"\",\"value\":1},{\"key\":\"a\",\"value\":\"1\"},{\"value\":1},"
		      "{\"key\":\"a\",\"value\":1,\"step\":-9223372036854775808}]"),
			""},
		{LAST("7"), ""},
		{"{\"run\":{\"info\":{\"run_id\":\"r\"}}}", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

		assert_int_equal(0, mlflow_read_last(TEXT(replies[i][0]), print_point, &out, NULL));
		assert_string_equal(replies[i][1], buf_str(&out));
	}
	assert_int_equal(-PENSTOCK_E_PROTOCOL, mlflow_read_last(TEXT("{}"), NULL, NULL, NULL));
	assert_int_equal(-PENSTOCK_E_PROTOCOL, mlflow_read_last(TEXT("<html>"), NULL, NULL, NULL));
}

static void a_page_of_a_history_has_the_token_of_the_next(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING),
					  next = BUF_INIT(LIMIT_STRING), small = BUF_INIT(3);

	(void)state;
	assert_int_equal(0, mlflow_read_history(TEXT("{\"metrics\":[{\"key\":\"a\",\"value\":1}],"
						     "\"next_page_token\":\"abcd\"}"),
				    print_point, &out, &next, NULL));
	assert_string_equal("a 0 0 1;", buf_str(&out));
	assert_string_equal("abcd", buf_str(&next));
	buf_clear(&next);
	assert_int_equal(0, mlflow_read_history(TEXT("{}"), print_point, &out, &next, NULL));
	assert_string_equal("", buf_str(&next));
	assert_int_equal(
		-PENSTOCK_E_LIMIT, mlflow_read_history(TEXT("{\"next_page_token\":\"abcd\"}"),
					   print_point, &out, &small, NULL));
	assert_int_equal(-PENSTOCK_E_PROTOCOL,
		mlflow_read_history(TEXT("[]"), print_point, &out, &next, NULL));
}

static void a_refusal_has_a_code(void **state)
{
	(void)state;
	assert_true(mlflow_refused_with(
		TEXT("{\"error_code\":\"RESOURCE_DOES_NOT_EXIST\",\"message\":\"m\"}"),
		"RESOURCE_DOES_NOT_EXIST"));
	assert_false(mlflow_refused_with(TEXT("{\"error_code\":1}"), "RESOURCE_DOES_NOT_EXIST"));
	assert_false(mlflow_refused_with(TEXT("not found"), "RESOURCE_DOES_NOT_EXIST"));
}

/* ---- addresses ---- */

/* The client prints the address of a page, so the address must not contain the password. */
static void a_user_is_split_off(void **state)
{
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};

	(void)state;
	assert_int_equal(
		0, mlflow_split_uri("https://me:p%40ss@mlflow.example:8443/base//", &base, &login));
	assert_string_equal("https://mlflow.example:8443/base", buf_str(&base));
	assert_string_equal("me", login.user);
	assert_string_equal("p@ss", login.password);
	assert_int_equal(0, mlflow_authorization(&login, &value));
	assert_string_equal("Basic bWU6cEBzcw==", buf_str(&value));
}

static void an_address_without_a_user_has_no_login(void **state)
{
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};

	(void)state;
	assert_int_equal(0, mlflow_split_uri("http://[::1]:5000/a@b", &base, &login));
	assert_string_equal("http://[::1]:5000/a@b", buf_str(&base));
	assert_null(login.user);
	assert_int_equal(0, mlflow_authorization(&login, &value));
	assert_string_equal("", buf_str(&value));
	login.token = strdup("t0ken");
	assert_int_equal(0, mlflow_authorization(&login, &value));
	assert_string_equal("Bearer t0ken", buf_str(&value));
}

/* ---- variables and records ---- */

struct fixture {
	struct workflow workflow;
	struct attempt attempt;
	struct tracking tracking;
	struct strlist env;
};

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	f->attempt.workflow = &f->workflow;
	strcpy(f->attempt.id, "0123456789ab");
	f->tracking = (struct tracking){.attempt = &f->attempt, .began = 2, .id = "0a1b2c"};
	f->workflow.tracking.mlflow.uri.value = "http://me:secret@127.0.0.1:5000/";
	f->workflow.tracking.mlflow.uri.shown = "http://***@127.0.0.1:5000/";
	f->workflow.tracking.mlflow.experiment.value = "cifar10";
	f->workflow.tracking.wandb.project.value = "p";
	f->workflow.tracking.aim.repo.value = ".";
	*state = f;
	return 0;
}

static int end(void **state)
{
	struct fixture *f = *state;

	strlist_release(&f->env);
	free(f);
	return 0;
}

/* When a workflow is loaded only to find its stores, missing secrets remain references in its
 * values. */
static void a_missing_secret_is_not_sent(void **state)
{
	struct fixture *f = *state;
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};

	unsetenv("MLFLOW_TRACKING_PASSWORD");
	unsetenv("MLFLOW_TRACKING_USERNAME");
	unsetenv("MLFLOW_TRACKING_TOKEN");
	assert_int_equal(0, tracking_login(&f->workflow, "http://recorded:1", &base, &login, NULL));
	assert_string_equal("http://127.0.0.1:5000", buf_str(&base));
	assert_string_equal("secret", login.password);
	f->workflow.tracking.mlflow.uri.value = "http://${{ secrets.LOGIN }}@127.0.0.1:5000/";
	mlflow_login_release(&login);
	assert_int_equal(-PENSTOCK_E_PERMISSION,
		tracking_login(&f->workflow, "http://recorded:1", &base, &login, NULL));
	f->workflow.tracking.mlflow.uri.value = "${{ env.MLFLOW }}";
	buf_clear(&base);
	assert_int_equal(0, tracking_login(&f->workflow, "http://recorded:1", &base, &login, NULL));
	assert_string_equal("http://recorded:1", buf_str(&base));
	assert_int_equal(
		-PENSTOCK_E_PERMISSION, tracking_login(&f->workflow, NULL, &base, &login, NULL));
	f->workflow.tracking.mlflow.uri.value = "http://127.0.0.1:5000/";
	setenv("MLFLOW_TRACKING_TOKEN", "${{ secrets.TOKEN }}", 1);
	mlflow_login_release(&login);
	assert_int_equal(-PENSTOCK_E_PERMISSION,
		tracking_login(&f->workflow, "http://recorded:1", &base, &login, NULL));
	unsetenv("MLFLOW_TRACKING_TOKEN");
}

static void steps_get_the_run_of_mlflow(void **state)
{
	struct fixture *f = *state;

	f->workflow.tracking.mlflow.given = true;
	strcpy(f->tracking.mlflow.run, "r1");
	strlist_add(&f->env, "MLFLOW_EXPERIMENT_ID=7");
	assert_int_equal(0, tracking_environment(&f->tracking, "/out", "http://s3:1", &f->env));
	assert_string_equal("http://127.0.0.1:5000", strlist_get(&f->env, "MLFLOW_TRACKING_URI"));
	assert_string_equal("me", strlist_get(&f->env, "MLFLOW_TRACKING_USERNAME"));
	assert_string_equal("secret", strlist_get(&f->env, "MLFLOW_TRACKING_PASSWORD"));
	assert_string_equal("cifar10", strlist_get(&f->env, "MLFLOW_EXPERIMENT_NAME"));
	assert_string_equal("r1", strlist_get(&f->env, "MLFLOW_RUN_ID"));
	assert_string_equal("http://s3:1", strlist_get(&f->env, "MLFLOW_S3_ENDPOINT_URL"));
	assert_null(strlist_get(&f->env, "MLFLOW_EXPERIMENT_ID"));
	assert_null(strlist_get(&f->env, "MLFLOW_RUN_CONTEXT"));
	assert_null(strlist_get(&f->env, "WANDB_PROJECT"));
}

/* MLFLOW_RUN_ID of the user's shell names another run, so it is removed. The client of MLflow adds
 * the tags to the run that it creates. */
static void without_the_server_a_run_of_the_step_has_the_tags(void **state)
{
	struct fixture *f = *state;

	f->workflow.tracking.mlflow.given = true;
	strlist_add(&f->env, "MLFLOW_RUN_ID=other");
	assert_int_equal(0, tracking_environment(&f->tracking, "/out", NULL, &f->env));
	assert_null(strlist_get(&f->env, "MLFLOW_RUN_ID"));
	assert_null(strlist_get(&f->env, "MLFLOW_S3_ENDPOINT_URL"));
	assert_string_equal("{\"penstock.run\":\"0123456789ab\",\"penstock.began\":\"2\","
			    "\"penstock.tracked\":\"0a1b2c\"}",
		strlist_get(&f->env, "MLFLOW_RUN_CONTEXT"));
}

static void directories_of_trackers_are_below_the_output(void **state)
{
	struct fixture *f = *state;

	f->workflow.tracking.wandb.given = f->workflow.tracking.aim.given = true;
	assert_int_equal(0, tracking_environment(&f->tracking, "/out", NULL, &f->env));
	assert_string_equal("/out", strlist_get(&f->env, "WANDB_DIR"));
	assert_string_equal("offline", strlist_get(&f->env, "WANDB_MODE"));
	assert_string_equal("0a1b2c", strlist_get(&f->env, "WANDB_RUN_ID"));
	assert_string_equal("allow", strlist_get(&f->env, "WANDB_RESUME"));
	assert_null(strlist_get(&f->env, "WANDB_ENTITY"));
	assert_string_equal("/out", strlist_get(&f->env, "AIM_REPO"));
	assert_string_equal("0a1b2c", strlist_get(&f->env, "PENSTOCK_TRACKED_RUN"));
	assert_null(strlist_get(&f->env, "MLFLOW_TRACKING_URI"));
	f->workflow.tracking.aim.repo.value = "aim/repo";
	assert_int_equal(0, tracking_environment(&f->tracking, "/out", NULL, &f->env));
	assert_string_equal("/out/aim/repo", strlist_get(&f->env, "AIM_REPO"));
	f->workflow.tracking.aim.repo.value = "aim://host:1";
	assert_int_equal(0, tracking_environment(&f->tracking, "/out", NULL, &f->env));
	assert_string_equal("aim://host:1", strlist_get(&f->env, "AIM_REPO"));
}

static void a_run_without_trackers_has_no_variables(void **state)
{
	struct fixture *f = *state;
	const struct tracking none = {0};

	assert_int_equal(0, tracking_environment(&none, "/out", NULL, &f->env));
	assert_int_equal(0, f->env.n);
}

static void the_page_of_a_run_has_no_user(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;

	f->workflow.tracking.mlflow.given = true;
	strcpy(f->tracking.mlflow.run, "r1");
	strcpy(f->tracking.mlflow.experiment, "7");
	text = tracking_describe(&f->tracking);
	assert_non_null(strstr(text, "\"http://127.0.0.1:5000/#/experiments/7/runs/r1\""));
	assert_null(strstr(text, "secret"));
}

/* Aim chooses the ids of its runs, so only its directory is known. */
static void the_place_of_aim_is_described(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *output = NULL, *server = NULL;

	f->workflow.tracking.aim.given = true;
	output = tracking_describe(&f->tracking);
	assert_non_null(strstr(output, "\"run\":null,\"place\":\".aim of the output\""));
	f->workflow.tracking.aim.repo.value = "aim://host:1";
	server = tracking_describe(&f->tracking);
	assert_non_null(strstr(server, "\"place\":\"aim://host:1\""));
}

/* If the user declared the whole address of the server a secret, the record has no link. */
static void a_secret_address_has_no_link(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL, *user = NULL, *file = NULL;

	f->workflow.tracking.mlflow.given = true;
	f->workflow.tracking.mlflow.uri.shown = "${{ secrets.MLFLOW }}";
	strcpy(f->tracking.mlflow.run, "r1");
	text = tracking_describe(&f->tracking);
	assert_null(strstr(text, "127.0.0.1"));
	assert_non_null(strstr(text, "\"run\":\"r1\""));
	f->workflow.tracking.mlflow.uri.shown = "http://${{ secrets.LOGIN }}@127.0.0.1:5000/";
	file = tracking_describe(&f->tracking);
	assert_non_null(strstr(file, "http://127.0.0.1:5000/#/"));
	f->workflow.tracking.mlflow.uri.shown = "${{ file.tracking.mlflow.uri }}";
	user = tracking_describe(&f->tracking);
	assert_non_null(strstr(user, "http://127.0.0.1:5000/#/"));
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_quoted),
		cmocka_unit_test(only_an_end_has_a_time),
		cmocka_unit_test(ids_are_read),
		cmocka_unit_test(a_deleted_experiment_is_an_error),
		cmocka_unit_test(other_replies_are_refused),
		cmocka_unit_test(last_points_are_read),
		cmocka_unit_test(a_page_of_a_history_has_the_token_of_the_next),
		cmocka_unit_test(a_refusal_has_a_code),
		cmocka_unit_test(a_user_is_split_off),
		cmocka_unit_test(an_address_without_a_user_has_no_login),
		WITH(a_missing_secret_is_not_sent),
		WITH(steps_get_the_run_of_mlflow),
		WITH(without_the_server_a_run_of_the_step_has_the_tags),
		WITH(directories_of_trackers_are_below_the_output),
		WITH(a_run_without_trackers_has_no_variables),
		WITH(the_page_of_a_run_has_no_user),
		WITH(the_place_of_aim_is_described),
		WITH(a_secret_address_has_no_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
