#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/limits.h"

#define LARGE (STORE_INLINE_MAX + 1000)

static char *large_text(char c)
{
	char *text = malloc(LARGE + 1);

	memset(text, c, LARGE);
	text[LARGE] = '\0';
	return text;
}

/* A small or large object is read back unchanged, with its headers, checksum and size, even after a
 * restart. */
static void an_object_is_read_as_it_was_put(void **state)
{
	struct fixture *f = *state;
	static const char headers[] = "content-type\0text/x\0x-amz-meta-a\0b c\0";
	char *large = large_text('l');
	struct store_put p = {.key = "dir/small",
		.etag = "abc",
		.headers = headers,
		.headers_len = sizeof(headers) - 1,
		.checksum = {.algorithm = "CRC32", .type = "FULL_OBJECT", .value = "AAAAAA=="}};

	assert_int_equal(put_full(f, &p, "five5", 5), STORE_OK);
	assert_int_equal(put(f, "large", "def", large), STORE_OK);
	assert_int_equal(put(f, "empty", "ghi", ""), STORE_OK);

	for (int round = 0; round < 2; round++) {
		struct store_object *o = get(f, "dir/small");

		assert_int_equal(o->size, 5);
		assert_string_equal(o->etag, "abc");
		assert_string_equal(o->checksum.value, "AAAAAA==");
		assert_string_equal(store_object_header(o, "x-amz-meta-a"), "b c");
		assert_string_equal(store_object_header(o, "content-type"), "text/x");
		assert_null(store_object_header(o, "expires"));
		assert_memory_equal(store_object_map(o, 0, 5), "five5", 5);
		store_object_unref(o);
		assert_content(f, "large", large);
		assert_content(f, "empty", "");
		store_close(f->store);
		fixture_open(f, false);
	}
	free(large);
}

/* A missing key and a missing bucket are different errors. */
static void what_is_missing_is_named(void **state)
{
	struct fixture *f = *state;
	struct store_object *o = NULL;

	assert_int_equal(store_object_get(f->store, "b", "k", &o, NULL), STORE_NO_SUCH_KEY);
	assert_int_equal(store_object_get(f->store, "no", "k", &o, NULL), STORE_NO_SUCH_BUCKET);
	assert_null(o);
	assert_int_equal(put_full(f, &(struct store_put){.bucket = "no", .key = "k"}, "x", 1),
		STORE_NO_SUCH_BUCKET);
	assert_int_equal(count_files(f), 0);
}

/* A change with the id of a deleted bucket fails, even if another bucket has the name now. */
static void a_later_bucket_of_the_name_is_not_changed(void **state)
{
	struct fixture *f = *state;
	struct store_lock lock = {0};
	struct store_delete del = {.key = "k"};
	struct store_bucket old, new;
	char id[STORE_UPLOAD_ID_SIZE];

	assert_int_equal(store_bucket_get(f->store, "b", &old, NULL), STORE_OK);
	assert_int_equal(store_bucket_delete(f->store, "b", old.id, NULL), STORE_OK);
	assert_int_equal(store_bucket_create(f->store, "b", "", NULL), STORE_OK);
	assert_int_equal(store_bucket_get(f->store, "b", &new, NULL), STORE_OK);
	assert_int_not_equal(old.id, new.id);

	assert_int_equal(store_bucket_delete(f->store, "b", old.id, NULL), STORE_NO_SUCH_BUCKET);
	assert_int_equal(store_bucket_set_versioning(f->store, "b", old.id, STORE_VERSIONED, NULL),
		STORE_NO_SUCH_BUCKET);
	assert_int_equal(store_config_set(f->store, "b", old.id, "policy", "x", 1, NULL),
		STORE_NO_SUCH_BUCKET);
	assert_int_equal(store_lock_set(f->store, "b", old.id, &lock, NULL), STORE_NO_SUCH_BUCKET);
	assert_int_equal(put_full(f, &(struct store_put){.bucket_id = old.id, .key = "k"}, "x", 1),
		STORE_NO_SUCH_BUCKET);
	assert_int_equal(store_upload_create(
				 f->store, "b", old.id, "k", &(struct store_upload){0}, id, NULL),
		STORE_NO_SUCH_BUCKET);

	assert_int_equal(put_full(f, &(struct store_put){.bucket_id = new.id, .key = "k"}, "x", 1),
		STORE_OK);
	assert_int_equal(store_delete(f->store, "b", old.id, &del, 1, NULL), STORE_NO_SUCH_BUCKET);
	assert_int_equal(store_annotate(f->store,
				 &(struct store_annotation){.bucket = "b",
					 .bucket_id = old.id,
					 .key = "k",
					 .name = ":x",
					 .value = "y"},
				 NULL),
		STORE_NO_SUCH_BUCKET);
	assert_content(f, "k", "x");
}

