#include "archive_maker.h"

#include "archive/detect.h"
#include "archive/pack.h"

/* Each of these names or kinds would reach outside of the directory, or cannot be unpacked. */
static void members_that_leave_are_refused(void **state)
{
	static const struct {
		struct member members[3];
		size_t n;
		const char *says; /* part of the message */
	} cases[] = {
		{{{"/etc/passwd", 'f', "x", 0}}, 1, "absolute"},
		{{{"../outside", 'f', "x", 0}}, 1, "'..'"},
		{{{"a/../../outside", 'f', "x", 0}}, 1, "'..'"},
		{{{"a/b/../c", 'f', "x", 0}}, 1, "'..'"},
		{{{"..", 'd', NULL, 0}}, 1, "'..'"},
		{{{"./../outside", 'l', "x", 0}}, 1, "'..'"},
		{{{"out", 'l', "..", 0}, {"out/outside", 'f', "x", 0}}, 2, "out of the directory"},
		{{{"out", 'l', "/tmp", 0}, {"out/x", 'f', "x", 0}}, 2, "absolute"},
		{{{"in", 'l', "sub", 0}, {"sub/", 'd', NULL, 0}, {"in/x", 'f', "x", 0}}, 3,
			"below a symbolic link"},
		{{{"self", 'l', ".", 0}, {"self/x", 'f', "x", 0}}, 2, "below a symbolic link"},
		{{{"a/l", 'l', "../../outside", 0}}, 1, "out of the directory"},
		{{{"d", 'l', ".", 0}, {"l", 'l', "d/../outside", 0}}, 2, "out of the directory"},
		{{{"l", 'l', "/", 0}}, 1, "absolute"},
		{{{"h", 'h', "../outside", 0}}, 1, "hard link"},
		{{{"h", 'h', "/etc/passwd", 0}}, 1, "hard link"},
		{{{"h", 'h', "missing", 0}}, 1, "hard link"},
		{{{"d/", 'd', NULL, 0}, {"h", 'h', "d", 0}}, 2, "hard link"},
		{{{"l", 'l', "d", 0}, {"d/f", 'f', "x", 0}, {"h", 'h', "l/f", 0}}, 3, "hard link"},
		{{{"fifo", 'p', NULL, 0}}, 1, "a FIFO"},
		{{{"null", 'c', NULL, 0}}, 1, "a device"},
		{{{"file", 'f', "x", 0}, {"file/below", 'f', "x", 0}}, 2, "below a symbolic link"},
		{{{"d/f", 'f', "x", 0}, {"d", 'f', "x", 0}}, 2, "a directory and another"},
	};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);
		int r;

		make_archive(&a, "pax", "gzip", cases[i].members, cases[i].n);
		r = yard_unpack(y, &a, "evil.tar.gz", 100, NULL);
		if (r != -PENSTOCK_E_INVALID || !strstr(y->err.message, cases[i].says) ||
			!strstr(y->err.message, "member ") ||
			!strstr(y->err.message, "evil.tar.gz"))
			fail_msg("case %zu: %d %s", i, r, y->err.message ? y->err.message : "");
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* Members of a zip that would reach outside of the directory; a zip stores names and link targets
 * in its own way. */
static void zip_members_that_leave_are_refused(void **state)
{
	static const struct member cases[] = {
		{"../outside", 'f', "x", 0},
		{"/etc/cron.d/x", 'f', "x", 0},
		{"l", 'l', "../outside", 0},
		{"a/../../outside", 'f', "x", 0},
	};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_archive(&a, "zip", NULL, &cases[i], 1);
		assert_int_equal(yard_unpack(y, &a, "evil.zip", 100, NULL), -PENSTOCK_E_INVALID);
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* If a member is refused, the members before it are removed, too. */
static void a_refused_member_leaves_no_half_tree(void **state)
{
	static const struct member members[] = {
		{"good/one", 'f', "x", 0}, {"good/two", 'f', "x", 0}, {"../outside", 'f', "x", 0}};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, members, ARRAY_SIZE(members));
	assert_int_equal(yard_unpack(y, &a, "x.tar", 10, NULL), -PENSTOCK_E_INVALID);

	assert_nothing_unpacked(y);
}

/* If a directory in the target is a symbolic link to another place, no file is written through the
 * link. */
