/* The cache on disk: blocks, claims between processes, damage, and its limit. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "dataset/cache/internal.h"

#define SIZE (3 * CACHE_BLOCK + 1000)

static char dir[64];
static char scratch[CACHE_BLOCK], block[CACHE_BLOCK];
static unsigned lines; /* lines of the log */

static void count_line(void *cookie, enum log_level level, const char *line)
{
	(void)cookie;
	(void)level;
	(void)line;
	lines++;
}

static int begin(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/penstock-cache-XXXXXX");
	assert_non_null(mkdtemp(dir));
	lines = 0;
	log_set_sink(count_line, NULL);
	return 0;
}

static int finish(void **state)
{
	(void)state;
	log_set_sink(NULL, NULL);
	return fs_remove_tree(dir, NULL);
}

static struct block_cache *open_cache(uint64_t size)
{
	struct block_cache *c = NULL;

	assert_int_equal(
		block_cache_new(&c,
			&(struct block_cache_options){.dir = dir, .size = size, .shards = 1000},
			NULL),
		0);
	return c;
}

static void open_file(struct block_cache *c, struct block_file *file, unsigned shard, uint64_t size)
{
	char identity[32];

	snprintf(identity, sizeof(identity), "shard %u", shard);
	*file = (struct block_file){.fd = -1, .shard = shard, .size = size};
	assert_true(block_file_open(c, file, identity, true));
}

/* Puts a block of equal bytes. */
static void put(struct block_cache *c, struct block_file *file, uint64_t i, char byte)
{
	assert_int_equal(block_cache_claim(c, file, i, scratch), CACHE_CLAIMED);
	memset(block, byte, sizeof(block));
	block_cache_put(c, file, i, block);
}

static void assert_has(struct block_cache *c, struct block_file *file, uint64_t i, char byte)
{
	size_t len = block_size(file->size, i);
	const char *bytes = block_cache_get(c, file, i * CACHE_BLOCK + 1, len - 1, scratch);

	assert_non_null(bytes);
	assert_int_equal(bytes[0], byte);
	assert_int_equal(bytes[len - 2], byte);
}

static void blocks_are_there_when_they_were_put(void **state)
{
	struct block_cache *c = open_cache(CACHE_MIN), *other = open_cache(CACHE_MIN);
	struct block_file file, same;

	(void)state;
	open_file(c, &file, 1, SIZE);
	open_file(other, &same, 1, SIZE);
	assert_null(block_cache_get(c, &file, 0, 10, scratch));
	put(c, &file, 3, 'd');
	put(c, &file, 0, 'a');
	assert_has(c, &file, 0, 'a');
	assert_has(c, &file, 0, 'a');
	assert_has(other, &same, 3, 'd');
	assert_int_equal(block_cache_claim(other, &same, 3, scratch), CACHE_PRESENT);
	assert_null(block_cache_get(other, &same, CACHE_BLOCK, 1, scratch));
	block_file_close(&file);
	block_file_close(&same);
	block_cache_free(c);
	block_cache_free(other);
}

static void a_claim_ends_with_its_process(void **state)
{
	struct block_cache *c = open_cache(CACHE_MIN);
	struct block_file file, other;
	int told[2], status;
	pid_t pid;
	char byte;

	(void)state;
	assert_int_equal(pipe(told), 0);
	pid = fork();
	if (pid == 0) {
		open_file(c, &file, 1, SIZE);
		assert_int_equal(block_cache_claim(c, &file, 2, scratch), CACHE_CLAIMED);
		assert_int_equal(write(told[1], "x", 1), 1);
		pause();
	}
	assert_int_equal(read(told[0], &byte, 1), 1);
	open_file(c, &other, 1, SIZE);
	assert_int_equal(block_cache_claim(c, &other, 2, scratch), CACHE_BUSY);
	assert_int_equal(block_cache_claim(c, &other, 1, scratch), CACHE_CLAIMED);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(block_cache_claim(c, &other, 2, scratch), CACHE_CLAIMED);
	block_file_close(&other);
	close(told[0]);
	close(told[1]);
	block_cache_free(c);
}

