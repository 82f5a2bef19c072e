#include "archive_maker.h"

#include <isa-l/crc.h>

#include "base/clock.h"

static const struct member tree[] = {
	{"top/", 'd', NULL, 0700},
	{"top/file.txt", 'f', "the contents of a file\n", 0640},
	{"top/run.sh", 'f', "#!/bin/sh\n", 0755},
	{"top/sub/", 'd', NULL, 0},
	{"top/sub/deep.txt", 'f', "deep", 0},
	{"top/empty", 'f', "", 0},
	{"top/link", 'l', "sub/deep.txt", 0},
	{"top/sub/up", 'l', "../file.txt", 0},
	{"implied/parents/file", 'f', "no directory member names my parents", 0},
	{"odd\tn\xC3\xA4me", 'f', "odd", 0},
};

static void assert_tree(const struct yard *y)
{
	char target[100] = "";
	char path[200];

	assert_text(y, "top/file.txt", "the contents of a file\n");
	assert_text(y, "top/run.sh", "#!/bin/sh\n");
	assert_text(y, "top/sub/deep.txt", "deep");
	assert_text(y, "top/empty", "");
	assert_text(y, "implied/parents/file", "no directory member names my parents");
	assert_text(y, "odd\tn\xC3\xA4me", "odd");
	assert_true(S_ISLNK(stat_of(y, "top/link").st_mode));
	assert_text(y, "top/link", "deep");
	assert_text(y, "top/sub/up", "the contents of a file\n");
	snprintf(path, sizeof(path), "%s/top/link", y->in);
	assert_true(readlink(path, target, sizeof(target) - 1) > 0);
	assert_string_equal(target, "sub/deep.txt");
	assert_int_equal(stat_of(y, "top/file.txt").st_mtime, MEMBER_TIME);
}

/* Every pair of format and compression unpacks to the same files, with chunks of any size. */
static void every_tar_unpacks_in_any_chunks(void **state)
{
	static const char *const formats[] = {"ustar", "pax", "gnutar", "v7tar"};
	static const char *const filters[] = {
		NULL, "gzip", "bzip2", "xz", "lzma", "lzip", "zstd", "lz4", "compress"};
	static const size_t chunks[] = {1, 511, 4099};
	struct yard *y = *state;

	for (size_t f = 0; f < ARRAY_SIZE(formats); f++) {
		for (size_t c = 0; c < ARRAY_SIZE(filters); c++) {
			_cleanup_(buf_release) struct buf a = BUF_INIT(0);
			char name[50];

			make_archive(&a, formats[f], filters[c], tree, ARRAY_SIZE(tree));
			snprintf(name, sizeof(name), "data.tar.%s",
				!filters[c]			      ? "x"
				: strcmp(filters[c], "compress") == 0 ? "Z"
								      : filters[c]);
			for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
				if (yard_unpack(y, &a, name, chunks[i], NULL) < 0)
					fail_msg("%s %s: %s", formats[f], name, y->err.message);
				assert_int_equal(y->stats.result, UNPACK_TREE);
				assert_int_equal(y->stats.members, ARRAY_SIZE(tree));
				assert_tree(y);
				assert_file(y, name, a.data, a.len);
				assert_int_equal(count_entries(y->in), 4);
				yard_clear(y);
			}
		}
	}
}

/* Formats whose list of members is at the end unpack to the same files, with chunks of any size. */
static void zip_and_7z_unpack(void **state)
{
	static const char *const formats[] = {"zip", "7zip"};
	struct yard *y = *state;

	for (size_t f = 0; f < ARRAY_SIZE(formats); f++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_archive(&a, formats[f], NULL, tree, ARRAY_SIZE(tree));
		if (yard_unpack(y, &a, "noname", 1000, NULL) < 0)
			fail_msg("%s: %s", formats[f], y->err.message);
		assert_int_equal(y->stats.result, UNPACK_TREE);
		assert_tree(y);
		assert_int_equal(count_entries(y->in), 4);
		yard_clear(y);
	}
}

/* Gets the path of the hidden directory in "in". Returns false if there is none. */
static bool find_stage(const struct yard *y, char path[static 300])
{
	_cleanup_closedir_ DIR *d = opendir(y->in);

	for (struct dirent *e; (e = readdir(d));) {
		if (strncmp(e->d_name, ".penstock-unpack-", 17) == 0) {
			snprintf(path, 300, "%s/%.100s", y->in, e->d_name);
			return true;
		}
	}
	return false;
}

