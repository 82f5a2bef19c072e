/* Shards on web servers: URLs, indexes, versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/dataset.h"
#include "dataset/index/index.h"
#include "mini_http.h"
#include "net/http/http.h"

#define SIZE	   64
#define INDEX_JSON "{\"shards\":[]}"

/* A server whose files contain the target of the request, padded to SIZE. */
struct fixture {
	struct mini_http m;
	struct http_engine *engine;
	struct buf index; /* content of .penstock-index; missing if empty */
	const char *document; /* content of index.json; missing if NULL */
	const char *etag;
	struct dataset *set;
	struct penstock_error err;
};

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char content[SIZE] = {0};

	if (strstr(r->target, "missing") || (strstr(r->target, INDEX_NAME) && !f->index.len) ||
		(strstr(r->target, "index.json") && !f->document))
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (strstr(r->target, INDEX_NAME))
		return mini_reply(fd, "200 OK", "", f->index.data, f->index.len);
	if (strstr(r->target, "index.json"))
		return mini_reply(fd, "200 OK", "", f->document, strlen(f->document));
	snprintf(content, SIZE, "%.*s", SIZE - 1, r->target);
	return mini_serve(r, fd, f->etag, content, SIZE);
}

static int open_web(void *cookie, struct http_engine **out, struct penstock_error *err)
{
	(void)err;
	*out = ((struct fixture *)cookie)->engine;
	return 0;
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	buf_init(&f->index, 1 << 20);
	f->etag = "\"e\"";
	mini_start(&f->m, answer, f);
	assert_int_equal(http_engine_new(&f->engine, NULL, NULL), 0);
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	dataset_free(f->set);
	penstock_error_release(&f->err);
	http_engine_free(f->engine);
	mini_stop(&f->m);
	buf_release(&f->index);
	free(f);
	return 0;
}

static int open_set(struct fixture *f, const char *path, const char *format)
{
	char url[MINI_URL_SIZE];

	mini_url(&f->m, path, url);
	dataset_free(f->set);
	f->set = NULL;
	penstock_error_release(&f->err);
	return dataset_open(&f->set,
		&(struct dataset_options){
			.place = {.url = url, .open_web = open_web, .cookie = f}, .format = format},
		&f->err);
}

/* Returns the content of the sample: the target that was requested. */
static const char *target_of(struct fixture *f, uint64_t id, char out[static SIZE])
{
	assert_int_equal(dataset_read(f->set, &id, 1, out, NULL, &f->err), 0);
	return out;
}

static void names_of_a_pattern_are_sent_as_they_are_written(void **state)
{
	struct fixture *f = *state;
	char data[SIZE];

	assert_int_equal(open_set(f, "/d/{b%20,a}/{10,9}?sig=1{2}#x", "objects"), 0);
	assert_int_equal(dataset_count(f->set), 4);
	assert_string_equal(source_name(dataset_source(f->set), 0), "a/10");
	assert_string_equal(target_of(f, 0, data), "/d/a/10?sig=1{2}");
	assert_string_equal(target_of(f, 1, data), "/d/a/9?sig=1{2}");
	assert_string_equal(target_of(f, 2, data), "/d/b%20/10?sig=1{2}");
	assert_null(strstr(source_url(dataset_source(f->set)), "sig"));
	assert_int_equal(open_set(f, "/one.bin?x", "objects"), 0);
	assert_string_equal(source_name(dataset_source(f->set), 0), "one.bin");
	assert_string_equal(target_of(f, 0, data), "/one.bin?x");
	assert_int_equal(open_set(f, "/{a,a}", "objects"), 0);
	assert_int_equal(dataset_count(f->set), 1);
}

static void a_missing_file_is_not_found(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_set(f, "/{a,missing}", "objects"), -(int)PENSTOCK_E_NOT_FOUND);
	assert_non_null(strstr(f->err.message, "/missing"));
	assert_int_equal(open_set(f, "/missing?sig", "objects"), -(int)PENSTOCK_E_NOT_FOUND);
	assert_null(strstr(f->err.message, "sig"));
}

static void braces_of_a_host_are_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(
		dataset_open(&f->set,
			&(struct dataset_options){.place = {.url = "http://{a,b}.invalid/x",
							  .open_web = open_web,
							  .cookie = f}},
			&f->err),
		-(int)PENSTOCK_E_INVALID);
}

/* The root of a host is a directory, too. */
static void a_directory_needs_an_index(void **state)
{
	static const char *const paths[] = {"", "/", "/d/", "/d/index.json?x"};
	struct fixture *f = *state;

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(open_set(f, paths[i], NULL), -(int)PENSTOCK_E_UNSUPPORTED);
	f->document = "{}";
	assert_int_equal(open_set(f, "/d/", NULL), -(int)PENSTOCK_E_UNSUPPORTED);
	f->document = INDEX_JSON;
	assert_true(open_set(f, "/d/", NULL) < 0);
	buf_add_str(&f->index, "<html>not an index</html>");
	assert_int_equal(open_set(f, "/d/", NULL), -(int)PENSTOCK_E_CORRUPT);
}

/* An index of objects has ETags, and an index of files has times. Names are encoded in URLs. */
static void the_versions_of_an_index_are_compared(void **state)
{
	static const char text[] = "a b\0\"e\"";
	struct source_entry entries[] = {{.size = SIZE, .name = 0, .etag = 4}};
	struct index index = {.format = "objects",
		.samples = 1,
		.list = {.objects = true,
			.n = 1,
			.entries = entries,
			.text = text,
			.text_len = sizeof(text)}};
	struct fixture *f = *state;
	char data[SIZE];
	uint64_t id = 0;

	assert_int_equal(index_write(&index, &f->index, NULL), 0);
	assert_int_equal(open_set(f, "/d/", NULL), 0);
	assert_int_equal(dataset_origin(f->set), DATASET_INDEXED);
	assert_string_equal(target_of(f, 0, data), "/d/a%20b");
	f->etag = "\"other\"";
	assert_int_equal(
		dataset_read(f->set, &id, 1, data, NULL, &f->err), -(int)PENSTOCK_E_CHANGED);

	entries[0].mtime_ns = 784111777000000123;
	index.list.objects = false;
	dataset_free(f->set);
	f->set = NULL;
	buf_clear(&f->index);
	assert_int_equal(index_write(&index, &f->index, NULL), 0);
	f->etag = "\"e\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
	assert_int_equal(open_set(f, "/d/", NULL), 0);
	assert_string_equal(target_of(f, 0, data), "/d/a%20b");
	f->etag = "\"e\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:38 GMT";
	assert_int_equal(
		dataset_read(f->set, &id, 1, data, NULL, &f->err), -(int)PENSTOCK_E_CHANGED);
	assert_int_equal(dataset_write_index(f->set, NULL, &f->err), -(int)PENSTOCK_E_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			names_of_a_pattern_are_sent_as_they_are_written, begin, finish),
		cmocka_unit_test_setup_teardown(a_missing_file_is_not_found, begin, finish),
		cmocka_unit_test_setup_teardown(braces_of_a_host_are_refused, begin, finish),
		cmocka_unit_test_setup_teardown(a_directory_needs_an_index, begin, finish),
		cmocka_unit_test_setup_teardown(
			the_versions_of_an_index_are_compared, begin, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
