/* The thread that looks for new versions: its offers, and the results that the main thread reports
 * to it. */
#include "../copy/copy_store.h"

#include "deploy/internal.h"

enum { PATIENCE_MS = 30000 };

struct world {
	struct copy_store s;
	struct deploy_options o;
	struct follow f;
	atomic_uint lists;
	atomic_bool away; /* the store is unavailable */
	atomic_bool missing; /* the bucket does not exist */
};

static bool list_or_fail(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	struct world *w = store->cookie;

	if (atomic_load(&w->missing)) {
		*keep = answer_error(fd, "404 Not Found", "NoSuchBucket", "");
		return true;
	}
	if (atomic_load(&w->away)) {
		*keep = answer_error(fd, "403 Forbidden", "AccessDenied", "");
		return true;
	}
	if (strcmp(r->method, "POST") == 0) { /* the store has no multipart uploads */
		*keep = answer_error(fd, "501 Not Implemented", "NotImplemented", "");
		return true;
	}
	if (strstr(r->target, "list-type=2"))
		w->lists++;
	LOCK_SCOPE(&store->lock);
	return list_bucket(store, r, fd, keep);
}

static int begin_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	copy_store_begin(&w->s);
	w->s.store.cookie = w;
	w->s.store.trouble = list_or_fail;
	w->o = (struct deploy_options){.client = w->s.s3,
		.bucket = "bucket",
		.prefix = "m/",
		.home = w->s.dir,
		.host = "127.0.0.1",
		.interval_ms = 5,
		.cache_size = UINT64_MAX,
		.no_state = true,
		.cancel = &w->f.stop};
	follow_init(&w->f, &w->o);
	*state = w;
	return 0;
}

static int end_world(void **state)
{
	struct world *w = *state;

	follow_stop(&w->f);
	copy_store_end(&w->s);
	free(w);
	return 0;
}

static void start(struct world *w)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(0, follow_start(&w->f, 1, &err));
}

static void publish(struct world *w, const char *name)
{
	char key[64];

	snprintf(key, sizeof(key), "/bucket/m/%s/w", name);
	tiny_make(&w->s.store, key, name, strlen(name));
}

/* Takes the next offer and asserts that it is the named version. The caller has to release the
 * model. */
static void take(struct world *w, const char *name, struct model *model)
{
	int64_t end = clock_monotonic_ms() + PATIENCE_MS;
	struct cached cached = {.lock = -1};

	while (!follow_take(&w->f, true, model, &cached)) {
		assert_true(clock_monotonic_ms() < end);
		clock_sleep_ms(1);
	}
	assert_string_equal(name, model->name);
	cached_release(&cached);
}

static void serve(struct world *w, const char *name)
{
	struct model model = {0};

	take(w, name, &model);
	follow_serving(&w->f, &model, true);
	model_release(&model);
}

/* Asserts that two further searches of the thread make no offer. */
static void nothing_is_offered(struct world *w)
{
	unsigned lists = atomic_load(&w->lists);
	int64_t end = clock_monotonic_ms() + PATIENCE_MS;
	struct model model = {0};
	struct cached cached = {.lock = -1};

	while (atomic_load(&w->lists) < lists + 2) {
		assert_false(follow_take(&w->f, true, &model, &cached));
		assert_true(clock_monotonic_ms() < end);
		clock_sleep_ms(1);
	}
	assert_false(follow_take(&w->f, true, &model, &cached));
}

static void each_version_is_offered_once(void **state)
{
	struct world *w = *state;

	start(w);
	nothing_is_offered(w);
	publish(w, "1");
	serve(w, "1");
	nothing_is_offered(w);
	publish(w, "2");
	publish(w, "3");
	serve(w, "3");
	nothing_is_offered(w);
	/* The version was replaced: it has the same name and another content. */
	tiny_make(&w->s.store, "/bucket/m/3/w", "again", 5);
	serve(w, "3");
	/* The version was removed, so the previous version is offered. */
	tiny_remove(&w->s.store, "/bucket/m/3/w");
	serve(w, "2");
}

/* Makes the temporary refusals expire, which otherwise takes a minute. */
static void end_minutes(struct world *w)
{
	LOCK_SCOPE(&w->f.lock);
	for (size_t i = 0; i < w->f.refused.n; i++) {
		if (w->f.refused.contents[i].until_ms)
			w->f.refused.contents[i].until_ms = clock_monotonic_ms();
	}
}

static void a_version_that_failed_is_not_offered_again(void **state)
{
	struct world *w = *state;
	struct model model = {0};

	publish(w, "1");
	start(w);
	serve(w, "1");
	publish(w, "2");
	take(w, "2", &model);
	follow_failed(&w->f, &model, "it ended with exit code 1", true);
	model_release(&model);
	nothing_is_offered(w);
	tiny_make(&w->s.store, "/bucket/m/2/w", "mended", 6);
	serve(w, "2");
}