/* The first member of a zip is unpacked before the last one arrives. The modes and the links are
 * set at the end. */
static void zip_unpacks_while_it_arrives(void **state)
{
	_cleanup_(unpacker_freep) struct unpacker *u = NULL;
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	_cleanup_free_ char *noise = malloc(500001);
	const struct member members[] = {{"dir/run.sh", 'f', "#!/bin/sh", 0755},
		{"dir/link", 'l', "run.sh", 0}, {"large", 'f', noise, 0600}};
	struct yard *y = *state;
	char stage[300], first[400] = "", path[200];
	int64_t deadline = clock_monotonic_ms() + 20000;

	fill_noise(noise, 500000);
	noise[500000] = '\0';
	make_archive(&a, "zip", NULL, members, ARRAY_SIZE(members));
	yard_write(y->in, "x.zip", a.data, a.len);
	assert_int_equal(
		unpacker_new(&u, y->in, &(struct unpack_options){.name = "x.zip"}, &y->err), 0);
	assert_int_equal(unpacker_feed(u, a.data, 400000, &y->err), 0);
	while (access(first, F_OK) < 0) {
		assert_true(clock_monotonic_ms() < deadline);
		if (find_stage(y, stage))
			snprintf(first, sizeof(first), "%s/dir/run.sh", stage);
		clock_sleep_ms(1);
	}
	assert_int_equal(unpacker_feed(u, a.data + 400000, a.len - 400000, &y->err), 0);
	snprintf(path, sizeof(path), "%s/x.zip", y->in);
	assert_int_equal(unpacker_finish(u, path, &y->stats, &y->err), 0);

	assert_text(y, "dir/link", "#!/bin/sh");
	assert_true(S_ISLNK(stat_of(y, "dir/link").st_mode));
	assert_int_equal(stat_of(y, "dir/run.sh").st_mode & 0777, 0755);
	assert_int_equal(stat_of(y, "large").st_mode & 0777, 0600);
	assert_file(y, "large", noise, 500000);
	assert_int_equal(y->stats.members, 3);
}

static void add_number(struct buf *b, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		buf_add_char(b, (char)(value >> (8 * i) & 0xFF));
}

static uint32_t crc_of(const char *data, size_t len)
{
	return crc32_gzip_refl(0, (const unsigned char *)data, len);
}

/* Adds an uncompressed member. If `late`, its sizes come after its data, as in a zip that a program
 * writes into a pipe. */
static void add_zip_member(struct buf *out, const char *name, const char *text, bool late)
{
	size_t len = strlen(text);
	uint32_t crc = crc_of(text, len);

	buf_add(out, "PK\003\004\x14\0", 6);
	add_number(out, late ? 8 : 0, 2);
	add_number(out, 0, 6); /* uncompressed, without a time */
	add_number(out, late ? 0 : crc, 4);
	add_number(out, late ? 0 : len, 4);
	add_number(out, late ? 0 : len, 4);
	add_number(out, strlen(name), 2);
	add_number(out, 0, 2);
	buf_add_str(out, name);
	buf_add(out, text, len);
	if (late) {
		buf_add(out, "PK\007\010", 4);
		add_number(out, crc, 4);
		add_number(out, len, 4);
		add_number(out, len, 4);
	}
}

/* Adds the member, whose header is at offset `at`, to the list at the end of the zip. */
static void list_zip_member(
	struct buf *out, const char *name, const char *text, bool late, size_t at)
{
	buf_add(out, "PK\001\002\x14\3\x14\0", 8);
	add_number(out, late ? 8 : 0, 2);
	add_number(out, 0, 6);
	add_number(out, crc_of(text, strlen(text)), 4);
	add_number(out, strlen(text), 4);
	add_number(out, strlen(text), 4);
	add_number(out, strlen(name), 2);
	add_number(out, 0, 8);
	add_number(out, (uint64_t)(S_IFREG | 0640) << 16, 4);
	add_number(out, at, 4);
	buf_add_str(out, name);
}

static void end_zip(struct buf *out, size_t n, size_t list)
{
	size_t len = out->len - list;

	buf_add(out, "PK\005\006\0\0\0\0", 8);
	add_number(out, n, 2);
	add_number(out, n, 2);
	add_number(out, len, 4);
	add_number(out, list, 4);
	add_number(out, 0, 2);
}

/* A member that was deleted from a zip is not unpacked. An uncompressed member whose header lacks
 * the size is unpacked. */
