/* Every allocation of the HTTP engine fails once, in the caller's thread and in the engine's own.
 * The request then ends with the complete reply or with a one-line error, and no memory leaks. */
#include "alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "mini_fork.h"
#include "net/credentials/aws_config.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"

static const char body[] = "0123456789", deleted[] = "deleted";

/* Replies to a PUT with the PUT's body, and to a DELETE at once. For other methods, the first reply
 * asks for a retry and the second one is good. */
static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	if (strcmp(r->method, "PUT") == 0)
		return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", r->body, r->body_len);
	if (strcmp(r->method, "DELETE") == 0)
		return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", deleted, strlen(deleted));
	if (r->number % 2)
		return mini_reply(fd, "503 Busy", "Retry-After: 0\r\n", "busy", 4);
	return mini_reply(fd, "200 OK", "ETag: \"e\"\r\nX-Other: more\r\n", body, strlen(body));
}

static struct mini_fork server;
static char url[MINI_URL_SIZE + 16];

static int start_server(void **state)
{
	(void)state;
	if (!mini_fork_start(&server, answer))
		return -1;
	snprintf(url, sizeof(url), "%s/thing", server.url);
	return 0;
}

static int stop_server(void **state)
{
	(void)state;
	return mini_fork_stop(&server) ? 0 : -1;
}

struct outcome {
	int rc;
	struct buf text;
	char etag[16];
};

/* Makes an engine, sends one request, and frees the engine, so that rounds are independent. */
static bool request_once(
	const char *method, size_t n, struct outcome *o, struct penstock_error *err)
{
	const struct http_engine_options options = {.retry_base_ms = 1, .retry_cap_ms = 1};
	struct http_reply reply = HTTP_REPLY_INIT;
	struct http_engine *engine = NULL;
	struct http_request request = {.method = method, .url = url, .max_attempts = 3};
	const char *etag;
	bool fired;

	*o = (struct outcome){.text = BUF_INIT(1 * KIB)};
	request.sink = (struct http_sink)HTTP_SINK_TO_BUF(&o->text);
	if (strcmp(method, "PUT") == 0)
		request.source = (struct http_source){
			.kind = HTTP_SOURCE_MEMORY, .data = body, .length = strlen(body)};
	alloc_fail_arm(n);
	o->rc = http_engine_new(&engine, &options, err);
	if (o->rc == 0 && http_request_header(&request, "X-Asked", "for") < 0)
		o->rc = error_memory(err);
	if (o->rc == 0)
		o->rc = http_perform(engine, &request, &reply, err);
	http_engine_free(engine);
	fired = alloc_fail_disarm();
	etag = http_reply_header(&reply, "ETag");
	snprintf(o->etag, sizeof(o->etag), "%s", etag ? etag : "");
	strlist_release(&request.headers);
	http_reply_release(&reply);
	return fired;
}

static void every_allocation_fails_once(const char *method, const char *expected)
{
	size_t failures = 0;
	bool fired = true;

	for (size_t n = 1; fired; n++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct outcome o;

		fired = request_once(method, n, &o, &err);
		if (o.rc == 0) {
			assert_int_equal(err.code, PENSTOCK_OK);
			assert_string_equal(buf_str(&o.text), expected);
			assert_string_equal(o.etag, "\"e\"");
		} else {
			assert_true(fired);
			assert_int_equal(o.rc, -(int)err.code);
			if (err.code != PENSTOCK_E_MEMORY)
				print_error("%zu: %s\n", n, err.message);
			assert_int_equal(err.code, PENSTOCK_E_MEMORY);
			assert_non_null(err.message);
			failures++;
		}
		buf_release(&o.text);
		penstock_error_release(&err);
	}
	assert_true(failures > 20);
}

static void a_request_that_is_repeated(void **state)
{
	(void)state;
	every_allocation_fails_once("GET", body);
}

static void a_request_with_a_body(void **state)
{
	(void)state;
	every_allocation_fails_once("PUT", body);
}

/* The method must not change: if there is no memory for its name, libcurl would send a GET. */
static void a_request_to_delete(void **state)
{
	(void)state;
	every_allocation_fails_once("DELETE", deleted);
}

/* All entries of the AWS configuration are read, or the call fails. */
static void a_configuration_file(void **state)
{
	static const char text[] =
		"[default]\nregion = eu-1\ns3 =\n  endpoint_url = http://a\n[profile b]\nservices "
		"= s\n"
		"aws_access_key_id = AK\naws_secret_access_key = secret\n[services s]\ns3 =\n"
		"  endpoint_url = http://b\n";
	bool fired = true;

	(void)state;
	for (size_t n = 1; fired; n++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct aws_config config = {0};

		alloc_fail_arm(n);
		int rc = aws_config_parse(&config, "/h/.aws/config", text, false, &err);

		fired = alloc_fail_disarm();
		if (rc < 0) {
			assert_true(fired);
			assert_int_equal(err.code, PENSTOCK_E_MEMORY);
		} else {
			assert_string_equal(aws_config_get(&config, "default", "region"), "eu-1");
			assert_string_equal(aws_config_endpoint(&config, "b", "s3"), "http://b");
			assert_string_equal(
				aws_config_get(&config, "b", "aws_secret_access_key"), "secret");
		}
		aws_config_release(&config);
		penstock_error_release(&err);
	}
}

/* If memory runs out, the call fails, and does not use another source of keys. */
static void the_settings_of_a_store(void **state)
{
	bool fired = true;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "AKENVIRONMENT", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "of the environment", 1);
	setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
	for (size_t n = 1; fired; n++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct s3_settings settings = {0};
		struct credentials keys = {0};

		alloc_fail_arm(n);
		int rc = s3_settings_resolve(&settings, &(struct store_place){0}, &err);

		if (rc == 0)
			rc = credentials_get(settings.credentials, &keys, &err);
		fired = alloc_fail_disarm();
		if (rc < 0) {
			assert_true(fired);
			assert_int_equal(err.code, PENSTOCK_E_MEMORY);
		} else {
			assert_string_equal(keys.access_key_id, "AKENVIRONMENT");
			assert_string_equal(settings.endpoint_url, "http://127.0.0.1:9");
			assert_string_equal(settings.region, "us-east-1");
		}
		credentials_release(&keys);
		s3_settings_release(&settings);
		penstock_error_release(&err);
		log_redact_clear();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_request_that_is_repeated, start_server, stop_server),
		cmocka_unit_test_setup_teardown(a_request_with_a_body, start_server, stop_server),
		cmocka_unit_test_setup_teardown(a_request_to_delete, start_server, stop_server),
		cmocka_unit_test(a_configuration_file),
		cmocka_unit_test(the_settings_of_a_store),
	};

	alarm(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
