/* Fetches after an earlier fetch that was killed or failed. A fetch resumes from the part file, or
 * starts over if that file has another version or URL, or was changed. */
#include "http_fetch_fixture.h"

#include <signal.h>
#include <sys/wait.h>

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

/* Consumes a third and then kills the process. */
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

/* Forks the process that will be killed, before other threads exist. The pipe passes the URL and
 * the directory. */
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
	f.options.parallel = 1; /* so that many bytes are missing when the consumer refuses */
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

/* Leaves a part file and its journal, as a failed fetch does. */
static void fail_half_way(struct fixture *f)
{
	begin(f, serve);
	f->refuse_at = SIZE / 2;
	assert_int_equal(-(int)PENSTOCK_E_NO_SPACE, fetch(f));
	penstock_error_release(&f->err);
	f->refuse_at = 0;
	f->consumed = 0;
}

/* A journal is invalid for a part file that was created later: a clean-up may have removed only the
 * part file. */
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

/* If the fetch used a part file that was truncated, the missing bytes would be read as zeros, and
 * only a checksum of the resource could reveal the error. */
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

/* A part file with a second link may belong to another program, so it is neither trusted nor
 * written to. */
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
/* Leaves the state of a kill directly before the rename: all bytes of version one, and the
 * journal. */
static void leave_all_of_it(struct fixture *f)
{
	_cleanup_free_ char *part = NULL, *journal = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	char *done;
	int fd;

	fail_half_way(f);
	part = part_of(f, "");
	journal = part_of(f, ".json");
	fd = open(part, O_WRONLY | O_CLOEXEC);
	assert_int_equal(0, fs_pwrite_all(fd, one, SIZE, 0));
	close(fd);
	assert_int_equal(0, fs_read(journal, &text, NULL));
	done = strstr(text.data, "\"done\": \"");
	assert_non_null(done);
	done += strlen("\"done\": \"");
	memset(done, 'f', strcspn(done, "\""));
	assert_int_equal(0, fs_write_atomic(journal, text.data, text.len, 0600, NULL));
	atomic_store(&f->served, 0);
}

static void a_fetch_that_was_killed_when_all_was_there_costs_one_byte(void **state)
{
	struct fixture f;
	unsigned before;

	(void)state;
	leave_all_of_it(&f);
	before = f.server.requests;
	mini_url(&f.server, "/data/archive%20one.tar.gz?token=signedanew", f.url);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	assert_true(f.result.resumed);
	assert_int_equal(0, f.result.fetched);
	assert_int_equal(0, f.missing);
	assert_int_equal(before + 1, f.server.requests);
	assert_int_equal(1, f.served);
	end(&f);
}

/* A different query may be a new signature for the same resource, or name another resource; only
 * the server can decide. */
static void all_of_another_version_is_not_taken_for_this_one(void **state)
{
	(void)state;
	for (int other_query = 0; other_query < 2; other_query++) {
		struct fixture f;

		leave_all_of_it(&f);
		f.version = 1;
		f.expected = two;
		if (other_query)
			mini_url(&f.server, "/data/archive%20one.tar.gz?id=2", f.url);

		assert_int_equal(0, fetch(&f));

		assert_file(&f, two, SIZE);
		assert_int_equal(SIZE, f.consumed);
		assert_false(f.result.resumed);
		assert_string_equal("\"two\"", f.result.etag);
		end(&f);
	}
}

/* The server cannot confirm that the resource still has this version, so the part file and its
 * journal are kept for the next fetch. */
static void all_of_it_waits_for_a_server_that_is_away(void **state)
{
	struct fixture f;

	(void)state;
	leave_all_of_it(&f);
	f.away = true;

	assert_int_equal(-(int)PENSTOCK_E_UNAVAILABLE, fetch(&f));

	assert_int_equal(2, files_in(f.dir));
	penstock_error_release(&f.err);
	f.away = false;
	assert_int_equal(0, fetch(&f));
	assert_true(f.result.resumed);
	assert_int_equal(0, f.result.fetched);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_fetched_before_a_failure_is_not_fetched_again),
		cmocka_unit_test(a_fetch_that_was_killed_is_continued),
		cmocka_unit_test(a_remembered_part_of_another_version_is_dropped),
		cmocka_unit_test(a_remembered_part_of_another_url_is_dropped),
		cmocka_unit_test(a_journal_without_its_part_is_no_harm),
		cmocka_unit_test(a_part_that_became_shorter_is_not_gone_on_with),
		cmocka_unit_test(a_part_that_may_be_anothers_is_not_gone_on_with),
		cmocka_unit_test(a_damaged_journal_is_no_harm),
		cmocka_unit_test(a_fetch_that_was_killed_when_all_was_there_costs_one_byte),
		cmocka_unit_test(all_of_another_version_is_not_taken_for_this_one),
		cmocka_unit_test(all_of_it_waits_for_a_server_that_is_away),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