static void the_list_of_a_zip_is_right(void **state)
{
	struct yard *y = *state;

	for (int late = 0; late < 2; late++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(MIB);
		size_t kept, list;

		add_zip_member(&a, "deleted", "old", false);
		kept = a.len;
		add_zip_member(&a, "kept", "PK in the contents", late);
		list = a.len;
		list_zip_member(&a, "kept", "PK in the contents", late, kept);
		end_zip(&a, 1, list);

		if (yard_unpack(y, &a, "x.zip", 11, NULL) < 0)
			fail_msg("%s", y->err.message);
		assert_text(y, "kept", "PK in the contents");
		assert_int_equal(stat_of(y, "kept").st_mode & 0777, 0640);
		assert_int_equal(count_entries(y->in), 2);
		assert_int_equal(y->stats.members, 1);
		yard_clear(y);
	}
}

/* Adds a RAR 4 block: the low 16 bits of the CRC, then type, flags, size, and `rest`. */
static void add_rar4_block(struct buf *out, int type, unsigned flags, const struct buf *rest)
{
	_cleanup_(buf_release) struct buf head = BUF_INIT(1000);

	add_number(&head, (uint64_t)type, 1);
	add_number(&head, flags, 2);
	add_number(&head, 7 + rest->len, 2);
	if (rest->len)
		buf_add(&head, rest->data, rest->len);
	add_number(out, crc_of(head.data, head.len) & 0xFFFF, 2);
	buf_add(out, head.data, head.len);
}

/* Makes a RAR 4 archive of one uncompressed file, as the format's documentation describes it. */
static void make_rar4(struct buf *out, const char *name, const char *text)
{
	_cleanup_(buf_release) struct buf rest = BUF_INIT(1000);

	buf_init(out, 10000);
	buf_add(out, "Rar!\x1A\x07\x00", 7);
	add_number(&rest, 0, 6);
	add_rar4_block(out, 0x73, 0, &rest);
	buf_clear(&rest);
	add_number(&rest, strlen(text), 4);
	add_number(&rest, strlen(text), 4);
	add_number(&rest, 3, 1);
	add_number(&rest, crc_of(text, strlen(text)), 4);
	add_number(&rest, 0x3AC90000, 4);
	add_number(&rest, 20, 1);
	add_number(&rest, 0x30, 1);
	add_number(&rest, strlen(name), 2);
	add_number(&rest, S_IFREG | 0644, 4);
	buf_add_str(&rest, name);
	add_rar4_block(out, 0x74, 0x8000, &rest);
	buf_add_str(out, text);
	buf_clear(&rest);
	add_rar4_block(out, 0x7B, 0x4000, &rest);
}

static void add_rar5_block(struct buf *out, const struct buf *rest)
{
	_cleanup_(buf_release) struct buf head = BUF_INIT(1000);

	assert_true(rest->len < 128);
	add_number(&head, rest->len, 1);
	buf_add(&head, rest->data, rest->len);
	add_number(out, crc_of(head.data, head.len), 4);
	buf_add(out, head.data, head.len);
}

static void make_rar5(struct buf *out, const char *name, const char *text)
{
	_cleanup_(buf_release) struct buf rest = BUF_INIT(1000);

	assert_true(strlen(text) < 128);
	buf_init(out, 10000);
	buf_add(out, "Rar!\x1A\x07\x01\x00", 8);
	buf_add(&rest, "\x01\x00\x00", 3);
	add_rar5_block(out, &rest);
	buf_clear(&rest);
	buf_add(&rest, "\x02\x02", 2); /* a file with data after its header */
	add_number(&rest, strlen(text), 1);
	add_number(&rest, 4, 1); /* with a CRC */
	add_number(&rest, strlen(text), 1);
	add_number(&rest, 0xA4 | 0x80, 1); /* mode 0100644 in 7 bits each */
	add_number(&rest, 0x83, 1);
	add_number(&rest, 0x02, 1);
	add_number(&rest, crc_of(text, strlen(text)), 4);
	add_number(&rest, 0, 1); /* uncompressed */
	add_number(&rest, 1, 1);
	add_number(&rest, strlen(name), 1);
	buf_add_str(&rest, name);
	add_rar5_block(out, &rest);
	buf_add_str(out, text);
	buf_clear(&rest);
	buf_add(&rest, "\x05\x00\x00", 3);
	add_rar5_block(out, &rest);
}

