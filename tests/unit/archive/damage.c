#include "archive_maker.h"

enum { NOISE = 24000 };

/* Makes an archive of three files that do not compress, so that any truncation hits the
 * contents. */
static void make_noisy(struct buf *a, const char *format, const char *filter)
{
	static char noise[3 * (NOISE + 1)];
	struct member members[] = {{"dir/one", 'f', noise, 0},
		{"dir/two", 'f', noise + NOISE + 1, 0}, {"three", 'f', noise + 2 * (NOISE + 1), 0}};

	fill_noise(noise, sizeof(noise));
	for (size_t i = 1; i <= 3; i++)
		noise[i * (NOISE + 1) - 1] = '\0';
	make_archive(a, format, filter, members, ARRAY_SIZE(members));
}

/* An archive that is truncated after any KiB is reported as truncated or damaged, and no file
 * stays. */
static void a_cut_archive_is_an_error(void **state)
{
	static const struct {
		const char *format, *filter;
	} cases[] = {{"ustar", "gzip"}, {"ustar", "bzip2"}, {"ustar", "xz"}, {"ustar", "zstd"},
		{"ustar", "lz4"}, {"ustar", "lzip"}, {"ustar", "lzma"}, {"zip", NULL},
		{"7zip", NULL}};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_noisy(&a, cases[i].format, cases[i].filter);
		for (size_t len = 1024; len < a.len; len += 1024) {
			struct buf cut = {a.data, len, 0, 0, 0};
			int r = yard_unpack(y, &cut, "x.tar.lzma", 700, NULL);

			if (r != -PENSTOCK_E_CORRUPT || strlen(y->err.message) < 20)
				fail_msg("%s %s cut at %zu: %d %s", cases[i].format,
					cases[i].filter, len, r, y->err.message);
			assert_nothing_unpacked(y);
			yard_clear(y);
		}
		/* A missing last byte is an error, too. */
		struct buf cut = {a.data, a.len - 1, 0, 0, 0};
		assert_int_equal(
			yard_unpack(y, &cut, "x.tar.lzma", 700, NULL), -PENSTOCK_E_CORRUPT);
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/*
 * In an uncompressed tar, a truncation is an error only within a member; callers have verified the
 * length of the file. After the last member only the end mark is missing, which is accepted.
 */
static void a_cut_tar_is_an_error_within_a_member(void **state)
{
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;
	const size_t contents = (size_t)3 * (512 + (NOISE + 511) / 512 * 512);

	make_noisy(&a, "ustar", NULL);
	for (size_t len = 1024; len < a.len; len += 1024) {
		struct buf cut = {a.data, len, 0, 0, 0};
		int r = yard_unpack(y, &cut, "x.tar", 700, NULL);

		/* A member takes 24,064 + 512 bytes with padding and header. */
		if (len % (512 + 24064) == 0 || len >= contents)
			assert_int_equal(r, 0);
		else
			assert_int_equal(r, -PENSTOCK_E_CORRUPT);
		if (r < 0)
			assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* A flipped bit anywhere in contents with a checksum is detected. */
static void a_flipped_bit_is_an_error(void **state)
{
	static const struct {
		const char *format, *filter;
	} cases[] = {{"ustar", "gzip"}, {"ustar", "bzip2"}, {"ustar", "xz"}, {"ustar", "lz4"},
		{"ustar", "lzip"}, {"zip", NULL}, {"7zip", NULL}};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_noisy(&a, cases[i].format, cases[i].filter);
		for (size_t at = 2048; at < NOISE; at += 4999) {
			a.data[at] ^= 0x10;
			if (yard_unpack(y, &a, "x", 5000, NULL) >= 0)
				fail_msg("%s %s: bit at %zu", cases[i].format, cases[i].filter, at);
			assert_nothing_unpacked(y);
			a.data[at] ^= 0x10;
			yard_clear(y);
		}
	}
}

/* Damaged bytes cause only errors: the test changes bytes all over small archives, one at a
 * time. */
static void any_damage_fails_cleanly(void **state)
{
	static const struct member members[] = {{"d/f", 'f', "contents", 0}, {"l", 'l', "d/f", 0}};
	static const struct {
		const char *format, *filter;
	} cases[] = {
		{"pax", NULL}, {"ustar", "gzip"}, {"ustar", "zstd"}, {"zip", NULL}, {"7zip", NULL}};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_archive(&a, cases[i].format, cases[i].filter, members, ARRAY_SIZE(members));
		for (size_t at = 0; at < a.len && at < 2000; at += at < 64 ? 1 : 7) {
			a.data[at] ^= 0xFF;
			if (yard_unpack(y, &a, "x", 4096, NULL) < 0)
				assert_nothing_unpacked(y);
			assert_int_equal(count_entries(y->top), 2);
			a.data[at] ^= 0xFF;
			yard_clear(y);
		}
	}
}

/* The message names the current member and the offset. */
static void messages_say_where(void **state)
{
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_noisy(&a, "ustar", "gzip");
	struct buf cut = {a.data, 40000, 0, 0, 0};
	assert_int_equal(yard_unpack(y, &cut, "x.tar.gz", 5000, NULL), -PENSTOCK_E_CORRUPT);

	assert_non_null(strstr(y->err.message, "x.tar.gz"));
	assert_non_null(strstr(y->err.message, "dir/two"));
	assert_non_null(strstr(y->err.message, "40000 bytes"));
}

/* The message of an encrypted archive names the encryption. */
static void encryption_is_named(void **state)
{
	static const char *const methods[] = {
		"zip:encryption=traditional", "zip:encryption=aes256"};
	static const struct member m = {"secret.txt", 'f', "attack at dawn", 0};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(0);
		locale_t locale;
		struct archive *a = maker_new(&out, &locale);

		archive_write_set_format_zip(a);
		assert_int_equal(archive_write_set_options(a, methods[i]), ARCHIVE_OK);
		assert_int_equal(archive_write_set_passphrase(a, "swordfish"), ARCHIVE_OK);
		assert_int_equal(archive_write_open(a, &out, NULL, maker_write, NULL), ARCHIVE_OK);
		maker_add(a, &m);
		maker_close(a, locale);

		assert_int_equal(yard_unpack(y, &out, "x.zip", 100, NULL), -PENSTOCK_E_UNSUPPORTED);
		assert_non_null(strstr(y->err.message, "encrypted"));
		assert_non_null(strstr(y->err.message, "secret.txt"));
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* A source that fails in the middle stops the unpacker, which leaves nothing. */
static void an_abandoned_unpacker_leaves_nothing(void **state)
{
	static const struct {
		const char *format, *filter;
	} cases[] = {{"ustar", NULL}, {"ustar", "gzip"}, {"ustar", "xz"}, {"zip", NULL}};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_noisy(&a, cases[i].format, cases[i].filter);
		for (size_t len = 0; len < a.len; len += 9973) {
			struct unpacker *u = NULL;

			assert_int_equal(unpacker_new(&u, y->in,
						 &(struct unpack_options){.name = "x"}, NULL),
				0);
			assert_int_equal(unpacker_feed(u, a.data, len, NULL), 0);
			unpacker_free(u);
			assert_int_equal(count_entries(y->in), 0);
		}
	}
}

/* A cancel also stops an unpacker whose input never ends. */
static void a_cancel_ends_the_work(void **state)
{
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	_cleanup_free_ char *zeros = calloc(1, 50 * MIB);
	atomic_int cancel = 1;
	const struct unpack_options options = {.cancel = &cancel};
	struct yard *y = *state;

	make_compressed(&a, "gzip", zeros, 50 * MIB);
	assert_int_equal(yard_unpack(y, &a, "x.gz", 1000, &options), -PENSTOCK_E_CANCELLED);

	assert_nothing_unpacked(y);
}

static void count_progress(void *cookie, uint64_t members, uint64_t bytes)
{
	uint64_t *seen = cookie;

	assert_true(members >= seen[0] && bytes >= seen[1]);
	seen[0] = members;
	seen[1] = bytes;
	seen[2]++;
}

/* Progress never decreases, and its last values are the totals. */
static void progress_is_told(void **state)
{
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	uint64_t seen[3] = {0};
	const struct unpack_options options = {.progress = count_progress, .cookie = seen};
	_cleanup_free_ char *zeros = calloc(1, 50 * MIB);
	struct yard *y = *state;

	make_compressed(&a, "gzip", zeros, 50 * MIB);
	assert_int_equal(yard_unpack(y, &a, "x.gz", 1000, &options), 0);

	assert_int_equal(seen[0], 1);
	assert_int_equal(seen[1], 50 * MIB);
	assert_true(seen[2] > 10);
}

/* Holes in files stay holes, and count with their full size. */
static void sparse_files_are_whole(void **state)
{
	enum { HOLE = 30 * 1024 * 1024 };
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	const struct unpack_options small = {.max_bytes = 20 * MIB};
	struct archive_entry *e = archive_entry_new();
	struct yard *y = *state;
	locale_t locale;
	struct archive *w = maker_new(&a, &locale);

	archive_write_set_format_pax(w);
	assert_int_equal(archive_write_open(w, &a, NULL, maker_write, NULL), ARCHIVE_OK);
	archive_entry_set_pathname(e, "sparse");
	archive_entry_set_filetype(e, AE_IFREG);
	archive_entry_set_perm(e, 0644);
	archive_entry_set_size(e, 2 * HOLE);
	archive_entry_sparse_add_entry(e, HOLE, 4096);
	assert_int_equal(archive_write_header(w, e), ARCHIVE_OK);
	for (size_t i = 0; i < 2 * (size_t)HOLE / 4096; i++) {
		char page[4096];

		memset(page, i == HOLE / 4096 ? 'x' : 0, sizeof(page));
		assert_int_equal(archive_write_data(w, page, sizeof(page)), sizeof(page));
	}
	archive_entry_free(e);
	maker_close(w, locale);
	assert_true(a.len < MIB);

	if (yard_unpack(y, &a, "x.tar", 10000, NULL) < 0)
		fail_msg("%s", y->err.message);
	assert_int_equal(stat_of(y, "sparse").st_size, 2 * HOLE);
	assert_true(stat_of(y, "sparse").st_blocks < 1000);
	yard_clear(y);
	assert_int_equal(yard_unpack(y, &a, "x.tar", 10000, &small), -PENSTOCK_E_LIMIT);
	assert_nothing_unpacked(y);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, yard_setup, yard_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_cut_archive_is_an_error),
		TEST(a_cut_tar_is_an_error_within_a_member),
		TEST(a_flipped_bit_is_an_error),
		TEST(any_damage_fails_cleanly),
		TEST(messages_say_where),
		TEST(encryption_is_named),
		TEST(an_abandoned_unpacker_leaves_nothing),
		TEST(a_cancel_ends_the_work),
		TEST(progress_is_told),
		TEST(sparse_files_are_whole),
	};

	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
