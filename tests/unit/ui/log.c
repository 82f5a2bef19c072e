/* Logs: reading pieces, offsets of lines, and a search. */
#include "page_fixture.h"

#include <fcntl.h>
#include <pthread.h>

#include "base/str.h"
#include "records/layout.h"

struct world {
	struct page p;
	struct run_layout layout;
	int lock;
};

static int begin_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	page_begin(&w->p, &(struct ui_options){0});
	assert_int_equal(0, run_layout_init(&w->layout, w->p.home, RUN, 1, &err));
	assert_int_equal(0, run_layout_create(&w->layout, &err));
	w->lock = -1;
	*state = w;
	return 0;
}

static int end_world(void **state)
{
	struct world *w = *state;

	if (w->lock >= 0)
		close(w->lock);
	run_layout_release(&w->layout);
	page_end(&w->p);
	free(w);
	return 0;
}

static void append(struct world *w, const char *text, size_t len)
{
	_cleanup_close_ int fd = open(
		w->layout.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(0, fs_write_all(fd, text, len));
}

static json_int_t number_of(const json_t *value, const char *name)
{
	return json_integer_value(json_object_get(value, name));
}

static void bytes_come_from_either_end(void **state)
{
	struct world *w = *state;
	struct page_reply *r;

	append(w, "one\ntwo\nthree\n", 14);
	r = page_ask(&w->p, "GET", "/api/log?offset=-6&run=" RUN);
	assert_string_equal("three\n", r->body);
	assert_non_null(strstr(buf_str(&r->text), "X-Log-Size: 14\r\n"));
	assert_non_null(strstr(buf_str(&r->text), "X-Log-Offset: 8\r\n"));
	assert_non_null(strstr(buf_str(&r->text), "X-Log-Live: 0\r\n"));
	assert_string_equal(
		"two", page_ask(&w->p, "GET", "/api/log?offset=4&length=3&run=" RUN)->body);
	assert_string_equal(
		"one\ntwo\nthree\n", page_ask(&w->p, "GET", "/api/log?offset=-99&run=" RUN)->body);
	assert_string_equal("", page_ask(&w->p, "GET", "/api/log?offset=99&run=" RUN)->body);
	/* The attempt has ended, so the request does not wait for more. */
	assert_string_equal("", page_ask(&w->p, "GET", "/api/log?wait=1&offset=14&run=" RUN)->body);
}

static void *add_later(void *cookie)
{
	append(cookie, "later\n", 6);
	return NULL;
}

static void a_live_log_is_waited_for(void **state)
{
	struct world *w = *state;
	struct page_reply *r;
	pthread_t thread;

	w->lock = open(w->layout.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(0, fs_lock(w->lock));
	r = page_ask(&w->p, "GET", "/api/log?run=" RUN);
	assert_int_equal(200, r->status);
	assert_non_null(strstr(buf_str(&r->text), "X-Log-Live: 1\r\n"));
	append(w, "now\n", 4);
	assert_int_equal(0, pthread_create(&thread, NULL, add_later, w));
	r = page_ask(&w->p, "GET", "/api/log?wait=1&offset=4&run=" RUN);
	assert_string_equal("later\n", r->body);
	pthread_join(thread, NULL);
}

static void places_of_lines_stay_few(void **state)
{
	enum { LINES = 25000 };
	struct world *w = *state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_UI_REPLY);
	json_t *value, *places;
	json_int_t every;

	for (int i = 0; i < LINES; i++)
		buf_printf(&text, "%d\n", i);
	append(w, text.data, text.len);
	value = page_json(&w->p, "GET", "/api/log-lines?run=" RUN);
	places = json_object_get(value, "offsets");
	every = number_of(value, "every");
	assert_int_equal(LINES, number_of(value, "lines"));
	assert_int_equal(text.len, number_of(value, "size"));
	assert_in_range(json_array_size(places), 5000, 10000);
	for (size_t i = 0; i < json_array_size(places); i++) {
		const char *line = text.data + json_integer_value(json_array_get(places, i));

		assert_int_equal((json_int_t)i * every, atoi(line));
	}
	json_decref(value);

	/* An incomplete line counts once. */
	append(w, "begun", 5);
	value = page_json(&w->p, "GET", "/api/log-lines?run=" RUN);
	assert_int_equal(LINES + 1, number_of(value, "lines"));
	json_decref(value);
	append(w, " and ended\nnext\n", 16);
	value = page_json(&w->p, "GET", "/api/log-lines?run=" RUN);
	assert_int_equal(LINES + 2, number_of(value, "lines"));
	json_decref(value);

	/* A log that was truncated is read from its beginning. */
	assert_int_equal(0, truncate(w->layout.log, 4));
	value = page_json(&w->p, "GET", "/api/log-lines?run=" RUN);
	assert_int_equal(2, number_of(value, "lines"));
	json_decref(value);
}

static void check_match(const json_t *reply, size_t i, json_int_t offset, json_int_t line)
{
	const json_t *match = json_array_get(json_object_get(reply, "matches"), i);

	assert_int_equal(offset, number_of(match, "offset"));
	assert_int_equal(line, number_of(match, "line"));
}

static void a_search_finds_lines_and_their_numbers(void **state)
{
	struct world *w = *state;
	json_t *found;

	append(w, "Loss: 1\nx\nloss 2\n\nno l oss\nLOSS", 31);
	found = page_json(&w->p, "GET", "/api/log-search?text=loss&run=" RUN);
	assert_int_equal(3, json_array_size(json_object_get(found, "matches")));
	check_match(found, 0, 0, 0);
	check_match(found, 1, 10, 2);
	check_match(found, 2, 27, 5);
	assert_true(json_is_null(json_object_get(found, "next")));
	json_decref(found);

	found = page_json(&w->p, "GET", "/api/log-search?text=loss&offset=8&run=" RUN);
	check_match(found, 0, 10, 2);
	json_decref(found);
	found = page_json(&w->p, "GET", "/api/log-search?text=nothing&run=" RUN);
	assert_int_equal(0, json_array_size(json_object_get(found, "matches")));
	json_decref(found);
}

static void a_search_names_its_invalid_parameter(void **state)
{
	struct world *w = *state;
	struct page_reply *r;

	r = page_ask(&w->p, "GET", "/api/log-search?run=" RUN);
	assert_int_equal(400, r->status);
	assert_non_null(strstr(r->body, "'text'"));
	r = page_ask(&w->p, "GET", "/api/log-search?text=loss&offset=-1&run=" RUN);
	assert_int_equal(400, r->status);
	assert_non_null(strstr(r->body, "'offset'"));
}

static void a_search_of_many_matches_continues(void **state)
{
	enum { LINES = 1500 };
	struct world *w = *state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_UI_REPLY);
	_cleanup_free_ char *rest = NULL;
	json_t *found;

	/* A line that is longer than one read, then many lines. */
	for (int i = 0; i < 600000; i++)
		buf_add_char(&text, 'x');
	buf_add_char(&text, '\n');
	for (int i = 0; i < LINES; i++)
		buf_printf(&text, "hit %d\n", i);
	append(w, text.data, text.len);
	found = page_json(&w->p, "GET", "/api/log-search?text=HIT&run=" RUN);
	assert_int_equal(1000, json_array_size(json_object_get(found, "matches")));
	check_match(found, 0, 600001, 1);
	rest = str_printf("/api/log-search?text=HIT&offset=%lld&run=" RUN,
		(long long)number_of(found, "next"));
	json_decref(found);
	found = page_json(&w->p, "GET", rest);
	assert_int_equal(LINES - 1000, json_array_size(json_object_get(found, "matches")));
	check_match(found, LINES - 1000 - 1, (json_int_t)text.len - 9, LINES);
	assert_true(json_is_null(json_object_get(found, "next")));
	json_decref(found);
}

/* The logs are of a run on another machine. Only a store has copies of them. */
static void a_missing_log_is_not_an_empty_one(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++)
		assert_int_equal(
			404, page_ask(&w->p, "GET", "/api/log?attempt=9&place=s3://b/o/&run=" RUN)
				     ->status);
	assert_int_equal(
		200, page_ask(&w->p, "GET", "/api/log?attempt=1&place=s3://b/o/&run=" RUN)->status);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes_come_from_either_end, begin_world, end_world),
		cmocka_unit_test_setup_teardown(a_live_log_is_waited_for, begin_world, end_world),
		cmocka_unit_test_setup_teardown(places_of_lines_stay_few, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_search_finds_lines_and_their_numbers, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_search_names_its_invalid_parameter, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_search_of_many_matches_continues, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_missing_log_is_not_an_empty_one, begin_world, end_world),
	};

	if (argc > 1 && str_ends(argv[argc - 1], "/log/9"))
		return 66;
	if (argc > 1)
		return play_verb(argc - 1, argv + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
