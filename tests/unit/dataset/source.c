#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "dataset/dataset.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "transfer/objects.h"

#define SIZE   64
#define MANY   4500
#define SECRET "wJalrXUtnFEMI-K7MDENG-bPxRfiCY"

/* A store whose objects contain the target of the request, padded to SIZE. */
struct fixture {
	struct mini_http m;
	struct http_engine *engine;
	struct object_client *client;
	struct buf listing; /* entries of the listing; if empty, it has many objects */
	const char *etag; /* ETag of all objects when they are read */
	size_t cut; /* bytes that the objects have lost since the listing */
	bool honours; /* evaluates If-Match */
	bool forbids;
	struct dataset *set;
	struct penstock_error err;
};

static void entry(struct fixture *f, const char *key, uint64_t size)
{
	buf_printf(&f->listing,
		"<Contents><Key>%s</Key><Size>%" PRIu64 "</Size><ETag>&quot;e&quot;</ETag>"
		"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>",
		key, size);
}

/* Adds a page of the objects "0000" to "4499". */
static void list_page(const char *target, struct buf *text)
{
	const char *after = strstr(target, "start-after="),
		   *token = strstr(target, "continuation-token=");
	int from = token   ? atoi(token + strlen("continuation-token="))
		   : after ? atoi(after + strlen("start-after=")) + 1
			   : 0;

	for (int i = from; i < from + 1000 && i < MANY; i++)
		buf_printf(text,
			"<Contents><Key>%04d</Key><Size>%d</Size><ETag>&quot;e&quot;</ETag>"
			"</Contents>",
			i, SIZE);
	buf_printf(text, "<IsTruncated>%s</IsTruncated>", from + 1000 < MANY ? "true" : "false");
	if (from + 1000 < MANY)
		buf_printf(text, "<NextContinuationToken>%d</NextContinuationToken>", from + 1000);
}

static bool list(struct fixture *f, const char *target, int fd)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(1 << 24);

	buf_add_str(&text, "<ListBucketResult>");
	if (f->listing.len)
		buf_printf(&text, "<IsTruncated>false</IsTruncated>%s", buf_str(&f->listing));
	else
		list_page(target, &text);
	buf_add_str(&text, "</ListBucketResult>");
	return mini_reply(fd, "200 OK", "Content-Type: application/xml\r\n", text.data, text.len);
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char content[SIZE] = {0}, wanted[64];

	if (strstr(r->target, "list-type"))
		return list(f, r->target, fd);
	if (strcmp(r->method, "HEAD") == 0)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (f->forbids)
		return mini_printf(fd,
			"HTTP/1.1 403 Forbidden\r\nContent-Length: %zu\r\n\r\n"
			"<Error><Code>AccessDenied</Code><Message>" SECRET "</Message></Error>",
			strlen("<Error><Code>AccessDenied</Code><Message>" SECRET
			       "</Message></Error>"));
	if (f->honours && mini_header(r, "If-Match", wanted, sizeof(wanted)) &&
		strcmp(wanted, f->etag) != 0)
		return mini_reply(fd, "412 Precondition Failed", "", "", 0);
	snprintf(content, SIZE, "%.*s", SIZE - 1, r->target);
	return mini_serve(r, fd, f->etag, content, SIZE - f->cut);
}

static int open_client(
	void *cookie, bool google, struct object_client **out, struct penstock_error *err)
{
	(void)google;
	(void)err;
	*out = ((struct fixture *)cookie)->client;
	return 0;
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char url[MINI_URL_SIZE];

	buf_init(&f->listing, 1 << 24);
	f->etag = "\"e\"";
	mini_start(&f->m, answer, f);
	mini_url(&f->m, "", url);
	assert_int_equal(http_engine_new(&f->engine, NULL, NULL), 0);
	assert_int_equal(object_client_open(&f->client, f->engine,
				 &(struct store_place){.endpoint_url = url,
					 .region = "us-east-1",
					 .access_key_id = "key",
					 .secret_access_key = SECRET},
				 NULL),
		0);
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	dataset_free(f->set);
	penstock_error_release(&f->err);
	object_client_free(f->client);
	http_engine_free(f->engine);
	mini_stop(&f->m);
	buf_release(&f->listing);
	free(f);
	return 0;
}

static int open_set(struct fixture *f, const char *url, struct dataset_options options)
{
	options.place = (struct source_place){.url = url, .open = open_client, .cookie = f};
	penstock_error_release(&f->err);
	return dataset_open(&f->set, &options, &f->err);
}

static int read_all(struct fixture *f, char *data)
{
	static uint64_t ids[MANY];

	for (size_t i = 0; i < dataset_count(f->set); i++)
		ids[i] = i;
	penstock_error_release(&f->err);
	return dataset_read(f->set, ids, (size_t)dataset_count(f->set), data, NULL, &f->err);
}

