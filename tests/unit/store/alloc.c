#include "fixture.h"

#include "alloc_fail.h"

#include "base/log.h"

/* Every allocation of each operation fails once. The operation reports the failure or succeeds, the
 * store stays consistent, and the operation succeeds on the next attempt. */
#define FILE_SIZE (STORE_INLINE_MAX + 3000)

struct step {
	const char *name;
	/* Runs the operation and returns true if it succeeded; has no assertions. */
	bool (*run)(struct fixture *f, struct penstock_error *err);
	/* Checks the store after the operation; `done` is true if it succeeded. */
	void (*check)(struct fixture *f, bool done);
};

static char large[FILE_SIZE + 1], other[FILE_SIZE + 1];

/* Compares the bytes; unlike assert_string_equal(), does not print them if they differ. */
static void assert_filled(struct fixture *f, const char *key, const char *wanted)
{
	struct store_object *object = get(f, key);
	char *text = content(object);

	assert_true(strcmp(text, wanted) == 0);
	free(text);
	store_object_unref(object);
}

static bool put_text(struct fixture *f, const char *key, const char *etag, const char *text,
	struct penstock_error *err)
{
	struct store_put put = {.bucket = "b", .key = key, .etag = etag};
	size_t len = strlen(text);
	bool good = store_body_new(f->store, len, true, &put.body, err) == 0 &&
		    store_body_write(put.body, text, len, err) == 0 &&
		    store_body_sync(put.body, err) == 0 &&
		    store_put(f->store, &put, err) == STORE_OK;

	store_body_free(put.body);
	return good;
}

/* --- opening ------------------------------------------------------------------------------- */

static bool open_store(struct fixture *f, struct penstock_error *err)
{
	store_close(f->store);
	f->store = NULL;
	return store_open(&f->store, &(struct store_options){.root = f->root, .relaxed = false},
		       err) == 0;
}

static void check_nothing(struct fixture *f, bool done)
{
	(void)done;
	if (!f->store)
		fixture_open(f, false);
	assert_filled(f, "large", large);
}

/* --- objects ------------------------------------------------------------------------------- */

static bool put_small(struct fixture *f, struct penstock_error *err)
{
	return put_text(f, "small", "new", "new", err);
}

static void check_small(struct fixture *f, bool done)
{
	struct store_object *object = get(f, "small");
	char *text = content(object);

	assert_string_equal(text, object->etag);
	assert_true(!done || strcmp(text, "new") == 0);
	free(text);
	store_object_unref(object);
	assert_int_equal(put(f, "small", "old", "old"), STORE_OK);
}

static bool put_large(struct fixture *f, struct penstock_error *err)
{
	return put_text(f, "large", "new", other, err);
}

static void check_large(struct fixture *f, bool done)
{
	struct store_object *object = get(f, "large");
	char *text = content(object);

	assert_true(strcmp(text, strcmp(object->etag, "new") == 0 ? other : large) == 0);
	assert_true(!done || strcmp(text, other) == 0);
	free(text);
	store_object_unref(object);
	assert_int_equal(put(f, "large", "old", large), STORE_OK);
}

static bool copy_large(struct fixture *f, struct penstock_error *err)
{
	struct store_put put = {.bucket = "b", .key = "copy", .etag = "old"};
	bool good = store_object_get(f->store, "b", "large", &put.source, err) == STORE_OK &&
		    store_put(f->store, &put, err) == STORE_OK;

	store_object_unref(put.source);
	return good;
}

static void check_copy(struct fixture *f, bool done)
{
	struct store_object *object = NULL;
	struct store_delete item = {.key = "copy"};

	if (store_object_get(f->store, "b", "copy", &object, NULL) == STORE_OK) {
		store_object_unref(object);
		assert_filled(f, "copy", large);
	} else {
		assert_false(done);
	}
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
}

static bool delete_small(struct fixture *f, struct penstock_error *err)
{
	struct store_delete items[] = {{.key = "small"}, {.key = "none"}};

	return store_delete(f->store, "b", 0, items, 2, err) == STORE_OK &&
	       items[0].status == STORE_OK;
}

static void check_delete(struct fixture *f, bool done)
{
	struct store_object *object = NULL;
	enum store_status status = store_object_get(f->store, "b", "small", &object, NULL);

	store_object_unref(object);
	assert_int_equal(status, done ? STORE_NO_SUCH_KEY : STORE_OK);
	assert_int_equal(put(f, "small", "old", "old"), STORE_OK);
}

