/* Archives in memory, written by libarchive; directories to unpack them in, and checks of the
 * result. */
#ifndef SUPPORT_ARCHIVE_MAKER_H
#define SUPPORT_ARCHIVE_MAKER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/unpack.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"

struct member {
	const char *name;
	/* f file, d directory, l symbolic link, h hard link, p FIFO, c device, s socket */
	char type;
	const char *text; /* contents, or the target of a link */
	unsigned mode; /* 0 means 0644, or 0755 for a directory */
};

#define MEMBER_TIME 1244505600

static inline la_ssize_t maker_write(struct archive *a, void *cookie, const void *data, size_t len)
{
	(void)a;
	assert_int_equal(buf_add(cookie, data, len), 0);
	return (la_ssize_t)len;
}

/* The writer needs a locale to store names in Unicode; the reader must work without one. */
static inline struct archive *maker_new(struct buf *out, locale_t *locale)
{
	struct archive *a = archive_write_new();

	*locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	assert_true(*locale != (locale_t)0);
	uselocale(*locale);
	buf_init(out, 64 * MIB);
	archive_write_set_bytes_in_last_block(a, 1);
	return a;
}

static inline void maker_close(struct archive *a, locale_t locale)
{
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	archive_write_free(a);
	uselocale(LC_GLOBAL_LOCALE);
	freelocale(locale);
}

static inline void maker_add(struct archive *a, const struct member *m)
{
	static const struct {
		char type;
		unsigned filetype;
	} types[] = {{'f', AE_IFREG}, {'d', AE_IFDIR}, {'l', AE_IFLNK}, {'h', AE_IFREG},
		{'p', AE_IFIFO}, {'c', AE_IFCHR}, {'s', AE_IFSOCK}};
	struct archive_entry *e = archive_entry_new();
	size_t size = m->type == 'f' && m->text ? strlen(m->text) : 0;

	archive_entry_copy_pathname(e, m->name);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (types[i].type == m->type)
			archive_entry_set_filetype(e, types[i].filetype);
	}
	archive_entry_set_perm(e, m->mode ? m->mode : m->type == 'd' ? 0755 : 0644);
	archive_entry_set_mtime(e, MEMBER_TIME, 0);
	archive_entry_set_size(e, (la_int64_t)size);
	if (m->type == 'l')
		archive_entry_copy_symlink(e, m->text);
	if (m->type == 'h')
		archive_entry_copy_hardlink(e, m->text);
	assert_true(archive_write_header(a, e) >= ARCHIVE_WARN);
	if (size)
		assert_int_equal(archive_write_data(a, m->text, size), size);
	archive_entry_free(e);
}

/* `format` and `filter` have libarchive's names: "ustar", "zip"; "gzip", or NULL for no filter. */
static inline void make_archive(struct buf *out, const char *format, const char *filter,
	const struct member *members, size_t n)
{
	locale_t locale;
	struct archive *a = maker_new(out, &locale);

	assert_int_equal(archive_write_set_format_by_name(a, format), ARCHIVE_OK);
	if (filter)
		assert_int_equal(archive_write_add_filter_by_name(a, filter), ARCHIVE_OK);
	assert_int_equal(archive_write_open(a, out, NULL, maker_write, NULL), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++)
		maker_add(a, &members[i]);
	maker_close(a, locale);
}

/* Makes a compressed file of `len` bytes. */
static inline void make_compressed(
	struct buf *out, const char *filter, const void *data, size_t len)
{
	locale_t locale;
	struct archive *a = maker_new(out, &locale);
	struct archive_entry *e = archive_entry_new();

	archive_write_set_format_raw(a);
	assert_int_equal(archive_write_add_filter_by_name(a, filter), ARCHIVE_OK);
	assert_int_equal(archive_write_open(a, out, NULL, maker_write, NULL), ARCHIVE_OK);
	archive_entry_set_pathname(e, "x");
	archive_entry_set_filetype(e, AE_IFREG);
	assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
	if (len)
		assert_int_equal(archive_write_data(a, data, len), len);
	archive_entry_free(e);
	maker_close(a, locale);
}