/* Both versions of RAR are unpacked while they arrive, and refused in the same cases as tar. */
static void rar_unpacks(void **state)
{
	static void (*const makers[])(struct buf *, const char *, const char *) = {
		make_rar4, make_rar5};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(makers); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);
		_cleanup_(buf_release) struct buf bad = BUF_INIT(0);

		makers[i](&a, "dir/file.txt", "stored in a rar");
		if (yard_unpack(y, &a, "a.rar", 13, NULL) < 0)
			fail_msg("rar %zu: %s", i + 4, y->err.message);
		assert_string_equal(y->stats.format, "rar");
		assert_text(y, "dir/file.txt", "stored in a rar");
		yard_clear(y);

		makers[i](&bad, "../outside", "stored in a rar");
		assert_true(yard_unpack(y, &bad, "a.rar", 13, NULL) < 0);
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* A compressed file that is not an archive is unpacked next to itself, without its suffix. */
static void a_single_compressed_file_loses_its_suffix(void **state)
{
	static const struct {
		const char *filter, *name, *unpacked;
	} cases[] = {{"gzip", "train.csv.gz", "train.csv"}, {"gzip", "odd.tgz", "odd.tar"},
		{"bzip2", "train.csv.bz2", "train.csv"}, {"xz", "train.csv.xz", "train.csv"},
		{"zstd", "train.csv.zst", "train.csv"}, {"lz4", "train.csv.lz4", "train.csv"},
		{"lzip", "train.csv.lz", "train.csv"}, {"lzma", "train.csv.lzma", "train.csv"},
		{"compress", "train.csv.Z", "train.csv"}, {"gzip", "export", "export.unpacked"}};
	struct yard *y = *state;
	enum { LEN = 700000 };
	_cleanup_free_ char *data = malloc(LEN);

	fill_noise(data, LEN / 2);
	memset(data + LEN / 2, 'z', LEN - LEN / 2);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_compressed(&a, cases[i].filter, data, LEN);
		if (yard_unpack(y, &a, cases[i].name, 30011, NULL) < 0)
			fail_msg("%s: %s", cases[i].name, y->err.message);
		assert_int_equal(y->stats.result, UNPACK_SINGLE);
		assert_int_equal(y->stats.bytes, LEN);
		assert_file(y, cases[i].unpacked, data, LEN);
		assert_file(y, cases[i].name, a.data, a.len);
		assert_int_equal(count_entries(y->in), 2);
		yard_clear(y);
	}
}

/* Several gzip members in one file are one stream; zeros after the last member are padding. */
static void gzip_members_are_joined(void **state)
{
	_cleanup_(buf_release) struct buf one = BUF_INIT(0), both = BUF_INIT(MIB);
	struct yard *y = *state;

	make_compressed(&one, "gzip", "half ", 5);
	for (size_t padding = 0; padding < 600; padding += 299) {
		for (size_t chunk = 1; chunk < 40; chunk++) {
			buf_clear(&both);
			buf_add(&both, one.data, one.len);
			buf_add(&both, one.data, one.len);
			for (size_t i = 0; i < padding; i++)
				buf_add_char(&both, 0);
			assert_int_equal(yard_unpack(y, &both, "x.gz", chunk, NULL), 0);
			assert_text(y, "x", "half half ");
		}
	}
}

/* A file that is not an archive stays as it is; this is an error only if the caller asked for
 * unpacking. */
static void what_is_no_archive_stays(void **state)
{
	static const struct {
		const char *data;
		size_t len;
	} cases[] = {{"", 0}, {"P", 1}, {"PAR1....", 8}, {"\x89HDF\r\n\x1a\n", 8}, {"\x1f\x8b", 2},
		{"BZh9 is how this text begins", 28}, {"\x1f\x9d\x90 no suffix", 13}};
	const struct unpack_options always = {.always = true};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf a = {(char *)cases[i].data, cases[i].len, 0, 0, 0};

		assert_int_equal(yard_unpack(y, &a, "data.bin", 3, NULL), 0);
		assert_int_equal(y->stats.result, UNPACK_PLAIN);
		assert_nothing_unpacked(y);
		yard_clear(y);
		/* If the name has the suffix of an archive, the content is an error. */
		assert_int_equal(yard_unpack(y, &a, "data.tar", 3, NULL), -PENSTOCK_E_INVALID);
		assert_nothing_unpacked(y);
		yard_clear(y);
		assert_int_equal(yard_unpack(y, &a, "data.tar", 3, &always), -PENSTOCK_E_INVALID);
		assert_non_null(strstr(y->err.message, "data.tar"));
		assert_nothing_unpacked(y);
		yard_clear(y);
	}
}