static void keys_may_have_any_characters(void **state)
{
	static const char *const names[][2] = {{"/b", "/bucket/p//b"},
		{"a b+c", "/bucket/p/a%20b%2Bc"}, {"a%2Fb", "/bucket/p/a%252Fb"},
		{"a//b", "/bucket/p/a//b"}, {"a?b#c", "/bucket/p/a%3Fb%23c"},
		{"\xc3\xa4", "/bucket/p/%C3%A4"}};
	struct fixture *f = *state;
	char data[6 * SIZE], key[64];

	for (size_t i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "p/%s", names[i][0]);
		entry(f, key, SIZE);
	}
	entry(f, "p/", 0);
	assert_int_equal(
		open_set(f, "s3://bucket/p", (struct dataset_options){.format = "objects"}), 0);
	assert_int_equal(dataset_count(f->set), 6);
	assert_int_equal(read_all(f, data), 0);
	for (size_t i = 0; i < 6; i++) {
		assert_string_equal(source_name(dataset_source(f->set), i), names[i][0]);
		assert_string_equal(data + i * SIZE, names[i][1]);
	}
}

/* Tests a store that evaluates If-Match, one that ignores it, and one whose listing lacks ETags. */
static void an_object_that_changed_is_reported(void **state)
{
	struct fixture *f = *state;
	char data[2 * SIZE];
	struct dataset_options ranges = {.format = "records", .record_size = SIZE / 2};

	entry(f, "a", SIZE);
	entry(f, "b", SIZE);
	for (int i = 0; i < 2; i++) {
		if (i)
			ranges = (struct dataset_options){.format = "objects"};
		dataset_free(f->set);
		f->etag = "\"e\"";
		f->cut = 0;
		assert_int_equal(open_set(f, "s3://bucket", ranges), 0);
		assert_int_equal(read_all(f, data), 0);
		f->etag = "\"other\"";
		assert_int_equal(read_all(f, data), -(int)PENSTOCK_E_CHANGED);
		f->honours = true;
		assert_int_equal(read_all(f, data), -(int)PENSTOCK_E_CHANGED);
		assert_non_null(strstr(f->err.message, "'a'"));
		f->honours = false;
	}
	/* The listing has no ETags, so only another size shows that the object changed. */
	dataset_free(f->set);
	f->set = NULL;
	buf_clear(&f->listing);
	buf_add_str(&f->listing, "<Contents><Key>a</Key><Size>64</Size></Contents>");
	assert_int_equal(open_set(f, "s3://bucket", ranges), 0);
	assert_int_equal(read_all(f, data), 0);
	f->cut = 1;
	assert_int_equal(read_all(f, data), -(int)PENSTOCK_E_CHANGED);
}

static void a_batch_of_thousands_of_objects_is_read(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *data = malloc((size_t)MANY * SIZE);

	assert_int_equal(
		open_set(f, "s3://bucket", (struct dataset_options){.format = "objects"}), 0);
	assert_int_equal(dataset_count(f->set), MANY);
	assert_int_equal(read_all(f, data), 0);
	for (unsigned i = 0; i < MANY; i++) {
		char target[32];

		snprintf(target, sizeof(target), "/bucket/%04u", i);
		assert_string_equal(data + (size_t)i * SIZE, target);
	}
}

static void sizes_of_a_listing_may_be_lies(void **state)
{
	struct fixture *f = *state;
	char data[8];

	for (unsigned i = 0; i < 4; i++)
		entry(f, (const char *[]){"a", "b", "c", "d"}[i], INT64_MAX);
	assert_int_equal(open_set(f, "s3://bucket",
				 (struct dataset_options){.format = "records", .record_size = 1}),
		-(int)PENSTOCK_E_LIMIT);
	assert_int_equal(
		open_set(f, "s3://bucket", (struct dataset_options){.format = "objects"}), 0);
	assert_int_equal(dataset_layout(f->set, (uint64_t[]){1, 2}, 2, (uint64_t[3]){0}, NULL),
		-(int)PENSTOCK_E_LIMIT);
	dataset_free(f->set);
	f->set = NULL;
	buf_clear(&f->listing);
	entry(f, "a", 1000);
	assert_int_equal(open_set(f, "s3://bucket",
				 (struct dataset_options){.format = "records", .record_size = 1}),
		0);
	assert_true(dataset_read(f->set, (uint64_t[]){999}, 1, data, NULL, &f->err) < 0);
}

static void a_message_has_no_secret(void **state)
{
	struct fixture *f = *state;
	char data[SIZE];

	entry(f, "a", SIZE);
	assert_int_equal(
		open_set(f, "s3://bucket", (struct dataset_options){.format = "objects"}), 0);
	f->forbids = true;
	assert_int_equal(read_all(f, data), -(int)PENSTOCK_E_PERMISSION);
	assert_null(strstr(f->err.message, SECRET));
}

int main(void)
{
#define RULE(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		RULE(keys_may_have_any_characters),
		RULE(an_object_that_changed_is_reported),
		RULE(a_batch_of_thousands_of_objects_is_read),
		RULE(sizes_of_a_listing_may_be_lies),
		RULE(a_message_has_no_secret),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
