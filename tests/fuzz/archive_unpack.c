/*
 * The first byte selects the name of the file; the rest is the archive. No archive may write
 * outside of the directory that it is unpacked in, or leave anything after a failure.
 */
#include "fuzz.h"

#include <dirent.h>
#include <unistd.h>

#include "archive/unpack.h"
#include "base/fs.h"

static char yard[] = "/dev/shm/penstock-fuzz-XXXXXX";
static bool made;

static void remove_yard(void)
{
	fs_remove_tree(yard, NULL);
}

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

/* No unpacked symbolic link has an absolute target. The walk follows no links. */
static void check_links(const char *dir, unsigned depth)
{
	DIR *d = depth < 100 ? opendir(dir) : NULL;

	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		_cleanup_free_ char *path = NULL;
		char target[4096];

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		path = path_join(dir, e->d_name);
		require(path);
		if (e->d_type == DT_DIR)
			check_links(path, depth + 1);
		else if (e->d_type == DT_LNK) {
			ssize_t n = readlink(path, target, sizeof(target) - 1);

			require(n > 0 && target[0] != '/');
		} else {
			require(e->d_type == DT_REG);
		}
	}
	closedir(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"a.tar.gz", "a.zip", "a.7z", "data.lzma", "data.Z",
		"data.csv.gz", "noname", "a.rar"};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct unpack_stats stats = {0};
	char in[64], path[96];

	if (size < 1)
		return 0;
	if (!made) {
		require(mkdtemp(yard));
		atexit(remove_yard);
		made = true;
	}
	const char *name = names[data[0] % ARRAY_SIZE(names)];
	struct unpack_options options = {
		.name = name, .always = data[0] & 0x80, .max_bytes = 1 * MIB, .max_members = 64};

	snprintf(in, sizeof(in), "%s/in", yard);
	snprintf(path, sizeof(path), "%s/archive", yard);
	require(fs_mkdirs(in, 0700, NULL) == 0);
	FILE *f = fopen(path, "w");

	require(f && fwrite(data + 1, 1, size - 1, f) == size - 1 && fclose(f) == 0);
	int rc = unpack_file(path, in, &options, &stats, &err);

	require_error(rc, &err);
	require(entries_of(yard) == 2);
	if (rc < 0 || stats.result == UNPACK_PLAIN)
		require(entries_of(in) == 0);
	else
		require(stats.bytes <= options.max_bytes && stats.members <= options.max_members);
	check_links(in, 0);
	require(fs_remove_tree(in, NULL) == 0);
	return 0;
}
