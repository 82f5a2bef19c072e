/* Uploads: their conditions, the moment at which objects appear, and the result of a failure. */
#include "objects_fixture.h"
#include "s3/sign/chunked.h"
#include "s3/multipart.h"

/* ---- stores ---- */

static bool plain_store(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	f->puts++;
	return accept_body(r, fd, true, "");
}

/* Refuses requests with checksums. */
static bool refuses_checksums(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char value[64];

	f->puts++;
	if (mini_header(r, "x-amz-checksum-crc64nvme", value, sizeof(value)))
		return answer_error(fd, "501 Not Implemented", "NotImplemented", "");
	return accept_body(r, fd, false, "");
}

/* Ignores checksums. */
static bool ignores_checksums(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char value[64];

	f->puts++;
	if (mini_header(r, "x-amz-checksum-crc64nvme", value, sizeof(value)))
		f->others++;
	return accept_body(r, fd, false, "");
}

static bool stores_something_else(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	(void)r;
	return mini_reply(fd, "200 OK", f->text, "", 0);
}

struct decoded {
	struct buf body;
	char sum[64];
};

static int on_data(void *cookie, const void *bytes, size_t len, struct penstock_error *err)
{
	(void)err;
	return buf_add(&((struct decoded *)cookie)->body, bytes, len);
}

static int on_trailer(void *cookie, const char *name, const char *value, struct penstock_error *err)
{
	(void)err;
	assert_string_equal("x-amz-checksum-crc64nvme", name);
	snprintf(((struct decoded *)cookie)->sum, 64, "%s", value);
	return 0;
}

/* Acts as `penstock serve`, which identifies itself, and accepts aws-chunked bodies with a checksum
 * in the trailer. */
static bool own_store(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	struct decoded decoded = {.body = BUF_INIT(2 * (size_t)SIZE)};
	struct chunked_decoder decoder;
	char kind[64] = "";
	char etag[35];
	char headers[256];

	f->puts++;
	mini_header(r, "x-amz-content-sha256", kind, sizeof(kind));
	if (strcmp(kind, "STREAMING-UNSIGNED-PAYLOAD-TRAILER") != 0)
		return accept_body(r, fd, true, "Server: penstock/9\r\n");
	f->others++;
	assert_int_equal(0, chunked_decoder_init(&decoder,
				    &(struct chunked_options){.mode = CHUNKED_UNSIGNED_TRAILER,
					    .decoded_length = CHUNKED_UNKNOWN_LENGTH,
					    .data = on_data,
					    .trailer = on_trailer,
					    .cookie = &decoded},
				    NULL));
	assert_int_equal(0, chunked_decoder_feed(&decoder, r->body, r->body_len, NULL));
	assert_int_equal(0, chunked_decoder_finish(&decoder, NULL));
	assert_int_equal(SIZE, decoded.body.len);
	assert_memory_equal(data, decoded.body.data, SIZE);
	md5_etag(decoded.body.data, decoded.body.len, etag);
	snprintf(headers, sizeof(headers), "ETag: %s\r\nx-amz-checksum-crc64nvme: %s\r\n", etag,
		decoded.sum);
	chunked_decoder_release(&decoder);
	buf_release(&decoded.body);
	return mini_reply(fd, "200 OK", headers, "", 0);
}

/* Accepts the first PUT without a reply, and refuses the condition of the second one. HEAD returns
 * f->text. */
static bool loses_a_reply(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	if (strcmp(r->method, "HEAD") == 0)
		return mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n%s\r\n", f->text);
	if (f->puts++ == 0)
		return false;
	return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
}

