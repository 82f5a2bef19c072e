#include "fixture.h"

#include "base/cleanup.h"
#include "base/limits.h"

#define PART ((size_t)5 * 1024 * 1024)

static void begin(struct fixture *f, const char *key, char id[static STORE_UPLOAD_ID_SIZE])
{
	static char headers[] = "content-type\0a/b\0";
	struct store_upload in = {.headers = headers, .headers_len = sizeof(headers) - 1};

	assert_int_equal(store_upload_create(f->store, "b", 0, key, &in, id, NULL), STORE_OK);
}

static enum store_status add_part(struct fixture *f, const char *key, const char *id,
	uint32_t number, const char *etag, char fill, size_t len)
{
	char *data = malloc(len + 1);
	struct store_part_put p = {
		.put = {.bucket = "b", .key = key, .etag = etag}, .upload = id, .number = number};
	enum store_status status;

	memset(data, fill, len);
	p.put.body = make_body(f->store, data, len, false);
	status = store_part_put(f->store, &p, NULL);
	store_body_free(p.put.body);
	free(data);
	return status;
}

static enum store_status finish(struct fixture *f, const char *key, const char *id,
	const struct store_part *parts, size_t n)
{
	struct store_complete c = {.bucket = "b",
		.key = key,
		.upload = id,
		.parts = parts,
		.n_parts = n,
		.etag = "whole-2"};

	return store_complete(f->store, &c, NULL);
}

/* The object consists of the named parts in order. A part that was sent twice counts once, and
 * unnamed parts are dropped. */
static void an_object_is_put_together(void **state)
{
	struct fixture *f = *state;
	const struct store_part parts[] = {{.number = 2, .size = PART, .etag = "two"},
		{.number = 7, .size = 3, .etag = "seven"}};
	char id[STORE_UPLOAD_ID_SIZE];
	struct store_object *o;
	char *data;

	begin(f, "k", id);
	assert_int_equal(add_part(f, "k", id, 7, "seven", '7', 3), STORE_OK);
	assert_int_equal(add_part(f, "k", id, 2, "old", 'o', PART), STORE_OK);
	assert_int_equal(add_part(f, "k", id, 2, "two", '2', PART), STORE_OK);
	assert_int_equal(add_part(f, "k", id, 3, "three", '3', PART), STORE_OK);
	assert_int_equal(count_files(f), 3);
	assert_int_equal(finish(f, "k", id, parts, 2), STORE_OK);

	assert_int_equal(count_files(f), 2);
	o = get(f, "k");
	data = content(o);
	assert_int_equal(o->size, PART + 3);
	assert_int_equal(o->n_parts, 2);
	assert_int_equal(o->parts[1].number, 7);
	assert_string_equal(o->etag, "whole-2");
	assert_string_equal(store_object_header(o, "content-type"), "a/b");
	assert_int_equal(data[0], '2');
	assert_int_equal(data[PART - 1], '2');
	assert_string_equal(data + PART, "777");
	free(data);
	store_object_unref(o);
	assert_int_equal(add_part(f, "k", id, 1, "x", 'x', 1), STORE_NO_SUCH_UPLOAD);
}

/* Reads ranges that begin and end at all small distances from the boundary of two parts. */
static void ranges_cross_the_borders_of_parts(void **state)
{
	struct fixture *f = *state;
	const struct store_part parts[] = {
		{.number = 1, .size = PART, .etag = "1"}, {.number = 2, .size = 3, .etag = "2"}};
	char id[STORE_UPLOAD_ID_SIZE], data[8];
	struct store_reader *reader = NULL;
	struct store_object *o;

	begin(f, "k", id);
	add_part(f, "k", id, 1, "1", 'a', PART);
	add_part(f, "k", id, 2, "2", 'b', 3);
	assert_int_equal(finish(f, "k", id, parts, 2), STORE_OK);
	o = get(f, "k");
	assert_int_equal(store_reader_new(o, &reader, NULL), 0);

	assert_int_equal(store_reader_read(reader, PART - 2, data, 4, NULL), 4);
	assert_memory_equal(data, "aabb", 4);
	assert_int_equal(store_reader_read(reader, PART + 1, data, 8, NULL), 2);
	assert_memory_equal(data, "bb", 2);
	assert_int_equal(store_reader_read(reader, 0, data, 2, NULL), 2);
	assert_memory_equal(data, "aa", 2);
	assert_int_equal(store_reader_read(reader, PART + 3, data, 8, NULL), 0);
	store_reader_free(reader);
	store_object_unref(o);
}

