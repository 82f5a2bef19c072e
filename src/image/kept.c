#include "image/kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "image/manifest.h"
#include "image/store.h"

#define DIGITS 64 /* hex digits of a SHA-256 */

/* ---- reading ---- */

static int add(struct image_kept_list *list, const struct image_store *store, const char *name,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = image_store_path(store, "manifests", name);
	_cleanup_close_ int use = -1;
	struct image_kept *grown, *image;
	struct stat st = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_IMAGE_DOCUMENT);
	struct image_manifest manifest = {0};
	char digest[IMAGE_DIGEST_SIZE];
	int r;

	if (!path)
		return error_memory(err);
	snprintf(digest, sizeof(digest), "sha256:%s", name);
	r = image_store_read(store, "manifests", digest, &text, err);
	if (r == 0 && stat(path, &st) < 0)
		r = error_errno(err, errno, "cannot stat '%s'", path);
	/* Another process may have removed the manifest meanwhile. */
	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		return 0;
	if (r < 0)
		return r;
	grown = array_grow(list->items, list->n, sizeof(*grown));
	if (!grown)
		return error_memory(err);
	list->items = grown;
	image = &grown[list->n];
	*image = (struct image_kept){0};
	memcpy(image->digest, digest, sizeof(digest));
	image->used_ns = st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec;
	list->n++;
	/* Only test the lock: taking the lock could block another process. */
	use = image_store_use_fd(store, image->digest);
	image->in_use = use >= 0 && fs_lock_in_use(use);
	r = image_manifest_parse(&manifest, buf_str(&text), text.len, err);
	if (r == 0) {
		image->sizes = calloc(manifest.n_layers + 1, sizeof(*image->sizes));
		r = image->sizes ? 0 : error_memory(err);
	}
	for (size_t i = 0; r == 0 && i < manifest.n_layers; i++) {
		_cleanup_free_ char *layer = image_store_layer_path(
			store, manifest.layers[i].digest);

		if (!layer || strlist_add(&image->layers, layer) < 0)
			r = error_memory(err);
		else
			image->bytes += image->sizes[i] = fs_disk_bytes(layer);
	}
	image_manifest_release(&manifest);
	return r;
}

/* Adds names to the images, from the tag files. Each tag file contains "DIGEST\nNAME\n". */
static int read_names(
	struct image_kept_list *list, const struct image_store *store, struct penstock_error *err)
{
	_cleanup_free_ char *path = image_store_path(store, "tags", ".");
	_cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		_cleanup_free_ char *tag = image_store_path(store, "tags", e->d_name);
		_cleanup_(buf_release) struct buf text = BUF_INIT(4 * KIB);
		char *rest;
		const char *digest;
		const char *name;

		if (*e->d_name == '.' || !tag || fs_read(tag, &text, NULL) < 0 || !text.len)
			continue;
		rest = text.data;
		digest = strsep(&rest, "\n");
		name = rest ? strsep(&rest, "\n") : NULL;
		for (size_t i = 0; name && i < list->n; i++) {
			if (strcmp(list->items[i].digest, digest) == 0 &&
				strlist_add(&list->items[i].names, name) < 0)
				return error_memory(err);
		}
	}
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct image_kept *one = a;
	const struct image_kept *other = b;

	return (one->used_ns > other->used_ns) - (one->used_ns < other->used_ns);
}

/* Fails if the list cannot be complete: a sweep removes layers whose images are not listed. */
int image_kept_read(struct image_kept_list *list, const char *dir, struct penstock_error *err)
{
	struct image_store store = {.dir = dir};
	_cleanup_free_ char *path = image_store_path(&store, "manifests", ".");
	_cleanup_closedir_ DIR *manifests = path ? opendir(path) : NULL;
	int r = 0;

	if (!path)
		return error_memory(err);
	if (!manifests && errno != ENOENT)
		return error_errno(err, errno, "cannot list '%s'", path);
	while (r == 0 && manifests) {
		const struct dirent *e;

		errno = 0;
		e = readdir(manifests);
		if (e && strlen(e->d_name) == DIGITS)
			r = add(list, &store, e->d_name, err);
		if (!e && errno)
			r = error_errno(err, errno, "cannot list '%s'", path);
		if (!e)
			break;
	}
	if (r == 0)
		r = read_names(list, &store, err);
	if (r < 0) {
		image_kept_release(list);
		return r;
	}
	if (list->n)
		qsort(list->items, list->n, sizeof(*list->items), by_use);
	return 0;
}

void image_kept_release(struct image_kept_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		strlist_release(&list->items[i].names);
		strlist_release(&list->items[i].layers);
		free(list->items[i].sizes);
	}
	free(list->items);
	*list = (struct image_kept_list){0};
}

/* ---- removing ---- */

/* Locks the store exclusively: no process can get an image until *out is closed. */
static int lock_exclusive(int *out, const struct image_store *store, struct penstock_error *err)
{
	_cleanup_close_ int fd = image_store_gate_fd(store);
	int r = fd < 0 ? -1 : fs_lock(fd);

	if (r > 0)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot change the stored images: a pull is in progress; retry later");
	if (r < 0)
		return error_errno(err, errno, "cannot lock '%s/locks'", store->dir);
	*out = take_fd(fd);
	return 0;
}