/* A large file that is not an archive does not block the sender, although the unpacker stops
 * reading. */
static void a_large_plain_file_passes(void **state)
{
	_cleanup_(buf_release) struct buf a = BUF_INIT(64 * MIB);
	struct yard *y = *state;

	fill_noise(buf_reserve(&a, 20 * MIB), 20 * MIB);
	buf_grown(&a, 20 * MIB);
	assert_int_equal(yard_unpack(y, &a, "weights.bin", 65536, NULL), 0);

	assert_int_equal(y->stats.result, UNPACK_PLAIN);
	assert_nothing_unpacked(y);
}

/* Checkpoints, packages and documents are zip files that programs use without unpacking. */
static void files_that_are_used_whole_stay(void **state)
{
	static const char *const names[] = {"model.pth", "MODEL.PT", "x.npz",
		"a-1.0-py3-none-any.whl", "lib.jar", "paper.docx"};
	static const struct member torch[] = {
		{"archive/data.pkl", 'f', "pickled", 0}, {"archive/data/0", 'f', "tensor", 0}};
	const struct unpack_options always = {.always = true};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(buf_release) struct buf a = BUF_INIT(0);

		make_archive(&a, "zip", NULL, tree, ARRAY_SIZE(tree));
		assert_int_equal(yard_unpack(y, &a, names[i], 100, NULL), 0);
		assert_int_equal(y->stats.result, UNPACK_PLAIN);
		assert_nothing_unpacked(y);
		assert_int_equal(yard_unpack(y, &a, names[i], 100, &always), 0);
		assert_tree(y);
		yard_clear(y);
	}

	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	make_archive(&a, "zip", NULL, torch, ARRAY_SIZE(torch));
	assert_int_equal(yard_unpack(y, &a, "pytorch_model.bin", 100, NULL), 0);
	assert_int_equal(y->stats.result, UNPACK_PLAIN);
	assert_nothing_unpacked(y);
	assert_false(unpack_keeps_whole("data.zip"));
	assert_false(unpack_keeps_whole(".pt"));
}

/* If several members have the same name, the last one wins, even if an earlier one was a link to
 * another place. */
static void the_last_of_one_name_wins(void **state)
{
	static const struct member members[] = {
		{"a", 'f', "first", 0},
		{"b", 'f', "kept", 0},
		{"a", 'f', "second", 0},
		{"l", 'l', "b", 0},
		{"l", 'f', "not through the link", 0},
		{"h", 'h', "b", 0},
		{"h", 'f', "not into the shared file", 0},
		{"d", 'l', "b", 0},
		{"d/", 'd', NULL, 0},
		{"d/e", 'f', "below what was a link", 0},
	};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, members, ARRAY_SIZE(members));
	assert_int_equal(yard_unpack(y, &a, "x.tar", 100, NULL), 0);

	assert_text(y, "a", "second");
	assert_text(y, "b", "kept");
	assert_text(y, "l", "not through the link");
	assert_text(y, "h", "not into the shared file");
	assert_text(y, "d/e", "below what was a link");
}

/* Hard links share one file, the setuid bit is removed, and the owner can always read and write. */
static void links_modes_and_times_are_kept(void **state)
{
	static const struct member members[] = {
		{"d/", 'd', NULL, 0555},
		{"d/file", 'f', "shared", 0400},
		{"d/second", 'h', "d/file", 0},
		{"d/tool", 'f', "x", 04755},
	};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "pax", "gzip", members, ARRAY_SIZE(members));
	assert_int_equal(yard_unpack(y, &a, "x.tar.gz", 100, NULL), 0);

	assert_int_equal(stat_of(y, "d/file").st_ino, stat_of(y, "d/second").st_ino);
	assert_int_equal(stat_of(y, "d/file").st_nlink, 2);
	assert_int_equal(stat_of(y, "d/file").st_mode & 07777, 0600);
	assert_int_equal(stat_of(y, "d/tool").st_mode & 07777, 0755);
	assert_int_equal(stat_of(y, "d").st_mode & 07777, 0755);
	assert_int_equal(stat_of(y, "d").st_mtime, MEMBER_TIME);
	assert_int_equal(stat_of(y, "d/tool").st_mtime, MEMBER_TIME);
}

