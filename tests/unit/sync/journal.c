#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/resource.h>
#include <signal.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/fs.h"
#include "s3/sum/checksum.h"
#include "sync/record/journal.h"

static const struct journal_record records[] = {
	{.type = JOURNAL_RUN, .path = "run-1"},
	{.type = JOURNAL_CLOSED, .path = "a b\n\xff", .ident = {3, -5, 7, 9}, .mode = 0100644},
	{.type = JOURNAL_PUBLISHED,
		.path = "dir/file",
		.etag = "\"0123456789abcdef0123456789abcdef-12\"",
		.ident = {UINT64_MAX, INT64_MAX, INT64_MIN, 1},
		.mode = 0100755,
		.crc = UINT64_C(0xfedcba9876543210),
		.has_crc = true},
	{.type = JOURNAL_KEPT, .path = "-", .etag = "\"x y\"", .key = "p/.penstock/replaced/-"},
	{.type = JOURNAL_MANIFEST, .etag = "\"m\"", .ident = {.size = 42}},
	{.type = JOURNAL_GONE, .path = "gone"},
	{.type = JOURNAL_RUN, .path = "run-1", .etag = "0123456789abcdef", .key = "3f0c-boot"},
	{.type = JOURNAL_CLOSED, .path = "c", .ident = {1, 2, 3, 4}, .key = JOURNAL_SYNCED},
};
#define N_RECORDS (sizeof(records) / sizeof(records[0]))

struct fixture {
	char dir[64], path[80];
	size_t seen;
	bool in_order;
};

static int set_up(void **state)
{
	static struct fixture f;

	snprintf(f.dir, sizeof(f.dir), "/tmp/journal-XXXXXX");
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.path, sizeof(f.path), "%s/j", f.dir);
	*state = &f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	return fs_remove_tree(f->dir, NULL);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

/* Counts the records, and compares each record with the table. */
static int expect_next(void *cookie, const struct journal_record *r)
{
	struct fixture *f = cookie;
	const struct journal_record *w = &records[f->seen % N_RECORDS];

	f->in_order = f->in_order && r->type == w->type &&
		      strcmp(r->path, or_empty(w->path)) == 0 &&
		      strcmp(r->etag, or_empty(w->etag)) == 0 &&
		      strcmp(r->key, or_empty(w->key)) == 0 && ident_equal(&r->ident, &w->ident) &&
		      r->mode == w->mode && r->crc == w->crc && r->has_crc == w->has_crc;
	f->seen++;
	return 0;
}

static size_t replay(struct fixture *f, unsigned *skipped)
{
	f->seen = 0;
	f->in_order = true;
	assert_int_equal(journal_replay(f->path, expect_next, f, skipped, NULL), 0);
	return f->seen;
}

static void add_all(void *cookie, struct journal *j)
{
	(void)cookie;
	for (size_t i = 0; i < N_RECORDS; i++)
		journal_add(j, &records[i]);
}

static void write_all(struct fixture *f)
{
	struct journal *j = NULL;

	assert_int_equal(journal_open(&j, f->path, NULL), 0);
	add_all(NULL, j);
	assert_int_equal(journal_write(j), 0);
	assert_int_equal(journal_sync(j), 0);
	journal_free(j);
}

