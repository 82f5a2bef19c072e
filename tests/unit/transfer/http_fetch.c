/* HTTP inputs from servers that cut, change, lie about ranges, or know none; and kills in between. */
#include "transfer/http_fetch.h"
#include "transfer/part_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "mini_http.h"
#include "net/http.h"
#include "s3/checksum.h"

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
	/* What was handed over. */
	_Atomic size_t consumed;
	const char *expected;
	size_t refuse_at;
	uint64_t announced;
	uint64_t missing;
	atomic_long progress;
	/* Of the server. */
	atomic_uint version; /* which content it has */
	unsigned change_at;  /* request from which on it is the other one; 0: never */
	bool cut;
	bool held; /* ranges behind the first wait for a second connection */
	atomic_ulong served;
	atomic_int cancel;
};

static int take(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct fixture *f = cookie;

	assert_true(f->consumed + len <= SIZE);
	assert_memory_equal(f->expected + f->consumed, data, len);
	f->consumed += len;
	if (f->refuse_at && f->consumed >= f->refuse_at)
		return error_set(err, PENSTOCK_E_NO_SPACE, "the consumer is full");
	return 0;
}

static int announce(void *cookie, uint64_t size, uint64_t missing, struct penstock_error *err)
{
	struct fixture *f = cookie;

	(void)err;
	f->announced = size;
	f->missing = missing;
	return 0;
}

static void progress(void *cookie, int64_t bytes)
{
	atomic_fetch_add(&((struct fixture *)cookie)->progress, bytes);
}

static void begin(struct fixture *f, mini_answer_fn answer)
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

static void end(struct fixture *f)
{
	http_engine_free(f->engine);
	mini_stop(&f->server);
	http_fetch_result_release(&f->result);
	penstock_error_release(&f->err);
	fs_remove_tree(f->dir, NULL);
}

/* The part file, or what lies beside it; free() it. */
static char *part_of(const struct fixture *f, const char *behind)
{
	_cleanup_free_ char *first = NULL, *path = path_join(f->dir, "archive one.tar.gz");
	char *part = NULL;

	assert_int_equal(0, part_file_first_name(path, &first, NULL));
	assert_true(asprintf(&part, "%s%s", first, behind) > 0);
	return part;
}

static int fetch(struct fixture *f)
{
	return http_fetch(f->engine, f->url, &f->options, &f->result, &f->err);
}

static void assert_file(const struct fixture *f, const char *content, size_t len)
{
	struct buf got = BUF_INIT(4 * MIB);

	assert_non_null(f->result.path);
	assert_int_equal(0, fs_read(f->result.path, &got, NULL));
	assert_int_equal(len, got.len);
	assert_memory_equal(content, got.data, len);
	buf_release(&got);
}