/* Each kind of damage is found when the block is first used after the cache was opened. */
static void a_damaged_block_is_missing_and_is_fetched_again(void **state)
{
	static const struct {
		uint64_t size;
		off_t at; /* offset of the damage; -1 if the file is truncated */
	} cases[] = {{SIZE, CACHE_BLOCK + 17}, {1000, 17}, {1000, 1000}, {SIZE, -1}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct block_cache *c = open_cache(CACHE_MIN);
		uint64_t last = cases[i].size == SIZE;
		struct block_file file;

		open_file(c, &file, (unsigned)i, cases[i].size);
		put(c, &file, last, 'x');
		block_cache_free(c);
		if (cases[i].at < 0)
			assert_int_equal(ftruncate(file.fd, CACHE_BLOCK), 0);
		else
			assert_int_equal(pwrite(file.fd, "!", 1, cases[i].at), 1);
		block_file_close(&file);

		c = open_cache(CACHE_MIN);
		open_file(c, &file, (unsigned)i, cases[i].size);
		assert_null(block_cache_get(c, &file, last * CACHE_BLOCK, 1, scratch));
		put(c, &file, last, 'x');
		assert_has(c, &file, last, 'x');
		block_file_close(&file);
		block_cache_free(c);
	}
}

/* The block passes its check, and then its file is truncated while the file is open. */
static void a_file_that_is_cut_in_use_is_filled_again(void **state)
{
	struct block_cache *c = open_cache(CACHE_MIN);
	struct block_file file;

	(void)state;
	open_file(c, &file, 1, SIZE);
	put(c, &file, 3, 'x');
	assert_has(c, &file, 3, 'x');
	assert_int_equal(ftruncate(file.fd, CACHE_BLOCK), 0);
	assert_null(block_cache_get(c, &file, 3 * CACHE_BLOCK, 1, scratch));
	put(c, &file, 3, 'x');
	assert_has(c, &file, 3, 'x');
	block_file_close(&file);
	block_cache_free(c);
}

static uint64_t bytes_on_disk(void)
{
	return fs_disk_bytes(dir);
}

static bool is_there(struct block_cache *c, unsigned shard)
{
	struct block_file file = {.fd = -1, .shard = shard, .size = SIZE};
	char identity[32];
	bool there;

	snprintf(identity, sizeof(identity), "shard %u", shard);
	there = block_file_open(c, &file, identity, false) &&
		block_cache_get(c, &file, 0, 1, scratch);
	block_file_close(&file);
	return there;
}

static void the_oldest_files_go_and_those_in_use_stay(void **state)
{
	struct block_cache *c = open_cache(CACHE_MIN);
	struct block_file used, file;
	unsigned n = 3 * CACHE_MIN / SIZE;

	(void)state;
	open_file(c, &used, 0, SIZE);
	put(c, &used, 0, 'x');
	assert_int_equal(futimens(used.fd, (struct timespec[]){{1000, 0}, {1000, 0}}), 0);
	for (unsigned i = 1; i < n; i++) {
		struct timespec time = {1000 + i, 0};

		open_file(c, &file, i, SIZE);
		for (uint64_t k = 0; k < 4; k++)
			put(c, &file, k, 'y');
		assert_int_equal(futimens(file.fd, (struct timespec[]){time, time}), 0);
		block_file_close(&file);
		assert_true(bytes_on_disk() <= CACHE_MIN + 1 * MIB);
	}
	assert_true(is_there(c, 0));
	assert_false(is_there(c, 1));
	assert_true(is_there(c, n - 1));
	assert_true(bytes_on_disk() > CACHE_MIN / 2);
	assert_false(atomic_load(&c->off));
	block_file_close(&used);
	block_cache_free(c);
}

/* If readers have more files open than fit into the cache, the other files are not cached. */
static void a_cache_that_is_full_of_files_in_use_takes_no_more(void **state)
{
	struct block_cache *c = open_cache(CACHE_MIN);
	struct block_file files[100];
	enum block_claim claim = CACHE_CLAIMED;
	size_t n = 0;

	(void)state;
	for (; claim == CACHE_CLAIMED && n < ARRAY_SIZE(files); n++) {
		open_file(c, &files[n], (unsigned)n, SIZE);
		claim = block_cache_claim(c, &files[n], 0, scratch);
		if (claim == CACHE_CLAIMED)
			block_cache_put(c, &files[n], 0, block);
	}
	assert_int_equal(claim, CACHE_FULL);
	assert_in_range(n, 40, 65);
	for (size_t i = 0; i < n; i++)
		block_file_close(&files[i]);
	block_cache_free(c);
}