/* A range that sendfile() can send is in one file; other ranges are read. */
static void bytes_of_one_piece_are_in_one_file(void **state)
{
	struct fixture *f = *state;
	const struct store_part parts[] = {
		{.number = 1, .size = PART, .etag = "1"}, {.number = 2, .size = 3, .etag = "2"}};
	char id[STORE_UPLOAD_ID_SIZE], data[8];
	struct store_object *o;
	uint64_t at = 99;
	int fd;

	begin(f, "k", id);
	add_part(f, "k", id, 1, "1", 'a', PART);
	add_part(f, "k", id, 2, "2", 'b', 3);
	assert_int_equal(finish(f, "k", id, parts, 2), STORE_OK);
	o = get(f, "k");

	fd = store_object_open(o, PART + 1, 2, &at);
	assert_true(fd >= 0);
	assert_int_equal(at, 1);
	assert_int_equal(pread(fd, data, 2, (off_t)at), 2);
	assert_memory_equal(data, "bb", 2);
	close(fd);
	fd = store_object_open(o, 0, PART, &at);
	assert_true(fd >= 0);
	assert_int_equal(at, 0);
	close(fd);
	assert_int_equal(store_object_open(o, PART - 1, 2, &at), -1);
	assert_int_equal(store_object_open(o, PART, 4, &at), -1);
	assert_int_equal(store_object_open(o, PART + 3, 1, &at), -1);
	store_object_unref(o);
}

/* An invalid completion is an error, and the upload does not change. */
static void wrong_completions_change_nothing(void **state)
{
	struct fixture *f = *state;
	const struct store_part missing[] = {
		{.number = 1, .etag = "1"}, {.number = 9, .etag = "9"}};
	const struct store_part other_etag[] = {{.number = 1, .etag = "x"}};
	const struct store_part small[] = {{.number = 1, .etag = "1"}, {.number = 2, .etag = "2"}};
	const struct store_part good[] = {{.number = 1, .size = 3, .etag = "1"}};
	char id[STORE_UPLOAD_ID_SIZE];

	begin(f, "k", id);
	add_part(f, "k", id, 1, "1", 'a', 3);
	add_part(f, "k", id, 2, "2", 'b', 3);

	assert_int_equal(finish(f, "k", id, missing, 2), STORE_INVALID_PART);
	assert_int_equal(finish(f, "k", id, other_etag, 1), STORE_INVALID_PART);
	assert_int_equal(finish(f, "k", id, small, 2), STORE_PART_TOO_SMALL);
	assert_int_equal(finish(f, "k", "00", good, 1), STORE_NO_SUCH_UPLOAD);
	assert_int_equal(finish(f, "other", id, good, 1), STORE_NO_SUCH_UPLOAD);
	assert_int_equal(finish(f, "k", id, good, 1), STORE_OK);
	assert_content(f, "k", "aaa");
}

/* A client that did not get the reply repeats the completion, and gets the same reply. */
static void completing_again_finds_the_object(void **state)
{
	struct fixture *f = *state;
	const struct store_part good[] = {{.number = 1, .size = 3, .etag = "1"}};
	struct store_object *found;
	char id[STORE_UPLOAD_ID_SIZE];

	begin(f, "k", id);
	add_part(f, "k", id, 1, "1", 'a', 3);
	assert_int_equal(finish(f, "k", id, good, 1), STORE_OK);

	assert_int_equal(finish(f, "k", id, good, 1), STORE_NO_SUCH_UPLOAD);
	assert_int_equal(store_completed_get(f->store, "b", "k", id, &found, NULL), STORE_OK);
	assert_int_equal(found->n_parts, 1);
	assert_string_equal(found->parts[0].etag, "1");
	store_object_unref(found);
	put(f, "k", "e", "replaced");
	assert_int_equal(
		store_completed_get(f->store, "b", "k", id, &found, NULL), STORE_NO_SUCH_UPLOAD);
	assert_content(f, "k", "replaced");
}