/* A store for multipart uploads; f->trouble and f->text select its faults. */
static bool multipart_store(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char initiated[] = "<InitiateMultipartUploadResult><UploadId>the id</UploadId>"
					"</InitiateMultipartUploadResult>";
	struct fixture *f = m->cookie;
	char body[512];
	char etag[MULTIPART_ETAG_SIZE];
	uint8_t md5[3][16];
	uint8_t digest[CHECKSUM_MAX_SIZE];

	for (size_t i = 0; i < 3; i++) {
		checksum_of(
			CHECKSUM_MD5, data + i * 5 * MIB, i < 2 ? 5 * MIB : 2 * MIB, digest, NULL);
		memcpy(md5[i], digest, 16);
	}
	multipart_etag((const uint8_t(*)[16])md5, 3, etag, NULL);
	if (is(r, "POST", "?uploads"))
		return mini_reply(fd, "200 OK", "", initiated, strlen(initiated));
	if (is(r, "DELETE", "uploadId=the%20id")) {
		f->aborts++;
		return mini_reply(fd, "204 No Content", "", "", 0);
	}
	if (strcmp(r->method, "HEAD") == 0) {
		f->heads++;
		return mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: %s\r\n\r\n",
			SIZE, etag);
	}
	if (is(r, "PUT", "partNumber=")) {
		f->parts++;
		if (f->text && strcmp(f->text, "no part 2") == 0 &&
			strstr(r->target, "partNumber=2"))
			return answer_error(fd, "403 Forbidden", "AccessDenied", "");
		if (f->text && strcmp(f->text, "cancel") == 0)
			atomic_store(&f->cancel, 1);
		return accept_body(r, fd, true, "");
	}
	f->completes++;
	if (f->trouble && f->trouble--) {
		if (f->text && strcmp(f->text, "lose complete") == 0)
			return false;
		snprintf(body, sizeof(body),
			"\n<Error><Code>InternalError</Code><Message>again</Message></Error>");
		return mini_reply(fd, "200 OK", "", body, strlen(body));
	}
	if (f->text && strcmp(f->text, "lose complete") == 0)
		return answer_error(fd, "404 Not Found", "NoSuchUpload", "");
	snprintf(body, sizeof(body),
		"<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>",
		f->text && strcmp(f->text, "wrong etag") == 0
			? "&quot;00000000000000000000000000000000-3&quot;"
			: etag);
	return mini_reply(fd, "200 OK", "", body, strlen(body));
}

static int put_multipart(struct fixture *f, struct object_put_options *options)
{
	int fd = make_source(SIZE);
	int r;

	options->part_size = 5 * MIB;
	options->cancel = &f->cancel;
	options->cookie = f;
	r = object_put_file(object_at(f->s3, "b", "k"), fd, SIZE, options, &f->info, &f->err);
	close(fd);
	return r;
}

static bool ask(void *cookie)
{
	return atomic_load(&((struct fixture *)cookie)->valid);
}

/* ---- tests ---- */

static void an_upload_that_is_not_valid_any_more_is_abandoned(void **state)
{
	static const size_t sizes[] = {0, 100, 300000, SIZE};
	struct fixture f;

	(void)state;
	begin(&f, plain_store);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct object_put_options options = {.still_valid = ask, .cookie = &f};
		int fd = make_source(sizes[i]);

		f.valid = 0;
		assert_int_equal(
			-(int)PENSTOCK_E_CHANGED, object_put_file(object_at(f.s3, "b", "k"), fd,
							  sizes[i], &options, NULL, &f.err));
		assert_int_equal(i, f.puts);
		penstock_error_release(&f.err);
		f.valid = 1;
		assert_int_equal(0, object_put_file(object_at(f.s3, "b", "k"), fd, sizes[i],
					    &options, NULL, &f.err));
		assert_int_equal(i + 1, f.puts);
		close(fd);
	}
	end(&f);
}

/* If standard input was closed, the caller may have opened another file as descriptor 0. */
static void a_stream_closes_no_descriptor_but_its_own(void **state)
{
	struct fixture f;
	int fds[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_true(null >= 0 && dup2(null, STDIN_FILENO) == STDIN_FILENO);
	assert_int_equal(0, pipe(fds));
	assert_int_equal(0, fs_write_all(fds[1], "text", 4));
	close(fds[1]);
	begin(&f, plain_store);

	assert_int_equal(
		0, object_put_stream(object_at(f.s3, "b", "k"), fds[0], NULL, &f.info, &f.err));

	assert_int_equal(4, f.info.size);
	assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0);
	assert_true(fcntl(fds[0], F_GETFD) >= 0);
	close(fds[0]);
	close(null);
	end(&f);
}