/* A snapshot keeps its bytes when its key is replaced or deleted; the file is removed with the
 * snapshot. */
static void a_reader_keeps_the_old_object(void **state)
{
	struct fixture *f = *state;
	char *old = large_text('o'), *new = large_text('n');
	struct store_delete del = {.key = "k"};
	struct store_object *o;
	char *data;

	put(f, "k", "1", old);
	o = get(f, "k");
	put(f, "k", "2", new);
	assert_content(f, "k", new);
	assert_int_equal(store_delete(f->store, "b", 0, &del, 1, NULL), STORE_OK);
	assert_true(del.existed);

	data = content(o);
	assert_string_equal(data, old);
	free(data);
	assert_int_equal(count_files(f), 1);
	store_object_unref(o);
	assert_int_equal(count_files(f), 0);
	free(old);
	free(new);
}

/* After many replacements of an object, only one file is left. */
static void replaced_files_are_removed(void **state)
{
	struct fixture *f = *state;
	char *text = large_text('x');

	for (int i = 0; i < 20; i++) {
		text[0] = (char)('a' + i);
		assert_int_equal(put(f, "k", "e", text), STORE_OK);
		assert_content(f, "k", text);
	}

	assert_int_equal(count_files(f), 1);
	free(text);
}

struct condition_case {
	const char *there; /* ETag of the current object; NULL if there is none */
	struct store_condition condition;
	enum store_status put, del;
};

/* The condition of a write is evaluated on the object that exists at the moment of the write. */
static void writes_are_conditional(void **state)
{
	static const struct condition_case cases[] = {
		{NULL, {NULL, "*"}, STORE_OK, STORE_OK},
		{"e1", {NULL, "*"}, STORE_PRECONDITION, STORE_PRECONDITION},
		{"e1", {"e1", NULL}, STORE_OK, STORE_OK},
		{"e1", {"e2", NULL}, STORE_PRECONDITION, STORE_PRECONDITION},
		{"e1", {"*", NULL}, STORE_OK, STORE_OK},
		{NULL, {"e1", NULL}, STORE_NO_SUCH_KEY, STORE_OK},
		{NULL, {"*", NULL}, STORE_NO_SUCH_KEY, STORE_OK},
		{"e1", {NULL, "e2"}, STORE_OK, STORE_OK},
		{"e1", {NULL, "e1"}, STORE_PRECONDITION, STORE_PRECONDITION},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct condition_case *c = &cases[i];
		struct store_put p = {.key = "k", .etag = "new", .condition = c->condition};
		struct store_delete clear = {.key = "k"};
		struct store_delete del = {.key = "k", .condition = c->condition};

		store_delete(f->store, "b", 0, &clear, 1, NULL);
		if (c->there)
			put(f, "k", c->there, "old");
		assert_int_equal(put_full(f, &p, "new", 3), c->put);
		if (c->put == STORE_OK)
			assert_content(f, "k", "new");
		else if (c->there)
			assert_content(f, "k", "old");

		store_delete(f->store, "b", 0, &clear, 1, NULL);
		if (c->there)
			put(f, "k", c->there, "old");
		assert_int_equal(store_delete(f->store, "b", 0, &del, 1, NULL), STORE_OK);
		assert_int_equal(del.status, c->del);
	}
}

