/* The choice of a version below a prefix. */
#include "../copy/copy_store.h"

#include "deploy/internal.h"

struct world {
	struct copy_store s;
	struct deploy_options o;
	struct versions v;
	struct model model;
	bool settles;
};

static int begin_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	copy_store_begin(&w->s);
	w->o = (struct deploy_options){.client = w->s.s3, .bucket = "bucket", .prefix = "m/"};
	w->v.o = &w->o;
	*state = w;
	return 0;
}

static int end_world(void **state)
{
	struct world *w = *state;

	model_release(&w->model);
	versions_release(&w->v);
	copy_store_end(&w->s);
	free(w);
	return 0;
}

static void make(struct world *w, const char *path, const char *body)
{
	char key[128];

	snprintf(key, sizeof(key), "/bucket/m/%s", path);
	tiny_remove(&w->s.store, key);
	tiny_make(&w->s.store, key, body, strlen(body));
}

/* Writes a commit of the file "w", which has four bytes. */
static void commit(
	struct world *w, const char *dir, unsigned attempt, unsigned step, const char *metrics)
{
	char path[64], body[512];

	snprintf(path, sizeof(path), "%s/COMMIT.json", dir);
	snprintf(body, sizeof(body),
		"{\"format\":\"penstock.checkpoint/1\",\"step\":%u,\"attempt\":%u,\"run\":\"r\","
		"\"time\":\"2026-11-21T09:05:00.000Z\",\"world_size\":1,\"metrics\":{%s},"
		"\"files\":[{\"path\":\"w\",\"size\":4,\"crc64nvme\":\"0000000000000000\"}]}",
		step, attempt, metrics);
	make(w, path, body);
}

/* Returns the name of the chosen version, or "" if there is none. */
static const char *look_without(struct world *w, const struct refused *refused)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = versions_look(&w->v, refused, &w->model, &w->settles, &err);

	if (r < 0)
		fail_msg("%s", err.message);
	assert_true(r == 0 || w->model.name);
	return r ? w->model.name : "";
}

static const char *look(struct world *w)
{
	return look_without(w, &(struct refused){0});
}

static void the_greatest_number_is_the_newest(void **state)
{
	struct world *w = *state;

	assert_string_equal(look(w), "");
	assert_false(w->settles);
	make(w, "9/w", "nine");
	make(w, "10/w", "ten");
	make(w, "10-old/w", "x");
	make(w, "notes/w", "x");
	make(w, "config.pbtxt", "x");
	make(w, ".penstock/deploy.json", "{}");
	assert_string_equal(look(w), "10");
	assert_string_equal(w->model.directory, "10/");
	/* The model has the file of the version and the file next to the versions. */
	assert_int_equal(w->model.n, 2);
	assert_string_equal(w->model.files[0].path, "10/w");
	assert_int_equal(w->model.size, 4);
	make(w, "0.txt", "x");
	make(w, "10/a/b", "x");
	assert_string_equal(look(w), "10");
	assert_int_equal(w->model.n, 4);
	assert_string_equal(w->model.files[0].path, "0.txt");
	assert_string_equal(w->model.files[1].path, "10/a/b");
	assert_string_equal(w->model.files[2].path, "10/w");
	assert_string_equal(w->model.files[3].path, "config.pbtxt");
}

static void the_content_is_that_of_its_files(void **state)
{
	struct world *w = *state;
	char first[MODEL_CONTENT_SIZE];
	struct refused_content refused = {0};

	make(w, "1/w", "one");
	look(w);
	snprintf(first, sizeof(first), "%s", w->model.content);
	assert_int_equal(strlen(first), MODEL_CONTENT_SIZE - 1);
	look(w);
	assert_string_equal(w->model.content, first);
	make(w, "1/w", "two");
	look(w);
	assert_string_not_equal(w->model.content, first);
	make(w, "1/w", "one");
	look(w);
	assert_string_equal(w->model.content, first);
	memcpy(refused.content, first, sizeof(first));
	assert_string_equal(look_without(w, &(struct refused){.contents = &refused, .n = 1}), "");
	refused.until_ms = clock_monotonic_ms() - 1;
	assert_string_equal(look_without(w, &(struct refused){.contents = &refused, .n = 1}), "1");
}

static void a_version_without_a_commit_must_settle(void **state)
{
	struct world *w = *state;

	make(w, "1/w", "one");
	w->o.settle_ms = 30;
	assert_string_equal(look(w), "");
	assert_true(w->settles);
	while (!*look(w))
		clock_sleep_ms(5);
	make(w, "1/w", "two");
	assert_string_equal(look(w), "");
	w->o.ready = "READY";
	assert_string_equal(look(w), "");
	assert_false(w->settles);
	make(w, "1/READY", "");
	assert_string_equal(look(w), "1");
}

static void a_commit_counts_once_its_files_are_there(void **state)
{
	struct world *w = *state;

	make(w, "1/w", "one");
	commit(w, "2", 1, 2, "");
	assert_string_equal(look(w), "1");
	make(w, "2/w", "too long");
	assert_string_equal(look(w), "1");
	make(w, "2/w", "four");
	assert_string_equal(look(w), "2");
	assert_true(w->model.committed);
	make(w, "3/COMMIT.json", "{\"format\":\"penstock.checkpoint/1\"");
	make(w, "3/w", "four");
	assert_string_equal(look(w), "2");
}

