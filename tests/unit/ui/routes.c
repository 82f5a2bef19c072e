/* The requests of the page: the clients that may send them, and the verb that each request runs. */
#include "page_fixture.h"

#include "base/str.h"

#define PLACE	 "s3://b/out/"
#define AT_PLACE "run=" RUN "&place=s3://b/out/"

static int begin_page(void **state)
{
	struct page *p = calloc(1, sizeof(*p));

	page_begin(p, &(struct ui_options){0});
	*state = p;
	return 0;
}

static int end_page(void **state)
{
	struct page *p = *state;

	page_end(p);
	free(p);
	return 0;
}

/* Returns the status of the reply to a request. In its headers, @ stands for the host and # for the
 * cookie. */
static unsigned status_of(struct page *p, const char *method, const char *fmt)
{
	_cleanup_(buf_release) struct buf head = BUF_INIT(LIMIT_STRING);

	buf_printf(&head, "%s /api/%s HTTP/1.1\r\nConnection: close\r\n", method,
		strcmp(method, "GET") == 0 ? "claims" : "stop?run=" RUN);
	for (const char *at = fmt; *at; at++) {
		if (*at == '@')
			buf_add_str(&head, p->origin);
		else if (*at == '#')
			buf_add_str(&head, p->cookie);
		else
			buf_add_char(&head, *at);
	}
	buf_add_str(&head, "\r\n");
	return page_send(p, buf_str(&head), "", 0)->status;
}

static void only_the_page_itself_may_ask(void **state)
{
	struct page *p = *state;
	_cleanup_free_ char *wrong = NULL;

	assert_int_equal(200, status_of(p, "GET", "Host: @\r\nCookie: #\r\n"));
	assert_int_equal(401, status_of(p, "GET", "Host: @\r\n"));
	assert_int_equal(401, status_of(p, "GET", "Host: @\r\nCookie: #0\r\n"));
	assert_int_equal(421, status_of(p, "GET", "Host: evil.example\r\nCookie: #\r\n"));
	assert_int_equal(421, status_of(p, "GET", "Host: [::1\r\nCookie: #\r\n"));
	assert_int_equal(200, status_of(p, "GET", "Host: localhost:1\r\nCookie: #\r\n"));
	assert_int_equal(
		403, status_of(p, "GET", "Host: @\r\nCookie: #\r\nSec-Fetch-Site: same-site\r\n"));
	assert_int_equal(403,
		status_of(p, "GET", "Host: @\r\nCookie: #\r\nOrigin: http://evil.example\r\n"));
	assert_int_equal(403, status_of(p, "GET", "Host: @\r\nCookie: #\r\nOrigin: null\r\n"));

	assert_int_equal(403, status_of(p, "POST", "Host: @\r\nCookie: #\r\n"));
	assert_int_equal(
		403, status_of(p, "POST",
			     "Host: @\r\nX-Penstock: 1\r\nCookie: #\r\nOrigin: http://x\r\n"));
	assert_int_equal(401, status_of(p, "POST", "Host: @\r\nX-Penstock: 1\r\n"));
	assert_int_equal(200, status_of(p, "POST", "Host: @\r\nX-Penstock: 1\r\nCookie: #\r\n"));

	wrong = str_printf("GET /?token=%064d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 0);
	assert_int_equal(421, page_send(p, wrong, "", 0)->status);
	assert_int_equal(403, page_ask(p, "GET", "/?token=0")->status);
}

static void a_read_only_page_changes_nothing(void **state)
{
	struct page p;

	(void)state;
	page_begin(&p, &(struct ui_options){.read_only = true});
	assert_int_equal(200, page_ask(&p, "GET", "/api/claims")->status);
	assert_int_equal(403, page_ask(&p, "POST", "/api/stop?run=" RUN)->status);
	assert_int_equal(403, page_ask(&p, "POST", "/api/restore?url=s3://b/k&version=1")->status);
	assert_int_equal(
		403, page_ask(&p, "POST", "/api/remove-version?url=s3://b/k&version=1")->status);
	assert_int_equal(403, page_ask(&p, "DELETE", "/api/upload?url=s3://b/k")->status);
	page_end(&p);
}

/* Compares a list of words with the words of a line. */
static void assert_words(const char *expected, const json_t *words)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);
	json_t *word;
	size_t i;

	json_array_foreach (words, i, word)
		buf_printf(&line, "%s%s", i ? " " : "", json_string_value(word));
	assert_string_equal(expected, buf_str(&line));
}