/* A copy shares the file of its source: deleting one of the two does not affect the other. */
static void a_copy_shares_bytes(void **state)
{
	struct fixture *f = *state;
	char *text = large_text('s');
	struct store_delete del = {.key = "source"};
	struct store_object *source;
	struct store_put copy = {.bucket = "b", .key = "copy", .etag = "s"};

	put(f, "source", "s", text);
	source = get(f, "source");
	copy.source = source;
	assert_int_equal(store_put(f->store, &copy, NULL), STORE_OK);
	store_object_unref(source);
	assert_int_equal(count_files(f), 1);

	store_delete(f->store, "b", 0, &del, 1, NULL);
	assert_content(f, "copy", text);
	del.key = "copy";
	store_delete(f->store, "b", 0, &del, 1, NULL);
	assert_int_equal(count_files(f), 0);
	free(text);
}

/* If the source's file no longer exists when the copy takes effect, the copy fails and creates no
 * object. */
static void a_copy_of_something_gone_is_refused(void **state)
{
	struct fixture *f = *state;
	char *text = large_text('s');
	struct store_delete del = {.key = "source"};
	struct store_put copy = {.bucket = "b", .key = "copy", .etag = "s"};
	struct store_object *source, *o = NULL;

	put(f, "source", "s", text);
	source = get(f, "source");
	store_delete(f->store, "b", 0, &del, 1, NULL);
	copy.source = source;

	assert_int_equal(store_put(f->store, &copy, NULL), STORE_CHANGED);
	assert_int_equal(store_object_get(f->store, "b", "copy", &o, NULL), STORE_NO_SUCH_KEY);
	store_object_unref(source);
	free(text);
}

/* Buckets are created once, listed in order, and deleted if empty. */
static void buckets_come_and_go(void **state)
{
	struct fixture *f = *state;
	const struct store_bucket_query all = {.max = 10};
	struct store_bucket *list = NULL;
	size_t n = 0;

	assert_int_equal(store_bucket_create(f->store, "a", "", NULL), STORE_OK);
	assert_int_equal(store_bucket_create(f->store, "a", "", NULL), STORE_BUCKET_EXISTS);
	assert_int_equal(store_bucket_list(f->store, &all, &list, &n, NULL), STORE_OK);
	assert_int_equal(n, 2);
	assert_string_equal(list[0].name, "a");
	assert_string_equal(list[1].name, "b");
	free(list);
	put(f, "k", "e", "x");
	assert_int_equal(store_bucket_delete(f->store, "b", 0, NULL), STORE_BUCKET_NOT_EMPTY);
	assert_int_equal(store_bucket_delete(f->store, "a", 0, NULL), STORE_OK);
	assert_int_equal(store_bucket_delete(f->store, "a", 0, NULL), STORE_NO_SUCH_BUCKET);
}

static enum store_status add_bucket(struct fixture *f, const char *name, const char *owner)
{
	return store_bucket_add(f->store,
		&(struct store_new_bucket){.name = name, .region = "", .owner = owner, .max = 2},
		NULL);
}

static size_t count_buckets(struct fixture *f, struct store_bucket_query query, const char *first)
{
	struct store_bucket *list = NULL;
	size_t n = 0;

	query.max = query.max ? query.max : 10;
	assert_int_equal(store_bucket_list(f->store, &query, &list, &n, NULL), STORE_OK);
	if (n)
		assert_string_equal(list[0].name, first);
	free(list);
	return n;
}

