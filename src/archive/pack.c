#include "archive/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

#define BLOCK (256 * KIB)

struct packer {
	struct archive *archive;
	const atomic_int *cancel;
	char *path; /* for messages */
	int fd;
	char block[BLOCK];
};

static int failed(const struct packer *p, struct penstock_error *err)
{
	return error_errno(err, archive_errno(p->archive) > 0 ? archive_errno(p->archive) : EIO,
		"cannot write '%s' (%s)", p->path, archive_error_string(p->archive));
}

/* Marks names as UTF-8. libarchive takes the encoding of names from the locale at the moment when
 * the option is set, and the encoding of the locale "C" is ASCII. If there is no UTF-8 locale,
 * names are not marked. */
static int mark_names(struct packer *p)
{
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
	int r = utf8 ? archive_write_set_options(p->archive, "zip:hdrcharset=UTF-8") : ARCHIVE_OK;

	if (utf8) {
		uselocale(before);
		freelocale(utf8);
	}
	return r;
}

static int open_zip(struct packer *p, struct penstock_error *err)
{
	p->fd = mkostemp(p->path, O_CLOEXEC);
	if (p->fd < 0)
		return error_errno(err, errno, "cannot write '%s'", p->path);
	unlink(p->path);
	if (archive_write_set_format_zip(p->archive) < ARCHIVE_WARN ||
		mark_names(p) < ARCHIVE_WARN ||
		archive_write_open_fd(p->archive, p->fd) < ARCHIVE_WARN)
		return failed(p, err);
	return 0;
}

int packer_new(struct packer **out, const char *tmp_dir, const atomic_int *cancel,
	struct penstock_error *err)
{
	_cleanup_(packer_freep) struct packer *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return error_memory(err);
	p->fd = -1;
	p->cancel = cancel;
	p->path = str_printf("%s/pack.zip-XXXXXX", tmp_dir);
	p->archive = archive_write_new();
	if (!p->path || !p->archive)
		return error_memory(err);
	r = fs_mkdirs(tmp_dir, 0700, err);
	if (r == 0)
		r = open_zip(p, err);
	if (r == 0)
		*out = take_pointer(p);
	return r;
}

static int add_data(
	struct packer *p, int fd, const struct packer_member *member, struct penstock_error *err)
{
	uint64_t at = 0, size = (uint64_t)member->st->st_size;

	while (at < size) {
		size_t want = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
		ssize_t n = fs_pread_all(fd, p->block, want, (off_t)at);

		if (p->cancel && atomic_load(p->cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "the packing was interrupted");
		if (n < 0)
			return error_errno(err, errno, "cannot read '%s'", member->name);
		if ((size_t)n < want)
			return error_set(err, PENSTOCK_E_CHANGED,
				"'%s' became shorter while it was packed", member->name);
		if (archive_write_data(p->archive, p->block, want) != (la_ssize_t)want)
			return failed(p, err);
		at += want;
	}
	return 0;
}

int packer_add(struct packer *p, const struct packer_member *member, struct penstock_error *err)
{
	mode_t mode = member->st->st_mode;
	_cleanup_free_ char *name = str_printf("%s%s", member->name, S_ISDIR(mode) ? "/" : "");
	_cleanup_close_ int fd = -1;
	struct archive_entry *entry;
	char target[PATH_MAX];
	int r = 0;

	if (S_ISREG(mode)) {
		fd = openat(member->dir_fd, member->file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return error_errno(err, errno, "cannot read '%s'", member->name);
	}
	if (S_ISLNK(mode)) {
		ssize_t n = readlinkat(member->dir_fd, member->file, target, sizeof(target) - 1);

		if (n < 0)
			return error_errno(err, errno, "cannot read the link '%s'", member->name);
		target[n] = '\0';
	}
	entry = name ? archive_entry_new() : NULL;
	if (!entry)
		return error_memory(err);
	archive_entry_copy_stat(entry, member->st);
	archive_entry_copy_pathname(entry, name);
	archive_entry_set_uid(entry, 0);
	archive_entry_set_gid(entry, 0);
	if (S_ISLNK(mode))
		archive_entry_copy_symlink(entry, target);
	if (archive_write_header(p->archive, entry) < ARCHIVE_WARN)
		r = failed(p, err);
	archive_entry_free(entry);
	return r < 0 || fd < 0 ? r : add_data(p, fd, member, err);
}

int packer_finish(struct packer *p, struct penstock_error *err)
{
	return archive_write_close(p->archive) < ARCHIVE_WARN ? failed(p, err) : take_fd(p->fd);
}

void packer_free(struct packer *p)
{
	if (!p)
		return;
	archive_write_free(p->archive);
	if (p->fd >= 0)
		close(p->fd);
	free(p->path);
	free(p);
}
