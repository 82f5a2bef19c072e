#include "archive/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "archive/decode.h"
#include "archive/detect.h"
#include "archive/extract.h"
#include "archive/ring.h"
#include "archive/tree.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/thread.h"

/*
 * An unpacker has two threads at most. The front thread reads the input, detects its format, and
 * unpacks a tar, RAR or zip itself. If the input is compressed, the front thread decodes it, and a
 * second thread, the back, unpacks the decoded bytes. unpacker_finish() completes the formats that
 * need the whole file.
 */
struct unpacker {
	char *name; /* name of the archive; owned, and borrowed by the tree */
	struct unpack_options options;
	struct tree tree;
	bool has_tree;
	pthread_t front;
	bool front_runs; /* not joined yet */
	bool finished;
	atomic_ullong packed; /* bytes fed */

	struct ring fed, decoded;

	/* written by the front thread before it sets `passive`, refuses the input, or ends */
	enum archive_kind kind; /* format of the input; for x.tar.gz: gzip */
	enum unpack_result result;
	bool needs_file;
	bool zip_streamed; /* a zip is unpacked, but not yet compared with its list */
	atomic_bool passive; /* fed bytes are ignored from now on */
	struct penstock_error failure;

	/* written by the back thread, and read by the front thread after a join */
	bool back_is_tar;
	char *gzip_name; /* owned; set before the back starts */
	int back_result;
	struct penstock_error back_failure;
	char back_member[EXTRACT_MEMBER];
};

/* ---- the threads ---- */

static void *back_main(void *arg)
{
	struct unpacker *u = arg;
	_cleanup_free_ char *single = NULL;
	const char *p;
	ssize_t n = ring_peek(&u->decoded, &p);

	if (n < 0) {
		u->back_result = error_set(
			&u->back_failure, PENSTOCK_E_CANCELLED, "the source failed");
	} else if (archive_is_tar(p, (size_t)n, u->name)) {
		u->back_is_tar = true;
		u->back_result = extract_ring(ARCHIVE_KIND_TAR, &u->decoded, &u->tree, &u->options,
			u->back_member, &u->back_failure);
	} else {
		single = archive_single_name(u->name, u->kind, u->gzip_name);
		u->back_result = single ? extract_single(&u->decoded, &u->tree, single, &u->options,
						  &u->back_failure)
					: error_memory(&u->back_failure);
	}
	if (u->back_result < 0)
		ring_refuse(&u->decoded);
	return NULL;
}

static int decode_and_unpack(struct unpacker *u, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	pthread_t back;
	int r;

	if (ring_init(&u->decoded, LIMIT_ARCHIVE_QUEUE) < 0)
		return error_memory(err);
	r = thread_start(&back, "unpack", back_main, u, err);
	if (r < 0)
		return r;
	r = decode_stream(u->kind, &u->fed, &u->decoded, u->options.cancel, &why);
	pthread_join(back, NULL);
	u->result = u->back_is_tar ? UNPACK_TREE : UNPACK_SINGLE;
	/* If one thread fails, the other thread ends with CANCELLED. Report the error that is not
	 * CANCELLED; an error of the decoder gets the name of the current member. */
	if (r < 0 && (u->back_result >= 0 || u->back_failure.code == PENSTOCK_E_CANCELLED)) {
		error_move(err, &why);
		return u->back_member[0] ? error_prefix(err, "member '%s'", u->back_member) : r;
	}
	return u->back_result < 0 ? error_move(err, &u->back_failure) : 0;
}

/*
 * A zip has a header before each member, and a list at its end, which is authoritative: it has
 * modes and links, and omits deleted members. The headers are used while the bytes arrive; if the
 * headers do not suffice, or differ from the list, the whole file is unpacked from the list.
 */
static int unpack_zip(struct unpacker *u, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	char member[EXTRACT_MEMBER];
	int r = extract_ring(ARCHIVE_KIND_ZIP, &u->fed, &u->tree, &u->options, member, &why);

	u->needs_file = true;
	u->result = UNPACK_TREE;
	u->zip_streamed = r == 0;
	if (r == 0)
		return 0;
	switch (why.code) {
	case PENSTOCK_E_CORRUPT:
	case PENSTOCK_E_INVALID:
	case PENSTOCK_E_UNSUPPORTED:
		return tree_restart(&u->tree, err);
	default:
		return error_move(err, &why);
	}
}