static void a_store_that_refuses_checksums_gets_none(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, refuses_checksums);

	assert_int_equal(
		0, object_put(object_at(f.s3, "b", "k"), data, 1000, NULL, &f.info, &f.err));
	assert_int_equal(2, f.puts);
	assert_int_equal(0, object_put(object_at(f.s3, "b", "k"), data, 1000, NULL, NULL, &f.err));

	assert_int_equal(3, f.puts);
	end(&f);
}

static void a_store_that_ignores_checksums_is_watched_by_its_etags(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, ignores_checksums);

	assert_int_equal(
		0, object_put(object_at(f.s3, "b", "k"), data, 200000, NULL, NULL, &f.err));
	assert_int_equal(
		0, object_put(object_at(f.s3, "b", "k"), data, 200000, NULL, NULL, &f.err));

	assert_int_equal(1, f.others);
	end(&f);
}

static void a_store_that_has_other_bytes_is_found_out(void **state)
{
	static const char *const replies[] = {
		"ETag: \"00000000000000000000000000000000\"\r\n",
		"ETag: \"x\"\r\nx-amz-checksum-crc64nvme: AAAAAAAAAAA=\r\n",
	};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct fixture f;

		begin(&f, stores_something_else);
		f.text = replies[i % 2];
		assert_int_equal(-(int)PENSTOCK_E_CORRUPT,
			object_put(object_at(f.s3, "b", "k"), data, i < 2 ? 100 : 200000, NULL,
				NULL, &f.err));
		end(&f);
	}
}

/* penstock's own store accepts the checksum after the data, so the file is read once instead of
 * twice. */
static void our_own_store_gets_checksums_behind_the_data(void **state)
{
	struct fixture f;
	int fd = make_source(SIZE);

	(void)state;
	begin(&f, own_store);

	assert_int_equal(0, object_put(object_at(f.s3, "b", "k"), data, 10, NULL, NULL, &f.err));
	assert_int_equal(
		0, object_put_file(object_at(f.s3, "b", "k"), fd, SIZE, NULL, &f.info, &f.err));

	assert_int_equal(1, f.others);
	assert_int_equal(SIZE, f.info.size);
	close(fd);
	end(&f);
}

static void a_file_that_got_shorter_is_not_uploaded(void **state)
{
	static const size_t sizes[] = {100, 300000, SIZE};
	struct fixture f;

	(void)state;
	begin(&f, plain_store);
	for (size_t i = 0; i < 3; i++) {
		int fd = make_source(sizes[i] - 1);

		assert_int_equal(
			-(int)PENSTOCK_E_CHANGED, object_put_file(object_at(f.s3, "b", "k"), fd,
							  sizes[i], NULL, NULL, &f.err));
		penstock_error_release(&f.err);
		close(fd);
	}
	assert_int_equal(0, f.puts);
	end(&f);
}

/* The first PUT succeeded without a reply, so the condition of the second one fails. */
static void a_conditional_put_whose_reply_was_lost_is_recognised(void **state)
{
	struct fixture f;
	char head[64];
	char etag[35];

	(void)state;
	begin(&f, loses_a_reply);
	md5_etag("mine", 4, etag);
	snprintf(head, sizeof(head), "ETag: %s\r\n", etag);
	f.text = head;

	assert_int_equal(
		0, object_put(object_at(f.s3, "b", "k"), "mine", 4,
			   &(struct object_put_options){.if_none_match = true}, &f.info, &f.err));

	assert_string_equal(etag, f.info.etag);
	end(&f);
}

static void a_conditional_put_that_lost_to_another_writer_fails(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, loses_a_reply);
	f.text = "ETag: \"0123456789abcdef0123456789abcdef\"\r\n";

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		object_put(object_at(f.s3, "b", "k"), "mine", 4,
			&(struct object_put_options){.if_none_match = true}, NULL, &f.err));
	end(&f);
}

