/* An OCI image layout in a directory. */
#include "image/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "archive/ring.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"

struct layout {
	struct image_source source; /* first */
	char *dir;
	const atomic_int *cancel;
};

/* Returns the path of the blob with this digest, which must be valid; free() it. NULL if out of
 * memory. */
static char *blob_path(const struct layout *layout, const char *digest)
{
	_cleanup_free_ char *blobs = path_join(layout->dir, "blobs/sha256");

	return blobs ? path_join(blobs, digest + strlen("sha256:")) : NULL;
}

static int get_manifest(struct image_source *source, const char *digest, struct buf *out,
	struct penstock_error *err)
{
	const struct layout *layout = (const struct layout *)source;
	_cleanup_free_ char *path = digest ? blob_path(layout, digest)
					   : path_join(layout->dir, "index.json");

	return path ? fs_read(path, out, err) : error_memory(err);
}

static int get_config(struct image_source *source, const struct image_blob *blob, struct buf *out,
	struct penstock_error *err)
{
	return get_manifest(source, blob->digest, out, err);
}

static int copy_blob(const struct layout *layout, const char *path, struct ring *ring,
	struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot open the layer '%s'", path);
	for (;;) {
		char *room;
		size_t size = ring_write_span(ring, &room);
		ssize_t n;

		if (!size || (layout->cancel && atomic_load(layout->cancel)))
			return error_set(err, PENSTOCK_E_CANCELLED, "unpacking has ended");
		n = read(fd, room, size);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot read the layer '%s'", path);
		if (n > 0)
			ring_written(ring, (size_t)n);
	}
}

static int get_layer(struct image_source *source, const struct image_blob *blob, struct ring *ring,
	struct penstock_error *err)
{
	const struct layout *layout = (const struct layout *)source;
	_cleanup_free_ char *path = blob_path(layout, blob->digest);
	int r = path ? copy_blob(layout, path, ring, err) : error_memory(err);

	if (r < 0)
		ring_break(ring);
	else
		ring_close(ring);
	return r;
}

static void free_layout(struct image_source *source)
{
	struct layout *layout = (struct layout *)source;

	free(layout->dir);
	free(layout);
}

static const struct image_source_ops layout_ops = {
	.manifest = get_manifest,
	.config = get_config,
	.layer = get_layer,
	.free = free_layout,
};

int layout_open(struct image_source **out, const char *dir, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct layout *layout = calloc(1, sizeof(*layout));

	if (!layout)
		return error_memory(err);
	layout->source.ops = &layout_ops;
	layout->dir = strdup(dir);
	layout->cancel = cancel;
	if (!layout->dir) {
		free(layout);
		return error_memory(err);
	}
	*out = &layout->source;
	return 0;
}