static unsigned files_in(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static bool serve(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	bool second = f->version || (f->change_at && r->number >= f->change_at);
	const char *etag = second ? "\"two\"" : "\"one\"";
	char if_range[64] = "";
	struct mini_request whole;
	uint64_t first = 0;
	uint64_t last = SIZE - 1;

	if (mini_header(r, "If-Range", if_range, sizeof(if_range)) && strcmp(if_range, etag) != 0) {
		whole = *r;
		whole.headers[0] = '\0';
		return mini_serve(&whole, fd, etag, second ? two : one, SIZE);
	}
	mini_range(r, SIZE, &first, &last);
	/* All of one connection would do if each range were answered before the next is asked for. */
	for (unsigned ms = 0; f->held && first && m->connections < 2 && ms < 60000; ms++)
		clock_sleep_ms(1);
	/* The first request for a range is cut, the one for its rest is not. */
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

static bool serve_without_ranges(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return mini_reply(fd, "200 OK", "", one, SIZE);
}

static bool serve_without_length(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	mini_printf(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
	mini_write(fd, one, SIZE);
	return false;
}

/* No validator, no ranges, and the first replies are cut. */
static bool cut_stream(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	bool second = f->change_at && r->number >= f->change_at;
	const char *data = second ? two : one;

	if (r->number > 3)
		return mini_reply(fd, "200 OK", "", data, SIZE);
	mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", SIZE);
	mini_write(fd, data, SIZE / 2);
	/* It changes after something of it was handed over. */
	while (f->change_at && r->number + 1 == f->change_at && !f->consumed)
		clock_sleep_ms(1);
	return false;
}

/* Ranges without ETag or date: they could be of anything. */
static bool ranges_without_validator(struct mini_http *m, const struct mini_request *r, int fd)
{
	uint64_t first = 0;
	uint64_t last = SIZE - 1;
	char header[128];

	(void)m;
	if (!mini_range(r, SIZE, &first, &last))
		return mini_reply(fd, "200 OK", "", one, SIZE);
	snprintf(header, sizeof(header), "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%d\r\n",
		first, last, SIZE);
	return mini_reply(fd, "206 P", header, one + first, last - first + 1);
}

/* Sends the first range again and again, whatever was asked for. */
static bool repeats(struct mini_http *m, const struct mini_request *r, int fd)
{
	char header[128];

	(void)m;
	(void)r;
	snprintf(header, sizeof(header), "ETag: \"x\"\r\nContent-Range: bytes 0-%d/%d\r\n",
		CHUNK - 1, SIZE);
	return mini_reply(fd, "206 P", header, one, CHUNK);
}

static bool serve_nothing(struct mini_http *m, const struct mini_request *r, int fd)
{
	char range[64];

	(void)m;
	if (mini_header(r, "Range", range, sizeof(range)))
		return mini_reply(fd, "416 No", "Content-Range: bytes */0\r\n", "", 0);
	return mini_reply(fd, "200 OK", "", "", 0);
}

static bool refuse(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return mini_reply(fd, "403 Forbidden", "", "no", 2);
}

/* ---- tests ---- */

static void ranges_are_fetched_in_parallel_and_handed_over_in_order(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.held = true;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_true(str_ends(f.result.path, "/archive one.tar.gz"));
	assert_int_equal(SIZE, f.consumed);
	assert_true(f.result.ranges);
	assert_int_equal(SIZE, f.announced);
	assert_int_equal(SIZE, f.progress);
	assert_string_equal("\"one\"", f.result.etag);
	assert_true(f.server.connections > 1);
	assert_int_equal(1, files_in(f.dir));
	end(&f);
}

static void cut_ranges_are_continued(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.cut = true;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	/* Nothing came twice. */
	assert_int_equal(SIZE, f.served);
	end(&f);
}

static void a_server_without_ranges_gives_one_stream(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve_without_ranges);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	assert_false(f.result.ranges);
	end(&f);
}

static void a_stream_of_unknown_length_ends_with_the_connection(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve_without_length);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(UINT64_MAX, f.announced);
	end(&f);
}

static void a_cut_stream_begins_again_and_each_byte_is_handed_over_once(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, cut_stream);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	end(&f);
}

/* Without an ETag only the bytes themselves tell that the stream is another one now. */
static void a_stream_that_comes_back_different_is_noticed(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, cut_stream);
	f.change_at = 3;

	assert_int_equal(-(int)PENSTOCK_E_CHANGED, fetch(&f));

	assert_int_equal(0, files_in(f.dir));
	end(&f);
}

static void ranges_without_a_validator_are_not_mixed(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, ranges_without_validator);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_false(f.result.ranges);
	end(&f);
}

static void a_resource_that_changes_is_fetched_anew_where_nothing_was_handed_over(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.change_at = 6;
	f.options.consume = NULL;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, two, SIZE);
	assert_int_equal(SIZE, f.progress);
	end(&f);
}

static void a_resource_that_changes_after_bytes_were_handed_over_is_an_error(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.change_at = 6;
	f.options.parallel = 1;

	assert_int_equal(-(int)PENSTOCK_E_CHANGED, fetch(&f));

	assert_true(f.consumed > 0);
	assert_int_equal(0, files_in(f.dir));
	assert_null(strstr(f.err.message, "verysecret"));
	end(&f);
}