/* When the client repeats the completion, another version may be the current one. */
static void completing_again_finds_an_older_version(void **state)
{
	struct fixture *f = *state;
	const struct store_part good[] = {{.number = 1, .size = 3, .etag = "1"}};
	struct store_complete c = {.bucket = "b", .key = "k", .parts = good, .n_parts = 1};
	_cleanup_(store_object_unrefp) struct store_object *found = NULL;
	char id[STORE_UPLOAD_ID_SIZE], made[STORE_VERSION_SIZE];

	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	begin(f, "k", id);
	add_part(f, "k", id, 1, "1", 'a', 3);
	c.upload = id;
	c.etag = "whole-1";
	assert_int_equal(store_complete(f->store, &c, NULL), STORE_OK);
	memcpy(made, c.version, sizeof(made));
	put(f, "k", "e", "newer");

	assert_int_equal(store_complete(f->store, &c, NULL), STORE_NO_SUCH_UPLOAD);

	assert_int_equal(store_completed_get(f->store, "b", "k", id, &found, NULL), STORE_OK);
	assert_string_equal(found->version, made);
	assert_string_equal(found->etag, "whole-1");
	assert_content(f, "k", "newer");
}

/* Aborting an upload, and deleting its bucket, remove all files of its parts. */
static void abandoned_parts_are_removed(void **state)
{
	struct fixture *f = *state;
	char first[STORE_UPLOAD_ID_SIZE], second[STORE_UPLOAD_ID_SIZE];

	begin(f, "k", first);
	begin(f, "k", second);
	add_part(f, "k", first, 1, "1", 'a', 3);
	add_part(f, "k", first, 2, "2", 'b', 3);
	add_part(f, "k", second, 1, "1", 'c', 3);
	assert_int_equal(store_upload_abort(f->store, "b", 0, "k", first, NULL), STORE_OK);
	assert_int_equal(count_files(f), 1);
	assert_int_equal(
		store_upload_abort(f->store, "b", 0, "k", first, NULL), STORE_NO_SUCH_UPLOAD);

	assert_int_equal(store_bucket_delete(f->store, "b", 0, NULL), STORE_OK);
	assert_int_equal(count_files(f), 0);
}

/* A part may be a range of an object, even of an object with several pieces, without copying
 * data. */
static void parts_share_ranges_of_objects(void **state)
{
	struct fixture *f = *state;
	const struct store_part two[] = {
		{.number = 1, .size = PART, .etag = "1"}, {.number = 2, .size = 3, .etag = "2"}};
	const struct store_part one[] = {{.number = 1, .size = 4, .etag = "r"}};
	struct store_part_put range = {.put = {.bucket = "b", .key = "copy", .etag = "r"},
		.number = 1,
		.offset = PART - 2,
		.length = 4};
	struct store_delete del = {.key = "k"};
	char id[STORE_UPLOAD_ID_SIZE], copy[STORE_UPLOAD_ID_SIZE];

	begin(f, "k", id);
	add_part(f, "k", id, 1, "1", 'a', PART);
	add_part(f, "k", id, 2, "2", 'b', 3);
	assert_int_equal(finish(f, "k", id, two, 2), STORE_OK);
	begin(f, "copy", copy);
	range.upload = copy;
	range.put.source = get(f, "k");
	assert_int_equal(store_part_put(f->store, &range, NULL), STORE_OK);
	store_object_unref(range.put.source);
	assert_int_equal(finish(f, "copy", copy, one, 1), STORE_OK);
	assert_int_equal(count_files(f), 2);

	store_delete(f->store, "b", 0, &del, 1, NULL);
	assert_content(f, "copy", "aabb");
	del.key = "copy";
	store_delete(f->store, "b", 0, &del, 1, NULL);
	assert_int_equal(count_files(f), 0);
}

/* A file that contains several pieces of an object has a reference for each piece. */
static void parts_may_repeat_a_range(void **state)
{
	struct fixture *f = *state;
	const struct store_part source[] = {{.number = 1, .size = 4, .etag = "1"}};
	struct store_part parts[3];
	struct store_part_put p = {.put = {.bucket = "b", .key = "copy", .etag = "r"}};
	struct store_delete del = {.key = "k"};
	char id[STORE_UPLOAD_ID_SIZE], copy[STORE_UPLOAD_ID_SIZE];

	begin(f, "k", id);
	add_part(f, "k", id, 1, "1", 'a', PART);
	assert_int_equal(finish(f, "k", id, source, 1), STORE_OK);
	begin(f, "copy", copy);
	p.upload = copy;
	p.put.source = get(f, "k");
	for (unsigned i = 0; i < 3; i++) {
		p.number = i + 1;
		p.length = i < 2 ? PART : 2;
		parts[i] = (struct store_part){.number = i + 1, .size = p.length, .etag = "r"};
		assert_int_equal(store_part_put(f->store, &p, NULL), STORE_OK);
	}
	store_object_unref(p.put.source);
	assert_int_equal(finish(f, "copy", copy, parts, 3), STORE_OK);
	p.put.source = get(f, "copy");
	begin(f, "again", id);
	p.upload = id;
	p.put.key = "again";
	p.number = 1;
	p.length = 2 * PART + 2;
	assert_int_equal(store_part_put(f->store, &p, NULL), STORE_OK);
	store_object_unref(p.put.source);

	store_delete(f->store, "b", 0, &del, 1, NULL);
	del.key = "copy";
	store_delete(f->store, "b", 0, &del, 1, NULL);
	assert_int_equal(count_files(f), 1);
	assert_int_equal(
		finish(f, "again", id, (struct store_part[]){{.number = 1, .etag = "r"}}, 1),
		STORE_OK);
	del.key = "again";
	store_delete(f->store, "b", 0, &del, 1, NULL);
	assert_int_equal(count_files(f), 0);
}