/* The directory "in" to unpack into, and next to it a file that must not be changed. */
struct yard {
	char top[64];
	char in[80];
	struct penstock_error err;
	struct unpack_stats stats;
};

static inline void yard_write(const char *dir, const char *name, const void *data, size_t len)
{
	_cleanup_free_ char *path = path_join(dir, name);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fs_write_all(fd, data, len), 0);
}

static inline int yard_setup(void **state)
{
	struct yard *y = calloc(1, sizeof(*y));

	snprintf(y->top, sizeof(y->top), "/tmp/penstock-unpack-XXXXXX");
	assert_non_null(mkdtemp(y->top));
	snprintf(y->in, sizeof(y->in), "%s/in", y->top);
	assert_int_equal(mkdir(y->in, 0755), 0);
	yard_write(y->top, "outside", "untouched", 9);
	*state = y;
	return 0;
}

static inline int yard_teardown(void **state)
{
	struct yard *y = *state;

	penstock_error_release(&y->err);
	fs_remove_tree(y->top, NULL);
	free(y);
	return 0;
}

/* Empties "in" for the next iteration of a loop. */
static inline void yard_clear(struct yard *y)
{
	assert_int_equal(fs_remove_tree(y->in, NULL), 0);
	assert_int_equal(mkdir(y->in, 0755), 0);
	penstock_error_release(&y->err);
}

/* Writes the archive into "in" and unpacks it there; the unpacker gets chunks of `chunk` bytes. */
static inline int yard_unpack(struct yard *y, const struct buf *archive, const char *name,
	size_t chunk, const struct unpack_options *options)
{
	_cleanup_(unpacker_freep) struct unpacker *u = NULL;
	struct unpack_options own = options ? *options : (struct unpack_options){0};
	_cleanup_free_ char *path = path_join(y->in, name);
	int r;

	yard_write(y->in, name, archive->data, archive->len);
	own.name = name;
	penstock_error_release(&y->err);
	r = unpacker_new(&u, y->in, &own, &y->err);
	for (size_t at = 0; r == 0 && at < archive->len; at += chunk) {
		size_t n = archive->len - at < chunk ? archive->len - at : chunk;

		r = unpacker_feed(u, archive->data + at, n, &y->err);
	}
	if (r == 0)
		r = unpacker_finish(u, path, &y->stats, &y->err);
	return r;
}

static inline size_t count_entries(const char *dir)
{
	_cleanup_closedir_ DIR *d = opendir(dir);
	size_t n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	return n;
}

/* Asserts that "in" has only the archive, and that the file next to it is unchanged. */
static inline void assert_nothing_unpacked(const struct yard *y)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(100);
	char path[100];

	assert_int_equal(count_entries(y->in), 1);
	assert_int_equal(count_entries(y->top), 2);
	snprintf(path, sizeof(path), "%s/outside", y->top);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_string_equal(buf_str(&text), "untouched");
}

static inline void assert_file(const struct yard *y, const char *name, const void *data, size_t len)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * MIB);
	_cleanup_free_ char *path = path_join(y->in, name);

	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_int_equal(text.len, len);
	if (len)
		assert_memory_equal(text.data, data, len);
}

static inline void assert_text(const struct yard *y, const char *name, const char *text)
{
	assert_file(y, name, text, strlen(text));
}

static inline struct stat stat_of(const struct yard *y, const char *name)
{
	_cleanup_free_ char *path = path_join(y->in, name);
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st;
}

/* Fills the memory with bytes that do not compress and are the same in every run. */
static inline void fill_noise(char *p, size_t len)
{
	uint64_t x = 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (char)(x & 0xFF ? x & 0xFF : 1);
	}
}

#endif