static void what_was_fetched_before_a_failure_is_not_fetched_again(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.refuse_at = SIZE / 2;
	assert_int_equal(-(int)PENSTOCK_E_NO_SPACE, fetch(&f));
	penstock_error_release(&f.err);
	f.refuse_at = 0;
	f.consumed = 0;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	assert_true(f.result.resumed);
	assert_true(f.result.fetched < SIZE * 6 / 10);
	assert_int_equal(f.missing, f.result.fetched);
	end(&f);
}

/* Takes a third and is killed, as by kill -9. */
static int take_and_die(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct fixture *f = cookie;

	(void)data;
	(void)err;
	f->consumed += len;
	if (f->consumed >= SIZE / 3)
		raise(SIGKILL);
	return 0;
}

/* The process that will be killed; forked before there are threads, told by the pipe what to do. */
static pid_t fork_victim(int told[2])
{
	pid_t child;

	assert_int_equal(0, pipe2(told, O_CLOEXEC));
	child = fork();
	if (child == 0) {
		struct fixture f = {.expected = one};
		struct http_engine *engine = NULL;

		f.options = (struct http_fetch_options){.directory = f.dir,
			.chunk_size = CHUNK,
			.consume = take_and_die,
			.cookie = &f};
		if (read(told[0], f.url, sizeof(f.url)) != sizeof(f.url) ||
			read(told[0], f.dir, sizeof(f.dir)) != sizeof(f.dir))
			_exit(1);
		http_engine_new(&engine, NULL, NULL);
		http_fetch(engine, f.url, &f.options, &f.result, NULL);
		_exit(2);
	}
	return child;
}

static void a_fetch_that_was_killed_is_continued(void **state)
{
	struct fixture f;
	int told[2];
	int status = 0;
	pid_t child = fork_victim(told);

	(void)state;
	begin(&f, serve);
	assert_int_equal(0, fs_write_all(told[1], f.url, sizeof(f.url)));
	assert_int_equal(0, fs_write_all(told[1], f.dir, sizeof(f.dir)));
	assert_int_equal(child, waitpid(child, &status, 0));
	assert_true(WIFSIGNALED(status));

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	assert_true(f.result.resumed);
	assert_true(f.result.fetched < SIZE);
	close(told[0]);
	close(told[1]);
	end(&f);
}

static void a_remembered_part_of_another_version_is_dropped(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.options.parallel = 1; /* so that much is missing when the consumer refuses */
	f.refuse_at = SIZE / 2;
	assert_int_equal(-(int)PENSTOCK_E_NO_SPACE, fetch(&f));
	penstock_error_release(&f.err);
	f.refuse_at = 0;
	f.version = 1;
	f.options.consume = NULL;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, two, SIZE);
	assert_false(f.result.resumed);
	end(&f);
}

static void a_remembered_part_of_another_url_is_dropped(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.refuse_at = SIZE / 2;
	assert_int_equal(-(int)PENSTOCK_E_NO_SPACE, fetch(&f));
	penstock_error_release(&f.err);
	f.refuse_at = 0;
	f.consumed = 0;
	mini_url(&f.server, "/other/archive%20one.tar.gz", f.url);

	assert_int_equal(0, fetch(&f));

	assert_false(f.result.resumed);
	assert_int_equal(SIZE, f.result.fetched);
	end(&f);
}

/* Leaves a part file and its journal, as a failure does. */
static void fail_half_way(struct fixture *f)
{
	begin(f, serve);
	f->refuse_at = SIZE / 2;
	assert_int_equal(-(int)PENSTOCK_E_NO_SPACE, fetch(f));
	penstock_error_release(&f->err);
	f->refuse_at = 0;
	f->consumed = 0;
}

/* A journal says nothing of a file that was made after it: something sweeps, and takes one of the two. */
static void a_journal_without_its_part_is_no_harm(void **state)
{
	_cleanup_free_ char *part = NULL;
	struct fixture f;

	(void)state;
	fail_half_way(&f);
	part = part_of(&f, "");
	assert_int_equal(0, unlink(part));

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_false(f.result.resumed);
	assert_int_equal(1, files_in(f.dir));
	end(&f);
}