/* The ETag of parts that are copies. */
#define COPY "0123456789abcdef0123456789abcdef-10000"

/* Copies the first `pieces` pieces of an object, which have the size PART, to a part. */
static enum store_status copy_part(struct fixture *f, const char *from, const char *to,
	const char *id, uint32_t number, size_t pieces)
{
	struct store_part_put p = {.put = {.bucket = "b", .key = to, .etag = COPY},
		.upload = id,
		.number = number,
		.length = pieces * PART};
	enum store_status status;

	p.put.source = get(f, from);
	status = store_part_put(f->store, &p, NULL);
	store_object_unref(p.put.source);
	return status;
}

/* Makes an object of `n` parts, each of which is a copy of the first `pieces` pieces of an
 * object. */
static void copy_parts(
	struct fixture *f, const char *from, size_t pieces, const char *to, uint32_t n)
{
	struct store_part parts[100] = {0};
	char id[STORE_UPLOAD_ID_SIZE];

	begin(f, to, id);
	for (uint32_t i = 0; i < n; i++) {
		parts[i] = (struct store_part){.number = i + 1, .etag = COPY};
		assert_int_equal(copy_part(f, from, to, id, i + 1, pieces), STORE_OK);
	}
	assert_int_equal(finish(f, to, id, parts, n), STORE_OK);
}

/* Makes the object "10000", which has 10,000 pieces. */
static void make_pieces(struct fixture *f)
{
	const struct store_part part = {.number = 1, .etag = "e"};
	char id[STORE_UPLOAD_ID_SIZE];

	begin(f, "1", id);
	add_part(f, "1", id, 1, "e", 'a', PART);
	assert_int_equal(finish(f, "1", id, &part, 1), STORE_OK);
	copy_parts(f, "1", 1, "100", 100);
	copy_parts(f, "100", 100, "10000", 100);
}

/* Copies of copies have more and more pieces. The limit of 4 MiB has room for 174,762 pieces of 24
 * bytes, without the descriptions of the parts. */
static void an_object_with_too_many_pieces_is_refused(void **state)
{
	struct fixture *f = *state;
	struct store_part parts[18] = {0};
	char id[STORE_UPLOAD_ID_SIZE];
	struct store_object *o;

	make_pieces(f);
	begin(f, "k", id);
	for (uint32_t i = 0; i < 18; i++) {
		parts[i] = (struct store_part){.number = i + 1, .etag = COPY};
		assert_int_equal(
			copy_part(f, "10000", "k", id, i + 1, i < 17 ? 10000 : 4747), STORE_OK);
	}
	assert_int_equal(finish(f, "k", id, parts, 18), STORE_TOO_MANY_PIECES);
	assert_int_equal(finish(f, "k", id, parts, 17), STORE_OK);

	o = get(f, "k");
	assert_int_equal(o->n_pieces, 170000);
	store_object_unref(o);
}

/* The number of pieces of an upload is limited, because an abort drops all parts in one
 * transaction. */
static void an_upload_has_no_more_pieces_than_an_object(void **state)
{
	struct fixture *f = *state;
	char id[STORE_UPLOAD_ID_SIZE];

	make_pieces(f);
	begin(f, "k", id);
	for (uint32_t i = 1; i <= 17; i++)
		assert_int_equal(copy_part(f, "10000", "k", id, i, 10000), STORE_OK);
	assert_int_equal(copy_part(f, "10000", "k", id, 18, 10000), STORE_TOO_MANY_PIECES);
	assert_int_equal(copy_part(f, "10000", "k", id, 17, 10000), STORE_OK);
	assert_int_equal(copy_part(f, "10000", "k", id, 18, 10), STORE_OK);
}