static bool read_large(struct fixture *f, struct penstock_error *err)
{
	static char data[FILE_SIZE];
	struct store_object *object = NULL;
	struct store_reader *reader = NULL;
	bool good = store_object_get(f->store, "b", "large", &object, err) == STORE_OK;

	if (good) {
		store_object_map(object, 0, object->size);
		good = store_reader_new(object, &reader, err) == 0 &&
		       store_reader_read(reader, 0, data, FILE_SIZE, err) == FILE_SIZE;
	}
	store_reader_free(reader);
	store_object_unref(object);
	return good;
}

/* --- encrypted objects ------------------------------------------------------------------------ */

static const struct store_key customer = {{1}};

static bool put_sealed(struct fixture *f, const char *key, const struct store_key *with,
	const char *text, struct penstock_error *err)
{
	static char headers[sizeof(STORE_ENCRYPTION_HEADER) + STORE_ENCRYPTION_SIZE] =
		STORE_ENCRYPTION_HEADER;
	char *value = headers + sizeof(STORE_ENCRYPTION_HEADER);
	struct store_put put = {.bucket = "b", .key = key, .etag = "new", .headers = headers};
	size_t len = strlen(text);
	bool good = store_encryption_format(with, value, err) == 0 &&
		    store_body_new(f->store, len, true, &put.body, err) == 0 &&
		    store_body_encrypt(put.body, with, err) == 0 &&
		    store_body_write(put.body, text, len, err) == 0 &&
		    store_body_sync(put.body, err) == 0;

	put.headers_len = sizeof(STORE_ENCRYPTION_HEADER) + strlen(value) + 1;
	good = good && store_put(f->store, &put, err) == STORE_OK;
	store_body_free(put.body);
	return good;
}

static bool read_sealed(struct fixture *f, const char *key, const struct store_key *with,
	const char *text, struct penstock_error *err)
{
	static char data[FILE_SIZE];
	ssize_t len = (ssize_t)strlen(text);
	struct store_object *object = NULL;
	struct store_reader *reader = NULL;
	bool good = store_object_get(f->store, "b", key, &object, err) == STORE_OK &&
		    store_reader_new(object, &reader, err) == 0;

	if (good && with)
		store_reader_set_key(reader, with);
	good = good && store_reader_read(reader, 0, data, FILE_SIZE, err) == len;
	if (good)
		assert_memory_equal(data, text, (size_t)len);
	store_reader_free(reader);
	store_object_unref(object);
	return good;
}

static const struct sealed_case {
	const char *key;
	const struct store_key *with;
	const char *text;
} sealed[] = {{"sealed-1", NULL, "small"}, {"sealed-2", NULL, large},
	{"sealed-3", &customer, "own"}, {"sealed-4", &customer, large}};

static bool encrypt(struct fixture *f, struct penstock_error *err)
{
	bool good = true;

	for (size_t i = 0; good && i < sizeof(sealed) / sizeof(sealed[0]); i++) {
		const struct sealed_case *c = &sealed[i];

		good = put_sealed(f, c->key, c->with, c->text, err) &&
		       read_sealed(f, c->key, c->with, c->text, err);
	}
	return good;
}

static void check_encrypted(struct fixture *f, bool done)
{
	for (size_t i = 0; i < sizeof(sealed) / sizeof(sealed[0]); i++) {
		const struct sealed_case *c = &sealed[i];
		struct store_delete item = {.key = c->key};
		bool there = read_sealed(f, c->key, c->with, c->text, NULL);

		assert_true(there || !done);
		assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
		assert_true(there == item.existed);
	}
}

static bool list_all(struct fixture *f, struct penstock_error *err)
{
	struct store_list list = {0};
	bool good = store_list_objects(f->store,
			    &(struct store_list_query){.bucket = "b", .delimiter = "/", .max = 10},
			    &list, err) == STORE_OK;

	good = good && list.n == 2;
	store_list_release(&list);
	return good;
}

/* --- buckets and uploads --------------------------------------------------------------------- */

static bool make_bucket(struct fixture *f, struct penstock_error *err)
{
	struct store_bucket *list = NULL;
	size_t n = 0;
	bool good = store_bucket_create(f->store, "fresh", "", err) == STORE_OK &&
		    store_bucket_list(f->store, &(struct store_bucket_query){.max = 10}, &list, &n,
			    err) == STORE_OK;

	free(list);
	return good;
}

static void check_bucket(struct fixture *f, bool done)
{
	enum store_status status = store_bucket_delete(f->store, "fresh", 0, NULL);

	assert_true(status == STORE_OK || (!done && status == STORE_NO_SUCH_BUCKET));
	check_nothing(f, done);
}