static void the_next_process_does_not_offer_it_either(void **state)
{
	struct world *w = *state;
	struct model model = {0};
	json_t *failures;

	publish(w, "1");
	start(w);
	serve(w, "1");
	publish(w, "2");
	take(w, "2", &model);
	follow_failed(&w->f, &model, "it ended with exit code 1", true);
	model_release(&model);
	publish(w, "3");
	take(w, "3", &model);
	follow_failed(&w->f, &model, "the machine is full\xff", false);
	model_release(&model);
	failures = follow_pack_failures(&w->f);
	follow_stop(&w->f);

	memset(&w->f, 0, sizeof(w->f));
	follow_init(&w->f, &w->o);
	follow_unpack_failures(&w->f, failures);
	json_decref(failures);
	assert_string_equal("3", w->f.failed.name);
	assert_string_equal("the machine is full?", w->f.why);
	start(w);
	serve(w, "1");
	nothing_is_offered(w);
	end_minutes(w);
	serve(w, "3");
}

/* Returns the entry of this replica, or NULL if it is missing. */
static json_t *find_entry(struct world *w)
{
	LOCK_SCOPE(&w->s.store.lock);
	const struct tiny_object *o = tiny_find(&w->s.store, "/bucket/m/" REPLICAS_KEY);
	json_auto_t *root = o ? json_loadb(o->body, o->len, 0, NULL) : NULL;
	json_t *replicas = json_object_get(root, "replicas");

	return json_incref(json_object_iter_value(json_object_iter(replicas)));
}

/* Waits until the entry of this replica has the state `in_state`. Returns true if the entry names a
 * failed version. */
static bool entry_has_failed(struct world *w, const char *in_state)
{
	int64_t end = clock_monotonic_ms() + PATIENCE_MS;

	for (;;) {
		json_auto_t *entry = find_entry(w);
		const char *now = json_string_value(json_object_get(entry, "state"));

		if (now && strcmp(now, in_state) == 0)
			return json_object_get(entry, "failed") != NULL;
		assert_true(clock_monotonic_ms() < end);
		clock_sleep_ms(1);
	}
}

static void the_entry_has_a_failure_until_the_version_is_tried_again(void **state)
{
	struct world *w = *state;
	struct model model = {0};

	w->o.no_state = false;
	start(w);
	/* The entry is written even if the machine started less than five minutes ago. */
	assert_false(entry_has_failed(w, "waiting"));
	publish(w, "1");
	take(w, "1", &model);
	follow_serving(&w->f, &model, true);
	assert_false(entry_has_failed(w, "serving"));
	follow_failed(&w->f, &model, "its server exited with code 1", false);
	model_release(&model);
	assert_true(entry_has_failed(w, "failed"));
	end_minutes(w);
	take(w, "1", &model);
	assert_false(entry_has_failed(w, "waiting"));
	follow_failed(&w->f, &model, "its server exited with code 1", false);
	assert_true(entry_has_failed(w, "failed"));
	follow_serving(&w->f, &model, false);
	assert_false(entry_has_failed(w, "serving"));
	model_release(&model);
}

static void a_version_in_service_that_failed_is_offered_again(void **state)
{
	struct world *w = *state;
	struct model model = {0};

	publish(w, "1");
	start(w);
	take(w, "1", &model);
	follow_serving(&w->f, &model, true);
	assert_false(follow_refuses_more(&w->f));
	follow_failed(&w->f, &model, "its server exited with code 1", false);
	assert_true(follow_refuses_more(&w->f));
	model_release(&model);
	nothing_is_offered(w);
	end_minutes(w);
	serve(w, "1");
}

static void a_version_that_comes_too_late_does_not_end_the_turn(void **state)
{
	struct world *w = *state;
	struct model one = {0}, two = {0};

	publish(w, "1");
	start(w);
	take(w, "1", &one);
	follow_serving(&w->f, &one, true);
	publish(w, "2");
	take(w, "2", &two);
	assert_true(w->f.rolling);
	follow_serving(&w->f, &one, false); /* the server was restarted */
	assert_true(w->f.rolling);
	follow_serving(&w->f, &two, true);
	assert_false(w->f.rolling);
	model_release(&one);
	model_release(&two);
}

static void without_a_bucket_it_is_in_vain(void **state)
{
	struct world *w = *state;
	int64_t end = clock_monotonic_ms() + PATIENCE_MS;

	atomic_store(&w->missing, true);
	start(w);
	while (!follow_is_in_vain(&w->f)) {
		assert_true(clock_monotonic_ms() < end);
		clock_sleep_ms(1);
	}
}

static void the_last_version_does_not_wait_for_the_store(void **state)
{
	struct world *w = *state;
	struct model model = {0};

	publish(w, "1");
	start(w);
	take(w, "1", &model);
	follow_serving(&w->f, &model, true);
	follow_stop(&w->f);
	atomic_store(&w->away, true);

	memset(&w->f, 0, sizeof(w->f));
	follow_init(&w->f, &w->o);
	assert_true(model_set(&w->f.last, model.name, model.content));
	model_release(&model);
	start(w);
	serve(w, "1");
	assert_false(follow_is_in_vain(&w->f));
	/* The store is available again, with a newer version. */
	publish(w, "2");
	atomic_store(&w->away, false);
	serve(w, "2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			each_version_is_offered_once, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_version_that_failed_is_not_offered_again, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			the_next_process_does_not_offer_it_either, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			the_entry_has_a_failure_until_the_version_is_tried_again, begin_world,
			end_world),
		cmocka_unit_test_setup_teardown(
			a_version_in_service_that_failed_is_offered_again, begin_world, end_world),
		cmocka_unit_test_setup_teardown(a_version_that_comes_too_late_does_not_end_the_turn,
			begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			without_a_bucket_it_is_in_vain, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			the_last_version_does_not_wait_for_the_store, begin_world, end_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