static void checkpoints_are_compared_by_attempt_and_step(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < 3; i++) {
		static const char *const names[] = {"step-9-1", "step-7-2", "step-8-1"};
		static const unsigned steps[] = {9, 7, 8}, attempts[] = {1, 2, 1};
		char path[32];

		commit(w, names[i], attempts[i], steps[i], "\"loss\":0.5");
		snprintf(path, sizeof(path), "%s/w", names[i]);
		make(w, path, "four");
	}
	assert_string_equal(look(w), "step-7-2");
	commit(w, "step-8-1", 1, 8, "\"loss\":0.25");
	commit(w, "step-9-1", 1, 9, "\"other\":0.1");
	w->o.best = "loss";
	assert_string_equal(look(w), "step-8-1");
	w->o.best_is_max = true;
	assert_string_equal(look(w), "step-7-2");
	w->o.best = "missing";
	assert_string_equal(look(w), "");
}

static void a_prefix_without_versions_is_one(void **state)
{
	struct world *w = *state;

	make(w, "a.mar", "one");
	make(w, "assets/b", "two");
	assert_int_equal(strlen(look(w)), 12);
	assert_string_equal(w->model.directory, "");
	assert_int_equal(w->model.n, 2);
	w->o.best = "loss";
	assert_string_equal(look(w), "");
}

static void a_prefix_may_be_a_checkpoint(void **state)
{
	struct world *w = *state;

	w->o.prefix = "m/step-1/";
	commit(w, "step-1", 1, 1, "");
	assert_string_equal(look(w), "");
	make(w, "step-1/w", "four");
	assert_int_equal(strlen(look(w)), 12);
	assert_true(w->model.committed);
	assert_int_equal(w->model.n, 2);
}

/* The files of a checkpoint must not be served before the training has written all of them and the
 * commit. */
static void a_checkpoint_without_its_commit_is_no_version(void **state)
{
	struct world *w = *state;

	make(w, "step-000000000001-1/model.bin", "half");
	assert_string_equal(look(w), "");
	assert_false(w->settles);
	commit(w, "step-000000000001-1", 1, 1, "");
	make(w, "step-000000000001-1/w", "four");
	assert_string_equal(look(w), "step-000000000001-1");
}

static void a_prefix_with_a_damaged_commit_is_no_version(void **state)
{
	struct world *w = *state;

	w->o.prefix = "m/step-1/";
	make(w, "step-1/w", "four");
	make(w, "step-1/COMMIT.json", "{\"format\":");
	assert_string_equal(look(w), "");
}

static bool deny_commits(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	if (!strstr(r->target, "COMMIT.json"))
		return list_bucket(store, r, fd, keep);
	*keep = answer_error(fd, "403 Forbidden", "AccessDenied", "");
	return true;
}

static void a_commit_that_was_denied_is_read_later(void **state)
{
	struct world *w = *state;

	commit(w, "2", 1, 2, "");
	make(w, "2/w", "four");
	make(w, "1/w", "one");
	w->s.store.trouble = deny_commits;
	assert_string_equal(look(w), "1"); /* the denied version does not block others */
	w->s.store.trouble = list_bucket;
	assert_string_equal(look(w), "2");
}

static bool change_commits(
	struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	if (!strstr(r->target, "COMMIT.json"))
		return list_bucket(store, r, fd, keep);
	*keep = answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	return true;
}

/* While a commit is being replaced, the previous version must not be chosen. */
static void a_commit_that_is_replaced_meanwhile_ends_the_look(void **state)
{
	struct world *w = *state;

	make(w, "1/w", "one");
	commit(w, "2", 1, 2, "");
	make(w, "2/w", "four");
	w->s.store.trouble = change_commits;
	assert_string_equal(look(w), "");
	assert_true(w->settles);
	w->s.store.trouble = list_bucket;
	assert_string_equal(look(w), "2");
}

static void a_name_is_a_word_for_a_shell(void **state)
{
	struct world *w = *state;

	commit(w, "a;b", 1, 9, "");
	make(w, "a;b/w", "four");
	commit(w, "-rf", 1, 8, "");
	make(w, "-rf/w", "four");
	commit(w, "a_b", 1, 1, "");
	make(w, "a_b/w", "four");
	assert_string_equal(look(w), "a_b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_greatest_number_is_the_newest, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			the_content_is_that_of_its_files, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_version_without_a_commit_must_settle, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_commit_counts_once_its_files_are_there, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_checkpoint_without_its_commit_is_no_version, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_prefix_with_a_damaged_commit_is_no_version, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_commit_that_was_denied_is_read_later, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_commit_that_is_replaced_meanwhile_ends_the_look, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			checkpoints_are_compared_by_attempt_and_step, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_prefix_without_versions_is_one, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_prefix_may_be_a_checkpoint, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_name_is_a_word_for_a_shell, begin_world, end_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
