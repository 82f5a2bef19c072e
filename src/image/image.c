#include "image/image.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "image/manifest.h"
#include "image/reference.h"
#include "image/source.h"
#include "image/store.h"

/* Time limit for the reply of the registry if the image is stored. */
#define STORED_MS 5000

struct getting {
	const struct image_request *request;
	struct image_store store;
	struct image_reference ref; /* parsed reference, for registry images */
	bool is_file;
	char *name;
	struct image_source *source;
	struct image_scratch scratch; /* contents unpacked from an image file */
	struct image_manifest manifest;
	char digest[IMAGE_DIGEST_SIZE];
	struct buf text; /* raw manifest */
	atomic_ullong done;
	uint64_t total;
	int gate_fd;
	bool pulled;
};

void image_free(struct image *image)
{
	if (!image)
		return;
	free(image->name);
	strlist_release(&image->layers);
	image_config_release(&image->config);
	if (image->use_fd > 0)
		close(image->use_fd);
	free(image);
}

/* ---- stored images ---- */

static bool has_all_layers(const struct getting *g)
{
	for (size_t i = 0; i < g->manifest.n_layers; i++) {
		if (!image_store_has_layer(&g->store, g->manifest.layers[i].digest))
			return false;
	}
	return true;
}

static bool is_above(const struct image_manifest *manifest, size_t i)
{
	for (size_t j = i + 1; j < manifest->n_layers; j++) {
		if (strcmp(manifest->layers[i].digest, manifest->layers[j].digest) == 0)
			return true;
	}
	return false;
}

static int fill(struct image *image, struct getting *g, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf config = BUF_INIT(LIMIT_IMAGE_DOCUMENT);
	int r = image_store_read(&g->store, "configs", g->manifest.config.digest, &config, err);

	if (r == 0)
		r = image_config_parse(&image->config, buf_str(&config), config.len, err);
	if (r < 0)
		return r;
	image->name = take_pointer(g->name);
	snprintf(image->digest, sizeof(image->digest), "%s", g->digest);
	for (size_t i = 0; i < g->manifest.n_layers; i++) {
		_cleanup_free_ char *path = image_store_layer_path(
			&g->store, g->manifest.layers[i].digest);

		/* Skip a layer that occurs again above: it would be hidden, and overlayfs refuses
		 * duplicates. */
		if (is_above(&g->manifest, i))
			continue;
		if (!path || strlist_add(&image->layers, path) < 0)
			return error_memory(err);
	}
	return 0;
}

/* Loads the image only from the store. Fails with PENSTOCK_E_NOT_FOUND or PENSTOCK_E_CORRUPT if the
 * image must be pulled. */
static int load(
	struct image **out, struct getting *g, const char *digest, struct penstock_error *err)
{
	struct image *image;
	int r;

	buf_clear(&g->text);
	image_manifest_release(&g->manifest);
	r = image_store_read(&g->store, "manifests", digest, &g->text, err);
	if (r == 0)
		r = image_manifest_parse(&g->manifest, buf_str(&g->text), g->text.len, err);
	if (r == 0 && (g->manifest.is_index || !has_all_layers(g)))
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "layers are missing");
	if (r < 0)
		return r;
	image = calloc(1, sizeof(*image));
	if (!image)
		return error_memory(err);
	snprintf(g->digest, sizeof(g->digest), "%s", digest);
	r = fill(image, g, err);
	if (r < 0)
		image_free(image);
	else
		*out = image;
	return r;
}

/* ---- pulling ---- */

static int check_digest(const struct buf *text, const char *wanted, struct penstock_error *err)
{
	char found[IMAGE_DIGEST_SIZE];
	int r = image_store_digest(text, found, err);

	if (r == 0 && strcmp(found, wanted) != 0)
		r = error_set(err, PENSTOCK_E_CORRUPT,
			"digest mismatch: expected %.19s…, received %.19s…", wanted, found);
	return r;
}

static int keep_index(struct getting *g, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf known = BUF_INIT(LIMIT_IMAGE_DOCUMENT);
	char digest[IMAGE_DIGEST_SIZE];
	int r = g->is_file ? 0 : image_store_digest(&g->text, digest, err);

	if (r < 0 || g->is_file ||
		image_store_read(&g->store, "indexes", digest, &known, NULL) == 0)
		return r;
	return image_store_write(&g->store, "indexes", digest, &g->text, err);
}