int image_kept_remove(const char *dir, const struct image_kept *image, struct penstock_error *err)
{
	const struct image_store store = {.dir = dir};
	_cleanup_free_ char *path = image_store_path(
		&store, "manifests", image->digest + strlen("sha256:"));
	_cleanup_close_ int gate = -1;
	_cleanup_close_ int use = -1;
	int r = path ? lock_exclusive(&gate, &store, err) : error_memory(err);

	if (r < 0)
		return r;
	use = image_store_use_fd(&store, image->digest);
	r = use < 0 ? -1 : fs_lock(use);
	if (r > 0)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot remove image '%s': a run is using it",
			image->names.n ? image->names.items[0] : image->digest);
	if (r < 0)
		return error_errno(err, errno, "cannot lock '%s/locks'", dir);
	for (size_t i = 0; r == 0 && i < image->names.n; i++)
		r = image_store_tag_remove(&store, image->names.items[i], err);
	if (r == 0 && unlink(path) < 0 && errno != ENOENT)
		r = error_errno(err, errno, "cannot remove '%s'", path);
	return r;
}

/* ---- pruning ---- */

/* Returns true if one of the first `n` images that are not removed contains the layer. `gone` may
 * be NULL. */
static bool is_in_first(
	const struct image_kept_list *list, const bool *gone, size_t n, const char *path)
{
	for (size_t i = 0; i < n; i++) {
		const struct strlist *layers = &list->items[i].layers;

		for (size_t k = 0; !(gone && gone[i]) && k < layers->n; k++) {
			if (strcmp(layers->items[k], path) == 0)
				return true;
		}
	}
	return false;
}

uint64_t image_kept_bytes(const struct image_kept_list *list, const bool *gone)
{
	uint64_t total = 0;

	for (size_t i = 0; i < list->n; i++) {
		const struct image_kept *image = &list->items[i];

		for (size_t k = 0; !gone[i] && k < image->layers.n; k++) {
			if (!is_in_first(list, gone, i, image->layers.items[k]))
				total += image->sizes[k];
		}
	}
	return total;
}

int image_kept_prune(const char *dir, const struct image_kept_list *list,
	const struct image_prune *how, struct penstock_error *err)
{
	_cleanup_free_ bool *gone = calloc(list->n + 1, sizeof(*gone));

	if (!gone)
		return error_memory(err);
	for (size_t i = 0; i < list->n; i++) {
		const struct image_kept *image = &list->items[i];
		_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
		int r;

		if (image->in_use || (image->used_ns > how->before_ns &&
					     image_kept_bytes(list, gone) <= how->max_bytes))
			continue;
		r = image_kept_remove(dir, image, &why);
		if (r == -(int)PENSTOCK_E_EXISTS) {
			log_warn("%s", why.message);
			continue;
		}
		if (r < 0)
			return error_move(err, &why);
		gone[i] = true;
		if (how->removed)
			how->removed(how->cookie, image);
	}
	return 0;
}

static void record_removed(void *cookie, const struct image_kept *image)
{
	*(bool *)cookie = true;
	log_debug("removed the image '%s' to keep within `images.maxSize`",
		image->names.n ? image->names.items[0] : image->digest);
}

int image_kept_bound(
	const char *dir, uint64_t max_bytes, uint64_t *bytes, struct penstock_error *err)
{
	_cleanup_(image_kept_release) struct image_kept_list list = {0};
	bool removed = false;
	int r = image_kept_read(&list, dir, err);

	if (r == 0)
		r = image_kept_prune(dir, &list,
			&(struct image_prune){.before_ns = INT64_MIN,
				.max_bytes = max_bytes,
				.removed = record_removed,
				.cookie = &removed},
			err);
	return r == 0 && removed ? image_kept_sweep(dir, bytes, err) : r;
}

/* ---- layers ---- */

int image_kept_sweep(const char *dir, uint64_t *bytes, struct penstock_error *err)
{
	const struct image_store store = {.dir = dir};
	_cleanup_(image_kept_release) struct image_kept_list list = {0};
	_cleanup_free_ char *path = image_store_path(&store, "layers", ".");
	_cleanup_close_ int gate = -1;
	_cleanup_closedir_ DIR *layers = NULL;
	int r = path ? lock_exclusive(&gate, &store, err) : error_memory(err);

	if (r == 0)
		r = image_kept_read(&list, dir, err);
	layers = r == 0 ? opendir(path) : NULL;
	for (struct dirent *e; r == 0 && layers && (e = readdir(layers));) {
		_cleanup_free_ char *layer = image_store_path(&store, "layers", e->d_name);
		_cleanup_free_ char *mark = NULL;

		if (*e->d_name == '.' || strchr(e->d_name, '.') || !layer ||
			is_in_first(&list, NULL, list.n, layer))
			continue;
		*bytes += fs_disk_bytes(layer);
		r = fs_remove_tree(layer, err);
		mark = r == 0 ? str_printf("%s.new", layer) : NULL;
		if (mark)
			unlink(mark); /* the mark of a layer that is not synced */
	}
	return r;
}
