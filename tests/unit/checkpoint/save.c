/* Saving checkpoints by one process and by many ranks, and finding them. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "checkpoint/save.h"
#include "checkpoint/save_internal.h"

static char *root;

static int set_up(void **state)
{
	static char name[64];

	(void)state;
	snprintf(name, sizeof(name), "/tmp/penstock-checkpoint-XXXXXX");
	root = mkdtemp(name);
	return root ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return fs_remove_tree(root, NULL);
}

static char *below(const char *name)
{
	char *path = path_join(root, name);

	assert_non_null(path);
	return path;
}

static bool exists(const char *name)
{
	_cleanup_free_ char *path = below(name);

	return access(path, F_OK) == 0;
}

static void put(const char *name, const char *text)
{
	_cleanup_free_ char *path = below(name);

	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0644, NULL), 0);
}

static const struct save_options one = {.world_size = 1, .attempt = 1, .timeout_ms = 60000};

static void save_one(uint64_t step, const struct save_options *o, const char *text)
{
	struct save *s = NULL;

	assert_int_equal(save_begin(&s, root, step, o, NULL), 0);
	assert_int_equal(save_write(s, "model.bin", text, strlen(text), NULL), 0);
	assert_int_equal(save_metric(s, "loss", 1.5, NULL), 0);
	assert_int_equal(save_commit(s, NULL), 0);
	save_free(s);
}

static void count_passed(void *cookie, const char *path, const char *why)
{
	(void)path;
	assert_non_null(why);
	(*(unsigned *)cookie)++;
}

static uint64_t latest(unsigned *passed_over)
{
	_cleanup_(commit_freep) struct commit *c = NULL;
	unsigned n = 0;
	int r = commit_latest(&c, root, count_passed, &n, NULL, NULL);

	if (passed_over)
		*passed_over = n;
	assert_true(r == 0 || r == -(int)PENSTOCK_E_NOT_FOUND);
	return r == 0 ? c->step : 0;
}

/* The checkpoint has all files: files that were written and appended to through the handle, files
 * in subdirectories, and files that the program wrote itself, with or without save_add(). */
static void test_a_checkpoint_holds_all_that_was_written(void **state)
{
	_cleanup_(commit_freep) struct commit *c = NULL;
	_cleanup_free_ char *big = calloc(1, 3 * MIB + 7), *path = NULL;
	struct save *s = NULL;

	(void)state;
	assert_int_equal(save_begin(&s, root, 7, &one, NULL), 0);
	path = strdup(save_path(s));
	assert_int_equal(save_write(s, "a", "12", 2, NULL), 0);
	assert_int_equal(save_write(s, "dir/deep/b", big, 3 * MIB + 7, NULL), 0);
	assert_int_equal(save_write(s, "a", "345", 3, NULL), 0);
	put("step-000000000007-1/named", "n");
	assert_int_equal(save_add(s, "named", NULL), 0);
	put("step-000000000007-1/dir/found", "");
	assert_int_equal(commit_open(&c, path, NULL), -(int)PENSTOCK_E_NOT_FOUND);
	assert_int_equal(save_commit(s, NULL), 0);
	save_free(s);

	assert_int_equal(commit_open(&c, path, NULL), 0);
	assert_int_equal(c->n_files, 4);
	assert_int_equal(commit_find_file(c, "a")->size, 5);
	assert_int_equal(commit_find_file(c, "dir/deep/b")->size, 3 * MIB + 7);
	assert_int_equal(commit_verify(c, true, NULL, NULL), 0);
	assert_int_equal(c->step, 7);
}

/* A save that is freed without a commit does not count, and its files are removed. */
static void test_what_is_not_committed_goes(void **state)
{
	struct save *s = NULL;

	(void)state;
	assert_int_equal(save_begin(&s, root, 7, &one, NULL), 0);
	assert_int_equal(save_write(s, "a", "12", 2, NULL), 0);
	assert_true(exists("step-000000000007-1/a"));
	assert_int_equal(latest(NULL), 0);
	save_free(s);

	assert_false(exists("step-000000000007-1"));
}

/* The next save removes the files of a killed save of an earlier attempt; committed checkpoints and
 * foreign files stay. */
static void test_leftovers_of_earlier_attempts_go(void **state)
{
	struct save_options second = one;

	(void)state;
	second.attempt = 2;
	save_one(1, &one, "x");
	for (size_t i = 0; i < 3; i++) {
		static const char *const names[] = {
			"step-000000000002-1", "step-000000000003-2", "mine"};
		_cleanup_free_ char *path = below(names[i]);

		assert_int_equal(fs_mkdirs(path, 0755, NULL), 0);
	}
	save_one(4, &second, "x");

	assert_true(exists("step-000000000001-1/COMMIT.json") && exists("mine"));
	assert_false(exists("step-000000000002-1"));
	/* Another save of this attempt may be in progress. */
	assert_true(exists("step-000000000003-2"));
}

