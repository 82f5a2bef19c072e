#include "archive/extract.h"

#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <archive.h>
#include <archive_entry.h>

#include <penstock/error.h>

#include "archive/decode.h"
#include "archive/ring.h"
#include "archive/tree.h"
#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"

/* Progress is reported after this many members, or after this many bytes. */
#define REPORT_MEMBERS 256
#define REPORT_BYTES   (1 * MIB)
#define END_MARK       512 /* zero bytes that end a tar */

struct extraction {
	enum archive_kind kind;
	struct archive *a;
	struct ring_reader in; /* the ring is NULL if a file is read */
	bool warned;
	uint64_t zeros; /* zero bytes at the end of the bytes read so far */
	struct tree *tree;
	const struct unpack_options *options;
	uint64_t reported_members, reported_bytes;
	char *member; /* EXTRACT_MEMBER bytes */
};

static void report(struct extraction *x, bool last)
{
	const struct tree *t = x->tree;

	if (!x->options->progress)
		return;
	if (!last && t->members.n < x->reported_members + REPORT_MEMBERS &&
		t->bytes < x->reported_bytes + REPORT_BYTES)
		return;
	x->reported_members = t->members.n;
	x->reported_bytes = t->bytes;
	x->options->progress(x->options->cookie, t->members.n, t->bytes);
}

/* ---- reading ---- */

static la_ssize_t read_ring(struct archive *a, void *cookie, const void **data)
{
	struct extraction *x = cookie;
	const char *p = NULL;
	ssize_t n = ring_next(&x->in, &p), zeros = 0;

	if (n < 0)
		archive_set_error(a, EIO, "the source failed");
	while (zeros < n && zeros < END_MARK && !p[n - 1 - zeros])
		zeros++;
	x->zeros = (zeros == n ? x->zeros : 0) + (uint64_t)zeros;
	*data = p;
	return n;
}

/* Raises libarchive's error, about the archive or about its current member. */
static int failed(struct extraction *x, struct penstock_error *err)
{
	const char *text = archive_error_string(x->a);
	enum penstock_code code = PENSTOCK_E_CORRUPT;
	const char *name = archive_kind_name(x->kind);
	char where[64] = "";

	if (x->in.broken)
		return error_set(err, PENSTOCK_E_CANCELLED, "the source failed");
	if (archive_errno(x->a) == ENOMEM)
		return error_memory(err);
	if (!text)
		text = "no reason given";
	if (x->in.ring)
		snprintf(where, sizeof(where), " near byte %lld of the %s data",
			(long long)archive_filter_bytes(x->a, -1), name);
	if (strcasestr(text, "encrypt") || strcasestr(text, "passphrase") ||
		strcasestr(text, "password"))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"the data is encrypted; decrypt it first, or keep the archive packed "
			"with `unpack: false`");
	if (strcasestr(text, "unsupported") || strcasestr(text, "not supported"))
		code = PENSTOCK_E_UNSUPPORTED;
	if (strcasestr(text, "Unrecognized archive format"))
		text = "missing list of members";
	if (x->member[0])
		return member_error(err, code, x->member, "%s%s%s",
			code == PENSTOCK_E_CORRUPT ? "truncated or damaged: " : "", text, where);
	return error_set(err, code, "%s%s%s",
		code == PENSTOCK_E_CORRUPT ? "the archive is truncated or damaged: " : "", text,
		where);
}

/* ---- one member ---- */

static int copy_data(struct extraction *x, const char *name, struct penstock_error *err)
{
	for (;;) {
		const void *p;
		la_int64_t offset;
		size_t n;
		int r = archive_read_data_block(x->a, &p, &n, &offset);

		if (r == ARCHIVE_EOF)
			return 0;
		/* In the contents of a file, even a warning means wrong bytes. */
		if (r != ARCHIVE_OK)
			return failed(x, err);
		r = tree_file_write(x->tree, name, p, n, (uint64_t)offset, err);
		if (r == 0)
			r = decode_check_cancel(x->options->cancel, err);
		if (r < 0)
			return r;
		report(x, false);
	}
}

static int write_file(struct extraction *x, struct archive_entry *entry, const char *name,
	const struct timespec *mtime, struct penstock_error *err)
{
	uint64_t size = archive_entry_size_is_set(entry) && archive_entry_size(entry) > 0
				? (uint64_t)archive_entry_size(entry)
				: 0;
	int r = tree_file_begin(x->tree, name, archive_entry_perm(entry), err);

	if (r == 0)
		r = copy_data(x, name, err);
	if (r == 0)
		r = tree_file_end(x->tree, name, size, mtime, err);
	return r;
}