/* Fails because the input is not an archive, although it has the suffix of one. The message quotes
 * the first bytes. */
static int not_as_named(const char *data, size_t len, struct penstock_error *err)
{
	char shown[41];
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < sizeof(shown); i++)
		shown[n++] = data[i] >= ' ' && data[i] < 0x7f ? data[i] : '.';
	shown[n] = '\0';
	return error_set(err, PENSTOCK_E_INVALID,
		"not an archive, although its name says so: the content begins with '%s'; correct "
		"the URL (is a login required?), or keep the file packed with `unpack: false`",
		shown);
}

static int unpack_fed(struct unpacker *u, struct penstock_error *err)
{
	char member[EXTRACT_MEMBER];
	const char *p;
	ssize_t n = ring_peek(&u->fed, &p);

	if (n < 0)
		return error_set(err, PENSTOCK_E_CANCELLED, "unpacking was cancelled");
	if (u->options.always || !unpack_keeps_whole(u->name))
		u->kind = archive_detect(p, (size_t)n, u->name);
	if (u->kind == ARCHIVE_KIND_ZIP && !u->options.always && archive_is_torch_zip(p, (size_t)n))
		u->kind = ARCHIVE_KIND_NONE;
	switch (u->kind) {
	case ARCHIVE_KIND_NONE:
		if (!u->options.always && archive_name_promises(u->name) &&
			!unpack_keeps_whole(u->name))
			return not_as_named(p, (size_t)n, err);
		if (u->options.always)
			return error_set(err, PENSTOCK_E_INVALID,
				"not a supported archive (tar, zip, 7z, rar, gzip, bzip2, xz, "
				"zstd, lz4, lzip); name another file");
		return 0;
	case ARCHIVE_KIND_ZIP:
		return unpack_zip(u, err);
	case ARCHIVE_KIND_7Z:
		u->needs_file = true;
		u->result = UNPACK_TREE;
		return 0;
	case ARCHIVE_KIND_TAR:
	case ARCHIVE_KIND_RAR:
		u->result = UNPACK_TREE;
		return extract_ring(u->kind, &u->fed, &u->tree, &u->options, member, err);
	default:
		if (u->kind == ARCHIVE_KIND_GZIP)
			u->gzip_name = decode_gzip_name(p, (size_t)n);
		return decode_and_unpack(u, err);
	}
}

static void *front_main(void *arg)
{
	struct unpacker *u = arg;

	if (unpack_fed(u, &u->failure) < 0) {
		ring_refuse(&u->fed);
	} else {
		atomic_store(&u->passive, true);
		ring_discard(&u->fed);
	}
	return NULL;
}

/* ---- interface ---- */

int unpacker_new(struct unpacker **out, const char *dir, const struct unpack_options *options,
	struct penstock_error *err)
{
	_cleanup_(unpacker_freep) struct unpacker *u = calloc(1, sizeof(*u));
	struct tree_options tree = {.max_bytes = options->max_bytes,
		.max_members = options->max_members ? options->max_members : LIMIT_ARCHIVE_MEMBERS,
		.max_ratio = options->max_ratio ? options->max_ratio : LIMIT_ARCHIVE_RATIO,
		.budget = options->budget};
	const char *ratio = getenv("PENSTOCK_UNPACK_RATIO");
	uint64_t room;
	int r = 0;

	if (!u)
		return error_memory(err);
	if (ratio && !options->max_ratio)
		str_to_u64(ratio, 1, UINT64_MAX, &tree.max_ratio);
	u->options = *options;
	u->name = strdup(options->name);
	if (!u->name || ring_init(&u->fed, LIMIT_ARCHIVE_QUEUE) < 0)
		return error_memory(err);
	tree.archive = u->options.name = u->name;
	tree.packed = &u->packed;
	if (tree.max_bytes == 0) {
		r = fs_free_bytes(dir, &room, err);
		tree.max_bytes = r == 0 ? room - room / 20 : 0;
	}
	if (r == 0)
		r = tree_init(&u->tree, dir, &tree, err);
	if (r < 0)
		return r;
	u->has_tree = true;
	r = thread_start(&u->front, "decode", front_main, u, err);
	if (r < 0)
		return r;
	u->front_runs = true;
	*out = take_pointer(u);
	return 0;
}

