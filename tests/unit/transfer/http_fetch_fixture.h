/* A server whose resource may change or whose replies may end early, and a target directory. */
#ifndef TEST_HTTP_FETCH_FIXTURE_H
#define TEST_HTTP_FETCH_FIXTURE_H

#include "transfer/http_fetch.h"
#include "transfer/state/part_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "mini_http.h"
#include "net/http/http.h"
#include "s3/sum/checksum.h"

#define SIZE  (1000 * 1000 + 17)
#define CHUNK (64 * 1024)

static char one[SIZE];
static char two[SIZE];

struct fixture {
	struct mini_http server;
	struct http_engine *engine;
	char url[MINI_URL_SIZE];
	char dir[64];
	struct http_fetch_options options;
	struct http_fetch_result result;
	struct penstock_error err;
	/* Number of bytes that the consumer got. */
	_Atomic size_t consumed;
	const char *expected;
	size_t refuse_at;
	uint64_t announced;
	uint64_t missing;
	atomic_long progress;
	/* State of the server. */
	atomic_uint version; /* number of the current content */
	unsigned change_at; /* first request that gets the other content; 0 if none */
	bool cut;
	bool held; /* later ranges wait for a second connection */
	atomic_bool away; /* the server replies 503 */
	atomic_ulong served;
	atomic_int cancel;
};

static inline int take(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct fixture *f = cookie;

	assert_true(f->consumed + len <= SIZE);
	assert_memory_equal(f->expected + f->consumed, data, len);
	f->consumed += len;
	if (f->refuse_at && f->consumed >= f->refuse_at)
		return error_set(err, PENSTOCK_E_NO_SPACE, "the consumer is full");
	return 0;
}

static inline int announce(
	void *cookie, uint64_t size, uint64_t missing, struct penstock_error *err)
{
	struct fixture *f = cookie;

	(void)err;
	f->announced = size;
	f->missing = missing;
	return 0;
}

static inline void progress(void *cookie, int64_t bytes)
{
	atomic_fetch_add(&((struct fixture *)cookie)->progress, bytes);
}

static inline void begin(struct fixture *f, mini_answer_fn answer)
{
	memset(f, 0, sizeof(*f));
	strcpy(f->dir, "/tmp/penstock-fetch-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	mini_start(&f->server, answer, f);
	mini_url(&f->server, "/data/archive%20one.tar.gz?token=verysecret", f->url);
	f->expected = one;
	f->options = (struct http_fetch_options){.directory = f->dir,
		.chunk_size = CHUNK,
		.parallel = 4,
		.on_size = announce,
		.consume = take,
		.progress = progress,
		.cookie = f,
		.cancel = &f->cancel};
	assert_int_equal(
		0, http_engine_new(&f->engine,
			   &(struct http_engine_options){
				   .retry_base_ms = 2, .stall_timeout_ms = 500, .max_attempts = 4},
			   &f->err));
}

static inline void end(struct fixture *f)
{
	http_engine_free(f->engine);
	mini_stop(&f->server);
	http_fetch_result_release(&f->result);
	penstock_error_release(&f->err);
	fs_remove_tree(f->dir, NULL);
}

/* Returns the path of the part file with the suffix `behind`. The caller has to free the text. */
static char *part_of(const struct fixture *f, const char *behind)
{
	_cleanup_free_ char *first = NULL, *path = path_join(f->dir, "archive one.tar.gz");
	char *part = NULL;

	assert_int_equal(0, part_file_first_name(path, &first, NULL));
	assert_true(asprintf(&part, "%s%s", first, behind) > 0);
	return part;
}

static inline int fetch(struct fixture *f)
{
	return http_fetch(f->engine, f->url, &f->options, &f->result, &f->err);
}

static inline void assert_file(const struct fixture *f, const char *content, size_t len)
{
	struct buf got = BUF_INIT(4 * MIB);

	assert_non_null(f->result.path);
	assert_int_equal(0, fs_read(f->result.path, &got, NULL));
	assert_int_equal(len, got.len);
	assert_memory_equal(content, got.data, len);
	buf_release(&got);
}

static inline unsigned files_in(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static inline bool serve(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	bool second = f->version || (f->change_at && r->number >= f->change_at);
	const char *etag = second ? "\"two\"" : "\"one\"";
	char if_range[64] = "";
	struct mini_request whole;
	uint64_t first = 0;
	uint64_t last = SIZE - 1;

	if (f->away)
		return mini_reply(fd, "503 Away", "Retry-After: 0\r\n", "", 0);
	if (mini_header(r, "If-Range", if_range, sizeof(if_range)) && strcmp(if_range, etag) != 0) {
		whole = *r;
		whole.headers[0] = '\0';
		return mini_serve(&whole, fd, etag, second ? two : one, SIZE);
	}
	mini_range(r, SIZE, &first, &last);
	/* Wait for a second connection. One would be sufficient if each range got its reply before
	 * the next request. */
	for (unsigned ms = 0; f->held && first && m->connections < 2 && ms < 60000; ms++)
		clock_sleep_ms(1);
	/* If `cut`, replies that begin at a chunk's start end early; requests for the remaining
	 * bytes are served. */
	if (f->cut && first % CHUNK == 0) {
		mini_printf(fd,
			"HTTP/1.1 206 P\r\nETag: %s\r\nContent-Length: %" PRIu64
			"\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%d\r\n\r\n",
			etag, last - first + 1, first, last, SIZE);
		mini_write(fd, (second ? two : one) + first, (last - first + 1) / 2);
		f->served += (last - first + 1) / 2;
		return false;
	}
	f->served += last - first + 1;
	return mini_serve(r, fd, etag, second ? two : one, SIZE);
}

static inline void fill_data(void)
{
	for (size_t i = 0; i < SIZE; i++) {
		one[i] = (char)(i * 2654435761u >> 13);
		two[i] = (char)(i * 2654435761u >> 11);
	}
}

#endif