static int write_member(
	struct extraction *x, struct archive_entry *entry, struct penstock_error *err)
{
	const char *name = archive_entry_pathname(entry);
	const char *target = archive_entry_hardlink(entry);
	struct timespec when = {archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
	const struct timespec *mtime = archive_entry_mtime_is_set(entry) ? &when : NULL;
	mode_t type = archive_entry_filetype(entry);
	const char *what;
	int r;

	if (!name)
		name = archive_entry_pathname_utf8(entry);
	if (!name || !*name)
		return error_set(err, PENSTOCK_E_CORRUPT, "member %llu has no valid name",
			(unsigned long long)x->tree->members.n + 1);
	snprintf(x->member, EXTRACT_MEMBER, "%s", name);
	if (archive_entry_is_encrypted(entry))
		return member_error(err, PENSTOCK_E_UNSUPPORTED, name,
			"the data is encrypted; decrypt it first, or keep the archive packed "
			"with `unpack: false`");
	if (target) {
		r = tree_hardlink(x->tree, name, target, err);
		/* Skip the contents of a hard link: they repeat the contents of its target. */
		return r < 0 ? r : archive_read_data_skip(x->a) == ARCHIVE_OK ? 0 : failed(x, err);
	}
	switch (type) {
	case AE_IFREG:
		return write_file(x, entry, name, mtime, err);
	case AE_IFDIR:
		return tree_directory(x->tree, name, archive_entry_perm(entry), mtime, err);
	case AE_IFLNK:
		target = archive_entry_symlink(entry);
		return tree_symlink(x->tree, name, target ? target : "", mtime, err);
	default:
		what = type == AE_IFCHR || type == AE_IFBLK ? "a device"
		       : type == AE_IFIFO		    ? "a FIFO"
		       : type == AE_IFSOCK		    ? "a socket"
							    : "of an unknown type";
		return member_error(err, PENSTOCK_E_INVALID, name,
			"the member is %s; only files, directories and links are unpacked", what);
	}
}

static int write_members(struct extraction *x, struct penstock_error *err)
{
	for (;;) {
		struct archive_entry *entry;
		int r = decode_check_cancel(x->options->cancel, err);

		if (r < 0)
			return r;
		x->member[0] = '\0';
		r = archive_read_next_header(x->a, &entry);
		if (r == ARCHIVE_EOF)
			return 0;
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
			return failed(x, err);
		if (r == ARCHIVE_WARN && !x->warned)
			log_warn("unpacking '%s': %s", x->tree->options.archive,
				archive_error_string(x->a) ? archive_error_string(x->a)
							   : "unusual header");
		x->warned = x->warned || r == ARCHIVE_WARN;
		r = write_member(x, entry, err);
		if (r < 0)
			return r;
		report(x, false);
	}
}

/* ---- the whole archive ---- */

static int add_format(struct archive *a, enum archive_kind kind, bool stream)
{
	switch (kind) {
	case ARCHIVE_KIND_TAR:
		return archive_read_support_format_tar(a);
	case ARCHIVE_KIND_RAR:
		archive_read_support_format_rar(a);
		return archive_read_support_format_rar5(a);
	case ARCHIVE_KIND_ZIP:
		return stream ? archive_read_support_format_zip_streamable(a)
			      : archive_read_support_format_zip_seekable(a);
	case ARCHIVE_KIND_7Z:
		return archive_read_support_format_7zip(a);
	default:
		return ARCHIVE_FATAL;
	}
}

/* Opens the file at `path`, which is read in pieces of `block` bytes, or the ring if `path` is
 * NULL. Then calls `work`. */
static int extract(struct extraction *x, const char *path, size_t block,
	int (*work)(struct extraction *x, struct penstock_error *err), struct penstock_error *err)
{
	/* libarchive converts Unicode names (pax, 7z, RAR) to the encoding of the locale: use a
	 * UTF-8 locale. */
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
	int r;

	x->a = archive_read_new();
	if (!x->a || add_format(x->a, x->kind, !path) < ARCHIVE_WARN)
		r = error_memory(err);
	else if ((path ? archive_read_open_filename(x->a, path, block)
		       : archive_read_open(x->a, x, NULL, read_ring, NULL)) != ARCHIVE_OK)
		r = failed(x, err);
	else
		r = work(x, err);
	archive_read_free(x->a);
	if (utf8) {
		uselocale(before);
		freelocale(utf8);
	}
	report(x, true);
	return r;
}

/* Writes the members, and reads the ring to its end, because a decoder verifies its checksum only
 * at the end of its data. */
static int write_ring(struct extraction *x, struct penstock_error *err)
{
	int r = write_members(x, err);
	const void *p;
	la_ssize_t n;

	while (r == 0 && (n = read_ring(x->a, x, &p)) != 0)
		r = n < 0 ? error_set(err, PENSTOCK_E_CANCELLED, "the source failed")
			  : decode_check_cancel(x->options->cancel, err);
	if (r == 0 && x->kind == ARCHIVE_KIND_TAR && x->zeros < END_MARK)
		log_warn(
			"'%s' has no end-of-archive marker: it may be truncated between two members; "
			"compare its size with the original",
			x->tree->options.archive);
	return r;
}

int extract_ring(enum archive_kind kind, struct ring *in, struct tree *tree,
	const struct unpack_options *options, char *member, struct penstock_error *err)
{
	struct extraction x = {.kind = kind,
		.in = {.ring = in},
		.tree = tree,
		.options = options,
		.member = member};

	member[0] = '\0';
	return extract(&x, NULL, 0, write_ring, err);
}

int extract_path(enum archive_kind kind, const char *path, struct tree *tree,
	const struct unpack_options *options, struct penstock_error *err)
{
	char member[EXTRACT_MEMBER] = "";
	struct extraction x = {.kind = kind, .tree = tree, .options = options, .member = member};

	return extract(&x, path, 128 * KIB, write_members, err);
}

/* Sets the modes and links of all members from the list at the end of the zip. Returns 0, 1 if the
 * members and the list differ, or a negative code. */
static int amend_members(struct extraction *x, struct penstock_error *err)
{
	uint64_t members = 0;

	for (;;) {
		struct archive_entry *entry;
		const char *name, *target;
		int r = decode_check_cancel(x->options->cancel, err);

		if (r < 0)
			return r;
		r = archive_read_next_header(x->a, &entry);
		if (r == ARCHIVE_EOF)
			return members == x->tree->members.n ? 0 : 1;
		if (r != ARCHIVE_OK)
			return 1;
		members++;
		name = archive_entry_pathname(entry);
		target = archive_entry_filetype(entry) == AE_IFLNK ? archive_entry_symlink(entry)
								   : NULL;
		if (!name || archive_entry_is_encrypted(entry) ||
			(archive_entry_filetype(entry) == AE_IFLNK && !target))
			return 1;
		r = tree_amend(x->tree, name, archive_entry_filetype(entry),
			archive_entry_perm(entry), (uint64_t)archive_entry_size(entry), target,
			err);
		if (r != 0)
			return r;
	}
}

int extract_amend_zip(const char *path, struct tree *tree, const struct unpack_options *options,
	struct penstock_error *err)
{
	char member[EXTRACT_MEMBER] = "";
	struct extraction x = {
		.kind = ARCHIVE_KIND_ZIP, .tree = tree, .options = options, .member = member};

	/* Only one header per member is read: use small blocks. */
	return extract(&x, path, 16 * KIB, amend_members, err);
}

int extract_single(struct ring *in, struct tree *tree, const char *name,
	const struct unpack_options *options, struct penstock_error *err)
{
	struct extraction x = {.tree = tree, .options = options};
	uint64_t offset = 0;
	int r = tree_file_begin(tree, name, 0666, err);

	while (r == 0) {
		const char *p;
		ssize_t n = ring_read_span(in, &p);

		if (n < 0)
			return error_set(err, PENSTOCK_E_CANCELLED, "the source failed");
		if (n == 0)
			break;
		r = tree_file_write(tree, name, p, (size_t)n, offset, err);
		if (r == 0)
			r = decode_check_cancel(options->cancel, err);
		offset += (uint64_t)n;
		ring_read(in, (size_t)n);
		report(&x, false);
	}
	if (r == 0)
		r = tree_file_end(tree, name, 0, NULL, err);
	report(&x, true);
	return r;
}