static void links_in_the_target_are_not_followed(void **state)
{
	static const struct member members[] = {{"sub/file", 'f', "x", 0}};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;
	char link[200], elsewhere[200];

	snprintf(link, sizeof(link), "%s/sub", y->in);
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", y->top);
	assert_int_equal(mkdir(elsewhere, 0755), 0);
	assert_int_equal(symlink(elsewhere, link), 0);
	make_archive(&a, "ustar", NULL, members, 1);

	assert_int_equal(yard_unpack(y, &a, "x.tar", 100, NULL), -PENSTOCK_E_EXISTS);

	assert_int_equal(count_entries(elsewhere), 0);
	assert_int_equal(count_entries(y->in), 2);
}

/* Control characters in a name cannot split the one line of the message. */
static void messages_show_odd_names_on_one_line(void **state)
{
	static const struct member members[] = {{"a\nb\x1B[31m/..", 'f', "x", 0}};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, members, 1);
	assert_int_equal(yard_unpack(y, &a, "x.tar", 100, NULL), -PENSTOCK_E_INVALID);

	assert_null(strchr(y->err.message, '\n'));
	assert_null(strchr(y->err.message, '\x1B'));
}

/* Names are refused if they are longer or deeper than a file system allows. */
static void names_have_limits(void **state)
{
	static char deep[3 * 200 + 10], wide[400];
	const struct member members[] = {{deep, 'f', "x", 0}, {wide, 'f', "x", 0}};
	struct yard *y = *state;

	for (size_t i = 0; i < 200; i++)
		snprintf(deep + 2 * i, 3, "d/");
	snprintf(deep + 400, 5, "f");
	memset(wide, 'w', 300);
	for (size_t i = 0; i < 2; i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_archive(&a, "pax", NULL, &members[i], 1);
		assert_int_equal(yard_unpack(y, &a, "x.tar", 1000, NULL),
			i == 0 ? -PENSTOCK_E_LIMIT : -PENSTOCK_E_INVALID);
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

static void make_bomb(struct buf *a, const char *filter)
{
	_cleanup_free_ char *zeros = calloc(1, 50 * MIB);

	make_compressed(a, filter, zeros, 50 * MIB);
	assert_true(a->len < MIB);
}

/* The limit applies to the bytes that are written, even if a header announces fewer. */
static void unpacked_size_has_a_limit(void **state)
{
	static const char *const filters[] = {"gzip", "bzip2", "xz", "zstd"};
	const struct unpack_options options = {.max_bytes = 1000000};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_bomb(&a, filters[i]);
		assert_int_equal(yard_unpack(y, &a, "bomb", 1000, &options), -PENSTOCK_E_LIMIT);
		assert_non_null(strstr(y->err.message, "1000000 bytes"));
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* An archive of exactly the limit is accepted; one byte or one member more is refused. */
static void limits_are_exact(void **state)
{
	static const struct member members[] = {{"a", 'f', "12345", 0}, {"b", 'f', "6789", 0}};
	static const struct {
		uint64_t bytes, members;
		int result;
	} cases[] = {{9, 2, 0}, {8, 2, -PENSTOCK_E_LIMIT}, {9, 1, -PENSTOCK_E_LIMIT}};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, members, ARRAY_SIZE(members));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct unpack_options options = {
			.max_bytes = cases[i].bytes, .max_members = cases[i].members};

		assert_int_equal(yard_unpack(y, &a, "x.tar", 100, &options), cases[i].result);
		if (cases[i].result)
			assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* Unpackers on one disk share the free space; an unpacker that fails returns its share. */
static void a_budget_is_shared(void **state)
{
	static const struct member members[] = {{"a", 'f', "12345", 0}, {"b", 'f', "6789", 0}};
	atomic_llong budget = 15;
	const struct unpack_options options = {.budget = &budget};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, members, ARRAY_SIZE(members));
	assert_int_equal(yard_unpack(y, &a, "x.tar", 100, &options), 0);
	assert_int_equal(atomic_load(&budget), 6);
	assert_int_equal(yard_unpack(y, &a, "x.tar", 100, &options), -PENSTOCK_E_NO_SPACE);

	assert_int_equal(atomic_load(&budget), 6);
}

/* If staging was interrupted, the archives are unpacked again over the same files. */
static void replaced_files_return_to_the_budget(void **state)
{
	static const struct member members[] = {{"a", 'f', "12345", 0}, {"d/b", 'f', "6789", 0}};
	atomic_llong budget = 18;
	const struct unpack_options options = {.budget = &budget};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, members, ARRAY_SIZE(members));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(yard_unpack(y, &a, "x.tar", 100, &options), 0);
		assert_int_equal(atomic_load(&budget), 9);
	}
}

