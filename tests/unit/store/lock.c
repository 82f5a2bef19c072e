/* Object Lock: protected versions. */
#include "fixture.h"

#include <sys/syscall.h>
#include <time.h>

/* Seconds that are added to the wall clock. */
static atomic_llong clock_shift_s;

int clock_gettime(clockid_t id, struct timespec *ts);
__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (id == CLOCK_REALTIME)
		ts->tv_sec += (time_t)atomic_load(&clock_shift_s);
	return r;
}

#define HEADERS(pairs) .headers = (pairs), .headers_len = sizeof(pairs) - 1

/* Creates the bucket "l", which has Object Lock. */
static struct fixture *locked(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(
		store_bucket_add(f->store,
			&(struct store_new_bucket){.name = "l", .region = "", .lock = true}, NULL),
		STORE_OK);
	return f;
}

static enum store_status remove_one(
	const struct fixture *f, const char *key, const char *version, bool bypass)
{
	struct store_delete item = {.key = key, .version = version, .bypass = bypass};

	assert_int_equal(store_delete(f->store, "l", 0, &item, 1, NULL), STORE_OK);
	return item.status;
}

static struct store_retention retention(struct fixture *f, const char *key)
{
	struct store_object *object = NULL;
	struct store_retention r;

	assert_int_equal(store_object_get(f->store, "l", key, &object, NULL), STORE_OK);
	r = store_object_retention(object);
	store_object_unref(object);
	return r;
}

static void annotate(const struct fixture *f, const struct store_put *put, const char *name,
	const char *value, const char *expected)
{
	struct store_annotation a = {.bucket = "l",
		.key = put->key,
		.version = put->version,
		.name = name,
		.value = value,
		.expected = expected};

	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_OK);
}

static void a_bucket_with_a_lock_keeps_its_versions(void **state)
{
	struct fixture *f = locked(state);
	struct store_lock lock = {.mode = STORE_GOVERNANCE, .days = 3}, out = {0};

	assert_int_equal(store_lock_get(f->store, "l", &out, NULL), STORE_OK);
	assert_int_equal(out.mode, STORE_NOT_LOCKED);
	assert_int_equal(store_bucket_set_versioning(f->store, "l", 0, STORE_SUSPENDED, NULL),
		STORE_BUCKET_STATE);
	assert_int_equal(
		store_bucket_set_versioning(f->store, "l", 0, STORE_VERSIONED, NULL), STORE_OK);
	assert_int_equal(store_lock_get(f->store, "b", &out, NULL), STORE_NO_SUCH_KEY);
	assert_int_equal(store_lock_set(f->store, "b", 0, &lock, NULL), STORE_BUCKET_STATE);
	assert_int_equal(store_lock_set(f->store, "n", 0, &lock, NULL), STORE_NO_SUCH_BUCKET);
	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_SUSPENDED, NULL), STORE_OK);
	assert_int_equal(store_lock_set(f->store, "b", 0, &lock, NULL), STORE_BUCKET_STATE);
	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	assert_int_equal(store_lock_set(f->store, "b", 0, &lock, NULL), STORE_OK);
	assert_int_equal(store_lock_get(f->store, "b", &out, NULL), STORE_OK);
	assert_memory_equal(&out, &lock, sizeof(lock));
}

/* The version was made before versioning was enabled; it is the current version in the first round,
 * and an older one in the second. */
static void a_locked_null_version_is_not_deleted(void **state)
{
	struct fixture *f = *state;
	struct store_put first = {.key = "k"};
	struct store_annotation hold = {.bucket = "b",
		.key = "k",
		.version = "null",
		.name = STORE_HOLD_HEADER,
		.value = STORE_HOLD_ON};

	assert_int_equal(put_full(f, &first, "one", 3), STORE_OK);
	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	assert_int_equal(store_annotate(f->store, &hold, NULL), STORE_OK);
	for (int i = 0; i < 2; i++) {
		struct store_delete item = {.key = "k", .version = "null", .bypass = true};

		assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
		assert_int_equal(item.status, STORE_LOCKED);
		assert_int_equal(put_full(f, &first, "two", 3), STORE_OK);
	}
}