static int report(
	const struct unpacker *u, const struct penstock_error *why, struct penstock_error *err)
{
	return error_set(err, why->code, "cannot unpack '%s': %s", u->name, why->message);
}

int unpacker_feed(struct unpacker *u, const void *data, size_t len, struct penstock_error *err)
{
	atomic_fetch_add_explicit(&u->packed, len, memory_order_relaxed);
	if (atomic_load(&u->passive))
		return 0;
	if (ring_write(&u->fed, data, len) < 0)
		return report(u, &u->failure, err);
	return 0;
}

int unpacker_finish(struct unpacker *u, const char *path, struct unpack_stats *stats,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	int r = 0;
	bool whole;

	if (!u->front_runs)
		return error_set(
			err, PENSTOCK_E_INTERNAL, "cannot unpack '%s': finished twice", u->name);
	ring_close(&u->fed);
	pthread_join(u->front, NULL);
	u->front_runs = false;
	if (u->failure.code)
		return report(u, &u->failure, err);
	whole = u->needs_file;
	if (u->zip_streamed) {
		r = extract_amend_zip(path, &u->tree, &u->options, &why);
		whole = r == 1;
		if (whole)
			r = tree_restart(&u->tree, &why);
	}
	if (r == 0 && whole)
		r = extract_path(u->kind, path, &u->tree, &u->options, &why);
	if (r == 0 && u->result != UNPACK_PLAIN)
		r = tree_commit(&u->tree, &why);
	if (r < 0)
		return report(u, &why, err);
	if (stats)
		*stats = (struct unpack_stats){.result = u->result,
			.format = archive_kind_name(u->kind),
			.members = u->tree.members.n,
			.bytes = u->tree.bytes};
	return 0;
}

void unpacker_free(struct unpacker *u)
{
	if (!u)
		return;
	if (u->front_runs) {
		ring_abort(&u->fed);
		pthread_join(u->front, NULL);
	}
	if (u->has_tree)
		tree_release(&u->tree);
	ring_release(&u->fed);
	ring_release(&u->decoded);
	penstock_error_release(&u->failure);
	penstock_error_release(&u->back_failure);
	free(u->gzip_name);
	free(u->name);
	free(u);
}

static int feed_file(struct unpacker *u, int fd, const char *path, struct penstock_error *err)
{
	enum { CHUNK = 256 * 1024 };
	_cleanup_free_ char *chunk = malloc(CHUNK);
	struct stat st;

	if (!chunk)
		return error_memory(err);
	while (!atomic_load(&u->passive)) {
		ssize_t n = read(fd, chunk, CHUNK);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read '%s'", path);
		if (n == 0)
			return 0;
		r = unpacker_feed(u, chunk, (size_t)n, err);
		if (r < 0)
			return r;
	}
	/* Count the whole file as fed: unpacker_finish() may read all of it. */
	if (fstat(fd, &st) == 0)
		atomic_store(&u->packed, (unsigned long long)st.st_size);
	return 0;
}

int unpack_file(const char *path, const char *dir, const struct unpack_options *options,
	struct unpack_stats *stats, struct penstock_error *err)
{
	_cleanup_(unpacker_freep) struct unpacker *u = NULL;
	struct unpack_options own = options ? *options : (struct unpack_options){0};
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	if (!own.name)
		own.name = path_last(path);
	r = unpacker_new(&u, dir, &own, err);
	if (r == 0)
		r = feed_file(u, fd, path, err);
	if (r == 0)
		r = unpacker_finish(u, path, stats, err);
	return r;
}

int unpack_clean(const char *dir, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = opendir(dir);
	const struct dirent *e;

	if (!list)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot list '%s'", dir);
	while ((e = readdir(list))) {
		_cleanup_free_ char *path = NULL;
		int r;

		if (!str_starts(e->d_name, TREE_PREFIX))
			continue;
		path = path_join(dir, e->d_name);
		r = path ? fs_remove_tree(path, err) : error_memory(err);
		if (r < 0)
			return r;
	}
	return 0;
}