static void test_a_step_is_committed_once(void **state)
{
	struct save *s = NULL;

	(void)state;
	save_one(1, &one, "x");

	assert_int_equal(save_begin(&s, root, 1, &one, NULL), -(int)PENSTOCK_E_EXISTS);
	assert_true(exists("step-000000000001-1/model.bin"));
}

/* A checkpoint whose commit cannot be read may be complete, so its files stay. */
static void test_a_commit_that_cannot_be_read_is_an_error(void **state)
{
	_cleanup_free_ char *commit = below("step-000000000001-1/COMMIT.json");
	struct save *s = NULL;

	(void)state;
	save_one(1, &one, "x");
	assert_int_equal(unlink(commit), 0);
	assert_int_equal(symlink(COMMIT_NAME, commit), 0); /* a loop */

	assert_true(save_begin(&s, root, 1, &one, NULL) < 0);
	assert_true(exists("step-000000000001-1/model.bin"));
}

/* Each kind of damage to the newest checkpoint makes the reader fall back to the previous
 * checkpoint. */
static void test_a_damaged_checkpoint_is_passed_over(void **state)
{
	_cleanup_free_ char *model = below("step-000000000002-1/model.bin"),
			    *commit = below("step-000000000002-1/COMMIT.json");
	unsigned passed = 0;
	int fd;

	(void)state;
	save_one(1, &one, "before");
	for (unsigned damage = 0; damage < 4; damage++) {
		_cleanup_free_ char *path = below("step-000000000002-1");

		save_one(2, &one, "newest");
		assert_int_equal(latest(&passed), 2);
		assert_int_equal(passed, 0);
		if (damage == 0) {
			fd = open(model, O_WRONLY);
			assert_int_equal(pwrite(fd, "N", 1, 0), 1);
			close(fd);
		} else if (damage == 1) {
			assert_int_equal(unlink(model), 0);
		} else if (damage == 2) {
			assert_int_equal(truncate(commit, 100), 0);
		} else {
			assert_int_equal(truncate(model, 5), 0);
		}
		assert_int_equal(latest(&passed), 1);
		assert_int_equal(passed, 1);
		assert_int_equal(fs_remove_tree(path, NULL), 0);
	}
}

/* A symbolic link instead of a file could lead out of the checkpoint, so the checkpoint does not
 * count. */
static void test_links_are_not_followed(void **state)
{
	_cleanup_free_ char *model = below("step-000000000001-1/model.bin"), *to = below("to");

	(void)state;
	save_one(1, &one, "x");
	assert_int_equal(rename(model, to), 0);
	assert_int_equal(symlink(to, model), 0);

	assert_int_equal(latest(NULL), 0);
}

static void test_a_file_that_changes_after_it_was_counted_is_noticed(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct save *s = NULL;

	(void)state;
	assert_int_equal(save_begin(&s, root, 1, &one, NULL), 0);
	put("step-000000000001-1/a", "123");
	assert_int_equal(save_add(s, "a", NULL), 0);
	put("step-000000000001-1/a", "1234");

	assert_int_equal(save_commit(s, &err), -(int)PENSTOCK_E_CHANGED);
	assert_int_equal(save_commit(s, NULL), -(int)PENSTOCK_E_INVALID);
	save_free(s);
	assert_int_equal(latest(NULL), 0);
}

static void test_bad_names_and_nothing_to_save_are_refused(void **state)
{
	struct save *s = NULL;

	(void)state;
	assert_int_equal(save_begin(&s, root, 1, &one, NULL), 0);
	assert_int_equal(save_add(s, "../x", NULL), -(int)PENSTOCK_E_INVALID);
	assert_int_equal(save_add(s, "missing", NULL), -(int)PENSTOCK_E_NOT_FOUND);
	assert_int_equal(save_metric(s, "loss", 0.0 / 0.0, NULL), -(int)PENSTOCK_E_INVALID);
	assert_int_equal(save_commit(s, NULL), -(int)PENSTOCK_E_INVALID);
	save_free(s);
	assert_int_equal(
		save_begin(&s, root, 1, &(struct save_options){.rank = 2, .world_size = 2}, NULL),
		-(int)PENSTOCK_E_INVALID);
}

/* Thousands of files, each of them written twice, are found by a hash table that grows with their
 * number. */
