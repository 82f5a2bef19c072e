#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>
#include <archive.h>
#include <archive_entry.h>

#include "mini_http.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/fs.h"
#include "net/http/http.h"
#include "sync/http_output.h"

struct fixture {
	char dir[64], out[80], tmp[80], url[MINI_URL_SIZE];
	struct mini_http server;
	struct http_engine *engine;
	unsigned puts;
	char *body;
	size_t len;
	int refuse;
	bool long_reply;
};

static const char page[5000] = "<html>";

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	f->puts += strcmp(r->method, "PUT") == 0;
	free(f->body);
	f->body = malloc(r->body_len + 1);
	memcpy(f->body, r->body ? r->body : "", r->body_len);
	f->len = r->body_len;
	if (f->refuse)
		mini_reply(fd, "403 Forbidden", "", "no", 2);
	else if (f->long_reply)
		mini_reply(fd, "200 OK", "", page, sizeof(page));
	else
		mini_reply(fd, "200 OK", "", "https://host/download", 21);
	return true;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/http-output-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->out, sizeof(f->out), "%s/out", f->dir);
	snprintf(f->tmp, sizeof(f->tmp), "%s/tmp", f->dir);
	assert_int_equal(mkdir(f->out, 0755), 0);
	mini_start(&f->server, answer, f);
	mini_url(&f->server, "/up", f->url);
	assert_int_equal(http_engine_new(&f->engine, &(struct http_engine_options){0}, NULL), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	http_engine_free(f->engine);
	mini_stop(&f->server);
	fs_remove_tree(f->dir, NULL);
	free(f->body);
	free(f);
	return 0;
}

static void put(const struct fixture *f, const char *name, const char *text, mode_t mode)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", f->out, name);
	fd = open(path, O_WRONLY | O_CREAT, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(close(fd), 0);
}

static int send_output(struct fixture *f, struct buf *reply, struct penstock_error *err)
{
	return sync_http_output(f->engine, f->url, f->out, f->tmp, NULL, reply, err);
}

/* A single file is sent unchanged, and the reply, usually a link, is returned. */
static void one_file_is_put_as_it_is(void **state)
{
	struct fixture *f = *state;
	struct buf reply = BUF_INIT(1000);

	put(f, "model", "weights", 0644);

	assert_int_equal(send_output(f, &reply, NULL), 0);
	assert_int_equal(f->puts, 1);
	assert_int_equal(f->len, 7);
	assert_memory_equal(f->body, "weights", 7);
	assert_string_equal(buf_str(&reply), "https://host/download");
	buf_release(&reply);
}

/* A long reply is truncated instead of being an error, because the server already has the file. */
static void a_long_reply_is_cut(void **state)
{
	struct fixture *f = *state;
	struct buf reply = BUF_INIT(1000);

	put(f, "model", "weights", 0644);
	f->long_reply = true;

	assert_int_equal(send_output(f, &reply, NULL), 0);
	assert_int_equal(f->puts, 1);
	assert_int_equal(reply.len, 1000);
	assert_memory_equal(reply.data, page, 1000);
	buf_release(&reply);
}

static void unzip_and_check(const struct fixture *f, const char *const *want, size_t n)
{
	struct archive *a = archive_read_new();
	struct archive_entry *e;
	size_t i = 0;

	archive_read_support_format_zip(a);
	assert_int_equal(archive_read_open_memory(a, f->body, f->len), ARCHIVE_OK);
	for (; archive_read_next_header(a, &e) == ARCHIVE_OK; i++) {
		char text[100] = "";

		assert_true(i < n);
		if (archive_entry_filetype(e) == AE_IFREG)
			assert_true(archive_read_data(a, text, sizeof(text) - 1) >= 0);
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "|%s|%o",
			archive_entry_pathname(e), archive_entry_perm(e));
		if (archive_entry_filetype(e) == AE_IFLNK)
			snprintf(text, sizeof(text), "->%s|%s", archive_entry_symlink(e),
				archive_entry_pathname(e));
		assert_string_equal(text, want[i]);
	}
	assert_int_equal(i, n);
	archive_read_free(a);
}

/* Names in the zip are UTF-8; other bytes are written as in the keys of objects. */
static void all_files_have_names_in_the_zip(void **state)
{
	static const char *const names[] = {"\xc3\xbc", "\xc3\xb6", "%FE", "%FF"};
	struct fixture *f = *state;

	put(f, "\xc3\xbc", "one", 0644);
	put(f, "\xc3\xb6", "two", 0644);
	put(f, "\xfe", "three", 0644);
	put(f, "\xff", "four", 0644);

	assert_int_equal(send_output(f, NULL, NULL), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_non_null(memmem(f->body, f->len, names[i], strlen(names[i])));
}

/* Several files are sent as one zip, with directories, modes and links, and no temporary file is
 * left. */
static void several_files_are_zipped(void **state)
{
	static const char *const want[] = {
		"|empty/|755", "one|file|644", "->file|link", "|sub/|755", "two|sub/run|755"};
	struct fixture *f = *state;
	char path[200], tmp[200];

	put(f, "file", "one", 0644);
	snprintf(path, sizeof(path), "%s/sub", f->out);
	mkdir(path, 0755);
	put(f, "sub/run", "two", 0755);
	snprintf(path, sizeof(path), "%s/empty", f->out);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/link", f->out);
	assert_int_equal(symlink("file", path), 0);

	assert_int_equal(send_output(f, NULL, NULL), 0);
	unzip_and_check(f, want, 5);
	snprintf(tmp, sizeof(tmp), "%s", f->tmp);
	assert_int_equal(rmdir(tmp), 0);
}

/* An empty output is not sent. */
static void an_empty_output_sends_nothing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(send_output(f, NULL, NULL), 0);
	assert_int_equal(f->puts, 0);
}

/* A refusal is an error that names the status, and the local file stays. */
static void a_refusal_is_an_error(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct fixture *f = *state;
	char path[200];

	f->refuse = 1;
	put(f, "model", "weights", 0644);

	assert_int_equal(send_output(f, NULL, &err), -PENSTOCK_E_PERMISSION);
	assert_int_equal(err.http_status, 403);
	snprintf(path, sizeof(path), "%s/model", f->out);
	assert_int_equal(access(path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_file_is_put_as_it_is, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_long_reply_is_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(all_files_have_names_in_the_zip, set_up, tear_down),
		cmocka_unit_test_setup_teardown(several_files_are_zipped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_empty_output_sends_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_refusal_is_an_error, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
