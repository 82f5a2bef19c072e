/* Files that a browser uploads in parts. */
#include "page_fixture.h"

#include "base/str.h"

#define URL  "url=s3://b/key"
#define SIZE (LIMIT_UI_PART + 100)

struct world {
	struct page p;
	char *data; /* [SIZE] */
	char id[128];
};

/* Begins an upload. Returns the number of parts that the server already has. */
static size_t begin_upload(struct world *w)
{
	_cleanup_free_ char *target = str_printf(
		"/api/upload?" URL "&modified=1700000000000&size=%d", (int)SIZE);
	json_auto_t *value = page_json(&w->p, "POST", target);

	assert_int_equal(LIMIT_UI_PART, json_integer_value(json_object_get(value, "part")));
	snprintf(w->id, sizeof(w->id), "%s", json_string_value(json_object_get(value, "id")));
	return json_array_size(json_object_get(value, "done"));
}

static unsigned put_part(struct world *w, const char *url, int number, const char *data, size_t len)
{
	_cleanup_free_ char *target = str_printf(
		"/api/upload?%s&id=%s&number=%d", url, w->id, number);

	return page_put(&w->p, "PUT", target, data, len)->status;
}

static unsigned ask(struct world *w, const char *method, const char *path)
{
	_cleanup_free_ char *target = str_printf("%s?" URL "&id=%s", path, w->id);

	return page_ask(&w->p, method, target)->status;
}

static int begin_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char sent[64];

	page_begin(&w->p, &(struct ui_options){0});
	w->data = malloc(SIZE);
	for (size_t i = 0; i < SIZE; i++)
		w->data[i] = (char)(i * 2654435761u >> 13);
	snprintf(sent, sizeof(sent), "%s/sent", w->p.home);
	setenv("TEST_SENT", sent, 1);
	*state = w;
	return 0;
}

static int end_world(void **state)
{
	struct world *w = *state;

	page_end(&w->p);
	free(w->data);
	free(w);
	return 0;
}

static void parts_become_the_object(void **state)
{
	struct world *w = *state;
	_cleanup_(buf_release) struct buf sent = BUF_INIT(LIMIT_UI_REPLY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(0, begin_upload(w));
	assert_int_equal(409, ask(w, "POST", "/api/upload/finish"));
	assert_int_equal(200, put_part(w, URL, 1, w->data, LIMIT_UI_PART));
	/* The browser was closed, and starts the upload of the same file again. */
	assert_int_equal(1, begin_upload(w));
	assert_int_equal(409, put_part(w, URL, 1, w->data, LIMIT_UI_PART));
	assert_int_equal(409, put_part(w, URL, 3, w->data, 100));
	assert_int_equal(200, put_part(w, URL, 2, w->data + LIMIT_UI_PART, 100));
	assert_int_equal(200, ask(w, "POST", "/api/upload/finish"));
	assert_int_equal(0, fs_read(getenv("TEST_SENT"), &sent, &err));
	assert_int_equal(SIZE, sent.len);
	assert_memory_equal(w->data, sent.data, SIZE);
	/* The upload is in the store, so its local copy was removed. */
	assert_int_equal(404, ask(w, "POST", "/api/upload/finish"));
	assert_int_equal(0, begin_upload(w));
}

static void a_part_is_here_whole_or_not_at_all(void **state)
{
	struct world *w = *state;

	begin_upload(w);
	assert_int_equal(400, put_part(w, URL, 1, w->data, 1000));
	assert_int_equal(0, begin_upload(w));
	assert_int_equal(400, put_part(w, URL, 1, w->data, LIMIT_UI_PART + 1));
	assert_int_equal(0, begin_upload(w));
	assert_int_equal(200, put_part(w, URL, 1, w->data, LIMIT_UI_PART));
	assert_int_equal(400, put_part(w, URL, 2, w->data, 0));
	assert_int_equal(1, begin_upload(w));
}

static void an_id_belongs_to_its_place(void **state)
{
	struct world *w = *state;

	begin_upload(w);
	assert_int_equal(404, put_part(w, "url=s3://b/other", 1, w->data, 10));
	assert_int_equal(404, put_part(w, URL "&store=prod", 1, w->data, 10));
	assert_int_equal(400, put_part(w, "url=/tmp/x", 1, w->data, 10));
	snprintf(w->id, sizeof(w->id), "../../x");
	assert_int_equal(404, put_part(w, URL, 1, w->data, 10));
	assert_int_equal(400, page_ask(&w->p, "POST", "/api/upload?" URL)->status);
	assert_int_equal(400, page_ask(&w->p, "POST", "/api/upload?" URL "&size=-1")->status);
}

static void a_store_that_fails_keeps_the_parts(void **state)
{
	struct world *w = *state;

	begin_upload(w);
	assert_int_equal(200, put_part(w, URL, 1, w->data, LIMIT_UI_PART));
	assert_int_equal(200, put_part(w, URL, 2, w->data, 100));
	setenv("TEST_SENT", "", 1);
	assert_int_equal(503, ask(w, "POST", "/api/upload/finish"));
	assert_int_equal(2, begin_upload(w));
	assert_int_equal(200, ask(w, "DELETE", "/api/upload"));
	assert_int_equal(404, ask(w, "DELETE", "/api/upload"));
	assert_int_equal(0, begin_upload(w));
}

/* Plays "cp --quiet -- PATH URL"; the file $TEST_SENT represents the store. */
static int play_copy(char **words)
{
	const char *sent = getenv("TEST_SENT");

	if (!sent || !*sent) {
		fputs("penstock cp: cannot reach the store\n", stderr);
		return 69;
	}
	return strcmp(words[4], "s3://b/key") == 0 && link(words[3], sent) == 0 ? 0 : 70;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(parts_become_the_object, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_part_is_here_whole_or_not_at_all, begin_world, end_world),
		cmocka_unit_test_setup_teardown(an_id_belongs_to_its_place, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_store_that_fails_keeps_the_parts, begin_world, end_world),
	};

	if (argc == 6 && strcmp(argv[1], "cp") == 0)
		return play_copy(argv + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