static void a_large_file_is_put_together_from_parts(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, multipart_store);

	assert_int_equal(0, put_multipart(&f, &(struct object_put_options){0}));

	assert_int_equal(3, f.parts);
	assert_int_equal(1, f.completes);
	assert_int_equal(0, f.aborts);
	assert_int_equal(SIZE, f.info.size);
	end(&f);
}

static void parts_of_a_failed_upload_are_removed(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, multipart_store);
	f.text = "no part 2";

	assert_int_equal(
		-(int)PENSTOCK_E_PERMISSION, put_multipart(&f, &(struct object_put_options){0}));

	assert_int_equal(1, f.aborts);
	assert_int_equal(0, f.completes);
	assert_non_null(strstr(f.err.message, "s3://b/k"));
	assert_non_null(strstr(f.err.message, "AccessDenied"));
	end(&f);
}

static void parts_of_an_upload_that_is_not_valid_any_more_are_removed(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, multipart_store);

	assert_int_equal(-(int)PENSTOCK_E_CHANGED,
		put_multipart(&f, &(struct object_put_options){.still_valid = ask}));

	assert_int_equal(3, f.parts);
	assert_int_equal(1, f.aborts);
	assert_int_equal(0, f.completes);
	end(&f);
}

static void parts_of_a_cancelled_upload_are_removed(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, multipart_store);
	f.text = "cancel";

	assert_int_equal(
		-(int)PENSTOCK_E_CANCELLED, put_multipart(&f, &(struct object_put_options){0}));

	assert_int_equal(1, f.aborts);
	assert_int_equal(0, f.completes);
	end(&f);
}

static void an_error_inside_a_good_reply_to_complete_is_tried_again(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, multipart_store);
	f.trouble = 2;

	assert_int_equal(0, put_multipart(&f, &(struct object_put_options){0}));

	assert_int_equal(3, f.completes);
	end(&f);
}

static void a_complete_whose_reply_was_lost_is_recognised(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, multipart_store);
	f.trouble = 1;
	f.text = "lose complete";

	assert_int_equal(0, put_multipart(&f, &(struct object_put_options){0}));

	assert_int_equal(2, f.completes);
	assert_int_equal(1, f.heads);
	assert_int_equal(SIZE, f.info.size);
	end(&f);
}

static void parts_that_are_put_together_wrongly_are_found_out(void **state)
{
	struct fixture f;

	(void)state;
	setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required", 1);
	begin(&f, multipart_store);
	unsetenv("AWS_REQUEST_CHECKSUM_CALCULATION");
	f.text = "wrong etag";

	assert_int_equal(
		-(int)PENSTOCK_E_CORRUPT, put_multipart(&f, &(struct object_put_options){0}));
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_upload_that_is_not_valid_any_more_is_abandoned),
		cmocka_unit_test(a_stream_closes_no_descriptor_but_its_own),
		cmocka_unit_test(a_store_that_refuses_checksums_gets_none),
		cmocka_unit_test(a_store_that_ignores_checksums_is_watched_by_its_etags),
		cmocka_unit_test(a_store_that_has_other_bytes_is_found_out),
		cmocka_unit_test(our_own_store_gets_checksums_behind_the_data),
		cmocka_unit_test(a_file_that_got_shorter_is_not_uploaded),
		cmocka_unit_test(a_conditional_put_whose_reply_was_lost_is_recognised),
		cmocka_unit_test(a_conditional_put_that_lost_to_another_writer_fails),
		cmocka_unit_test(a_large_file_is_put_together_from_parts),
		cmocka_unit_test(parts_of_a_failed_upload_are_removed),
		cmocka_unit_test(parts_of_an_upload_that_is_not_valid_any_more_are_removed),
		cmocka_unit_test(parts_of_a_cancelled_upload_are_removed),
		cmocka_unit_test(an_error_inside_a_good_reply_to_complete_is_tried_again),
		cmocka_unit_test(a_complete_whose_reply_was_lost_is_recognised),
		cmocka_unit_test(parts_that_are_put_together_wrongly_are_found_out),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
