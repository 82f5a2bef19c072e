/*
 * Pulls the layers of an image, several in parallel. Each layer has a thread that fetches it and a
 * thread that unpacks it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
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
#include "base/process/process.h"
#include "base/str.h"
#include "base/thread.h"
#include "image/layer.h"
#include "image/source.h"
#include "image/store.h"

#define TRIES 3
/* Estimated unpacked bytes per compressed byte. */
#define GROWTH 3

struct pull {
	const struct image_store *store;
	struct image_source *source;
	const struct image_manifest *manifest;
	atomic_int stop; /* set by the caller's cancel flag or by the first failed layer */
};

struct fetching {
	struct pull *b;
	const struct image_blob *blob;
	struct ring *ring;
	struct penstock_error error;
	int result;
};

static void *fetch(void *arg)
{
	struct fetching *f = arg;

	f->result = f->b->source->ops->layer(f->b->source, f->blob, f->ring, &f->error);
	return NULL;
}

/* Makes one attempt: fetches and unpacks the layer concurrently. */
static int pull_once(
	struct pull *b, const struct image_blob *blob, const char *part, struct penstock_error *err)
{
	struct ring ring;
	struct fetching f = {b, blob, &ring, PENSTOCK_ERROR_INIT, 0};
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	pthread_t thread;
	int r;

	if (ring_init(&ring, LIMIT_IMAGE_QUEUE) < 0)
		return error_memory(err);
	r = thread_start(&thread, "fetch", fetch, &f, err);
	if (r < 0) {
		ring_release(&ring);
		return r;
	}
	r = layer_unpack(part,
		&(struct layer_input){.ring = &ring,
			.digest = blob->digest,
			.drained = b->source->ops->drained,
			.source = b->source,
			.cancel = &b->stop},
		&why);
	if (r < 0) {
		ring_refuse(&ring);
		if (b->source->ops->drained)
			b->source->ops->drained(b->source);
	}
	pthread_join(thread, NULL);
	ring_release(&ring);
	/* If the source failed, the unpacking error is only a consequence: report the source's
	 * error. */
	if (f.result < 0 && (r == 0 || why.code == PENSTOCK_E_CANCELLED))
		r = error_move(err, &f.error);
	else if (r < 0)
		r = error_move(err, &why);
	penstock_error_release(&f.error);
	return r;
}

/* Renames the complete layer into place. The mark records that the contents of the layer may not be
 * on disk yet. */
static int put_in_place(const char *part, const char *layer, struct penstock_error *err)
{
	_cleanup_free_ char *mark = str_printf("%s.new", layer);
	char boot[PROCESS_BOOT_ID_SIZE];
	int fd;
	bool written;

	if (!mark)
		return error_memory(err);
	process_boot_id(boot);
	fd = open(mark, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	written = fd >= 0 && fs_write_all(fd, boot, strlen(boot)) == 0 && fsync(fd) == 0;
	if (fd >= 0)
		close(fd);
	if (!written)
		return error_errno(err, errno, "cannot write '%s'", mark);
	if (rename(part, layer) < 0)
		return error_errno(err, errno, "cannot rename '%s'", part);
	return 0;
}

static int pull_locked(struct pull *b, const struct image_blob *blob, const char *layer,
	struct penstock_error *err)
{
	_cleanup_free_ char *part = str_printf("%s.part", layer);
	int r = 0;

	if (!part)
		return error_memory(err);
	for (int i = 0; i < TRIES; i++) {
		r = fs_remove_tree(part, err);
		if (r == 0)
			r = pull_once(b, blob, part, err);
		if (r == 0)
			r = put_in_place(part, layer, err);
		if (r == 0)
			return 0;
		if (atomic_load(&b->stop) || !error_is_retryable(err) || i + 1 == TRIES)
			break;
		penstock_error_release(err);
	}
	fs_remove_tree(part, NULL);
	return r;
}

/* Waits while another process pulls the same layer, then pulls the layer if it is still missing. */
static int pull_layer(struct pull *b, const struct image_blob *blob, struct penstock_error *err)
{
	_cleanup_free_ char *layer = image_store_layer_path(b->store, blob->digest);
	_cleanup_free_ char *lock = layer ? image_store_path(
						    b->store, "locks", strrchr(layer, '/') + 1)
					  : NULL;
	_cleanup_close_ int fd = lock ? open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	int r;

	if (!layer || !lock)
		return error_memory(err);
	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", lock);
	r = fs_lock_wait(fd, &b->stop);
	if (r < 0)
		return error_errno(err, errno, "cannot lock '%s'", lock);
	if (r > 0)
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	return access(layer, F_OK) == 0 ? 0 : pull_locked(b, blob, layer, err);
}

static int pull_missing(void *cookie, size_t i, struct penstock_error *err)
{
	struct pull *b = cookie;
	const struct image_blob *blob = &b->manifest->layers[i];

	if (image_store_has_layer(b->store, blob->digest) || pull_layer(b, blob, err) == 0)
		return 0;
	return error_prefix(err, "layer %.19s", blob->digest);
}

/* Fails with PENSTOCK_E_CANCELLED; the message has the number of complete layers. */
static int report_kept(const struct pull *b, struct penstock_error *err)
{
	size_t kept = 0;

	for (size_t i = 0; i < b->manifest->n_layers; i++)
		kept += image_store_has_layer(b->store, b->manifest->layers[i].digest);
	return error_set(err, PENSTOCK_E_CANCELLED, "cancelled: kept %zu of %zu layers", kept,
		b->manifest->n_layers);
}

int image_store_pull_layers(const struct image_store *store, struct image_source *source,
	const struct image_manifest *manifest, struct penstock_error *err)
{
	struct pull b = {.store = store, .source = source, .manifest = manifest};
	char wanted[STR_SIZE_SIZE], there[STR_SIZE_SIZE];
	uint64_t bytes = 0, room;
	int r;

	for (size_t i = 0; i < manifest->n_layers; i++) {
		uint64_t size = manifest->layers[i].size;

		if (!image_store_has_layer(store, manifest->layers[i].digest))
			bytes = bytes + size < bytes ? UINT64_MAX : bytes + size;
	}
	if (fs_free_bytes(store->dir, &room, NULL) == 0 && bytes > room / GROWTH) {
		str_format_size(bytes, wanted);
		str_format_size(room, there);
		return error_set(err, PENSTOCK_E_NO_SPACE,
			"cannot unpack %s of layers to '%s': they need about %d times as much space, "
			"and %s are free; free some space, or move the images with PENSTOCK_HOME",
			wanted, store->dir, GROWTH, there);
	}
	r = thread_each(&(struct thread_work){.name = "pull",
				.n = manifest->n_layers,
				.parallel = LIMIT_IMAGE_PARALLEL,
				.fn = pull_missing,
				.cookie = &b,
				.cancel = store->cancel,
				.stop = &b.stop},
		err);
	if ((r == 0 && atomic_load(&b.stop)) ||
		(r < 0 && store->cancel && atomic_load(store->cancel)))
		return report_kept(&b, err);
	return r;
}