/* Two archives are unpacked into one directory: directories are merged, files are replaced. */
static void what_is_there_is_merged(void **state)
{
	static const struct member second[] = {
		{"top/file.txt", 'f', "newer", 0},
		{"top/sub/more.txt", 'f', "more", 0},
	};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0), b = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, tree, ARRAY_SIZE(tree));
	make_archive(&b, "zip", NULL, second, ARRAY_SIZE(second));
	assert_int_equal(yard_unpack(y, &a, "a.tar", 100, NULL), 0);
	assert_int_equal(yard_unpack(y, &b, "b.zip", 100, NULL), 0);

	assert_text(y, "top/file.txt", "newer");
	assert_text(y, "top/sub/more.txt", "more");
	assert_text(y, "top/sub/deep.txt", "deep");
	assert_int_equal(count_entries(y->in), 5);
}

/* If the name of a file is that of a directory in the target, or that of the archive itself, no
 * file is moved. */
static void conflicts_are_found_before_anything_moves(void **state)
{
	static const struct member there[] = {{"top/file.txt/", 'd', NULL, 0}};
	static const struct member own[] = {{"before", 'f', "x", 0}, {"x.tar", 'f', "itself", 0}};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0), b = BUF_INIT(0), c = BUF_INIT(0);
	struct yard *y = *state;

	make_archive(&a, "ustar", NULL, there, ARRAY_SIZE(there));
	make_archive(&b, "ustar", NULL, tree, ARRAY_SIZE(tree));
	make_archive(&c, "ustar", NULL, own, ARRAY_SIZE(own));
	assert_int_equal(yard_unpack(y, &a, "a.tar", 100, NULL), 0);

	assert_int_equal(yard_unpack(y, &b, "b.tar", 100, NULL), -PENSTOCK_E_EXISTS);
	assert_non_null(strstr(y->err.message, "file.txt"));
	assert_int_equal(count_entries(y->in), 3);

	yard_clear(y);
	assert_int_equal(yard_unpack(y, &c, "x.tar", 100, NULL), -PENSTOCK_E_EXISTS);
	assert_nothing_unpacked(y);
}

/* The members alternate between many more directories than are kept open (MEMBERS_DIRS). */
static void many_directories_unpack(void **state)
{
	enum { DIRS = 400, FILES = 3 };
	static struct member members[DIRS * FILES];
	static char names[DIRS * FILES][40];
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct yard *y = *state;

	for (int i = 0; i < DIRS * FILES; i++) {
		snprintf(names[i], sizeof(names[i]), "d%d/e%d/f%d", i % DIRS, i % 7, i / DIRS);
		members[i] = (struct member){names[i], 'f', names[i], 0};
	}
	make_archive(&a, "ustar", "gzip", members, DIRS * FILES);
	assert_int_equal(yard_unpack(y, &a, "x.tgz", 4096, NULL), 0);

	for (int i = 0; i < DIRS * FILES; i++)
		assert_text(y, names[i], names[i]);
}

/* The files that a killed process left are removed, and no others. */
static void leftovers_are_cleaned(void **state)
{
	struct yard *y = *state;
	char path[200];

	snprintf(path, sizeof(path), "%s/.penstock-unpack-abcdef/sub", y->in);
	assert_int_equal(fs_mkdirs(path, 0700, NULL), 0);
	yard_write(path, "half", "x", 1);
	yard_write(y->in, "kept", "x", 1);

	assert_int_equal(unpack_clean(y->in, NULL), 0);

	assert_int_equal(count_entries(y->in), 1);
	assert_text(y, "kept", "x");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, yard_setup, yard_teardown)
	const struct CMUnitTest tests[] = {
		TEST(every_tar_unpacks_in_any_chunks),
		TEST(zip_and_7z_unpack),
		TEST(zip_unpacks_while_it_arrives),
		TEST(the_list_of_a_zip_is_right),
		TEST(rar_unpacks),
		TEST(a_single_compressed_file_loses_its_suffix),
		TEST(gzip_members_are_joined),
		TEST(what_is_no_archive_stays),
		TEST(a_large_plain_file_passes),
		TEST(files_that_are_used_whole_stay),
		TEST(the_last_of_one_name_wins),
		TEST(links_modes_and_times_are_kept),
		TEST(what_is_there_is_merged),
		TEST(conflicts_are_found_before_anything_moves),
		TEST(many_directories_unpack),
		TEST(leftovers_are_cleaned),
	};

	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
