#include "image/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/str.h"
#include "image/reference.h"
#include "s3/sum/checksum.h"

/* Digits of a layer's digest in its ID: unique in practice, and LIMIT_IMAGE_LAYERS IDs fit in a
 * page of mount options. */
#define ID_DIGITS 24
/* The kernel has written data that is older than this number of seconds, so syncing such data costs
 * little. */
#define SYNCED_BY_NOW_S 60

char *image_store_path(const struct image_store *store, const char *kind, const char *name)
{
	return str_printf("%s/%s/%s", store->dir, kind, name);
}

char *image_store_layer_path(const struct image_store *store, const char *digest)
{
	char id[ID_DIGITS + 1];

	snprintf(id, sizeof(id), "%s", digest + strlen("sha256:"));
	return image_store_path(store, "layers", id);
}

bool image_store_has_layer(const struct image_store *store, const char *digest)
{
	_cleanup_free_ char *path = image_store_layer_path(store, digest);

	return path && access(path, F_OK) == 0;
}

/* ---- documents ---- */

int image_store_digest(
	const struct buf *text, char digest[static IMAGE_DIGEST_SIZE], struct penstock_error *err)
{
	uint8_t raw[CHECKSUM_MAX_SIZE];
	int r = checksum_of(CHECKSUM_SHA256, buf_str(text), text->len, raw, err);

	if (r < 0)
		return r;
	memcpy(digest, "sha256:", 7);
	str_hex(raw, 32, digest + 7);
	return 0;
}

int image_store_read(const struct image_store *store, const char *kind, const char *digest,
	struct buf *out, struct penstock_error *err)
{
	_cleanup_free_ char *path = image_store_path(store, kind, digest + strlen("sha256:"));
	char found[IMAGE_DIGEST_SIZE];
	int r = path ? fs_read(path, out, err) : error_memory(err);

	if (r == 0)
		r = image_store_digest(out, found, err);
	if (r == 0 && strcmp(found, digest) != 0)
		r = error_set(err, PENSTOCK_E_CORRUPT, "'%s' is corrupt", path);
	return r;
}

int image_store_write(const struct image_store *store, const char *kind, const char *digest,
	const struct buf *text, struct penstock_error *err)
{
	_cleanup_free_ char *path = image_store_path(store, kind, digest + strlen("sha256:"));

	return path ? fs_write_atomic(path, buf_str(text), text->len, 0600, err)
		    : error_memory(err);
}

static char *tag_path(const struct image_store *store, const char *name)
{
	uint8_t raw[CHECKSUM_MAX_SIZE];
	char hex[65];

	if (checksum_of(CHECKSUM_SHA256, name, strlen(name), raw, NULL) < 0)
		return NULL;
	str_hex(raw, 32, hex);
	return image_store_path(store, "tags", hex);
}

void image_store_tag_read(
	const struct image_store *store, const char *name, char digest[static IMAGE_DIGEST_SIZE])
{
	_cleanup_free_ char *path = tag_path(store, name);
	struct buf text = BUF_INIT(4 * KIB);

	*digest = '\0';
	if (path && fs_read(path, &text, NULL) == 0) {
		char *end = strchr(buf_str(&text), '\n');

		if (end)
			*end = '\0';
		if (image_digest_is_valid(buf_str(&text)))
			snprintf(digest, IMAGE_DIGEST_SIZE, "%s", buf_str(&text));
	}
	buf_release(&text);
}

int image_store_tag_write(const struct image_store *store, const char *name, const char *digest,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = tag_path(store, name);
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * KIB);

	buf_printf(&text, "%s\n%s\n", digest, name);
	if (!path || buf_failed(&text))
		return error_memory(err);
	return fs_write_atomic(path, buf_str(&text), text.len, 0600, err);
}

int image_store_tag_remove(
	const struct image_store *store, const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *path = tag_path(store, name);

	if (!path)
		return error_memory(err);
	return unlink(path) == 0 || errno == ENOENT
		       ? 0
		       : error_errno(err, errno, "cannot remove '%s'", path);
}

/* ---- locks ---- */

static int lock_file(const struct image_store *store, const char *name)
{
	_cleanup_free_ char *path = image_store_path(store, "locks", name);

	return path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
}

int image_store_gate_fd(const struct image_store *store)
{
	return lock_file(store, "all");
}

int image_store_use_fd(const struct image_store *store, const char *digest)
{
	char name[16 + ID_DIGITS];

	snprintf(name, sizeof(name), "use-%.*s", ID_DIGITS, digest + strlen("sha256:"));
	return lock_file(store, name);
}

/* ---- opening ---- */

