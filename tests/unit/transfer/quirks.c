/* Stores that differ from S3, such as Ceph and MinIO. */
#include "objects_fixture.h"
#include "s3/multipart.h"

#define PART	(5 * MIB)
#define PRESENT "0123456789abcdef0123456789abcdef"

/* ---- stores ---- */

/* Compares the text of If-Match with the ETag without quotes. f->others is the number of refused
 * requests. */
static bool compares_quotes(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char wanted[64];

	if (strcmp(r->method, "HEAD") == 0) {
		f->heads++;
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"%s\"\r\n\r\n", PRESENT);
	}
	f->puts++;
	if (mini_header(r, "if-match", wanted, sizeof(wanted)) && strcmp(wanted, PRESENT) != 0) {
		f->others++;
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	}
	return accept_body(r, fd, false, "");
}

/* Replies NoSuchKey to a conditional request for a missing object. */
static bool has_nothing(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	if (strcmp(r->method, "HEAD") == 0)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	return answer_error(fd, "404 Not Found", "NoSuchKey", "");
}

/* Completes an upload with a reply that lacks the ETag. HEAD returns the ETag f->text. */
static bool keeps_the_etag_to_itself(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char initiated[] = "<InitiateMultipartUploadResult><UploadId>id</UploadId>"
					"</InitiateMultipartUploadResult>";
	static const char completed[] =
		"<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>";
	struct fixture *f = m->cookie;

	if (is(r, "POST", "?uploads"))
		return mini_reply(fd, "200 OK", "", initiated, strlen(initiated));
	if (is(r, "PUT", "partNumber="))
		return accept_body(r, fd, false, "");
	if (strcmp(r->method, "HEAD") == 0) {
		f->heads++;
		return mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: %s\r\n\r\n",
			SIZE, f->text);
	}
	if (strcmp(r->method, "DELETE") == 0)
		return mini_reply(fd, "204 No Content", "", "", 0);
	f->completes++;
	return mini_reply(fd, "200 OK", "", completed, strlen(completed));
}

/* Returns the ETag of a copy without quotes. HEAD finds "from" and "there". */
static bool leaves_quotes_out(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char copied[] = "<CopyObjectResult><ETag>" PRESENT
				     "</ETag></CopyObjectResult>";
	struct fixture *f = m->cookie;

	if (is(r, "HEAD", "/b/from") || is(r, "HEAD", "/b/there"))
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"%s\"\r\n\r\n", PRESENT);
	if (strcmp(r->method, "HEAD") == 0)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	f->puts++;
	return mini_reply(fd, "200 OK", "", copied, strlen(copied));
}

/* Copies the current object, which differs from the one that the first HEAD returned. f->others is
 * the number of DELETEs. */
static bool copies_what_is_there(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char copied[] = "<CopyObjectResult><ETag>&quot;" PRESENT
				     "&quot;</ETag></CopyObjectResult>";
	struct fixture *f = m->cookie;

	if (is(r, "HEAD", "/b/from"))
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"%s\"\r\n\r\n",
			f->heads++ ? PRESENT : "before");
	if (strcmp(r->method, "HEAD") == 0)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (strcmp(r->method, "DELETE") == 0) {
		f->others++;
		return mini_reply(fd, "204 No Content", "", "", 0);
	}
	f->puts++;
	return mini_reply(fd, "200 OK", "", copied, strlen(copied));
}

/* Supports conditions on the requests whose letters f->text has: p for PUT, c for Complete, d for
 * DELETE. The probe's object exists from its first PUT on. f->others is the number of DELETEs. */
static bool knows_some_conditions(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char initiated[] = "<InitiateMultipartUploadResult><UploadId>id</UploadId>"
					"</InitiateMultipartUploadResult>";
	static const char completed[] = "<CompleteMultipartUploadResult><ETag>&quot;x&quot;</ETag>"
					"</CompleteMultipartUploadResult>";
	struct fixture *f = m->cookie;
	char value[64];
	bool conditional = mini_header(r, "if-match", value, sizeof(value)) ||
			   mini_header(r, "if-none-match", value, sizeof(value));
	bool part = is(r, "PUT", "partNumber=");
	char letter = strcmp(r->method, "POST") == 0 ? 'c' : strcmp(r->method, "PUT") ? 'd' : 'p';

	if (strcmp(r->method, "HEAD") == 0)
		return atomic_load(&f->trouble)
			       ? mini_reply(fd, "404 Not Found", "", "", 0)
			       : mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: "
						 "\"x\"\r\n\r\n");
	if (is(r, "POST", "?uploads"))
		return mini_reply(fd, "200 OK", "", initiated, strlen(initiated));
	if (conditional && !part && strchr(f->text, letter))
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	if (strcmp(r->method, "DELETE") == 0) {
		f->others++;
		if (!strstr(r->target, "uploadId"))
			atomic_store(&f->trouble, 1);
		return mini_reply(fd, "204 No Content", "", "", 0);
	}
	if (strcmp(r->method, "POST") == 0)
		return mini_reply(fd, "200 OK", "", completed, strlen(completed));
	f->puts++;
	return accept_body(r, fd, false, strchr(f->text, 'o') ? "Server: penstock/9\r\n" : "");
}