/* What is behind its end would be read as zeros, where the resource has no checksum that says otherwise. */
static void a_part_that_became_shorter_is_not_gone_on_with(void **state)
{
	_cleanup_free_ char *part = NULL;
	struct fixture f;

	(void)state;
	fail_half_way(&f);
	part = part_of(&f, "");
	assert_int_equal(0, truncate(part, 1000));

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_false(f.result.resumed);
	end(&f);
}

/* A part file that has another name, too, may be anybody's: it is neither trusted nor written to. */
static void a_part_that_may_be_anothers_is_not_gone_on_with(void **state)
{
	_cleanup_free_ char *part = NULL, *precious = NULL, *path = NULL;
	struct stat theirs, ours;
	struct fixture f;

	(void)state;
	fail_half_way(&f);
	part = part_of(&f, "");
	precious = path_join(f.dir, "precious");
	path = path_join(f.dir, "archive one.tar.gz");
	assert_int_equal(0, link(part, precious));

	assert_int_equal(0, fetch(&f));

	assert_false(f.result.resumed);
	assert_int_equal(0, stat(precious, &theirs));
	assert_int_equal(0, stat(path, &ours));
	assert_true(theirs.st_ino != ours.st_ino);
	assert_int_equal(0, unlink(precious));
	assert_file(&f, one, SIZE);
	end(&f);
}

static void a_damaged_journal_is_no_harm(void **state)
{
	struct fixture f;
	char *journal;

	(void)state;
	begin(&f, serve);
	journal = part_of(&f, ".json");
	assert_int_equal(0, fs_write_atomic(journal, "{\"version\": 1, \"size\"", 21, 0600, NULL));

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(1, files_in(f.dir));
	free(journal);
	end(&f);
}

static void repeated_bytes_are_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, repeats);

	assert_true(fetch(&f) < 0);

	assert_true(f.err.code == PENSTOCK_E_PROTOCOL || f.err.code == PENSTOCK_E_CHANGED);
	end(&f);
}

static void an_empty_resource_becomes_an_empty_file(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve_nothing);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, "", 0);
	end(&f);
}

static void a_refusal_names_the_input_but_not_its_query(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, refuse);

	assert_int_equal(-(int)PENSTOCK_E_PERMISSION, fetch(&f));

	assert_non_null(strstr(f.err.message, "archive%20one.tar.gz"));
	assert_null(strstr(f.err.message, "verysecret"));
	assert_int_equal(403, f.err.http_status);
	assert_int_equal(0, files_in(f.dir));
	end(&f);
}

static void the_sha256_decides(void **state)
{
	struct fixture f;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[65];

	(void)state;
	begin(&f, serve);
	checksum_of(CHECKSUM_SHA256, one, SIZE, digest, NULL);
	str_hex(digest, 32, hex);
	f.options.sha256 = hex;
	assert_int_equal(0, fetch(&f));
	assert_string_equal(hex, f.result.sha256);
	http_fetch_result_release(&f.result);

	f.version = 1;
	f.expected = two;
	f.consumed = 0;
	assert_int_equal(-(int)PENSTOCK_E_CORRUPT, fetch(&f));

	/* The good file of before is still there, and nothing else. */
	assert_int_equal(1, files_in(f.dir));
	end(&f);
}

static void a_raised_cancel_flag_ends_it(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.cancel = 1;

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED, fetch(&f));
	end(&f);
}

static void a_second_fetch_of_the_same_file_is_refused(void **state)
{
	struct fixture f;
	char *part;
	int fd;

	(void)state;
	begin(&f, serve);
	part = part_of(&f, "");
	fd = open(part, O_RDWR | O_CREAT, 0600);
	assert_int_equal(0, flock(fd, LOCK_EX));

	assert_int_equal(-(int)PENSTOCK_E_EXISTS, fetch(&f));

	close(fd);
	free(part);
	end(&f);
}