/* Fetches the manifest for this machine, through an index if there is one. */
static int find_manifest(struct getting *g, struct penstock_error *err)
{
	const char *wanted = g->is_file ? NULL : g->ref.digest;
	int r = g->source->ops->manifest(g->source, NULL, &g->text, err);

	if (r == 0 && wanted)
		r = check_digest(&g->text, wanted, err);
	for (int depth = 0; r == 0; depth++) {
		image_manifest_release(&g->manifest);
		r = image_manifest_parse(&g->manifest, buf_str(&g->text), g->text.len, err);
		if (r < 0 || !g->manifest.is_index)
			break;
		r = keep_index(g, err);
		if (r < 0)
			break;
		if (depth == 2)
			return error_set(
				err, PENSTOCK_E_PROTOCOL, "manifest lists are nested too deep");
		buf_clear(&g->text);
		r = g->source->ops->manifest(g->source, g->manifest.config.digest, &g->text, err);
		if (r == 0)
			r = check_digest(&g->text, g->manifest.config.digest, err);
	}
	return r < 0 ? r : image_store_digest(&g->text, g->digest, err);
}

static int pull_config(struct getting *g, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_IMAGE_DOCUMENT);
	struct image_config config = {0};
	const char *digest = g->manifest.config.digest;
	int r;

	if (image_store_read(&g->store, "configs", digest, &text, NULL) == 0)
		return 0;
	buf_clear(&text);
	r = g->source->ops->config(g->source, &g->manifest.config, &text, err);
	if (r == 0)
		r = check_digest(&text, digest, err);
	if (r == 0)
		r = image_config_parse(&config, buf_str(&text), text.len, err);
	image_config_release(&config);
	return r < 0 ? r : image_store_write(&g->store, "configs", digest, &text, err);
}

static void progress(void *cookie, int64_t bytes)
{
	struct getting *g = cookie;
	uint64_t done = atomic_fetch_add(&g->done, (unsigned long long)bytes) + (uint64_t)bytes;

	if (g->request->progress)
		g->request->progress(g->request->cookie, g->name, done, g->total);
}

static int pull(struct getting *g, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf known = BUF_INIT(LIMIT_IMAGE_DOCUMENT);
	int r = pull_config(g, err);

	for (size_t i = 0; i < g->manifest.n_layers; i++) {
		if (!image_store_has_layer(&g->store, g->manifest.layers[i].digest))
			g->total += g->manifest.layers[i].size;
	}
	if (r == 0)
		r = image_store_pull_layers(&g->store, g->source, &g->manifest, err);
	if (r == 0 && image_store_read(&g->store, "manifests", g->digest, &known, NULL) < 0)
		r = image_store_write(&g->store, "manifests", g->digest, &g->text, err);
	return r;
}

/* Loads the image by the digest of its manifest, or of an index that an earlier pull stored. */
static int load_digest(struct image **out, struct getting *g, const char *digest)
{
	char chosen[IMAGE_DIGEST_SIZE];
	int r = load(out, g, digest, NULL);

	if (r == 0)
		return 0;
	buf_clear(&g->text);
	image_manifest_release(&g->manifest);
	if (image_store_read(&g->store, "indexes", digest, &g->text, NULL) < 0 ||
		image_manifest_parse(&g->manifest, buf_str(&g->text), g->text.len, NULL) < 0 ||
		!g->manifest.is_index)
		return r;
	snprintf(chosen, sizeof(chosen), "%s", g->manifest.config.digest);
	return load(out, g, chosen, NULL);
}

/* Falls back to the image last pulled under this name if the registry is unreachable. */
static int use_stored(struct image **out, struct getting *g, struct penstock_error *err)
{
	_cleanup_free_ char *text = NULL;
	char known[IMAGE_DIGEST_SIZE];

	image_store_tag_read(&g->store, g->name, known);
	if (!*known || load(out, g, known, NULL) < 0)
		return -(int)err->code;
	text = str_printf(
		"%s; using the stored image of '%s', %.19s", err->message, (*out)->name, known);
	if (text && g->request->say)
		g->request->say(g->request->cookie, text);
	penstock_error_release(err);
	return 0;
}

/* Returns true if the name was pulled before, so that its image may be a fallback. */
static bool is_stored(const struct getting *g)
{
	char known[IMAGE_DIGEST_SIZE];

	image_store_tag_read(&g->store, g->name, known);
	return *known != '\0';
}

