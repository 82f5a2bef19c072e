/* A layer of an image, with a wrong digest if the first byte is odd. No layer writes outside of its
 * directory. The only devices that a layer may create are the marks of removed files. */
#include "yard.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "archive/ring.h"
#include "base/str.h"
#include "image/layer.h"
#include "s3/sum/checksum.h"

static size_t entries_of(const char *dir)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	require(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

static void check_devices(const char *dir, unsigned depth)
{
	DIR *d = depth < 100 ? opendir(dir) : NULL;

	for (struct dirent *e; d && (e = readdir(d));) {
		_cleanup_free_ char *path = path_join(dir, e->d_name);
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		require(path && lstat(path, &st) == 0);
		require(!S_ISBLK(st.st_mode) && !S_ISSOCK(st.st_mode));
		require(!S_ISCHR(st.st_mode) || st.st_rdev == makedev(0, 0));
		require(strncmp(e->d_name, ".wh.", 4) != 0);
		if (S_ISDIR(st.st_mode))
			check_devices(path, depth + 1);
	}
	if (d)
		closedir(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint8_t raw[CHECKSUM_MAX_SIZE];
	char digest[80] = "sha256:";
	char out[256];
	struct ring ring;
	struct stat before, after;

	if (size < 1)
		return 0;
	yard_open();
	yard_write("outside", "x", 1);
	require(stat(yard_path("outside"), &before) == 0);
	snprintf(out, sizeof(out), "%s", yard_path("layer"));
	require(checksum_of(CHECKSUM_SHA256, data + 1, size - 1, raw, NULL) == 0);
	str_hex(raw, 32, digest + 7);
	if (data[0] & 1)
		digest[8] = digest[8] == '0' ? '1' : '0';
	require(ring_init(&ring, size + 1) == 0);
	require(ring_write(&ring, data + 1, size - 1) == 0);
	ring_close(&ring);
	int rc = layer_unpack(out, &(struct layer_input){.ring = &ring, .digest = digest}, &err);

	require_error(rc, &err);
	require(rc < 0 || !(data[0] & 1));
	ring_release(&ring);
	require(entries_of(yard) == 2);
	require(stat(yard_path("outside"), &after) == 0 && after.st_mode == before.st_mode &&
		after.st_nlink == 1 && after.st_size == 1);
	check_devices(out, 0);
	require(fs_remove_tree(out, NULL) == 0);
	return 0;
}
