/* Images in local files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"
#include "image/source.h"
#include "image/store.h"

static bool has(const char *dir, const char *name)
{
	_cleanup_free_ char *path = path_join(dir, name);

	return path && access(path, F_OK) == 0;
}

/* Converts a 'docker save' archive into an OCI layout with skopeo, which reads all versions of that
 * format. */
static int convert(
	const char *path, const char *dir, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ char *from = str_printf("docker-archive:%s", path);
	_cleanup_free_ char *to = str_printf("oci:%s:image", dir);
	_cleanup_free_ char *skopeo = fs_find_tool("skopeo");
	const char *const argv[] = {skopeo, "--insecure-policy", "copy", "--quiet", from, to, NULL};
	int status = 0;
	int r;

	if (!skopeo)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s': only skopeo can read a file of 'docker save'; install "
			"skopeo, or write the file as an OCI archive",
			path);
	if (!from || !to)
		return error_memory(err);
	r = process_run(&(struct process_spec){.argv = argv,
				.stdin_fd = -1,
				.stdout_fd = -1,
				.stderr_fd = STDERR_FILENO,
				.new_session = true,
				.die_with_parent = true},
		&(struct process_run_options){.name = "skopeo", .cancel = cancel}, &status, err);
	if (r < 0 || status == 0)
		return r;
	return error_set(
		err, PENSTOCK_E_CORRUPT, "cannot read the image in '%s': skopeo failed", path);
}

static int unpack_archive(
	const char *path, const char *dir, const atomic_int *cancel, struct penstock_error *err)
{
	struct unpack_stats stats;
	int r = unpack_file(path, dir,
		&(struct unpack_options){.name = "image.tar", .always = true, .cancel = cancel},
		&stats, err);

	if (r < 0)
		return error_prefix(err, "image file '%s'", path);
	if (has(dir, "oci-layout") && has(dir, "index.json"))
		return 0;
	if (!has(dir, "manifest.json"))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot find an image in '%s'; write it with 'skopeo copy … "
			"oci-archive:FILE', 'podman save' or 'docker save'",
			path);
	r = fs_remove_tree(dir, err);
	return r < 0 ? r : convert(path, dir, cancel, err);
}

int file_source(struct image_source **out, const char *path, const struct image_store *store,
	struct image_scratch *scratch, struct penstock_error *err)
{
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return error_errno(err, errno, "cannot read the image '%s'", path);
	if (S_ISDIR(st.st_mode)) {
		if (!has(path, "oci-layout") || !has(path, "index.json"))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot find an image in '%s': `oci-layout` or `index.json` is "
				"missing",
				path);
		return layout_open(out, path, store->cancel, err);
	}
	r = image_store_scratch(store, scratch, err);
	if (r == 0)
		r = unpack_archive(path, scratch->dir, store->cancel, err);
	return r < 0 ? r : layout_open(out, scratch->dir, store->cancel, err);
}