/* A kill can leave the lock file with a wrong number of bytes, or without a number. */
static void the_number_of_bytes_is_counted_again(void **state)
{
	static const char *const contents[] = {"", "too short", NULL};
	struct block_cache *c = open_cache(CACHE_MIN);
	_cleanup_free_ char *path = path_join(c->dir, "lock");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(contents); i++) {
		struct block_file file;

		block_cache_free(c);
		c = open_cache(CACHE_MIN);
		if (contents[i]) {
			assert_int_equal(
				fs_write_atomic(path, contents[i], strlen(contents[i]), 0600, NULL),
				0);
		} else {
			_cleanup_close_ int fd = open(path, O_RDWR);
			uint64_t wrong = UINT64_C(1) << 40;

			assert_int_equal(pwrite(fd, &wrong, 8, 40), 8);
		}
		open_file(c, &file, (unsigned)i, SIZE);
		put(c, &file, 0, 'x');
		block_file_close(&file);
	}
	block_cache_free(c);
}

static void a_cache_that_cannot_be_used_is_one_line(void **state)
{
	_cleanup_free_ char *path = path_join(dir, "file"), *ours = NULL;
	struct block_cache *c = NULL;
	struct block_cache_options o = {.dir = path, .shards = 1};

	(void)state;
	assert_int_equal(fs_write_atomic(path, "x", 1, 0600, NULL), 0);
	assert_int_equal(block_cache_new(&c, &o, NULL), 0);
	assert_null(c);
	assert_int_equal(lines, 1);

	ours = str_printf("%s/penstock-cache-%u", dir, (unsigned)geteuid());
	o.dir = dir;
	assert_int_equal(mkdir(ours, 0700), 0);
	assert_int_equal(chmod(ours, 0777), 0);
	assert_int_equal(block_cache_new(&c, &o, NULL), 0);
	assert_null(c);
	assert_int_equal(lines, 2);

	o.size = 1 * MIB;
	assert_int_equal(block_cache_new(&c, &o, NULL), -(int)PENSTOCK_E_INVALID);
}

static void a_cache_that_fails_is_one_line_and_takes_no_more(void **state)
{
	struct block_cache *c = open_cache(CACHE_MIN);
	struct block_file file, other = {.fd = -1, .shard = 2, .size = SIZE};
	int fd;

	(void)state;
	open_file(c, &file, 1, SIZE);
	put(c, &file, 0, 'x');
	assert_int_equal(block_cache_claim(c, &file, 1, scratch), CACHE_CLAIMED);
	fd = open("/dev/full", O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(dup2(fd, file.fd), file.fd);
	close(fd);
	block_cache_put(c, &file, 1, block);
	assert_int_equal(lines, 1);
	assert_false(block_file_open(c, &other, "shard 2", true));
	block_file_close(&file);

	file.fd = -1;
	assert_true(block_file_open(c, &file, "shard 1", false));
	assert_has(c, &file, 0, 'x');
	assert_int_equal(block_cache_claim(c, &file, 1, scratch), CACHE_FULL);
	assert_int_equal(lines, 1);
	block_file_close(&file);
	block_cache_free(c);
}

int main(void)
{
#define RULE(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		RULE(blocks_are_there_when_they_were_put),
		RULE(a_claim_ends_with_its_process),
		RULE(a_damaged_block_is_missing_and_is_fetched_again),
		RULE(a_file_that_is_cut_in_use_is_filled_again),
		RULE(the_oldest_files_go_and_those_in_use_stay),
		RULE(a_cache_that_is_full_of_files_in_use_takes_no_more),
		RULE(the_number_of_bytes_is_counted_again),
		RULE(a_cache_that_cannot_be_used_is_one_line),
		RULE(a_cache_that_fails_is_one_line_and_takes_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