static void a_request_runs_its_verb(void **state)
{
	static const char *const requests[][3] = {
		{"GET", "/api/runs", "ps --all --json"},
		{"GET", "/api/run?run=" RUN, "show --json -- " RUN},
		{"GET", "/api/metrics?points=9&run=--help", "metrics --json --points=9 -- --help"},
		{"GET", "/api/metrics?" AT_PLACE, "metrics --json -- " PLACE},
		{"GET", "/api/metrics?place=a:s3:" PLACE,
			"metrics --json --profile=a:s3 -- " PLACE},
		{"GET", "/api/metrics?place=s3://b/a:s3://c", "metrics --json -- s3://b/a:s3://c"},
		{"GET", "/api/checkpoints?run=" RUN, "checkpoints --json -- list " RUN},
		{"GET", "/api/checkpoints?" AT_PLACE, "checkpoints --json -- list " PLACE},
		{"GET", "/api/checkpoints?place=embedded:gs://b/o/",
			"checkpoints --json --endpoint-url=embedded -- list gs://b/o/"},
		{"GET", "/api/files?run=" RUN, "artifacts --json -- list " RUN},
		{"GET", "/api/runners", "runners --json --on=local"},
		{"GET", "/api/cluster", "runners --json --on=slurm"},
		{"GET", "/api/claims", "ps --claims --json"},
		{"GET", "/api/buckets?store=prod", "ls --json --profile=prod"},
		{"GET", "/api/stat?url=s3://b/k&store=embedded",
			"stat --json --tags --endpoint-url=embedded -- s3://b/k"},
		{"GET", "/api/stat?url=s3://b/k&version=v%201",
			"stat --json --tags --version-id=v 1 -- s3://b/k"},
		{"GET", "/api/versions?url=s3://b/k",
			"ls --json --raw --versions --limit=1000 -- s3://b/k"},
		{"GET", "/api/versions?url=s3://b/k&after=k&version=3&store=prod",
			"ls --json --raw --versions --limit=1000 --profile=prod --after=k "
			"--after-version=3 -- s3://b/k"},
	};
	static const char *const actions[][2] = {
		{"/api/link?expires=1h&url=s3://b/k", "presign --expires=1h -- s3://b/k"},
		{"/api/remove?url=s3://b/k", "rm --quiet --raw -- s3://b/k"},
		{"/api/remove?recursive=1&url=s3://b/k/",
			"rm --quiet --raw --recursive -- s3://b/k/"},
		{"/api/remove-version?version=--recursive&url=s3://b/k&store=embedded",
			"rm --quiet --endpoint-url=embedded --version-id --recursive -- s3://b/k"},
		{"/api/remove-version?bypass=1&version=3&url=s3://b/k",
			"rm --quiet --bypass-governance-retention --version-id 3 -- s3://b/k"},
		{"/api/restore?version=3&url=s3://b/k",
			"restore --quiet --version-id 3 -- s3://b/k"},
		{"/api/stop?grace=10s&run=" RUN, "stop --quiet --grace=10s -- " RUN},
		{"/api/preempt?run=" RUN, "preempt --quiet -- " RUN},
		{"/api/resume?run=" RUN, "resume --quiet --detach -- " RUN},
	};
	struct page *p = *state;

	/* The verb that lists runs prints no warnings, so the page sets no log level for it. Other
	 * verbs that read get --log-level=warn. */
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		json_auto_t *words = page_json(p, requests[i][0], requests[i][1]);

		if (i > 0) {
			assert_string_equal(
				"--log-level=warn", json_string_value(json_array_get(words, 1)));
			json_array_remove(words, 1);
		}
		assert_words(requests[i][2], words);
	}
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
		json_auto_t *reply = page_json(p, "POST", actions[i][0]);
		json_auto_t *words = json_loads(
			json_string_value(json_object_get(reply, "out")), 0, NULL);

		assert_words(actions[i][1], words);
		assert_int_equal(405, page_ask(p, "GET", actions[i][0])->status);
	}
}

static void no_parameter_becomes_a_local_file(void **state)
{
	static const char *const bad[] = {"/api/stat?url=/etc/passwd", "/api/stat",
		"/api/object?url=-", "/api/file?run=" RUN, "/api/versions?url=file:///etc",
		"/api/file?path=x&place=/etc/&run=" RUN, "/api/files?place=/etc&run=" RUN,
		"/api/metrics?place=/etc/", "/api/metrics?place=:" PLACE,
		"/api/metrics?place=--all:/etc/", "/api/workflow?run=../../x", "/api/run",
		"/api/list?url=/", "/api/list?url=s3://b/&limit=0", "/api/log?run=../../x",
		"/api/log?attempt=0&run=" RUN, "/api/log?offset=x&run=" RUN,
		"/api/log-search?run=" RUN};
	struct page *p = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct page_reply *r = page_ask(p, "GET", bad[i]);

		if (r->status != 400)
			fail_msg("%s: %s", bad[i], buf_str(&r->text));
	}
	assert_int_equal(404, page_ask(p, "GET", "/api/nothing")->status);
	assert_int_equal(404, page_ask(p, "GET", "/api/workflow?run=" RUN)->status);
}