static int open_source(struct getting *g, struct penstock_error *err)
{
	const struct image_request *request = g->request;
	const bool stored = !g->is_file && is_stored(g);

	if (g->is_file)
		return file_source(&g->source, request->reference, &g->store, &g->scratch, err);
	return registry_open(&g->source,
		&(struct registry_options){.reference = &g->ref,
			.username = request->username,
			.password = request->password,
			.engine = request->engine,
			.cancel = request->cancel,
			.manifest_deadline_ms = stored ? clock_monotonic_ms() + STORED_MS : 0,
			.patience_ms = stored ? 0 : request->patience_ms,
			.progress = progress,
			.cookie = g},
		err);
}

static int get(struct image **out, struct getting *g, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	char known[IMAGE_DIGEST_SIZE] = "";
	int r;

	/* A digest always names the same image, so a stored image needs no request. */
	if (!g->is_file && g->ref.digest) {
		image_store_tag_read(&g->store, g->name, known);
		if ((*known && load(out, g, known, NULL) == 0) ||
			load_digest(out, g, g->ref.digest) == 0)
			return 0;
	}
	buf_clear(&g->text);
	r = open_source(g, &why);
	if (r == 0)
		r = find_manifest(g, &why);
	if (r < 0 && !g->is_file &&
		(why.code == PENSTOCK_E_UNAVAILABLE || why.code == PENSTOCK_E_TIMEOUT))
		r = use_stored(out, g, &why);
	if (r < 0)
		return error_move(err, &why);
	if (*out)
		return 0;
	snprintf(known, sizeof(known), "%s", g->digest);
	g->pulled = !has_all_layers(g);
	r = pull(g, err);
	if (r == 0)
		r = load(out, g, known, err);
	if (r == 0 && !g->is_file)
		r = image_store_tag_write(&g->store, (*out)->name, known, err);
	return r;
}

#define GATE_POLL_MS 20

/* Takes the shared lock of the store. Polls, because a removal holds the lock only for a short
 * time. */
static int lock_gate(struct getting *g, struct penstock_error *err)
{
	int r;

	g->gate_fd = image_store_gate_fd(&g->store);
	while ((r = g->gate_fd < 0 ? -1 : fs_lock_shared(g->gate_fd)) > 0) {
		if (g->store.cancel && atomic_load(g->store.cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		clock_sleep_ms(GATE_POLL_MS);
	}
	return r < 0 ? error_errno(err, errno, "cannot lock '%s/locks'", g->store.dir) : 0;
}

int image_get(struct image **out, const struct image_request *request, struct penstock_error *err)
{
	struct getting g = {.request = request,
		.store = {.dir = request->dir, .cancel = request->cancel},
		.scratch = IMAGE_SCRATCH_INIT,
		.gate_fd = -1,
		.text = BUF_INIT(LIMIT_IMAGE_DOCUMENT)};
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	struct image *image = NULL;
	int r = 0;

	g.is_file = *request->reference == '/';
	if (!g.is_file)
		r = image_reference_parse(&g.ref, request->reference, request->registry, &why);
	if (r == 0) {
		g.name = g.is_file ? strdup(request->reference) : image_reference_name(&g.ref);
		r = g.name ? image_store_open(&g.store, &why) : error_memory(&why);
	}
	if (r == 0)
		r = lock_gate(&g, &why);
	if (r == 0)
		r = get(&image, &g, &why);
	/* Set the time of the manifest, because the images with the oldest times are removed first.
	 * The lock protects this image from removal until image_free(). */
	if (r == 0) {
		_cleanup_free_ char *path = image_store_path(
			&g.store, "manifests", image->digest + strlen("sha256:"));

		if (path)
			utimensat(AT_FDCWD, path, NULL, 0);
		image->use_fd = image_store_use_fd(&g.store, image->digest);
		if (image->use_fd < 0 || fs_lock_shared(image->use_fd) != 0)
			r = error_errno(
				&why, errno, "cannot lock the image in '%s/locks'", g.store.dir);
		image->pulled = g.pulled;
	}
	if (r < 0 && why.message) {
		image_free(image);
		error_prefix(&why, "image '%s'", request->reference);
	}
	image_source_free(g.source);
	image_reference_release(&g.ref);
	image_manifest_release(&g.manifest);
	image_scratch_release(&g.scratch);
	free(g.name);
	buf_release(&g.text);
	if (g.gate_fd >= 0)
		close(g.gate_fd);
	if (r < 0)
		return error_move(err, &why);
	*out = image;
	return 0;
}