/* The fixture has the bucket "b", which has no owner. */
static void an_owner_has_a_number_of_buckets(void **state)
{
	struct fixture *f = *state;
	const char *owner = "111111111111";

	assert_int_equal(add_bucket(f, "c", NULL), STORE_OK);
	assert_int_equal(add_bucket(f, "d", NULL), STORE_TOO_MANY_BUCKETS);
	assert_int_equal(add_bucket(f, "c", NULL), STORE_BUCKET_EXISTS);
	assert_int_equal(add_bucket(f, "a1", owner), STORE_OK);
	assert_int_equal(add_bucket(f, "e1", owner), STORE_OK);
	assert_int_equal(add_bucket(f, "e2", owner), STORE_TOO_MANY_BUCKETS);
	assert_int_equal(store_bucket_delete(f->store, "c", 0, NULL), STORE_OK);
	assert_int_equal(add_bucket(f, "d", NULL), STORE_OK);

#define COUNT(first, ...) count_buckets(f, (struct store_bucket_query){__VA_ARGS__}, first)
	assert_int_equal(COUNT("b", .owner = NULL), 2);
	assert_int_equal(COUNT("b", .max = 1), 1);
	assert_int_equal(COUNT("a1", .owner = owner), 2);
	assert_int_equal(COUNT("e1", .owner = owner, .after = "a1"), 1);
	assert_int_equal(COUNT("e1", .owner = owner, .prefix = "e"), 1);
	assert_int_equal(COUNT("a1", .owner = owner, .region = ""), 2);
	assert_int_equal(COUNT("", .owner = owner, .region = "eu"), 0);
	assert_int_equal(COUNT("", .owner = ""), 0);
#undef COUNT
}

/* A root has only one owner, even among two handles of one process. */
static void a_second_owner_is_refused(void **state)
{
	struct fixture *f = *state;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store *second = NULL;

	assert_int_equal(store_open(&second, &(struct store_options){.root = f->root}, &err),
		-PENSTOCK_E_EXISTS);
	assert_non_null(strstr(err.message, f->root));
	/* LeakSanitizer would report a message that is not released. */
	assert_int_equal(store_open(&second, &(struct store_options){.root = f->root}, NULL),
		-PENSTOCK_E_EXISTS);
}

/* A store of a later format is not changed, and neither is the database of another program. */
static void a_foreign_database_is_refused(void **state)
{
	struct fixture *f = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store *store = NULL;
	char path[128];
	int fd;

	store_close(f->store);
	f->store = NULL;
	snprintf(path, sizeof(path), "%s/meta.db", f->root);
	fd = open(path, O_RDWR);
	/* user_version is at offset 60 of the header, in big-endian order */
	assert_int_equal(pwrite(fd, "\0\0\0\x63", 4, 60), 4);
	close(fd);

	assert_int_equal(store_open(&store, &(struct store_options){.root = f->root}, &err),
		-PENSTOCK_E_UNSUPPORTED);
	assert_non_null(strstr(err.message, "99"));
	penstock_error_release(&err);
	unlink(path);
	fs_write_atomic(path, "not a database at all, but long enough", 38, 0600, NULL);
	assert_true(store_open(&store, &(struct store_options){.root = f->root}, &err) < 0);
	penstock_error_release(&err);
}

/* Only the owner can read the database. */
static void files_are_private(void **state)
{
	struct fixture *f = *state;
	struct stat st;
	char path[128];

	snprintf(path, sizeof(path), "%s/meta.db", f->root);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 077, 0);
}

/* Starts a process that puts one object and is killed while its store is open. */
static void crash_with_object(const char *root, const char *text)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct fixture f = {0};

		snprintf(f.root, sizeof(f.root), "%s", root);
		fixture_open(&f, true);
		if (put(&f, "kept", "e", text) == STORE_OK)
			raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* After a crash, data files without a row in the database are removed, and no others. */
static void orphans_are_swept(void **state)
{
	struct fixture *f = *state;
	char *text = large_text('k');
	char path[128];
	int64_t deadline = clock_monotonic_ms() + 20000;

	store_close(f->store);
	f->store = NULL;
	crash_with_object(f->root, text);
	snprintf(path, sizeof(path), "%s/data/00/00000000000000fe", f->root);
	fs_write_atomic(path, "orphan", 6, 0600, NULL);
	assert_int_equal(count_files(f), 2);
	fixture_open(f, false);

	while (count_files(f) > 1 && clock_monotonic_ms() < deadline)
		clock_sleep_ms(2);
	assert_int_equal(count_files(f), 1);
	assert_content(f, "kept", text);
	free(text);
}