/* Without a version, the verb would remove the object. */
static void a_version_that_is_missing_changes_nothing(void **state)
{
	static const char *const bad[] = {"/api/remove-version?url=s3://b/k",
		"/api/remove-version?url=s3://b/k&version=", "/api/remove-version?version=1",
		"/api/remove-version?url=/etc/passwd&version=1", "/api/restore?url=s3://b/k",
		"/api/restore?url=s3://b/k&version=", "/api/restore?url=x&version=1"};
	struct page *p = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct page_reply *r = page_ask(p, "POST", bad[i]);

		if (r->status != 400)
			fail_msg("%s: %s", bad[i], buf_str(&r->text));
	}
}

static void a_failure_has_its_status_and_its_message(void **state)
{
	struct page *p = *state;
	struct page_reply *r = page_ask(p, "GET", "/api/run?run=missing");

	assert_int_equal(404, r->status);
	assert_string_equal("{\"error\":\"cannot find the run 'missing'\",\"code\":66}", r->body);
	assert_int_equal(500, page_ask(p, "GET", "/api/run?run=killed")->status);
	r = page_ask(p, "GET", "/api/files?place=s3://b/text&run=" RUN);
	assert_int_equal(500, r->status);
	assert_non_null(strstr(r->body, "\"code\":70"));
	assert_int_equal(404, page_ask(p, "POST", "/api/stop?run=missing")->status);
	assert_int_equal(404, page_ask(p, "GET", "/api/file?path=missing&run=" RUN)->status);
}

static void contents_that_are_cut_are_seen(void **state)
{
	struct page *p = *state;
	struct page_reply *r = page_ask(p, "GET", "/api/object?url=s3://b/half");

	assert_int_equal(200, r->status);
	assert_non_null(strstr(r->body, "the first half"));
	assert_null(strstr(r->body, "\r\n0\r\n\r\n"));

	r = page_ask(p, "GET", "/api/object?version=v&url=s3://b/a");
	assert_non_null(strstr(r->body, "[\"cat\",\"--version-id=v\",\"--\",\"s3://b/a\"]"));

	r = page_ask(p, "GET", "/api/object?offset=3&length=4&download=1&url=s3://b/%22a");
	assert_non_null(strstr(r->body, "[\"cat\",\"--offset=3\",\"--length=4\",\"--\",\"s3://b/"));
	assert_non_null(strstr(r->body, "\r\n0\r\n\r\n"));
	assert_non_null(strstr(buf_str(&r->text), "attachment; filename*=UTF-8''%22a\r\n"));
	assert_non_null(strstr(buf_str(&r->text), "nosniff"));
}

static void a_list_that_has_not_changed_is_not_sent_again(void **state)
{
	struct page *p = *state;
	struct page_reply *r = page_ask(p, "GET", "/api/claims");
	_cleanup_free_ char *head = NULL;
	char etag[32];

	assert_int_equal(1, sscanf(strstr(buf_str(&r->text), "ETag: "), "ETag: %31[^\r]", etag));
	head = str_printf("GET /api/claims HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
			  "Cookie: %s\r\nIf-None-Match: %s\r\n\r\n",
		p->origin, p->cookie, etag);
	r = page_send(p, head, "", 0);
	assert_int_equal(304, r->status);
	assert_int_equal(0, r->len);
}

/* The warning does not change the reply. */
static void a_warning_of_a_verb_is_in_a_header(void **state)
{
	struct page *p = *state;
	struct page_reply *r = page_ask(p, "GET", "/api/run?run=warned");
	char with[32], without[32];

	assert_int_equal(200, r->status);
	assert_non_null(
		strstr(buf_str(&r->text), "X-Penstock-Warning: the%20disk%3A%209%C2%A0%25\r\n"));
	assert_non_null(strstr(r->body, "\"warned\""));
	assert_null(
		strstr(buf_str(&page_ask(p, "GET", "/api/claims")->text), "X-Penstock-Warning"));

	/* The ETag includes the warning, so that a browser that has the body also has the
	 * header. */
	r = page_ask(p, "GET", "/api/run?run=warned");
	assert_int_equal(1, sscanf(strstr(buf_str(&r->text), "ETag: "), "ETag: %31[^\r]", with));
	r = page_ask(p, "GET", "/api/run?run=quietly");
	assert_int_equal(1, sscanf(strstr(buf_str(&r->text), "ETag: "), "ETag: %31[^\r]", without));
	assert_string_not_equal(with, without);
}