static void set_content(struct fixture *f, const char *data, size_t len)
{
	FILE *file = fopen(f->path, "we");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

/* Every field of every kind of record is read back unchanged. */
static void records_come_back_as_they_were(void **state)
{
	struct fixture *f = *state;
	unsigned skipped = 9;

	write_all(f);

	assert_int_equal(replay(f, &skipped), N_RECORDS);
	assert_true(f->in_order);
	assert_int_equal(skipped, 0);
}

/* After a truncation at any byte, the complete lines before it can be read, and so can records that
 * are added later. */
static void a_cut_at_any_byte_costs_only_the_cut_line(void **state)
{
	struct fixture *f = *state;
	struct buf whole = BUF_INIT(65536);

	write_all(f);
	assert_int_equal(fs_read(f->path, &whole, NULL), 0);
	for (size_t cut = 0; cut < whole.len; cut++) {
		size_t lines = 0;
		struct journal *j = NULL;
		unsigned skipped = 0;

		for (size_t i = 0; i < cut; i++)
			lines += whole.data[i] == '\n';
		set_content(f, whole.data, cut);
		assert_int_equal(replay(f, NULL), lines);
		assert_true(f->in_order);

		assert_int_equal(journal_open(&j, f->path, NULL), 0);
		journal_add(j, &records[0]);
		assert_int_equal(journal_write(j), 0);
		journal_free(j);
		/* A line that lost only its newline is complete now. */
		f->seen = 0;
		assert_int_equal(journal_replay(f->path, expect_next, f, &skipped, NULL), 0);
		assert_true(f->seen == lines + 1 || f->seen == lines + 2);
	}
	buf_release(&whole);
}

/* A wrong bit anywhere is detected: no record is read with another value. */
static void a_flipped_bit_never_changes_a_record(void **state)
{
	struct buf line = BUF_INIT(4096);
	struct journal_record r;
	char copy[4096];

	(void)state;
	journal_format(&line, &records[2]);
	buf_truncate(&line, line.len - 1);
	memcpy(copy, line.data, line.len + 1);
	assert_true(journal_parse(copy, &r));
	for (size_t i = 0; i < line.len * 8; i++) {
		line.data[i / 8] ^= (char)(1 << i % 8);
		memcpy(copy, line.data, line.len + 1);
		assert_false(journal_parse(copy, &r));
		line.data[i / 8] ^= (char)(1 << i % 8);
	}
	buf_release(&line);
}

/* In an earlier version, the checksum also covered the space that follows it, and names kept
 * non-ASCII letters. */
static void a_line_of_an_earlier_version_is_read(void **state)
{
	char line[] = "XXXXXXXX C \xc3\xa9%20x 3 5 7 9 100644 - - -";
	struct journal_record r;
	char digits[9];

	(void)state;
	snprintf(digits, sizeof(digits), "%08x", crc32_update(0, line + 8, strlen(line + 8)));
	memcpy(line, digits, 8);

	assert_true(journal_parse(line, &r));
	assert_string_equal(r.path, "\xc3\xa9 x");
	assert_int_equal(r.ident.ino, 9);
}

/* Lines are lost while the disk is full, and the journal reports this until it is rewritten. */
static void a_full_disk_is_noticed_and_made_good(void **state)
{
	struct fixture *f = *state;
	struct rlimit limit = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
	struct journal *j = NULL;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(journal_open(&j, f->path, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	add_all(NULL, j);
	assert_int_equal(journal_write(j), 0);
	add_all(NULL, j);
	assert_int_equal(journal_write(j), -1);
	assert_true(journal_damaged(j));

	limit.rlim_cur = RLIM_INFINITY;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(journal_rewrite(j, add_all, NULL, NULL), 0);
	assert_false(journal_damaged(j));
	journal_free(j);

	assert_int_equal(replay(f, NULL), N_RECORDS);
	assert_true(f->in_order);
}

/* A rewrite replaces the old records, and later records follow the new ones. */
static void a_rewrite_replaces_and_goes_on(void **state)
{
	struct fixture *f = *state;
	struct journal *j = NULL;

	write_all(f);
	write_all(f);
	assert_int_equal(replay(f, NULL), 2 * N_RECORDS);

	assert_int_equal(journal_open(&j, f->path, NULL), 0);
	assert_int_equal(journal_rewrite(j, add_all, NULL, NULL), 0);
	add_all(NULL, j);
	assert_int_equal(journal_write(j), 0);
	journal_free(j);

	assert_int_equal(replay(f, NULL), 2 * N_RECORDS);
	assert_true(f->in_order);
}

/* A missing journal is read as an empty one. */
static void a_missing_journal_is_an_empty_one(void **state)
{
	assert_int_equal(replay(*state, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(records_come_back_as_they_were, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_cut_at_any_byte_costs_only_the_cut_line, set_up, tear_down),
		cmocka_unit_test(a_flipped_bit_never_changes_a_record),
		cmocka_unit_test(a_line_of_an_earlier_version_is_read),
		cmocka_unit_test_setup_teardown(
			a_full_disk_is_noticed_and_made_good, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_rewrite_replaces_and_goes_on, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_missing_journal_is_an_empty_one, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