#define REMOVED	 40
#define LAST_KEY "k39"

/* Deletes every named key. At the first deletion, another client replaces the last key. f->others
 * is the number of deletion requests, and f->aborts the number of those that name the last key. */
static bool deletes_what_is_named(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	if (strcmp(r->method, "HEAD") == 0) {
		f->heads++;
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"%s\"\r\n\r\n",
			f->others && strstr(r->target, LAST_KEY) ? "newer" : PRESENT);
	}
	f->others++;
	r->body[r->body_len] = '\0';
	if (strstr(r->body, "<Key>" LAST_KEY "</Key>"))
		f->aborts++;
	return mini_reply(fd, "200 OK", "", "<DeleteResult></DeleteResult>", 29);
}

/* ---- tests ---- */

/* Ceph before version 18 compares the quotes, too: with quotes, the lease would be lost at every
 * renewal. */
static void if_match_is_sent_without_quotes_where_quotes_are_compared(void **state)
{
	const struct object_put_options options = {.if_match = "\"" PRESENT "\""};
	struct fixture f;

	(void)state;
	begin(&f, compares_quotes);

	assert_int_equal(
		0, object_put(object_at(f.s3, "b", "k"), "mine", 4, &options, NULL, &f.err));
	assert_int_equal(
		0, object_put(object_at(f.s3, "b", "k"), "mine", 4, &options, NULL, &f.err));

	assert_int_equal(3, f.puts);
	assert_int_equal(1, f.heads);
	assert_int_equal(1, f.others);
	end(&f);
}

static void a_condition_that_really_fails_still_fails(void **state)
{
	const struct object_put_options options = {
		.if_match = "\"ffffffffffffffffffffffffffffffff\""};
	struct fixture f;

	(void)state;
	begin(&f, compares_quotes);

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		object_put(object_at(f.s3, "b", "k"), "mine", 4, &options, NULL, &f.err));
	assert_int_equal(1, f.puts);
	end(&f);
}

/* Another client has deleted the object, so the condition has failed; the error is not that an
 * input is missing. */
static void nothing_to_match_is_a_failed_condition(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, has_nothing);

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		object_put(object_at(f.s3, "b", "k"), "mine", 4,
			&(struct object_put_options){.if_match = "\"" PRESENT "\""}, NULL, &f.err));
	penstock_error_release(&f.err);
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND,
		object_put(object_at(f.s3, "b", "k"), "mine", 4, NULL, NULL, &f.err));
	end(&f);
}

static int put_multipart(struct fixture *f)
{
	int fd = make_source(SIZE);
	int r = object_put_file(object_at(f->s3, "b", "k"), fd, SIZE,
		&(struct object_put_options){.part_size = PART}, &f->info, &f->err);

	close(fd);
	return r;
}

/* The next conditional write needs the ETag, so the client gets the ETag with a HEAD. */
static void the_etag_of_an_upload_is_asked_for_where_complete_does_not_tell_it(void **state)
{
	char etag[MULTIPART_ETAG_SIZE];
	uint8_t md5[3][16];
	uint8_t digest[CHECKSUM_MAX_SIZE];
	struct fixture f;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		checksum_of(CHECKSUM_MD5, data + i * PART, i < 2 ? PART : SIZE - 2 * PART, digest,
			NULL);
		memcpy(md5[i], digest, 16);
	}
	multipart_etag((const uint8_t(*)[16])md5, 3, etag, NULL);
	begin(&f, keeps_the_etag_to_itself);
	f.text = etag;

	assert_int_equal(0, put_multipart(&f));

	assert_string_equal(etag, f.info.etag);
	assert_int_equal(SIZE, f.info.size);
	assert_int_equal(1, f.completes);
	end(&f);
}

static void somebody_elses_object_is_not_taken_for_the_upload(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, keeps_the_etag_to_itself);
	f.text = "\"" PRESENT "\"";

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION, put_multipart(&f));
	end(&f);
}

