/* A store that replies as the test requests, and counts the requests. */
#ifndef TEST_OBJECTS_FIXTURE_H
#define TEST_OBJECTS_FIXTURE_H

#include "transfer/objects.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "s3/sum/checksum.h"

#define SIZE (12 * 1024 * 1024)

struct fixture {
	struct mini_http server;
	struct http_engine *engine;
	struct object_client *s3;
	struct penstock_error err;
	struct object_info info;
	/* State of the store. */
	atomic_uint puts;
	atomic_uint parts;
	atomic_uint completes;
	atomic_uint aborts;
	atomic_uint heads;
	atomic_uint others;
	atomic_uint trouble; /* number of times that the store misbehaves */
	atomic_int valid;
	atomic_int cancel;
	const char *text; /* text whose meaning depends on the test */
};

static char data[SIZE];

static inline void begin(struct fixture *f, mini_answer_fn answer)
{
	char url[MINI_URL_SIZE];

	memset(f, 0, sizeof(*f));
	mini_start(&f->server, answer, f);
	mini_url(&f->server, "", url);
	assert_int_equal(
		0, http_engine_new(&f->engine,
			   &(struct http_engine_options){.retry_base_ms = 2, .max_attempts = 4},
			   &f->err));
	assert_int_equal(0, object_client_open(&f->s3, f->engine,
				    &(struct store_place){.endpoint_url = url,
					    .region = "us-east-1",
					    .access_key_id = "AKIDEXAMPLE",
					    .secret_access_key = "very/secret"},
				    &f->err));
}

static inline void end(struct fixture *f)
{
	object_client_free(f->s3);
	http_engine_free(f->engine);
	mini_stop(&f->server);
	object_info_release(&f->info);
	penstock_error_release(&f->err);
}

static inline int make_source(size_t size)
{
	int fd = memfd_create("source", 0);

	assert_int_equal(0, fs_write_all(fd, data, size));
	return fd;
}

static inline void fill_data(void)
{
	for (size_t i = 0; i < SIZE; i++)
		data[i] = (char)(i * 2654435761u >> 13);
}

static inline void md5_etag(const void *bytes, size_t len, char out[35])
{
	uint8_t digest[CHECKSUM_MAX_SIZE];

	checksum_of(CHECKSUM_MD5, bytes, len, digest, NULL);
	out[0] = '"';
	str_hex(digest, 16, out + 1);
	out[33] = '"';
	out[34] = '\0';
}

/* Replies 200 with the ETag of the body; if `echo`, also with the checksum of the request. */
static inline bool accept_body(const struct mini_request *r, int fd, bool echo, const char *more)
{
	char etag[35];
	char sum[64];
	char headers[512];

	md5_etag(r->body, r->body_len, etag);
	if (!echo || !mini_header(r, "x-amz-checksum-crc64nvme", sum, sizeof(sum)))
		snprintf(headers, sizeof(headers), "ETag: %s\r\n%s", etag, more);
	else
		snprintf(headers, sizeof(headers), "ETag: %s\r\nx-amz-checksum-crc64nvme: %s\r\n%s",
			etag, sum, more);
	return mini_reply(fd, "200 OK", headers, "", 0);
}

static inline bool answer_error(int fd, const char *status, const char *code, const char *more)
{
	char body[512];

	snprintf(body, sizeof(body),
		"<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>said so.</Message></Error>",
		code);
	return mini_reply(fd, status, more, body, strlen(body));
}

static inline bool is(const struct mini_request *r, const char *method, const char *part)
{
	return strcmp(r->method, method) == 0 && strstr(r->target, part);
}

#endif
