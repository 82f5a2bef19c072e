/* Layers of images as directories: marks of deleted entries, links, and digests. */
#include "archive_maker.h"

#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "archive/ring.h"
#include "base/str.h"
#include "image/layer.h"
#include "s3/sum/checksum.h"

/* Unpacks `members` into "in/layer". If `wrong_digest`, the last digit of the digest is changed. */
static int unpack(struct yard *y, const char *filter, const struct member *members, size_t n,
	bool wrong_digest)
{
	_cleanup_(buf_release) struct buf archive = BUF_INIT(0);
	_cleanup_free_ char *dir = path_join(y->in, "layer");
	uint8_t raw[CHECKSUM_MAX_SIZE];
	char digest[80] = "sha256:";
	struct ring ring;
	int r;

	make_archive(&archive, "pax", filter, members, n);
	assert_int_equal(checksum_of(CHECKSUM_SHA256, archive.data, archive.len, raw, NULL), 0);
	raw[31] ^= wrong_digest;
	str_hex(raw, 32, digest + strlen(digest));
	assert_int_equal(ring_init(&ring, archive.len), 0);
	assert_int_equal(ring_write(&ring, archive.data, archive.len), 0);
	ring_close(&ring);
	penstock_error_release(&y->err);
	r = layer_unpack(dir, &(struct layer_input){.ring = &ring, .digest = digest}, &y->err);
	ring_release(&ring);
	return r;
}

static struct stat look(const struct yard *y, const char *name)
{
	_cleanup_free_ char *layer = path_join(y->in, "layer");
	_cleanup_free_ char *path = path_join(layer, name);
	struct stat st = {0};

	if (lstat(path, &st) < 0)
		st.st_mode = 0;
	return st;
}

static bool is_opaque(const struct yard *y, const char *name)
{
	_cleanup_free_ char *layer = path_join(y->in, "layer");
	_cleanup_free_ char *path = path_join(layer, name);
	char value[2];

	return getxattr(path, "trusted.overlay.opaque", value, sizeof(value)) == 1 ||
	       getxattr(path, "user.overlay.opaque", value, sizeof(value)) == 1;
}

static void deleted_entries_are_marked_as_overlayfs_does(void **state)
{
	static const struct member members[] = {
		{"etc/", 'd', NULL, 0},
		{"etc/.wh.gone", 'f', "", 0},
		{"opt/", 'd', NULL, 0},
		{"opt/.wh..wh..opq", 'f', "", 0},
		{"opt/new", 'f', "n", 0},
		{"var/.wh.log", 'f', "", 0},
		{"var/log/", 'd', NULL, 0},
		{"srv/", 'd', NULL, 0},
		{".wh.srv", 'f', "", 0},
		{".wh..wh.plnk", 'f', "", 0},
	};
	struct yard *y = *state;
	struct stat gone;

	assert_int_equal(unpack(y, "gzip", members, ARRAY_SIZE(members), false), 0);

	gone = look(y, "etc/gone");
	assert_true(S_ISCHR(gone.st_mode) && gone.st_rdev == makedev(0, 0));
	assert_true(is_opaque(y, "opt") && S_ISREG(look(y, "opt/new").st_mode));
	/* A directory that replaces a deleted one hides the directory of lower layers, even if it
	 * comes before the mark of the deletion. */
	assert_true(S_ISDIR(look(y, "var/log").st_mode) && is_opaque(y, "var/log"));
	assert_true(S_ISDIR(look(y, "srv").st_mode) && is_opaque(y, "srv"));
	assert_false(is_opaque(y, "etc"));
	assert_int_equal(look(y, ".wh..wh.plnk").st_mode, 0);
}

static void the_last_member_of_a_name_stays(void **state)
{
	static const struct member members[] = {
		{"dir/file", 'f', "x", 0},
		{"dir", 'l', "elsewhere", 0},
		{"link", 'l', "dir", 0},
		{"link/", 'd', NULL, 0700},
		{"tool", 'f', "x", 04755},
		{"same", 'h', "tool", 0},
		{"null", 'c', NULL, 0},
		{"pipe", 'p', NULL, 0},
		{"/absolute", 'f', "x", 0},
	};
	struct yard *y = *state;

	assert_int_equal(unpack(y, NULL, members, ARRAY_SIZE(members), false), 0);

	assert_true(S_ISLNK(look(y, "dir").st_mode));
	assert_int_equal(look(y, "link").st_mode, S_IFDIR | 0700);
	assert_int_equal(look(y, "link").st_mtime, MEMBER_TIME);
	assert_int_equal(look(y, "tool").st_mode, S_IFREG | 04755);
	assert_int_equal(look(y, "same").st_ino, look(y, "tool").st_ino);
	assert_int_equal(look(y, "null").st_mode, 0);
	assert_true(S_ISFIFO(look(y, "pipe").st_mode) && S_ISREG(look(y, "absolute").st_mode));
}

/* A container resolves links below its own root. */
static void members_below_links_stay_in_the_layer(void **state)
{
	static const struct member members[] = {
		{"up", 'l', "../../..", 0},
		{"up/outside", 'f', "x", 0},
		{"abs", 'l', "/usr", 0},
		{"usr/", 'd', NULL, 0},
		{"abs/inside", 'f', "x", 0},
	};
	struct yard *y = *state;

	assert_int_equal(unpack(y, "zstd", members, ARRAY_SIZE(members), false), 0);

	assert_true(S_ISREG(look(y, "outside").st_mode));
	assert_true(S_ISREG(look(y, "usr/inside").st_mode));
}

static void other_members_are_refused(void **state)
{
	static const struct member cases[] = {
		{"../outside", 'f', "x", 0},
		{"a/../../outside", 'f', "x", 0},
		{"h", 'h', "../outside", 0},
		{"h", 'h', "missing", 0},
		{"a/.wh.", 'f', "", 0},
		{"a/.wh...", 'f', "", 0},
	};
	struct yard *y = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(unpack(y, NULL, &cases[i], 1, false), -PENSTOCK_E_INVALID);
		yard_clear(y);
	}
}

static void another_digest_is_damage(void **state)
{
	static const struct member member = {"file", 'f', "x", 0};

	assert_int_equal(unpack(*state, "gzip", &member, 1, true), -PENSTOCK_E_CORRUPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			deleted_entries_are_marked_as_overlayfs_does, yard_setup, yard_teardown),
		cmocka_unit_test_setup_teardown(
			the_last_member_of_a_name_stays, yard_setup, yard_teardown),
		cmocka_unit_test_setup_teardown(
			members_below_links_stay_in_the_layer, yard_setup, yard_teardown),
		cmocka_unit_test_setup_teardown(
			other_members_are_refused, yard_setup, yard_teardown),
		cmocka_unit_test_setup_teardown(
			another_digest_is_damage, yard_setup, yard_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