static void the_etag_of_a_copy_gets_its_quotes(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, leaves_quotes_out);

	assert_int_equal(0, object_copy(object_at(f.s3, "b", "from"), object_at(f.s3, "b", "to"),
				    NULL, &f.info, &f.err));

	assert_string_equal("\"" PRESENT "\"", f.info.etag);
	end(&f);
}

/* Ceph and MinIO ignore If-None-Match in copies, so the client first sends a HEAD. */
static void a_copy_that_may_only_create_asks_what_is_there(void **state)
{
	const struct object_copy_options create = {.if_none_match = true};
	struct fixture f;

	(void)state;
	begin(&f, leaves_quotes_out);

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		object_copy(object_at(f.s3, "b", "from"), object_at(f.s3, "b", "there"), &create,
			NULL, &f.err));
	assert_int_equal(0, f.puts);
	penstock_error_release(&f.err);
	assert_int_equal(0, object_copy(object_at(f.s3, "b", "from"), object_at(f.s3, "b", "to"),
				    &create, NULL, &f.err));
	assert_int_equal(1, f.puts);
	end(&f);
}

static void a_copy_of_another_object_than_the_expected_one_is_taken_back(void **state)
{
	const struct object_copy_options options = {
		.if_match = "\"before\"", .if_none_match = true};
	struct fixture f;

	(void)state;
	begin(&f, copies_what_is_there);

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		object_copy(object_at(f.s3, "b", "from"), object_at(f.s3, "b", "to"), &options,
			NULL, &f.err));

	assert_int_equal(1, f.puts);
	assert_int_equal(1, f.others);
	end(&f);
}

static void each_place_of_conditions_is_probed_by_itself(void **state)
{
	static const struct {
		const char *knows;
		struct object_conditions found;
	} cases[] = {
		{"", {false, false, false}}, {"p", {true, false, false}},
		{"pc", {true, true, false}}, {"pd", {true, false, true}},
		{"pcd", {true, true, true}}, {"cd", {false, false, false}},
		{"o", {true, true, true}}, /* penstock's own store is not probed */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct object_conditions found = {0};
		struct fixture f;

		begin(&f, knows_some_conditions);
		f.text = cases[i].knows;

		assert_int_equal(
			0, object_probe_conditions(object_at(f.s3, "b", ""), &found, &f.err));

		assert_int_equal(cases[i].found.put, found.put);
		assert_int_equal(cases[i].found.complete, found.complete);
		assert_int_equal(cases[i].found.remove, found.remove);
		assert_true(f.others > 0); /* the object of the probe was deleted */
		end(&f);
	}
}

static void name_key(void *cookie, const char *key, const struct penstock_error *err)
{
	assert_int_equal(PENSTOCK_E_PRECONDITION, err->code);
	assert_string_equal(LAST_KEY, key);
	++*(unsigned *)cookie;
}

/* The store does not support conditions. Only a few requests are sent between the check of an
 * object and its deletion, so an object that is replaced meanwhile is noticed. */
static void what_is_replaced_while_others_are_deleted_stays(void **state)
{
	struct strlist keys = {0}, etags = {0};
	unsigned told = 0;
	struct fixture f;

	(void)state;
	begin(&f, deletes_what_is_named);
	for (unsigned i = 0; i < REMOVED; i++) {
		strlist_addf(&keys, "k%02u", i);
		strlist_add(&etags, "\"" PRESENT "\"");
	}

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		object_delete_many(
			&(struct object_deletion){f.s3, "b", &keys, &etags, name_key, &told}, NULL,
			&f.err));

	assert_int_equal(1, told);
	assert_int_equal(0, f.aborts);
	assert_int_equal(REMOVED, f.heads);
	strlist_release(&keys);
	strlist_release(&etags);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(if_match_is_sent_without_quotes_where_quotes_are_compared),
		cmocka_unit_test(a_condition_that_really_fails_still_fails),
		cmocka_unit_test(nothing_to_match_is_a_failed_condition),
		cmocka_unit_test(
			the_etag_of_an_upload_is_asked_for_where_complete_does_not_tell_it),
		cmocka_unit_test(somebody_elses_object_is_not_taken_for_the_upload),
		cmocka_unit_test(the_etag_of_a_copy_gets_its_quotes),
		cmocka_unit_test(a_copy_that_may_only_create_asks_what_is_there),
		cmocka_unit_test(a_copy_of_another_object_than_the_expected_one_is_taken_back),
		cmocka_unit_test(what_is_replaced_while_others_are_deleted_stays),
		cmocka_unit_test(each_place_of_conditions_is_probed_by_itself),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
