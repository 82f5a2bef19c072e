/*
 * Results of long scans, in the file datasets/DIGEST.index of the home. DIGEST is a hash of the
 * place and the options; the result applies only if the list of shards in the file is the current
 * list. The process that scans locks DIGEST.lock, so that processes that open the set at the same
 * time, such as the ranks of a training run, wait for the result.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "dataset/internal.h"
#include "s3/sum/checksum.h"

#define DIRECTORY     "datasets"
#define DIGEST_BYTES  16
#define CLAIM_POLL_MS 20
#define RULES	      "3\n" /* version of the rules that find the samples */

static char *directory(void)
{
	_cleanup_free_ char *home = home_path();

	return home ? path_join(home, DIRECTORY) : NULL;
}

/* Returns the path of DIGEST with a suffix, or NULL if there is no home, if the place cannot be
 * resolved, or if out of memory. */
static char *path_of(const struct dataset *set, const struct dataset_options *o, const char *suffix)
{
	_cleanup_free_ char *dir = directory(), *place = source_identity(set->source), *key = NULL;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[2 * DIGEST_BYTES + 1];

	if (dir && place)
		key = str_printf(RULES "%s\n%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %" PRIu64
				       " %" PRIu64,
			place, o->format ? o->format : "", o->header, o->record_size, o->trailer,
			(int)o->dtype, o->window, o->stride);
	if (!key || checksum_of(CHECKSUM_SHA256, key, strlen(key), digest, NULL) < 0)
		return NULL;
	str_hex(digest, DIGEST_BYTES, hex);
	return str_printf("%s/%s%s", dir, hex, suffix);
}

bool dataset_use_kept(struct dataset *set, const struct dataset_options *options)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(LIMIT_DATASET_INDEX);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = path_of(set, options, ".index");
	struct index index;
	int r;

	if (!path || fs_read_plain(path, &bytes, NULL) < 0)
		return false;
	r = index_read(&index, bytes.data, bytes.len, path, &err);
	if (r == 0 && !source_list_equal(index.list, source_list(set->source)))
		return false;
	if (r == 0)
		r = dataset_use_index(set, &index, &bytes, &err);
	if (r < 0) {
		log_debug("%s; scanning again", err.message);
		dataset_forget_samples(set);
		return false;
	}
	set->origin = DATASET_KEPT;
	/* Marks the time of the last use. */
	utimensat(AT_FDCWD, path, NULL, 0);
	return true;
}

/* Returns true for a large data set whose names show no compressed shards: scans of compressed
 * shards are not kept. */
static bool is_worth_a_wait(const struct source *source)
{
	struct source_list list = source_list(source);
	uint64_t bytes = 0;

	for (size_t i = 0; i < list.n; i++) {
		const char *name = list.text + list.entries[i].name;

		if (strstr(name, ".zst") || str_ends(name, ".gz"))
			return false;
		bytes += list.entries[i].size;
	}
	return bytes >= LIMIT_DATASET_SCAN_MIN;
}

bool dataset_claim_scan(
	const struct dataset *set, const struct dataset_options *options, int *claim)
{
	_cleanup_free_ char *path = path_of(set, options, ".lock"), *dir = directory();
	const atomic_int *cancel = options->place.cancel;
	int64_t end = clock_monotonic_ms() + LIMIT_DATASET_CLAIM_MS;
	_cleanup_close_ int fd = -1;

	*claim = -1;
	if (!path || !dir || !is_worth_a_wait(set->source) || fs_mkdirs(dir, 0700, NULL) < 0)
		return false;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	if (fs_lock(fd) != 1) {
		*claim = take_fd(fd);
		return true;
	}
	log_debug("waiting for another process that scans '%s'", source_url(set->source));
	while (fs_lock(fd) == 1 && clock_monotonic_ms() < end && !(cancel && atomic_load(cancel)))
		clock_sleep_ms(CLAIM_POLL_MS);
	return true;
}

void dataset_release_scan(
	const struct dataset *set, const struct dataset_options *options, int claim)
{
	_cleanup_free_ char *path = claim < 0 ? NULL : path_of(set, options, ".lock");

	if (path)
		unlink(path);
	if (claim >= 0) {
		fs_unlock(claim);
		close(claim);
	}
}

/* Removes results and temporary files that were not used for LIMIT_DATASET_KEPT_DAYS. */
static void expire(const char *path)
{
	_cleanup_closedir_ DIR *dir = opendir(path);
	struct dirent *e;
	struct stat st;

	while (dir && (e = fs_next_entry(dir))) {
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISREG(st.st_mode) &&
			clock_wall_ns() / NS_PER_S - st.st_mtime >
				LIMIT_DATASET_KEPT_DAYS * (int64_t)(24 * 3600))
			unlinkat(dirfd(dir), e->d_name, 0);
	}
}

void dataset_keep(const struct dataset *set, const struct dataset_options *options)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_DATASET_INDEX);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = path_of(set, options, ".index"), *dir = directory();
	int r = path && dir ? fs_mkdirs(dir, 0700, &err) : error_memory(&err);

	if (r == 0)
		r = dataset_make_index(set, &out, &err);
	if (r == 0)
		r = fs_write_atomic(path, out.data, out.len, 0600, &err);
	if (r < 0)
		log_debug("the scan of '%s' is not kept: %s", source_url(set->source),
			err.message ? err.message : "unknown reason");
	else
		expire(dir);
}