static void test_a_file_is_found_without_a_look_at_all_others(void **state)
{
	enum { FILES = 3000 };
	struct save *s = NULL;
	char name[32];

	(void)state;
	assert_int_equal(save_begin(&s, root, 1, &one, NULL), 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < FILES; i++) {
			snprintf(name, sizeof(name), "part-%d.bin", i);
			assert_int_equal(save_write(s, name, "ab", 2, NULL), 0);
		}
	}

	assert_int_equal(HASH_COUNT(s->files), FILES);
	for (const struct save_file *f = s->files; f; f = f->hh.next)
		assert_int_equal(f->size, 4);
	assert_int_equal(save_add(s, "part-17.bin", NULL), -(int)PENSTOCK_E_EXISTS);
	assert_true(s->files->hh.tbl->num_buckets >= FILES / 8);
	save_free(s);
}

/* ---- ranks ---- */

struct rank {
	struct save_options o;
	const char *name;
	int result;
};

static void *run_rank(void *arg)
{
	struct rank *rank = arg;
	struct save *s = NULL;

	rank->result = save_begin(&s, root, 5, &rank->o, NULL);
	if (rank->result == 0)
		rank->result = save_write(s, rank->name, rank->name, strlen(rank->name), NULL);
	if (rank->result == 0)
		rank->result = save_commit(s, NULL);
	save_free(s);
	return NULL;
}