/* Without versioning, each object of a key has the version "null", so the object is identified by
 * its time. */
static void only_the_object_that_was_seen_is_annotated(void **state)
{
	struct fixture *f = *state;
	struct store_put put = {.key = "k"};
	struct store_annotation a = {
		.bucket = "b", .key = "k", .name = ":a", .value = "1", .any = true};

	assert_int_equal(put_full(f, &put, "one", 3), STORE_OK);
	a.modified_ns = put.modified_ns;
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_OK);
	assert_int_equal(put_full(f, &put, "two", 3), STORE_OK);
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_CHANGED);
	a.modified_ns = 0;
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_OK);
}

/* Tests objects that were changed after the decision on access. */
static void only_the_object_on_which_access_was_decided_is_replaced_and_deleted(void **state)
{
	static const char *const buckets[] = {"b", "l"};
	enum { AS_IT_WAS, REPLACED, TAGGED, GONE, NEW, CASES };
	struct fixture *f = locked(state);

	for (int i = 0; i < 2 * CASES; i++) {
		const char *bucket = buckets[i / CASES];
		const int what = i % CASES;
		struct store_put first = {.bucket = bucket, .key = "k"}, second = first;
		struct store_object *object = NULL, *outline;
		struct store_delete item = {.key = "k", .condition.has_decided = true};

		print_message("bucket %s, case %d\n", bucket, what);
		if (what != NEW) {
			assert_int_equal(put_full(f, &first, "one", 3), STORE_OK);
			assert_int_equal(
				store_object_get(f->store, bucket, "k", &object, NULL), STORE_OK);
		}
		if (what == REPLACED || what == NEW)
			assert_int_equal(put_full(f, &second, "two", 3), STORE_OK);
		if (what == TAGGED)
			assert_int_equal(store_annotate(f->store,
						 &(struct store_annotation){.bucket = bucket,
							 .key = "k",
							 .name = ":tags",
							 .value = "a=b",
							 .any = true},
						 NULL),
				STORE_OK);
		if (what == GONE)
			assert_int_equal(store_delete(f->store, bucket, 0,
						 &(struct store_delete){.key = "k"}, 1, NULL),
				STORE_OK);

		outline = object ? store_object_outline(object) : NULL;
		item.condition.decided = object;
		second.condition = item.condition;
		item.condition.decided = outline;
		if (what != AS_IT_WAS)
			assert_int_equal(put_full(f, &second, "new", 3), STORE_CHANGED);
		assert_int_equal(store_delete(f->store, bucket, 0, &item, 1, NULL), STORE_OK);
		assert_int_equal(
			item.status, what == AS_IT_WAS || (what == GONE && bucket == buckets[0])
					     ? STORE_OK
					     : STORE_CHANGED);
		store_object_unref(object);
		store_object_unref(outline);
		/* The next case starts without an object. */
		item = (struct store_delete){.key = "k"};
		assert_int_equal(store_delete(f->store, bucket, 0, &item, 1, NULL), STORE_OK);
	}
}

static void a_retention_is_of_whole_milliseconds(void **state)
{
	char text[STORE_RETENTION_SIZE];

	(void)state;
	store_retention_format(
		&(struct store_retention){.mode = STORE_GOVERNANCE, .until_ns = 1000001}, text);
	assert_string_equal(text, "G 2000000");
	store_retention_format(
		&(struct store_retention){.mode = STORE_COMPLIANCE, .until_ns = INT64_MAX}, text);
	assert_string_equal(text, "C 9223372036854775807");
}

