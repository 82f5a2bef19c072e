#include "image/layer.h"

#include <errno.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "image/layer_stream.h"
#include "image/layer_tree.h"

#define TAR_BLOCK 512

struct unpacking {
	struct layer_stream stream;
	struct layer_tree tree;
	struct archive *a;
	int64_t received; /* bytes of the tar received so far */
	bool ended; /* the stream has ended */
};

static la_ssize_t read_tar(struct archive *a, void *cookie, const void **data)
{
	struct unpacking *u = cookie;
	const char *p = NULL;
	ssize_t n = layer_stream_read(&u->stream, &p);

	/* Some tools write no padding after the last member and no end marker: fill the last block
	 * with zeros. copy_data() makes sure that these zeros never become file data. Zeros are not
	 * a valid header, because a header has a checksum. */
	if (n == 0) {
		static const char zeros[TAR_BLOCK];

		if (u->ended)
			return 0;
		u->ended = true;
		*data = zeros;
		return (la_ssize_t)(-u->received & (TAR_BLOCK - 1));
	}
	if (n < 0)
		archive_set_error(a, EIO, "the source failed");
	else
		u->received += n;
	*data = p;
	return n;
}

/* Reports the stream's error if there is one, else libarchive's. */
static int failed(struct unpacking *u, struct penstock_error *err)
{
	const char *text = archive_error_string(u->a);

	if (u->stream.error.code)
		return error_move(err, &u->stream.error);
	if (archive_errno(u->a) == ENOMEM)
		return error_memory(err);
	return error_set(err, PENSTOCK_E_CORRUPT, "truncated or corrupt layer: %s",
		text ? text : "no reason given");
}

static int copy_data(struct unpacking *u, const struct member_place *place, int fd, int64_t size,
	struct penstock_error *err)
{
	la_int64_t end = 0;

	for (;;) {
		const void *p;
		la_int64_t offset;
		size_t n;
		int r = archive_read_data_block(u->a, &p, &n, &offset);

		if (r == ARCHIVE_EOF)
			break;
		if (r != ARCHIVE_OK)
			return failed(u, err);
		/* Fail if these bytes end beyond the bytes received: they would then contain zeros
		 * of read_tar(). libarchive's position is before these bytes. */
		if (archive_filter_bytes(u->a, 0) + (int64_t)n > u->received)
			return error_set(err, PENSTOCK_E_CORRUPT,
				"layer truncated within member '%s'", place->text);
		r = layer_room(&u->tree, n, err);
		if (r < 0)
			return r;
		if (fs_pwrite_all(fd, p, n, offset) < 0)
			return error_errno(err, errno, "cannot write member '%s'", place->text);
		end = offset + (la_int64_t)n;
	}
	/* A sparse file may end with a hole. */
	if (size > end && ftruncate(fd, size) < 0)
		return error_errno(err, errno, "cannot write member '%s'", place->text);
	return 0;
}

/* Sets the attributes that matter in a container and have no meaning to overlayfs. */
static void set_xattrs(struct archive_entry *entry, int fd)
{
	const char *name;
	const void *value;
	size_t size;

	archive_entry_xattr_reset(entry);
	while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
		bool user = str_starts(name, "user.") && !str_starts(name, "user.overlay.");

		/* Failures are ignored: containers can do without these attributes if the file
		 * system does not support them. */
		if (user || strcmp(name, "security.capability") == 0)
			fsetxattr(fd, name, value, size, 0);
	}
}

static int write_file(struct unpacking *u, struct archive_entry *entry, struct member_place *place,
	const struct layer_meta *meta, struct penstock_error *err)
{
	int r, fd = members_create(
		       &u->tree.members, place, &(struct member_new){S_IFREG, 0600, NULL, -1}, err);

	if (fd < 0)
		return fd;
	r = copy_data(u, place, fd, archive_entry_size(entry), err);
	if (r == 0)
		r = layer_file_meta(&u->tree, place, meta, fd, err);
	/* chown() drops file capabilities, so set the attributes after it. */
	if (r == 0 && u->tree.owners)
		set_xattrs(entry, fd);
	if (close(fd) < 0 && r == 0)
		r = member_errno(err, place->text, "cannot write the file");
	return r;
}

static int write_member(
	struct unpacking *u, struct archive_entry *entry, struct penstock_error *err)
{
	const char *name = archive_entry_pathname(entry);
	const char *link = archive_entry_hardlink(entry);
	const char *target;
	struct layer_meta meta = {
		.mode = archive_entry_mode(entry),
		.uid = (uid_t)archive_entry_uid(entry),
		.gid = (gid_t)archive_entry_gid(entry),
		.mtime = {archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)},
	};
	struct member_place place;
	int r;

	if (!name)
		name = archive_entry_pathname_utf8(entry);
	if (!name)
		return error_set(err, PENSTOCK_E_CORRUPT, "a member has an unreadable name");
	r = members_place(&u->tree.members, &place, name, err);
	if (r == 0)
		r = layer_mark(&u->tree, &place, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (!place.len && (link || archive_entry_filetype(entry) != AE_IFDIR))
		return error_set(err, PENSTOCK_E_CORRUPT, "a member has no name");
	if (link)
		return members_link(&u->tree.members, &place, link, err);
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
		return write_file(u, entry, &place, &meta, err);
	case AE_IFDIR:
		return layer_directory(&u->tree, &place, &meta, err);
	case AE_IFLNK:
		target = archive_entry_symlink(entry);
		return layer_entry(&u->tree, &place,
			&(struct member_new){S_IFLNK, 0, target ? target : "", -1}, &meta, err);
	case AE_IFIFO:
		return layer_entry(&u->tree, &place, &(struct member_new){S_IFIFO, 0600, NULL, -1},
			&meta, err);
	default:
		return 0; /* a device or a socket */
	}
}

static int write_members(struct unpacking *u, struct penstock_error *err)
{
	for (;;) {
		struct archive_entry *entry;
		int r = archive_read_next_header(u->a, &entry);

		if (r == ARCHIVE_EOF)
			return 0;
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
			return failed(u, err);
		r = write_member(u, entry, err);
		if (r < 0)
			return r;
	}
}

static int unpack(struct unpacking *u, const char *digest, struct penstock_error *err)
{
	const char *p;
	ssize_t n;
	int r;

	u->a = archive_read_new();
	if (!u->a)
		return error_memory(err);
	archive_read_support_format_tar(u->a);
	archive_read_support_format_empty(u->a);
	if (archive_read_open(u->a, u, NULL, read_tar, NULL) != ARCHIVE_OK)
		return failed(u, err);
	r = write_members(u, err);
	/* The digest also covers the bytes after the tar. */
	while (r == 0 && (n = layer_stream_read(&u->stream, &p)) != 0) {
		if (n < 0)
			r = error_move(err, &u->stream.error);
	}
	if (r == 0)
		r = layer_stream_verify(&u->stream, digest, err);
	if (r == 0)
		r = members_finish(&u->tree.members, err);
	return r;
}

int layer_unpack(const char *dir, const struct layer_input *input, struct penstock_error *err)
{
	struct unpacking u = {0};
	/* libarchive converts Unicode names to the encoding of the locale: use a UTF-8 locale. */
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
	int r = layer_tree_init(&u.tree, dir, err);

	if (r == 0) {
		r = layer_stream_init(&u.stream, input, err);
		if (r == 0)
			r = unpack(&u, input->digest, err);
		archive_read_free(u.a);
		layer_stream_release(&u.stream);
	}
	layer_tree_release(&u.tree);
	if (utf8) {
		uselocale(before);
		freelocale(utf8);
	}
	return r;
}
