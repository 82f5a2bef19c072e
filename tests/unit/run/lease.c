/* Leases whose thread cannot start. */
#include "../copy/copy_store.h"

#include <errno.h>
#include <jansson.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lease_that_cannot_be_renewed_is_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