static int try_lock(const struct image_store *store, const char *id)
{
	int fd = lock_file(store, id);

	if (fd >= 0 && fs_lock(fd) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Removes layers/NAME, a partly unpacked layer, unless a process holds its lock. */
static void sweep_part(const struct image_store *store, const char *name)
{
	_cleanup_free_ char *id = strndup(name, strlen(name) - strlen(".part"));
	_cleanup_free_ char *path = image_store_path(store, "layers", name);
	_cleanup_close_ int lock = id ? try_lock(store, id) : -1;

	if (lock >= 0 && path)
		fs_remove_tree(path, NULL);
}

/* Returns true if the mark was written before the machine was restarted. */
static bool is_from_other_boot(const char *mark)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(256);
	char boot[PROCESS_BOOT_ID_SIZE];

	process_boot_id(boot);
	return fs_read(mark, &text, NULL) == 0 && strcmp(buf_str(&text), boot) != 0;
}

/*
 * Removes a layer that was not synced before the machine was restarted, since its contents may be
 * lost; the layer is then pulled again. Syncs a layer that is older than SYNCED_BY_NOW_S.
 */
static void settle(const struct image_store *store, const char *name, int dir_fd, bool *synced)
{
	_cleanup_free_ char *id = strndup(name, strlen(name) - strlen(".new"));
	_cleanup_free_ char *mark = image_store_path(store, "layers", name);
	_cleanup_free_ char *layer = id ? image_store_path(store, "layers", id) : NULL;
	struct stat st;

	if (!mark || !layer || stat(mark, &st) < 0)
		return;
	if (is_from_other_boot(mark)) {
		_cleanup_close_ int lock = lock_file(store, id);

		/* Wait for another process that removes the layer, and check again under the lock,
		 * because that process may have pulled the layer again and may be using it. */
		if (lock >= 0 && fs_lock_wait(lock, store->cancel) == 0 &&
			is_from_other_boot(mark) && fs_remove_tree(layer, NULL) == 0)
			unlink(mark);
	} else if (time(NULL) - st.st_mtime > SYNCED_BY_NOW_S) {
		*synced = *synced || syncfs(dir_fd) == 0;
		if (*synced)
			unlink(mark);
	}
}

static void tidy(const struct image_store *store)
{
	_cleanup_free_ char *path = image_store_path(store, "layers", ".");
	_cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;
	bool synced = false;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (str_ends(e->d_name, ".part"))
			sweep_part(store, e->d_name);
		else if (str_ends(e->d_name, ".new"))
			settle(store, e->d_name, dirfd(dir), &synced);
	}
}

/* ---- scratch directories ---- */

#define SCRATCH		 "image-"
#define SCRATCH_TEMPLATE SCRATCH "XXXXXX"

/* Creates the lock before the directory of the same name, because a directory whose lock is not
 * held is garbage. */
int image_store_scratch(
	const struct image_store *store, struct image_scratch *scratch, struct penstock_error *err)
{
	_cleanup_free_ char *template = image_store_path(store, "locks", SCRATCH_TEMPLATE);

	if (!template)
		return error_memory(err);
	scratch->lock_fd = mkostemp(template, O_CLOEXEC);
	if (scratch->lock_fd < 0 || fs_lock(scratch->lock_fd) != 0)
		return error_errno(err, errno, "cannot create a file in '%s/locks'", store->dir);
	scratch->dir = path_join(
		store->dir, template + strlen(template) - strlen(SCRATCH_TEMPLATE));
	scratch->lock = take_pointer(template);
	if (!scratch->dir)
		return error_memory(err);
	if (mkdir(scratch->dir, 0700) < 0)
		return error_errno(err, errno, "cannot create '%s'", scratch->dir);
	return 0;
}

void image_scratch_release(struct image_scratch *scratch)
{
	if (scratch->dir)
		fs_remove_tree(scratch->dir, NULL);
	if (scratch->lock)
		unlink(scratch->lock);
	if (scratch->lock_fd >= 0)
		close(scratch->lock_fd);
	free(scratch->dir);
	free(scratch->lock);
	*scratch = (struct image_scratch)IMAGE_SCRATCH_INIT;
}

static void sweep_scratch(const struct image_store *store)
{
	_cleanup_closedir_ DIR *dir = opendir(store->dir);

	for (struct dirent *e; dir && (e = readdir(dir));) {
		struct image_scratch left = IMAGE_SCRATCH_INIT;

		if (!str_starts(e->d_name, SCRATCH))
			continue;
		left.lock_fd = try_lock(store, e->d_name);
		if (left.lock_fd < 0)
			continue;
		left.lock = image_store_path(store, "locks", e->d_name);
		left.dir = path_join(store->dir, e->d_name);
		image_scratch_release(&left);
	}
}

int image_store_open(struct image_store *store, struct penstock_error *err)
{
	static const char *const kinds[] = {
		"manifests", "indexes", "configs", "layers", "locks", "tags"};
	int r = fs_mkdirs(store->dir, 0700, err);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(kinds); i++) {
		_cleanup_free_ char *path = path_join(store->dir, kinds[i]);

		r = path ? fs_mkdirs(path, 0700, err) : error_memory(err);
	}
	if (r == 0) {
		tidy(store);
		sweep_scratch(store);
	}
	return r;
}