/* Returns a body with the announced length `announced` that got `len` bytes in pieces of `piece`
 * bytes. */
static struct store_body *body_in_pieces(
	struct store *store, size_t announced, const char *data, size_t len, size_t piece)
{
	struct store_body *body = NULL;

	assert_int_equal(store_body_new(store, announced, true, &body, NULL), 0);
	for (size_t at = 0; at < len; at += piece)
		assert_int_equal(store_body_write(body, data + at,
					 len - at < piece ? len - at : piece, NULL),
			0);
	assert_int_equal(store_body_size(body), len);
	return body;
}

static void put_body(struct fixture *f, const char *key, struct store_body *body)
{
	struct store_put p = {.bucket = "b", .key = key, .etag = "e", .body = body};

	assert_int_equal(store_body_sync(body, NULL), 0);
	assert_int_equal(store_put(f->store, &p, NULL), STORE_OK);
	store_body_free(body);
}

/* The announced length of a body is a hint: if it is wrong, no byte is lost or duplicated. */
static void a_body_is_complete_with_any_announced_length(void **state)
{
	struct fixture *f = *state;
	char *text = large_text('x');

	for (size_t i = 0; i < LARGE; i++)
		text[i] = (char)('a' + i % 23);
	put_body(f, "exact", body_in_pieces(f->store, LARGE, text, LARGE, 1000));
	put_body(f, "shorter", body_in_pieces(f->store, LARGE + 5000, text, LARGE, 1000));
	put_body(f, "nothing", body_in_pieces(f->store, LARGE, text, 0, 1000));
	put_body(f, "longer", body_in_pieces(f->store, LARGE - 700, text, LARGE, 1000));
	put_body(f, "unknown", body_in_pieces(f->store, STORE_SIZE_UNKNOWN, text, LARGE, 1000));

	assert_content(f, "exact", text);
	assert_content(f, "shorter", text);
	assert_content(f, "nothing", "");
	assert_content(f, "longer", text);
	assert_content(f, "unknown", text);
	assert_int_equal(count_files(f), 5);
	free(text);
}

/* Only a limited number of bodies is held in memory. The other bodies are complete, too, and a
 * released body makes room for another. */
static void bodies_that_are_not_held_are_as_whole(void **state)
{
	struct fixture *f = *state;
	struct store_body *bodies[LIMIT_STORE_HELD_BODIES + 2] = {0};
	char *text = large_text('h'), key[16];

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		assert_int_equal(store_body_new(f->store, LARGE, true, &bodies[i], NULL), 0);
		assert_int_equal(store_body_write(bodies[i], text, 5000, NULL), 0);
		assert_int_equal(store_body_held(bodies[i]) != NULL, i < LIMIT_STORE_HELD_BODIES);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		assert_int_equal(store_body_write(bodies[i], text + 5000, LARGE - 5000, NULL), 0);
		snprintf(key, sizeof(key), "k%zu", i);
		put_body(f, key, bodies[i]);
		assert_content(f, key, text);
	}
	bodies[0] = body_in_pieces(f->store, LARGE, text, 5000, 5000);
	assert_memory_equal(store_body_held(bodies[0]), text, 5000);
	store_body_free(bodies[0]);
	assert_int_equal(count_files(f), ARRAY_SIZE(bodies));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(an_object_is_read_as_it_was_put),
		TEST(what_is_missing_is_named),
		TEST(a_later_bucket_of_the_name_is_not_changed),
		TEST(a_reader_keeps_the_old_object),
		TEST(replaced_files_are_removed),
		TEST(writes_are_conditional),
		TEST(a_copy_shares_bytes),
		TEST(a_copy_of_something_gone_is_refused),
		TEST(buckets_come_and_go),
		TEST(an_owner_has_a_number_of_buckets),
		TEST(a_second_owner_is_refused),
		TEST(a_foreign_database_is_refused),
		TEST(files_are_private),
		TEST(orphans_are_swept),
		TEST(a_body_is_complete_with_any_announced_length),
		TEST(bodies_that_are_not_held_are_as_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