/* Kinds of archives, detected by their first bytes; only for some of them the name counts, too. */
static void kinds_are_told_by_their_magic(void **state)
{
	static const struct {
		const char *data;
		size_t len;
		const char *name;
		enum archive_kind kind;
	} cases[] = {
		{"PK\003\004", 4, "x", ARCHIVE_KIND_ZIP},
		{"PK\005\006", 4, "x", ARCHIVE_KIND_ZIP},
		{"PK\001\002", 4, "x.zip", ARCHIVE_KIND_NONE},
		{"7z\xBC\xAF\x27\x1C", 6, "x", ARCHIVE_KIND_7Z},
		{"Rar!\x1A\x07\x00", 7, "x", ARCHIVE_KIND_RAR},
		{"Rar!\x1A\x07\x01\x00", 8, "x", ARCHIVE_KIND_RAR},
		{"\x1f\x8b\x08\x00\0\0\0\0\0\0", 10, "x", ARCHIVE_KIND_GZIP},
		{"\x1f\x8b\x08\xE0\0\0\0\0\0\0", 10, "x.gz", ARCHIVE_KIND_NONE},
		{"\x50\x2A\x4D\x18\0\0\0\0", 8, "x", ARCHIVE_KIND_ZSTD},
		{"\x28\xB5\x2F\xFD", 4, "x", ARCHIVE_KIND_ZSTD},
		{"\x04\x22\x4D\x18", 4, "x", ARCHIVE_KIND_LZ4},
		{"LZIP\x01", 5, "x", ARCHIVE_KIND_LZIP},
		{"LZIP code", 9, "x", ARCHIVE_KIND_NONE},
		{"\x1f\x9d\x90", 3, "x.Z", ARCHIVE_KIND_COMPRESS},
		{"\x1f\x9d\x90", 3, "x.bin", ARCHIVE_KIND_NONE},
		{"", 0, "x.tar.gz", ARCHIVE_KIND_NONE},
	};
	static const char zeros[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(
			archive_detect(cases[i].data, cases[i].len, cases[i].name), cases[i].kind);
	assert_true(archive_is_tar(zeros, 512, "empty.tar.gz"));
	assert_false(archive_is_tar(zeros, 512, "zeros.bin"));
}

/* The name in a gzip header is used only if it is a plain file name. */
static void single_names_are_safe(void **state)
{
	static const struct {
		const char *name, *stored, *single;
	} cases[] = {{"a.gz", "other", "a"}, {"export", "real.csv", "real.csv"},
		{"export", "../real.csv", "export.unpacked"}, {"export", "..", "export.unpacked"},
		{"export", "export", "export.unpacked"}, {".gz", NULL, ".gz.unpacked"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *single = archive_single_name(
			cases[i].name, ARCHIVE_KIND_GZIP, cases[i].stored);

		assert_string_equal(single, cases[i].single);
	}
}

/* A symbolic link that cannot be read must not be packed with the target "": the archive would look
 * complete. */
static void a_link_that_cannot_be_read_is_not_packed(void **state)
{
	const struct stat st = {.st_mode = S_IFLNK | 0777};
	_cleanup_(packer_freep) struct packer *p = NULL;
	struct yard *y = *state;

	assert_int_equal(packer_new(&p, y->in, NULL, &y->err), 0);
	assert_int_equal(
		packer_add(
			p, &(struct packer_member){AT_FDCWD, "/nonexistent", "link", &st}, &y->err),
		-PENSTOCK_E_NOT_FOUND);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, yard_setup, yard_teardown)
	const struct CMUnitTest tests[] = {
		TEST(members_that_leave_are_refused),
		TEST(zip_members_that_leave_are_refused),
		TEST(a_refused_member_leaves_no_half_tree),
		TEST(links_in_the_target_are_not_followed),
		TEST(messages_show_odd_names_on_one_line),
		TEST(names_have_limits),
		TEST(unpacked_size_has_a_limit),
		TEST(limits_are_exact),
		TEST(a_budget_is_shared),
		TEST(replaced_files_return_to_the_budget),
		TEST(a_link_that_cannot_be_read_is_not_packed),
		cmocka_unit_test(kinds_are_told_by_their_magic),
		cmocka_unit_test(single_names_are_safe),
	};

	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