static void a_locked_version_is_not_deleted(void **state)
{
	static const struct {
		const char *name, *value;
		bool locked, locked_for_bypass;
	} rows[] = {
		{STORE_HOLD_HEADER, "ON", true, true},
		{STORE_HOLD_HEADER, "OFF", false, false},
		{STORE_RETENTION_HEADER, "G 9223372036854775807", true, false},
		{STORE_RETENTION_HEADER, "C 9223372036854775807", true, true},
		{STORE_RETENTION_HEADER, "G 1", false, false},
		{STORE_RETENTION_HEADER, "C 1", false, false},
	};
	struct fixture *f = locked(state);

	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		size_t row = i / 2;
		struct store_put first = {.bucket = "l", .key = "k"}, second = first;
		struct store_object *object = NULL;

		print_message("%s %s\n", rows[row].name, rows[row].value);
		assert_int_equal(put_full(f, &first, "one", 3), STORE_OK);
		if (i % 2)
			assert_int_equal(put_full(f, &second, "two", 3), STORE_OK);
		annotate(f, &first, rows[row].name, rows[row].value, NULL);
		if (rows[row].locked)
			assert_int_equal(remove_one(f, "k", first.version, false), STORE_LOCKED);
		if (rows[row].locked_for_bypass) {
			assert_int_equal(remove_one(f, "k", first.version, true), STORE_LOCKED);
			assert_int_equal(
				store_version_get(f->store, "l", "k", first.version, &object, NULL),
				STORE_OK);
			store_object_unref(object);
			annotate(f, &first, rows[row].name, NULL, rows[row].value);
		}
		assert_int_equal(remove_one(f, "k", first.version,
					 rows[row].locked && !rows[row].locked_for_bypass),
			STORE_OK);
		assert_int_equal(
			store_version_get(f->store, "l", "k", first.version, &object, NULL),
			STORE_NO_SUCH_VERSION);
	}
}

static void a_delete_marker_is_made_and_deleted_all_the_same(void **state)
{
	struct fixture *f = locked(state);
	struct store_put put = {
		.bucket = "l", .key = "k", HEADERS(STORE_HOLD_HEADER "\0" STORE_HOLD_ON "\0")};
	struct store_delete marker = {.key = "k"};

	assert_int_equal(put_full(f, &put, "text", 4), STORE_OK);
	assert_int_equal(store_delete(f->store, "l", 0, &marker, 1, NULL), STORE_OK);
	assert_int_equal(marker.status, STORE_OK);
	assert_int_equal(remove_one(f, "k", put.version, false), STORE_LOCKED);
	assert_int_equal(remove_one(f, "k", marker.made, false), STORE_OK);
	assert_int_equal(remove_one(f, "k", put.version, true), STORE_LOCKED);
	assert_int_equal(store_bucket_delete(f->store, "l", 0, NULL), STORE_BUCKET_NOT_EMPTY);
}

