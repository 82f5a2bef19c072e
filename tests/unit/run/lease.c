/* A lease whose thread cannot start. */
#include "../copy/copy_store.h"

#include <errno.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/thread.h"
#include "run/owner/lease.h"

#define STATE "/bucket/out/.penstock/runs/a1/state.json"

int __real_thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg,
	struct penstock_error *err);
int __wrap_thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg,
	struct penstock_error *err);
int __wrap_thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg,
	struct penstock_error *err)
{
	if (strcmp(name, "lease") == 0)
		return error_errno(err, EAGAIN, "cannot start a thread");
	return __real_thread_start(out, name, fn, arg, err);
}

static void fail_to_take(struct copy_store *s)
{
	struct lease_found found = {0};
	struct lease *lease = NULL;
	const struct lease_options options = {
		.client = s->s3,
		.bucket = "bucket",
		.prefix = "out/",
		.state_prefix = ".penstock/runs/a1",
		.run_id = "a1",
		.home = s->dir,
		.home_id = "h",
		.attempt = 1,
	};

	assert_true(lease_take(&lease, &options, &found, NULL) < 0);
	assert_null(lease);
}

static void assert_state(struct copy_store *s, const char *state)
{
	const struct tiny_object *o = tiny_find(&s->store, STATE);
	json_auto_t *root = o ? json_loadb(o->body, o->len, 0, NULL) : NULL;
	const char *found = json_string_value(json_object_get(root, "state"));

	assert_string_equal(state, found ? found : "");
}

static void a_lease_that_cannot_be_renewed_is_given_back(void **state)
{
	static const char stopped[] = "{\"format\": 1, \"run\": \"a1\", \"attempt\": 1, "
				      "\"state\": \"stopped\", \"owner\": {}}";
	static const char preempted[] = "{\"format\": 1, \"run\": \"a1\", \"attempt\": 1, "
					"\"state\": \"preempted\", \"owner\": {}}";
	struct copy_store s;

	(void)state;
	copy_store_begin(&s);

	fail_to_take(&s);
	assert_state(&s, "failed");
	tiny_make(&s.store, STATE, stopped, strlen(stopped));
	fail_to_take(&s);
	assert_state(&s, "stopped");
	tiny_make(&s.store, STATE, preempted, strlen(preempted));
	fail_to_take(&s);
	assert_state(&s, "lost");

	copy_store_end(&s);
}

/* A long history, with names that must be truncated between two characters. */
static void earlier_attempts_are_kept_up_to_a_bound(void **state)
{
	enum { BEFORE = 200, KEPT = 64 };
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	const struct tiny_object *o;
	json_auto_t *root = NULL;
	json_t *attempts, *last;
	struct copy_store s;

	(void)state;
	buf_add_str(&text,
		"{\"format\": 1, \"run\": \"a1\", \"attempt\": 201, \"state\": \"lost\", \"ended_as\": \"failed\", "
		"\"owner\": {\"host\": \"h\"}, \"attempts\": [");
	for (int i = 1; i <= BEFORE; i++) {
		buf_printf(&text,
			"%s{\"attempt\": %d, \"state\": \"running\", \"owner\": {\"host\": \"x",
			i > 1 ? "," : "", i);
		for (int k = 0; k < 60; k++)
			buf_add_str(&text, "é");
		buf_add_str(&text, "\"}}");
	}
	buf_add_str(&text, "]}");
	copy_store_begin(&s);
	tiny_make(&s.store, STATE, buf_str(&text), text.len);

	fail_to_take(&s);

	o = tiny_find(&s.store, STATE);
	root = json_loadb(o->body, o->len, 0, NULL);
	attempts = json_object_get(root, "attempts");
	assert_int_equal(json_integer_value(json_object_get(root, "attempt")), BEFORE + 2);
	assert_int_equal(json_array_size(attempts), KEPT);
	last = json_array_get(attempts, KEPT - 1);
	assert_int_equal(json_integer_value(json_object_get(last, "attempt")), BEFORE + 1);
	assert_string_equal(json_string_value(json_object_get(last, "state")), "failed");
	last = json_array_get(attempts, 0);
	assert_int_equal(json_integer_value(json_object_get(last, "attempt")), BEFORE + 2 - KEPT);
	assert_string_equal(json_string_value(json_object_get(last, "state")), "lost");
	assert_true(o->len < LIMIT_STATE_OBJECT);
	copy_store_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lease_that_cannot_be_renewed_is_given_back),
		cmocka_unit_test(earlier_attempts_are_kept_up_to_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