static void run_ranks(struct rank *ranks, unsigned n)
{
	pthread_t threads[8];

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static void make_ranks(struct rank *ranks, unsigned n, int64_t timeout_ms)
{
	static const char *const names[] = {"0.bin", "1.bin", "two/2.bin", "3.bin"};

	for (unsigned i = 0; i < n; i++)
		ranks[i] = (struct rank){
			.o = {.rank = i, .world_size = n, .attempt = 1, .timeout_ms = timeout_ms},
			.name = names[i],
		};
}

static unsigned count_hidden(const char *name)
{
	_cleanup_free_ char *path = below(name);
	_cleanup_closedir_ DIR *dir = opendir(path);
	unsigned n = 0;

	assert_non_null(dir);
	for (struct dirent *d; (d = readdir(dir));)
		n += str_starts(d->d_name, COMMIT_HIDDEN);
	return n;
}

/* One commit names the files of all ranks; the files by which the ranks coordinate are removed. */
static void test_many_ranks_make_one_checkpoint(void **state)
{
	_cleanup_(commit_freep) struct commit *c = NULL;
	struct rank ranks[4];

	(void)state;
	make_ranks(ranks, 4, 60000);
	run_ranks(ranks, 4);

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(ranks[i].result, 0);
	assert_int_equal(commit_latest(&c, root, NULL, NULL, NULL, NULL), 0);
	assert_int_equal(c->n_files, 4);
	assert_int_equal(c->world_size, 4);
	assert_non_null(commit_find_file(c, "two/2.bin"));
	assert_int_equal(count_hidden("step-000000000005-1"), 0);
}

/* A killed save of the same step left the part of a rank, the list of its files. Rank 0 does not
 * use this part, and waits for the part that the rank writes in the new save. */
static void test_the_part_of_a_killed_save_does_not_count(void **state)
{
	static const char stale[] =
		"{\"format\":\"penstock.checkpoint/1\",\"step\":5,\"attempt\":1,\"run\":\"old\",\"time\":\"2026-11-21T09:05:00Z\",\"world_size\":2,\"files\":[{\"path\":\"old.bin\",\"size\":1,\"crc64nvme\":\"0123456789abcdef\"}]}";
	_cleanup_(commit_freep) struct commit *c = NULL;
	_cleanup_free_ char *dir = below("step-000000000005-1");
	struct save_options alone = {.world_size = 2, .attempt = 1, .timeout_ms = 20};
	struct save *zero = NULL;
	struct rank ranks[2];

	(void)state;
	for (unsigned round = 0; round < 2; round++) {
		assert_int_equal(fs_mkdirs(dir, 0755, NULL), 0);
		put("step-000000000005-1/.penstock-rank-1.json", stale);
		put("step-000000000005-1/.penstock-save", "0123456789abcdef0123456789abcdef");
		if (round)
			break;
		assert_int_equal(save_begin(&zero, root, 5, &alone, NULL), 0);
		assert_int_equal(save_write(zero, "0.bin", "0", 1, NULL), 0);
		assert_int_equal(save_commit(zero, NULL), -(int)PENSTOCK_E_TIMEOUT);
		save_free(zero);
	}
	make_ranks(ranks, 2, 60000);
	run_ranks(ranks, 2);

	assert_int_equal(ranks[0].result, 0);
	assert_int_equal(ranks[1].result, 0);
	assert_int_equal(commit_latest(&c, root, NULL, NULL, NULL, NULL), 0);
	assert_int_equal(c->n_files, 2);
	assert_non_null(commit_find_file(c, "1.bin"));
}

/* The error names the ranks that hang, and the previous checkpoint remains the newest. */
static void test_a_rank_that_hangs_is_named(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct save_options o = {.world_size = 3, .attempt = 1, .timeout_ms = 20};
	struct save *s = NULL;

	(void)state;
	save_one(1, &one, "x");
	assert_int_equal(save_begin(&s, root, 5, &o, NULL), 0);
	assert_int_equal(save_write(s, "0.bin", "0", 1, NULL), 0);

	assert_int_equal(save_commit(s, &err), -(int)PENSTOCK_E_TIMEOUT);

	assert_non_null(strstr(err.message, " 3 "));
	assert_non_null(strstr(err.message, "1, 2"));
	save_free(s);
	assert_int_equal(latest(NULL), 1);
}

/* If a rank gives up, the other ranks fail at once instead of waiting for the timeout. */
static void test_a_rank_that_gives_up_ends_the_save_of_all(void **state)
{
	struct save *zero = NULL, *two = NULL;
	struct rank ranks[3];

	(void)state;
	make_ranks(ranks, 3, 600000);
	assert_int_equal(save_begin(&zero, root, 5, &ranks[0].o, NULL), 0);
	assert_int_equal(save_begin(&two, root, 5, &ranks[2].o, NULL), 0);
	save_free(two);

	assert_int_equal(save_commit(zero, NULL), -(int)PENSTOCK_E_CANCELLED);

	save_free(zero);
	assert_false(exists("step-000000000005-1"));
}

/* The rank gives up before rank 0 begins the save. The file with which the rank reports its failure
 * remains, and rank 0 accepts the file once the file has not changed for a while. */
static void test_a_rank_that_gives_up_before_rank_0_has_begun_ends_it_too(void **state)
{
	struct save *zero = NULL, *two = NULL;
	struct rank ranks[3];

	(void)state;
	make_ranks(ranks, 3, 600000);
	assert_int_equal(save_begin(&two, root, 5, &ranks[2].o, NULL), 0);
	save_free(two);
	assert_int_equal(save_begin(&zero, root, 5, &ranks[0].o, NULL), 0);

	assert_int_equal(save_commit(zero, NULL), -(int)PENSTOCK_E_CANCELLED);

	save_free(zero);
	assert_false(exists("step-000000000005-1"));
}

/* The rank has no files of its own, so it cannot notice the end of the save by a missing file. */
static void test_a_rank_notices_that_rank_0_gave_up_before_its_commit(void **state)
{
	struct save *zero = NULL, *first = NULL;
	struct rank ranks[2];

	(void)state;
	make_ranks(ranks, 2, 2000);
	assert_int_equal(save_begin(&zero, root, 5, &ranks[0].o, NULL), 0);
	assert_int_equal(save_begin(&first, root, 5, &ranks[1].o, NULL), 0);
	save_free(zero);

	assert_int_equal(save_commit(first, NULL), -(int)PENSTOCK_E_CANCELLED);
	save_free(first);
}

/* Rank 0 may have read the part of the rank before the rank timed out, and may still commit that
 * part. */
static void test_a_rank_that_times_out_keeps_the_files_of_its_part(void **state)
{
	struct save *zero = NULL, *first = NULL;
	struct rank ranks[2];

	(void)state;
	make_ranks(ranks, 2, 20);
	assert_int_equal(save_begin(&zero, root, 5, &ranks[0].o, NULL), 0);
	assert_int_equal(save_begin(&first, root, 5, &ranks[1].o, NULL), 0);
	assert_int_equal(save_write(first, "1.bin", "1", 1, NULL), 0);

	assert_int_equal(save_commit(first, NULL), -(int)PENSTOCK_E_TIMEOUT);
	save_free(first);

	assert_true(exists("step-000000000005-1/1.bin"));
	assert_int_equal(save_commit(zero, NULL), -(int)PENSTOCK_E_CANCELLED);
	save_free(zero);
	assert_false(exists("step-000000000005-1"));
}

/* The file with which the rank reported its failure belongs to an earlier save of the same step;
 * all ranks have started the save again. */
static void test_a_rank_that_had_given_up_may_begin_again(void **state)
{
	struct save *two = NULL;
	struct rank ranks[3];

	(void)state;
	make_ranks(ranks, 3, 60000);
	assert_int_equal(save_begin(&two, root, 5, &ranks[2].o, NULL), 0);
	save_free(two);
	run_ranks(ranks, 3);

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ranks[i].result, 0);
	assert_int_equal(latest(NULL), 5);
}

