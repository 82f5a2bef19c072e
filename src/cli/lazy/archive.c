/* libarchive, loaded when the first archive is read or written. */
#include <archive.h>
#include <archive_entry.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/limits.h"
#define LAZY_SECTION lazy_archive
#include "cli/lazy/library.h"

LAZY_LIBRARY(LAZY_ARCHIVE)

LAZY(void, archive_entry_copy_pathname, (struct archive_entry * a, const char *b), (a, b))
LAZY(void, archive_entry_copy_stat, (struct archive_entry * a, const struct stat *b), (a, b))
LAZY(void, archive_entry_copy_symlink, (struct archive_entry * a, const char *b), (a, b))
LAZY(mode_t, archive_entry_filetype, (struct archive_entry * a), (a))
LAZY_END(archive_entry_free, struct archive_entry)
LAZY(la_int64_t, archive_entry_gid, (struct archive_entry * a), (a))
LAZY(const char *, archive_entry_hardlink, (struct archive_entry * a), (a))
LAZY(int, archive_entry_is_encrypted, (struct archive_entry * a), (a))
LAZY(mode_t, archive_entry_mode, (struct archive_entry * a), (a))
LAZY(time_t, archive_entry_mtime, (struct archive_entry * a), (a))
LAZY(int, archive_entry_mtime_is_set, (struct archive_entry * a), (a))
LAZY(long, archive_entry_mtime_nsec, (struct archive_entry * a), (a))
LAZY_FIRST(struct archive_entry *, archive_entry_new, (void), (), NULL)
LAZY(const char *, archive_entry_pathname, (struct archive_entry * a), (a))
LAZY(const char *, archive_entry_pathname_utf8, (struct archive_entry * a), (a))
LAZY(mode_t, archive_entry_perm, (struct archive_entry * a), (a))
LAZY(void, archive_entry_set_gid, (struct archive_entry * a, la_int64_t b), (a, b))
LAZY(void, archive_entry_set_uid, (struct archive_entry * a, la_int64_t b), (a, b))
LAZY(la_int64_t, archive_entry_size, (struct archive_entry * a), (a))
LAZY(int, archive_entry_size_is_set, (struct archive_entry * a), (a))
LAZY(const char *, archive_entry_symlink, (struct archive_entry * a), (a))
LAZY(la_int64_t, archive_entry_uid, (struct archive_entry * a), (a))
LAZY(int, archive_entry_xattr_count, (struct archive_entry * a), (a))
LAZY(int, archive_entry_xattr_next,
	(struct archive_entry * a, const char **b, const void **c, size_t *d), (a, b, c, d))
LAZY(int, archive_entry_xattr_reset, (struct archive_entry * a), (a))
LAZY(int, archive_errno, (struct archive * a), (a))
LAZY(const char *, archive_error_string, (struct archive * a), (a))
LAZY(la_int64_t, archive_filter_bytes, (struct archive * a, int b), (a, b))
LAZY(la_ssize_t, archive_read_data, (struct archive * a, void *b, size_t c), (a, b, c))
LAZY(int, archive_read_data_block, (struct archive * a, const void **b, size_t *c, la_int64_t *d),
	(a, b, c, d))
LAZY(int, archive_read_data_skip, (struct archive * a), (a))
LAZY_CLOSE(int, archive_read_free, struct archive)
LAZY_FIRST(struct archive *, archive_read_new, (void), (), NULL)
LAZY(int, archive_read_next_header, (struct archive * a, struct archive_entry **b), (a, b))
LAZY(int, archive_read_open,
	(struct archive * a, void *b, archive_open_callback *c, archive_read_callback *d,
		archive_close_callback *e),
	(a, b, c, d, e))
LAZY(int, archive_read_open_filename, (struct archive * a, const char *b, size_t c), (a, b, c))
LAZY(int, archive_read_support_filter_bzip2, (struct archive * a), (a))
LAZY(int, archive_read_support_filter_compress, (struct archive * a), (a))
LAZY(int, archive_read_support_filter_lz4, (struct archive * a), (a))
LAZY(int, archive_read_support_filter_lzip, (struct archive * a), (a))
LAZY(int, archive_read_support_filter_lzma, (struct archive * a), (a))
LAZY(int, archive_read_support_filter_xz, (struct archive * a), (a))
LAZY(int, archive_read_support_filter_zstd, (struct archive * a), (a))
LAZY(int, archive_read_support_format_7zip, (struct archive * a), (a))
LAZY(int, archive_read_support_format_empty, (struct archive * a), (a))
LAZY(int, archive_read_support_format_rar, (struct archive * a), (a))
LAZY(int, archive_read_support_format_rar5, (struct archive * a), (a))
LAZY(int, archive_read_support_format_raw, (struct archive * a), (a))
LAZY(int, archive_read_support_format_tar, (struct archive * a), (a))
LAZY(int, archive_read_support_format_zip_seekable, (struct archive * a), (a))
LAZY(int, archive_read_support_format_zip_streamable, (struct archive * a), (a))
LAZY_FIRST(const char *, archive_version_string, (void), (), "no libarchive")
LAZY(int, archive_write_close, (struct archive * a), (a))
LAZY(la_ssize_t, archive_write_data, (struct archive * a, const void *b, size_t c), (a, b, c))
LAZY_CLOSE(int, archive_write_free, struct archive)
LAZY(int, archive_write_header, (struct archive * a, struct archive_entry *b), (a, b))
LAZY_FIRST(struct archive *, archive_write_new, (void), (), NULL)
LAZY(int, archive_write_open_fd, (struct archive * a, int b), (a, b))
LAZY(int, archive_write_set_format_zip, (struct archive * a), (a))
LAZY(int, archive_write_set_options, (struct archive * a, const char *b), (a, b))

LAZY_FUNCTION(archive_set_error)
void archive_set_error(struct archive *a, int b, const char *c, ...)
{
	char text[LIMIT_LOG_LINE];
	va_list ap;

	va_start(ap, c);
	vsnprintf(text, sizeof(text), c, ap);
	va_end(ap);
	REAL(archive_set_error)(a, b, "%s", text);
}
