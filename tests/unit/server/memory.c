/* Bytes that requests hold in memory: the shares of accounts, and the refusal of more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/limits.h"
#include "s3/message/read_many.h"
#include "server/directory/identity.h"
#include "server/op/op.h"
#include "server/request/reply.h"
#include "server/request/request.h"

static struct server server;
static struct identity senders[] = {{.account = "1"}, {.account = "2"}, {.account = ""}};
static char path[] = "/b/k";

enum sender { A, B, ANONYMOUS };

static struct request *request_of(enum sender sender)
{
	struct request *req = calloc(1, sizeof(*req));

	assert_non_null(req);
	req->server = &server;
	req->identity = &senders[sender];
	req->method = "PUT";
	req->path = path;
	return req;
}

static void end(struct request *req)
{
	if (req->response)
		MHD_destroy_response(req->response);
	request_let_go(req);
	body_release(req);
	arena_release(&req->arena);
	free(req);
}

static void an_account_holds_as_much_as_it_leaves_to_others(void **state)
{
	struct request *a = request_of(A), *more = request_of(A), *b = request_of(B);
	struct request *stranger = request_of(ANONYMOUS);

	(void)state;
	assert_true(request_hold(a, LIMIT_SERVER_HELD / 4));
	assert_true(request_hold(a, LIMIT_SERVER_HELD / 4));
	assert_false(request_hold(more, 1));
	assert_true(request_hold(stranger, LIMIT_SERVER_HELD / 4));
	assert_false(request_hold(stranger, 1));
	assert_true(request_hold(b, LIMIT_SERVER_HELD / 8));
	assert_false(request_hold(b, LIMIT_SERVER_HELD));
	request_let_go(a);
	assert_true(request_hold(more, LIMIT_SERVER_HELD / 4));
	assert_true(request_hold(stranger, 1));

	end(a);
	end(b);
	end(more);
	end(stranger);
	assert_int_equal(server.held.held, 0);
}

static void a_long_document_beyond_the_share_is_refused(void **state)
{
	struct request *other = request_of(ANONYMOUS), *req = request_of(ANONYMOUS);
	char *text = calloc(2, LIMIT_SERVER_CONNECTION);

	(void)state;
	assert_non_null(text);
	assert_true(request_hold(other, LIMIT_SERVER_HELD / 2));
	assert_true(body_begin(req, BODY_DOCUMENT, LIMIT_XML_BODY));
	assert_true(body_feed(req, text, LIMIT_SERVER_CONNECTION));
	assert_false(body_feed(req, text, 1));

	assert_int_equal(req->status, MHD_HTTP_SERVICE_UNAVAILABLE);
	assert_string_equal(req->error_code, "SlowDown");
	end(other);
	end(req);
	req = request_of(ANONYMOUS);
	assert_true(body_begin(req, BODY_DOCUMENT, LIMIT_XML_BODY));
	assert_true(body_feed(req, text, 2 * LIMIT_SERVER_CONNECTION));
	assert_int_equal(server.held.held, 2 * LIMIT_SERVER_CONNECTION);
	end(req);
	assert_int_equal(server.held.held, 0);
	free(text);
}

static void reply_with(struct request *req, size_t bytes)
{
	struct buf text = BUF_INIT(LIMIT_LIST_REPLY);

	assert_non_null(buf_reserve(&text, bytes));
	memset(text.data, 'x', bytes);
	buf_grown(&text, bytes);
	reply_xml(req, MHD_HTTP_OK, &text);
	buf_release(&text);
}

static void a_long_reply_beyond_the_share_is_refused(void **state)
{
	struct request *other = request_of(B), *req = request_of(B);

	(void)state;
	reply_with(req, LIMIT_LIST_REPLY);
	assert_int_equal(req->status, MHD_HTTP_OK);
	assert_int_equal(server.held.held, LIMIT_LIST_REPLY);
	request_let_go(req);
	assert_true(request_hold(other, LIMIT_SERVER_HELD / 2));
	reply_with(req, LIMIT_SERVER_CONNECTION);
	assert_int_equal(req->status, MHD_HTTP_OK);
	reply_with(req, LIMIT_SERVER_CONNECTION + 1);

	assert_int_equal(req->status, MHD_HTTP_SERVICE_UNAVAILABLE);
	assert_string_equal(req->error_code, "SlowDown");
	end(other);
	end(req);
}

/* The lines are invalid, which is detected after the table was allocated. */
static void read_many_of_nothing(struct request *req)
{
	char lines[LIMIT_READ_MANY];

	memset(lines, '\n', sizeof(lines));
	buf_init(&req->body.document, LIMIT_XML_BODY);
	assert_int_equal(buf_add(&req->body.document, lines, sizeof(lines)), 0);
	op_read_many(req);
	buf_release(&req->body.document);
}

static void the_table_of_a_batch_is_counted(void **state)
{
	struct request *other = request_of(A), *req = request_of(A), *refused = request_of(A);

	(void)state;
	read_many_of_nothing(req);
	assert_int_equal(req->status, MHD_HTTP_BAD_REQUEST);
	assert_in_range(server.held.held, LIMIT_READ_MANY * READ_MANY_ENTRY,
		2 * LIMIT_READ_MANY * READ_MANY_ENTRY);
	end(req);
	assert_true(request_hold(other, LIMIT_SERVER_HELD / 2));
	read_many_of_nothing(refused);

	assert_int_equal(refused->status, MHD_HTTP_SERVICE_UNAVAILABLE);
	assert_string_equal(refused->error_code, "SlowDown");
	end(other);
	end(refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_account_holds_as_much_as_it_leaves_to_others),
		cmocka_unit_test(a_long_document_beyond_the_share_is_refused),
		cmocka_unit_test(a_long_reply_beyond_the_share_is_refused),
		cmocka_unit_test(the_table_of_a_batch_is_counted),
	};
	int failed;

	quota_init(&server.held, LIMIT_SERVER_HELD);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	quota_release(&server.held);
	return failed;
}