static void local_files_are_copied_and_handed_over(void **state)
{
	struct fixture f;
	char *source;
	char url[200];

	(void)state;
	begin(&f, serve);
	source = path_join(f.dir, "source file.bin");
	assert_int_equal(0, fs_write_atomic(source, one, SIZE, 0600, NULL));
	snprintf(url, sizeof(url), "file://%s/source%%20file.bin", f.dir);
	f.options.name = "copy";

	assert_int_equal(0, http_fetch(f.engine, url, &f.options, &f.result, &f.err));
	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	http_fetch_result_release(&f.result);
	f.consumed = 0;
	assert_int_equal(0, http_fetch(f.engine, source, &f.options, &f.result, &f.err));
	assert_file(&f, one, SIZE);
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND,
		http_fetch(f.engine, "/nowhere/at/all", &f.options, &f.result, &f.err));

	assert_int_equal(0, f.server.requests);
	free(source);
	end(&f);
}

static void names_come_from_the_path_of_the_url(void **state)
{
	static const char *const cases[][2] = {
		{"http://h/a/b.tar.gz?x=/y#z", "b.tar.gz"},
		{"http://h/a%20b%2Fc", "a b_c"},
		{"http://h/dir/", "dir"},
		{"http://h", "download"},
		{"http://h/?q", "download"},
		{"http://h/%2e%2e", "download"},
		{"http://h/bad%zz", "bad%zz"},
		{"http://h/line%0abreak", "line_break"},
		{"/plain/pa%20th", "pa%20th"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf name = BUF_INIT(1000);

		assert_int_equal(0, http_fetch_name(cases[i][0], &name));
		assert_string_equal(cases[i][1], buf_str(&name));
		buf_release(&name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_are_fetched_in_parallel_and_handed_over_in_order),
		cmocka_unit_test(cut_ranges_are_continued),
		cmocka_unit_test(a_server_without_ranges_gives_one_stream),
		cmocka_unit_test(a_stream_of_unknown_length_ends_with_the_connection),
		cmocka_unit_test(a_cut_stream_begins_again_and_each_byte_is_handed_over_once),
		cmocka_unit_test(a_stream_that_comes_back_different_is_noticed),
		cmocka_unit_test(ranges_without_a_validator_are_not_mixed),
		cmocka_unit_test(
			a_resource_that_changes_is_fetched_anew_where_nothing_was_handed_over),
		cmocka_unit_test(a_resource_that_changes_after_bytes_were_handed_over_is_an_error),
		cmocka_unit_test(what_was_fetched_before_a_failure_is_not_fetched_again),
		cmocka_unit_test(a_fetch_that_was_killed_is_continued),
		cmocka_unit_test(a_remembered_part_of_another_version_is_dropped),
		cmocka_unit_test(a_remembered_part_of_another_url_is_dropped),
		cmocka_unit_test(a_damaged_journal_is_no_harm),
		cmocka_unit_test(a_journal_without_its_part_is_no_harm),
		cmocka_unit_test(a_part_that_became_shorter_is_not_gone_on_with),
		cmocka_unit_test(a_part_that_may_be_anothers_is_not_gone_on_with),
		cmocka_unit_test(repeated_bytes_are_refused),
		cmocka_unit_test(an_empty_resource_becomes_an_empty_file),
		cmocka_unit_test(a_refusal_names_the_input_but_not_its_query),
		cmocka_unit_test(the_sha256_decides),
		cmocka_unit_test(a_raised_cancel_flag_ends_it),
		cmocka_unit_test(a_second_fetch_of_the_same_file_is_refused),
		cmocka_unit_test(local_files_are_copied_and_handed_over),
		cmocka_unit_test(names_come_from_the_path_of_the_url),
	};

	for (size_t i = 0; i < SIZE; i++) {
		one[i] = (char)(i * 2654435761u >> 13);
		two[i] = (char)(i * 2654435761u >> 11);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