/* With several transactions, other changes can be committed in between. */
static void objects_with_many_pieces_are_deleted_in_several_transactions(void **state)
{
	struct fixture *f = *state;
	struct store_delete items[] = {{.key = "a"}, {.key = "b"}, {.key = "100"}, {.key = "1"}};
	struct store_expiry expired[] = {{.key = "c", .is_null = true},
		{.key = "d", .is_null = true}, {.key = "10000", .is_null = true}};
	struct store_commits before, after;

	make_pieces(f);
	for (size_t i = 0; i < 2; i++) {
		copy_parts(f, "10000", 5000, items[i].key, 1);
		copy_parts(f, "10000", 5000, expired[i].key, 1);
	}
	for (size_t i = 0; i < 3; i++) {
		struct store_object *o = get(f, expired[i].key);

		expired[i].modified_ns = o->modified_ns;
		store_object_unref(o);
	}

	store_commits(f->store, &before);
	assert_int_equal(store_delete(f->store, "b", 0, items, 4, NULL), STORE_OK);
	store_commits(f->store, &after);
	assert_int_equal(after.transactions - before.transactions, 3);
	for (size_t i = 0; i < 4; i++)
		assert_true(items[i].existed);
	store_commits(f->store, &before);
	assert_int_equal(store_expire(f->store, "b", NULL, expired, 3, NULL), STORE_OK);
	store_commits(f->store, &after);
	assert_int_equal(after.transactions - before.transactions, 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(expired[i].done);
	assert_int_equal(count_files(f), 0);
}

/* Each snapshot takes 5 MB. The snapshots of an account may take at most as much memory as then
 * remains free, so one account alone gets half of the limit. */
static void snapshots_of_objects_with_many_pieces_have_a_limit(void **state)
{
	struct fixture *f = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_object *held[100], *other = NULL;
	const struct store_new_bucket bucket = {.name = "other", .region = "", .owner = "2"};
	struct store_put copy = {.bucket = "other", .key = "k", .etag = "e", .headers = ""};
	size_t n = 0;

	make_pieces(f);
	copy_parts(f, "10000", 10000, "k", 17);
	assert_int_equal(put(f, "small", "e", "text"), STORE_OK);
	copy.source = get(f, "k");
	assert_int_equal(store_bucket_add(f->store, &bucket, NULL), STORE_OK);
	assert_int_equal(store_put(f->store, &copy, NULL), STORE_OK);
	store_object_unref(copy.source);

	while (n < 100 && store_object_get(f->store, "b", "k", &held[n], &err) == STORE_OK)
		n++;
	assert_in_range(n, 45, 49);
	assert_int_equal(err.code, PENSTOCK_E_MEMORY);
	penstock_error_release(&err);
	assert_int_equal(store_version_get(f->store, "b", "k", NULL, &other, &err), STORE_FAILED);
	assert_int_equal(err.code, PENSTOCK_E_MEMORY);
	penstock_error_release(&err);
	assert_content(f, "small", "text");
	assert_int_equal(store_object_get(f->store, "other", "k", &other, NULL), STORE_OK);
	store_object_unref(other);
	for (size_t i = 0; i < n; i++)
		store_object_unref(held[i]);

	held[0] = get(f, "k");
	store_object_unref(held[0]);
	held[0] = get(f, "10000");
	held[1] = get(f, "10000");
	assert_ptr_equal(held[0], held[1]); /* readers share a snapshot that fits into the cache */
	assert_int_equal(store_version_get(f->store, "b", "10000", held[0]->version, &other, NULL),
		STORE_OK);
	assert_ptr_equal(held[0], other); /* even if the reader names the current version */
	store_object_unref(other);
	store_object_unref(held[0]);
	store_object_unref(held[1]);
}

/* Uploads are listed in pages, by key and then by id, with common prefixes. */
static void uploads_are_listed_in_pages(void **state)
{
	struct fixture *f = *state;
	static const char *const keys[] = {"a", "a", "d/1", "d/2", "z"};
	struct store_list_query q = {.bucket = "b", .max = 2};
	struct store_list list;
	char id[STORE_UPLOAD_ID_SIZE], last[STORE_ETAG_SIZE] = "", key[8] = "";
	size_t seen = 0;

	for (size_t i = 0; i < 5; i++)
		begin(f, keys[i], id);
	do {
		q.after = key;
		assert_int_equal(store_upload_list(f->store, &q, *last ? last : NULL, &list, NULL),
			STORE_OK);
		for (size_t i = 0; i < list.n; i++)
			assert_string_equal(list.entries[i].key, keys[seen++]);
		snprintf(key, sizeof(key), "%s", list.entries[list.n - 1].key);
		snprintf(last, sizeof(last), "%s", list.entries[list.n - 1].etag);
		q.max = list.truncated ? 2 : 0;
		store_list_release(&list);
	} while (q.max);
	assert_int_equal(seen, 5);

	q = (struct store_list_query){.bucket = "b", .delimiter = "/", .max = 10};
	assert_int_equal(store_upload_list(f->store, &q, NULL, &list, NULL), STORE_OK);
	assert_int_equal(list.n, 4);
	assert_true(list.entries[2].is_prefix);
	assert_string_equal(list.entries[2].key, "d/");
	store_list_release(&list);
}

/* An unused upload expires with its files; an old upload that received a part recently stays. */
static void unfinished_uploads_expire(void **state)
{
	struct fixture *f = *state;
	char abandoned[STORE_UPLOAD_ID_SIZE], slow[STORE_UPLOAD_ID_SIZE],
		other[STORE_UPLOAD_ID_SIZE];
	struct store_upload found = {0};
	struct store_upload_place place = {0};
	size_t n = 0, all = 0, steps = 0;
	int64_t before;

	for (int i = 0; i < 150; i++)
		begin(f, "empty", other);
	begin(f, "k", abandoned);
	begin(f, "slow", slow);
	add_part(f, "k", abandoned, 1, "1", 'a', 3);
	before = clock_wall_ns() + 1;
	while (clock_wall_ns() <= before)
		;
	add_part(f, "slow", slow, 1, "1", 'b', 3);

	for (int i = 0; i < 150; i++)
		begin(f, "a-new-one", other);
	do {
		assert_int_equal(store_upload_expire(f->store, before, &place, &n, NULL), STORE_OK);
		all += n;
		steps++;
	} while (place.bucket);
	assert_int_equal(all, 151);
	assert_int_equal(steps, 4);
	assert_int_equal(store_upload_get(f->store, "b", "k", abandoned, &found, NULL),
		STORE_NO_SUCH_UPLOAD);
	assert_int_equal(store_upload_get(f->store, "b", "slow", slow, &found, NULL), STORE_OK);
	store_upload_release(&found);
	assert_int_equal(count_files(f), 1);
}

/* With several steps, other changes can be committed in between. */
static void a_bucket_with_many_uploads_is_deleted_in_steps(void **state)
{
	struct fixture *f = *state;
	struct store_commits before, after;
	struct store_delete item = {.key = "k"};
	char id[STORE_UPLOAD_ID_SIZE];
	struct store_list list;

	for (int i = 0; i < 6000; i++)
		begin(f, "k", id);
	assert_int_equal(put(f, "k", "e", "text"), STORE_OK);

	assert_int_equal(store_bucket_delete(f->store, "b", 0, NULL), STORE_BUCKET_NOT_EMPTY);
	assert_int_equal(
		store_upload_list(f->store, &(struct store_list_query){.bucket = "b", .max = 1},
			NULL, &list, NULL),
		STORE_OK);
	assert_int_equal(list.n, 1);
	store_list_release(&list);
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
	store_commits(f->store, &before);
	assert_int_equal(store_bucket_delete(f->store, "b", 0, NULL), STORE_OK);
	store_commits(f->store, &after);

	assert_int_equal(after.transactions - before.transactions, 2);
	assert_int_equal(store_bucket_get(f->store, "b", NULL, NULL), STORE_NO_SUCH_BUCKET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(an_object_is_put_together), TEST(ranges_cross_the_borders_of_parts),
		TEST(bytes_of_one_piece_are_in_one_file), TEST(wrong_completions_change_nothing),
		TEST(completing_again_finds_the_object),
		TEST(completing_again_finds_an_older_version), TEST(abandoned_parts_are_removed),
		TEST(parts_share_ranges_of_objects), TEST(parts_may_repeat_a_range),
		TEST(an_object_with_too_many_pieces_is_refused),
		TEST(an_upload_has_no_more_pieces_than_an_object),
		TEST(objects_with_many_pieces_are_deleted_in_several_transactions),
		TEST(snapshots_of_objects_with_many_pieces_have_a_limit),
		TEST(uploads_are_listed_in_pages), TEST(unfinished_uploads_expire),
		TEST(a_bucket_with_many_uploads_is_deleted_in_steps)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