static bool upload(struct fixture *f, struct penstock_error *err)
{
	char id[STORE_UPLOAD_ID_SIZE];
	struct store_part_put part = {
		.put = {.bucket = "b", .key = "parts", .etag = "p"}, .number = 1, .upload = id};
	struct store_part_page page = {0};
	struct store_complete complete = {
		.bucket = "b", .key = "parts", .upload = id, .etag = "e-1"};
	bool good;

	if (store_upload_create(f->store, "b", 0, "parts", &(struct store_upload){0}, id, err) !=
		STORE_OK)
		return false;
	good = store_body_new(f->store, FILE_SIZE, false, &part.put.body, err) == 0 &&
	       store_body_write(part.put.body, large, FILE_SIZE, err) == 0 &&
	       store_body_sync(part.put.body, err) == 0 &&
	       store_part_put(f->store, &part, err) == STORE_OK &&
	       store_part_list(f->store, "b", "parts", id, 0, 10, &page, err) == STORE_OK;
	complete.parts = page.parts;
	complete.n_parts = page.n;
	good = good && store_complete(f->store, &complete, err) == STORE_OK;
	store_body_free(part.put.body);
	free(page.parts);
	return good;
}

/* If the upload was completed, the object is complete; otherwise it may also be absent. Deletes the
 * object and aborts the upload. */
static void check_upload(struct fixture *f, bool done)
{
	struct store_list list = {0};
	struct store_object *object = NULL;
	struct store_delete item = {.key = "parts"};

	if (store_object_get(f->store, "b", "parts", &object, NULL) == STORE_OK) {
		store_object_unref(object);
		assert_filled(f, "parts", large);
	} else {
		assert_false(done);
	}
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
	assert_int_equal(
		store_upload_list(f->store, &(struct store_list_query){.bucket = "b", .max = 10},
			NULL, &list, NULL),
		STORE_OK);
	for (size_t i = 0; i < list.n; i++)
		assert_int_equal(
			store_upload_abort(f->store, "b", 0, "parts", list.entries[i].etag, NULL),
			STORE_OK);
	store_list_release(&list);
}

static const struct step steps[] = {
	{"open", open_store, check_nothing},
	{"put small", put_small, check_small},
	{"put large", put_large, check_large},
	{"copy", copy_large, check_copy},
	{"delete", delete_small, check_delete},
	{"read", read_large, check_nothing},
	{"list", list_all, check_nothing},
	{"bucket", make_bucket, check_bucket},
	{"upload", upload, check_upload},
	{"encrypt", encrypt, check_encrypted},
};

/* Each step runs on a newly opened store, so no memory is allocated or cached before the step. */
static void fail_each_allocation(struct fixture *f, const struct step *step)
{
	size_t failed = 0;

	for (size_t n = 1;; n++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		bool done, fired;

		if (!f->store)
			fixture_open(f, false);
		alloc_fail_arm(n);
		done = step->run(f, &err);
		fired = alloc_fail_disarm();

		if (!done && !err.message && err.code != PENSTOCK_E_MEMORY)
			fail_msg("%s: allocation %zu failed, but was not reported", step->name, n);
		failed += !done;
		penstock_error_release(&err);
		step->check(f, done);
		if (!fired) {
			assert_true(done);
			printf("%s: %zu allocations, %zu of them needed\n", step->name, n - 1,
				failed);
			break;
		}
	}
	assert_true(failed > 0);
}

static void a_failed_allocation_is_reported_and_nothing_is_half_done(void **state)
{
	struct fixture *f = *state;

	memset(large, 'l', FILE_SIZE);
	memset(other, 'o', FILE_SIZE);
	log_set_level(LOG_QUIET);
	assert_int_equal(put(f, "small", "old", "old"), STORE_OK);
	assert_int_equal(put(f, "large", "old", large), STORE_OK);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		fail_each_allocation(f, &steps[i]);
}

/* The first list prepares the database connection, so that in the second call only the list itself
 * needs memory. */
static void a_list_out_of_memory_says_so(void **state)
{
	struct fixture *f = *state;
	bool fired = true;

	assert_int_equal(put(f, "small", "old", "old"), STORE_OK);
	assert_int_equal(put(f, "large", "old", "old"), STORE_OK);
	assert_true(list_all(f, NULL));
	for (size_t n = 1; fired; n++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		bool done;

		alloc_fail_arm(n);
		done = list_all(f, &err);
		fired = alloc_fail_disarm();

		assert_int_equal(err.code, done ? PENSTOCK_OK : PENSTOCK_E_MEMORY);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_failed_allocation_is_reported_and_nothing_is_half_done, setup, teardown),
		cmocka_unit_test_setup_teardown(a_list_out_of_memory_says_so, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