static void runs_that_have_not_changed_are_not_sent_again(void **state)
{
	struct page *p = *state;
	struct page_reply *r = page_ask(p, "GET", "/api/runs");
	_cleanup_free_ char *target = NULL;
	json_auto_t *changes = NULL, *whole = NULL;
	char tag[32];

	assert_int_equal(1, sscanf(strstr(buf_str(&r->text), "ETag: "), "ETag: \"%31[^\"]", tag));
	target = str_printf("/api/runs?since=%s", tag);
	changes = page_json(p, "GET", target);
	assert_int_equal(0, json_array_size(json_object_get(changes, "changed")));
	assert_non_null(strstr(buf_str(&p->reply.text), tag));
	whole = page_json(p, "GET", "/api/runs?since=0123456789abcdef");
	assert_int_equal(3, json_array_size(whole));
}

static void a_home_that_is_not_utf8_is_shown(void **state)
{
	struct page p = {.reply.text = BUF_INIT(LIMIT_UI_REPLY)};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	json_t *about;

	(void)state;
	snprintf(p.home, sizeof(p.home), "/tmp/page-\xff-XXXXXX");
	assert_non_null(mkdtemp(p.home));
	if (ui_start(&p.ui, &(struct ui_options){.home = p.home, .address = "127.0.0.1"}, &err) < 0)
		fail_msg("%s", err.message);
	page_log_in(&p);
	about = page_json(&p, "GET", "/api/about");
	assert_true(str_starts(json_string_value(json_object_get(about, "home")), "/tmp/page-?-"));
	json_decref(about);
	page_end(&p);
}

static void places_that_cannot_be_read_are_counted(void **state)
{
	const char *const outputs[] = {"s3://b/text", "s3://b/out/", "s3://b/half"};
	struct strlist places = {0};
	struct page p;
	struct page_reply *r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(outputs); i++)
		assert_int_equal(0, strlist_add(&places, outputs[i]));
	page_begin(&p, &(struct ui_options){.outputs = &places});
	r = page_ask(&p, "GET", "/api/runs");
	assert_int_equal(200, r->status);
	assert_non_null(strstr(buf_str(&r->text), "X-Penstock-Unreadable: 2\r\n"));
	r = page_ask(&p, "GET", "/api/claims");
	assert_null(strstr(buf_str(&r->text), "X-Penstock-Unreadable"));
	page_end(&p);
	strlist_release(&places);
}

/* A link to the page may name any place, so only runs of the places in `outputs` are resumed. */
static void only_runs_of_the_places_are_resumed(void **state)
{
	static const char *const elsewhere[] = {"/api/resume?run=" RUN "&place=s3://b/outer/",
		"/api/resume?run=" RUN "&place=s3://c/out/",
		"/api/resume?run=" RUN "&place=embedded:s3://b/out/"};
	struct strlist places = {0};
	json_t *reply, *words;
	struct page p;

	(void)state;
	assert_int_equal(0, strlist_add(&places, "s3://b/out/"));
	page_begin(&p, &(struct ui_options){.outputs = &places});
	reply = page_json(&p, "POST", "/api/resume?" AT_PLACE);
	words = json_loads(json_string_value(json_object_get(reply, "out")), 0, NULL);
	assert_words("resume --quiet --detach -- " PLACE RUN, words);
	json_decref(words);
	json_decref(reply);
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++)
		assert_int_equal(403, page_ask(&p, "POST", elsewhere[i])->status);
	page_end(&p);
	strlist_release(&places);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_the_page_itself_may_ask, begin_page, end_page),
		cmocka_unit_test(a_read_only_page_changes_nothing),
		cmocka_unit_test_setup_teardown(a_request_runs_its_verb, begin_page, end_page),
		cmocka_unit_test_setup_teardown(
			no_parameter_becomes_a_local_file, begin_page, end_page),
		cmocka_unit_test_setup_teardown(
			a_version_that_is_missing_changes_nothing, begin_page, end_page),
		cmocka_unit_test_setup_teardown(
			a_failure_has_its_status_and_its_message, begin_page, end_page),
		cmocka_unit_test_setup_teardown(
			contents_that_are_cut_are_seen, begin_page, end_page),
		cmocka_unit_test_setup_teardown(
			a_list_that_has_not_changed_is_not_sent_again, begin_page, end_page),
		cmocka_unit_test_setup_teardown(
			a_warning_of_a_verb_is_in_a_header, begin_page, end_page),
		cmocka_unit_test_setup_teardown(
			runs_that_have_not_changed_are_not_sent_again, begin_page, end_page),
		cmocka_unit_test(places_that_cannot_be_read_are_counted),
		cmocka_unit_test(only_runs_of_the_places_are_resumed),
		cmocka_unit_test(a_home_that_is_not_utf8_is_shown),
	};

	if (argc > 1)
		return play_verb(argc - 1, argv + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