static int64_t whole_ms(int64_t ns)
{
	return (ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
}

static void new_versions_get_the_default_retention(void **state)
{
	struct fixture *f = locked(state);
	struct store_put put = {.bucket = "l", .key = "k"};
	struct store_put own = {.bucket = "l",
		.key = "own",
		HEADERS(STORE_RETENTION_HEADER "\0G 9223372036854775807\0")};
	struct store_lock lock = {.mode = STORE_COMPLIANCE, .days = 2};
	const int64_t day = 86400 * NS_PER_S;
	struct store_retention r;

	assert_int_equal(put_full(f, &put, "text", 4), STORE_OK);
	assert_int_equal(retention(f, "k").mode, STORE_NOT_LOCKED);
	assert_int_equal(store_lock_set(f->store, "l", 0, &lock, NULL), STORE_OK);
	assert_int_equal(put_full(f, &put, "text", 4), STORE_OK);
	r = retention(f, "k");
	assert_int_equal(r.mode, STORE_COMPLIANCE);
	assert_int_equal(
		r.until_ns, (put.modified_ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS + 2 * day);
	assert_int_equal(remove_one(f, "k", put.version, true), STORE_LOCKED);
	assert_int_equal(put_full(f, &own, "text", 4), STORE_OK);
	assert_int_equal(retention(f, "own").mode, STORE_GOVERNANCE);
	lock = (struct store_lock){.mode = STORE_GOVERNANCE, .years = 100};
	assert_int_equal(store_lock_set(f->store, "l", 0, &lock, NULL), STORE_OK);
	assert_int_equal(put_full(f, &put, "text", 4), STORE_OK);
	assert_int_equal(retention(f, "k").until_ns, whole_ms(put.modified_ns) + 36500 * day);
	lock.years = 300;
	assert_int_equal(store_lock_set(f->store, "l", 0, &lock, NULL), STORE_OK);
	assert_int_equal(put_full(f, &put, "text", 4), STORE_OK);
	assert_true(retention(f, "k").until_ns == INT64_MAX);
}

/* If keys that are written later also got times in the future, no lifecycle rule would match them,
 * and a retention would keep them for years. */
static void a_clock_that_was_wrong_only_affects_the_keys_written_meanwhile(void **state)
{
	static const char *const buckets[] = {"b", "l"};
	const struct store_lock lock = {.mode = STORE_COMPLIANCE, .days = 1};
	const int64_t day = 86400 * NS_PER_S;
	struct fixture *f = locked(state);

	assert_int_equal(store_lock_set(f->store, "l", 0, &lock, NULL), STORE_OK);
	for (size_t i = 0; i < 2; i++) {
		struct store_put wrong = {.bucket = buckets[i], .key = "k"}, right = wrong;
		struct store_put other = {.bucket = buckets[i], .key = "other"};

		atomic_store(&clock_shift_s, 5000 * 86400LL);
		assert_int_equal(put_full(f, &wrong, "one", 3), STORE_OK);
		atomic_store(&clock_shift_s, 0);
		assert_int_equal(put_full(f, &right, "two", 3), STORE_OK);
		assert_int_equal(put_full(f, &other, "one", 3), STORE_OK);

		assert_true(wrong.modified_ns > clock_wall_ns() + 4000 * day);
		assert_true(right.modified_ns > wrong.modified_ns);
		assert_true(other.modified_ns <= clock_wall_ns());
	}
	assert_true(retention(f, "k").until_ns < clock_wall_ns() + 2 * day);
	assert_true(retention(f, "other").until_ns < clock_wall_ns() + 2 * day);
}

static void an_active_retention_only_gets_longer(void **state)
{
	static const struct {
		struct store_retention old, new;
		bool allowed, for_bypass;
	} rows[] = {
		{{STORE_NOT_LOCKED, 0}, {STORE_COMPLIANCE, 20}, true, true},
		{{STORE_COMPLIANCE, 10}, {STORE_NOT_LOCKED, 0}, true, true},
		{{STORE_COMPLIANCE, 11}, {STORE_NOT_LOCKED, 0}, false, false},
		{{STORE_COMPLIANCE, 20}, {STORE_COMPLIANCE, 19}, false, false},
		{{STORE_COMPLIANCE, 20}, {STORE_COMPLIANCE, 20}, true, true},
		{{STORE_COMPLIANCE, 20}, {STORE_COMPLIANCE, 21}, true, true},
		{{STORE_COMPLIANCE, 20}, {STORE_GOVERNANCE, 21}, false, false},
		{{STORE_GOVERNANCE, 20}, {STORE_GOVERNANCE, 21}, true, true},
		{{STORE_GOVERNANCE, 20}, {STORE_GOVERNANCE, 19}, false, true},
		{{STORE_GOVERNANCE, 20}, {STORE_COMPLIANCE, 21}, false, true},
		{{STORE_GOVERNANCE, 20}, {STORE_NOT_LOCKED, 0}, false, true},
		{{STORE_GOVERNANCE, 9}, {STORE_NOT_LOCKED, 0}, true, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("row %zu\n", i);
		assert_int_equal(store_retention_may_become(&rows[i].old, &rows[i].new, 10, false),
			rows[i].allowed);
		assert_int_equal(store_retention_may_become(&rows[i].old, &rows[i].new, 10, true),
			rows[i].for_bypass);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_bucket_with_a_lock_keeps_its_versions),
		TEST(a_locked_version_is_not_deleted),
		TEST(a_locked_null_version_is_not_deleted),
		TEST(only_the_object_that_was_seen_is_annotated),
		TEST(only_the_object_on_which_access_was_decided_is_replaced_and_deleted),
		cmocka_unit_test(a_retention_is_of_whole_milliseconds),
		TEST(a_delete_marker_is_made_and_deleted_all_the_same),
		TEST(new_versions_get_the_default_retention),
		TEST(a_clock_that_was_wrong_only_affects_the_keys_written_meanwhile),
		cmocka_unit_test(an_active_retention_only_gets_longer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
