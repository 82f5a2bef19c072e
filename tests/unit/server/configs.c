/* The parsed configurations of all buckets: a configuration is parsed again only if its bucket
 * changed. */
#include "../store/fixture.h"

#include "server/bucket/configs.h"

static int n_parsed;

static int parse(const char *text, size_t len, void *out, struct penstock_error *err)
{
	n_parsed++;
	if (strcmp(text, "bad") == 0)
		return error_set(err, PENSTOCK_E_PROTOCOL, "bad");
	*(char **)out = strndup(text, len);
	return 0;
}

static void release(void *parsed)
{
	free(*(char **)parsed);
}

static const struct config_kind kind = {
	.name = "kind", .size = sizeof(char *), .parse = parse, .release = release};

static void set(struct fixture *f, const char *bucket, const char *text)
{
	assert_int_equal(
		store_config_set(f->store, bucket, 0, "kind", text, text ? strlen(text) : 0, NULL),
		STORE_OK);
}

static void assert_config(struct configs *configs, const char *bucket, const char *text)
{
	const char *const *found = configs_get(configs, bucket);

	if (!text) {
		assert_null(found);
		return;
	}
	assert_non_null(found);
	assert_string_equal(*found, text);
	configs_done(configs);
}

static void a_change_of_a_bucket_parses_only_its_configuration(void **state)
{
	struct fixture *f = *state;
	struct configs *configs = NULL;

	assert_int_equal(store_bucket_create(f->store, "a", "", NULL), STORE_OK);
	assert_int_equal(store_bucket_create(f->store, "c", "", NULL), STORE_OK);
	set(f, "b", "1");
	set(f, "c", "bad");
	assert_int_equal(configs_new(&configs, f->store, &kind, NULL), 0);
	assert_config(configs, "b", "1");
	assert_config(configs, "c", NULL);
	n_parsed = 0;

	set(f, "a", "2");
	set(f, "c", "3");
	assert_true(configs_update(configs, "a"));
	assert_true(configs_update(configs, "c"));
	assert_true(configs_any(configs));
	assert_config(configs, "a", "2");
	assert_config(configs, "b", "1");
	assert_config(configs, "c", "3");
	assert_int_equal(n_parsed, 2);

	set(f, "b", "bad");
	set(f, "a", NULL);
	assert_int_equal(store_bucket_delete(f->store, "c", 0, NULL), STORE_OK);
	assert_true(configs_update(configs, "a"));
	assert_true(configs_update(configs, "b"));
	assert_true(configs_update(configs, "c"));
	assert_false(configs_any(configs));
	assert_config(configs, "a", NULL);
	configs_free(configs);
}

static void many_buckets_are_found(void **state)
{
	struct fixture *f = *state;
	struct configs *configs = NULL;
	char name[16];

	assert_int_equal(configs_new(&configs, f->store, &kind, NULL), 0);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "bucket-%d", i * 37 % 100);
		assert_int_equal(store_bucket_create(f->store, name, "", NULL), STORE_OK);
		set(f, name, name);
		assert_true(configs_update(configs, name));
	}
	for (int i = 0; i < 100; i += 3) {
		snprintf(name, sizeof(name), "bucket-%d", i);
		set(f, name, NULL);
		assert_true(configs_update(configs, name));
	}

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "bucket-%d", i);
		assert_config(configs, name, i % 3 ? name : NULL);
	}
	configs_free(configs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_change_of_a_bucket_parses_only_its_configuration, setup, teardown),
		cmocka_unit_test_setup_teardown(many_buckets_are_found, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