static void test_two_ranks_may_not_write_the_same_file(void **state)
{
	struct rank ranks[2];

	(void)state;
	make_ranks(ranks, 2, 60000);
	ranks[1].name = ranks[0].name;
	run_ranks(ranks, 2);

	/* The error may also be PENSTOCK_E_CHANGED, because both ranks write to the file at the
	 * same time. */
	assert_true(ranks[0].result < 0 && ranks[1].result < 0);
	assert_int_equal(latest(NULL), 0);
}

/* ---- single files ---- */

static void test_a_single_file_has_its_commit_beside_it(void **state)
{
	_cleanup_(commit_freep) struct commit *c = NULL;
	_cleanup_free_ char *path = below("epoch-3.pth");

	(void)state;
	put("epoch-3.pth", "weights");
	assert_int_equal(save_single(root, "epoch-3.pth", 3, &one, NULL), 0);

	assert_true(exists("epoch-3.pth.COMMIT.json"));
	assert_int_equal(latest(NULL), 3);
	put("epoch-3.pth", "Weights");
	assert_int_equal(latest(NULL), 0);
	assert_int_equal(commit_open(&c, path, NULL), 0);
	assert_true(c->single);
}

/* The commit of "x.pth" is not valid for "model-x.pth", and a commit without files is invalid. */
static void test_a_commit_of_something_else_is_none(void **state)
{
	_cleanup_free_ char *from = below("x.pth.COMMIT.json"),
			    *to = below("model-x.pth.COMMIT.json");
	_cleanup_free_ char *dir = below("step-000000000009-1");

	(void)state;
	put("x.pth", "weights");
	put("model-x.pth", "half");
	assert_int_equal(save_single(root, "x.pth", 3, &one, NULL), 0);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(fs_mkdirs(dir, 0755, NULL), 0);
	put("step-000000000009-1/COMMIT.json",
		"{\"format\":\"penstock.checkpoint/1\",\"step\":9,\"attempt\":1,"
		"\"time\":\"2026-11-21T09:05:00.000Z\",\"world_size\":1,\"files\":[]}");

	assert_int_equal(latest(NULL), 0);
}

/* A name with a line break, and a FIFO, which a reader would wait for, are skipped. */
static void test_what_others_have_put_there_holds_nothing_up(void **state)
{
	_cleanup_(commit_list_release) struct commit_list list = {0};
	_cleanup_free_ char *dir = below("a\ndb"), *fifo = below(".penstock-new-x.pth");

	(void)state;
	assert_int_equal(fs_mkdirs(dir, 0755, NULL), 0);
	put("a\ndb/COMMIT.json", "{\"format\":\"penstock.checkpoint/1\"}");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	put("x.pth", "weights");

	assert_int_equal(save_single(root, "x.pth", 3, &one, NULL), 0);

	assert_int_equal(commit_list_read(&list, root, NULL), 0);
	assert_int_equal(list.n, 1);
	assert_int_equal(latest(NULL), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_a_checkpoint_holds_all_that_was_written),
		TEST(test_what_is_not_committed_goes),
		TEST(test_leftovers_of_earlier_attempts_go),
		TEST(test_a_step_is_committed_once),
		TEST(test_a_commit_that_cannot_be_read_is_an_error),
		TEST(test_a_damaged_checkpoint_is_passed_over),
		TEST(test_links_are_not_followed),
		TEST(test_a_file_that_changes_after_it_was_counted_is_noticed),
		TEST(test_bad_names_and_nothing_to_save_are_refused),
		TEST(test_a_file_is_found_without_a_look_at_all_others),
		TEST(test_many_ranks_make_one_checkpoint),
		TEST(test_the_part_of_a_killed_save_does_not_count),
		TEST(test_a_rank_that_hangs_is_named),
		TEST(test_a_rank_that_gives_up_ends_the_save_of_all),
		TEST(test_a_rank_that_gives_up_before_rank_0_has_begun_ends_it_too),
		TEST(test_a_rank_notices_that_rank_0_gave_up_before_its_commit),
		TEST(test_a_rank_that_times_out_keeps_the_files_of_its_part),
		TEST(test_a_rank_that_had_given_up_may_begin_again),
		TEST(test_two_ranks_may_not_write_the_same_file),
		TEST(test_a_single_file_has_its_commit_beside_it),
		TEST(test_a_commit_of_something_else_is_none),
		TEST(test_what_others_have_put_there_holds_nothing_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
