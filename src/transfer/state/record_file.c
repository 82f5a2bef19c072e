#include "transfer/state/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "s3/uri.h"

static const char first_line[] = "penstock-transfer 1\n";
#define FIRST	   (sizeof(first_line) - 1)
#define CRC_DIGITS 8
#define OPENINGS   3 /* attempts to open a file that other processes remove at the same moment */

static int not_ours(const char *path, const char *why, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_EXISTS, "'%s' %s", path, why);
}

static int open_locked(const char *path, int *out, struct penstock_error *err)
{
	for (int tries = 0; tries < OPENINGS; tries++) {
		_cleanup_close_ int fd = open(path,
			O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
				O_NOCTTY,
			0600);
		struct stat st;
		int r;

		if (fd < 0 && (errno == ELOOP || errno == EISDIR))
			return not_ours(path, "is not a journal of penstock", err);
		if (fd < 0 || fstat(fd, &st) < 0)
			return error_errno(err, errno, "cannot create '%s'", path);
		if (!S_ISREG(st.st_mode) || st.st_nlink > 1 || st.st_uid != geteuid())
			return not_ours(path, "is not a journal of penstock", err);
		r = fs_lock(fd);
		if (r < 0)
			return error_errno(err, errno, "cannot lock '%s'", path);
		if (r > 0)
			return not_ours(path, "is used by another transfer", err);
		if (fs_is_named(fd, path)) {
			*out = take_fd(fd);
			return 0;
		}
	}
	return not_ours(path, "is used by other transfers", err);
}

static int load(struct record_file *f, struct penstock_error *err)
{
	struct stat st;
	char *room;
	ssize_t n;

	if (fstat(f->fd, &st) < 0)
		return error_errno(err, errno, "cannot stat '%s'", f->path);
	if (st.st_size == 0)
		return fs_write_all(f->fd, first_line, FIRST) < 0
			       ? error_errno(err, errno, "cannot write '%s'", f->path)
			       : 0;
	if ((uint64_t)st.st_size > LIMIT_TRANSFER_JOURNAL)
		return not_ours(f->path, "is not a journal of penstock", err);
	room = buf_reserve(&f->text, (size_t)st.st_size);
	if (!room)
		return error_memory(err);
	n = fs_pread_all(f->fd, room, (size_t)st.st_size, 0);
	if (n < 0)
		return error_errno(err, errno, "cannot read '%s'", f->path);
	buf_grown(&f->text, (size_t)n);
	/* The first line may be truncated like any other line. */
	if (memcmp(f->text.data, first_line, (size_t)n < FIRST ? (size_t)n : FIRST) != 0)
		return not_ours(f->path, "is not a journal of penstock", err);
	f->at = FIRST;
	if ((size_t)n < FIRST)
		return record_file_clear(f) < 0
			       ? error_errno(err, errno, "cannot write '%s'", f->path)
			       : 0;
	/* End a line that a crash has truncated, so that the next line is not joined to it. */
	if (f->text.data[n - 1] != '\n' && fs_write_all(f->fd, "\n", 1) < 0)
		return error_errno(err, errno, "cannot write '%s'", f->path);
	return 0;
}

bool record_file_begins(const char *head)
{
	return strncmp(head, first_line, FIRST) == 0;
}

int record_file_open(struct record_file *f, const char *path, struct penstock_error *err)
{
	int r;

	*f = (struct record_file)RECORD_FILE_INIT;
	buf_init(&f->text, LIMIT_TRANSFER_JOURNAL);
	f->path = strdup(path);
	r = f->path ? open_locked(path, &f->fd, err) : error_memory(err);
	if (r == 0)
		r = load(f, err);
	if (r < 0)
		record_file_close(f);
	return r;
}

void record_file_close(struct record_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	buf_release(&f->text);
	*f = (struct record_file)RECORD_FILE_INIT;
}

void record_file_remove(struct record_file *f)
{
	if (f->fd >= 0 && fs_is_named(f->fd, f->path))
		unlink(f->path);
}

int record_file_clear(struct record_file *f)
{
	buf_clear(&f->text);
	f->at = 0;
	return ftruncate(f->fd, 0) < 0 ? -1 : fs_write_all(f->fd, first_line, FIRST);
}

size_t record_line_begin(struct buf *out)
{
	size_t begin = out->len;

	buf_add_str(out, "00000000 ");
	return begin;
}

void record_line_end(struct buf *out, size_t begin)
{
	size_t at = begin + RECORD_LINE_TEXT;
	char digits[CRC_DIGITS + 1];

	if (buf_add_char(out, '\n') < 0)
		return;
	snprintf(
		digits, sizeof(digits), "%08x", crc32_update(0, out->data + at, out->len - at - 1));
	memcpy(out->data + begin, digits, CRC_DIGITS);
}

bool record_line_is_whole(const char *line, size_t len)
{
	char digits[CRC_DIGITS + 1];

	if (len <= RECORD_LINE_TEXT || line[CRC_DIGITS] != ' ' || memchr(line, '\0', len))
		return false;
	/* In the sync journals of earlier versions of penstock the checksum includes the space. */
	for (size_t at = RECORD_LINE_TEXT; at >= CRC_DIGITS; at--) {
		snprintf(digits, sizeof(digits), "%08x", crc32_update(0, line + at, len - at));
		if (memcmp(digits, line, CRC_DIGITS) == 0)
			return true;
	}
	return false;
}

unsigned record_line_split(char *text, char *fields[], unsigned max)
{
	unsigned n = 0;

	while (text && n < max)
		fields[n++] = strsep(&text, " ");
	return text ? 0 : n;
}

char record_file_peek(struct record_file *f)
{
	while (f->at < f->text.len) {
		const char *line = f->text.data + f->at;
		const char *end = memchr(line, '\n', f->text.len - f->at);

		if (!end)
			break;
		if (record_line_is_whole(line, (size_t)(end - line)))
			return line[RECORD_LINE_TEXT];
		f->at = (size_t)(end - f->text.data) + 1;
	}
	return '\0';
}

unsigned record_file_next(struct record_file *f, char *fields[], unsigned max)
{
	while (record_file_peek(f)) {
		char *line = f->text.data + f->at;
		char *end = memchr(line, '\n', f->text.len - f->at);
		unsigned n;

		f->at = (size_t)(end - f->text.data) + 1;
		*end = '\0';
		n = record_line_split(line + RECORD_LINE_TEXT, fields, max);
		if (n)
			return n;
	}
	buf_release(&f->text);
	buf_init(&f->text, LIMIT_TRANSFER_JOURNAL);
	f->at = 0;
	return 0;
}

void record_add_text(struct buf *line, const char *text)
{
	buf_add_char(line, ' ');
	if (!text || !*text)
		buf_add_char(line, '-');
	else if (strcmp(text, "-") == 0)
		buf_add_str(line, "%2D");
	else
		uri_encode(line, text, strlen(text), true);
}

bool record_decode(char *field)
{
	unsigned char *out = (unsigned char *)field;

	if (strcmp(field, "-") == 0)
		field++;
	for (; *field; out++) {
		if (*field != '%') {
			*out = (unsigned char)*field++;
			continue;
		}
		char digits[3] = {field[1], field[1] ? field[2] : '\0', '\0'};

		if (str_unhex(digits, out, 1) < 0 || !*out)
			return false;
		field += 3;
	}
	*out = '\0';
	return true;
}

int record_file_add(struct record_file *f, const struct buf *line)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	size_t begin = record_line_begin(&out);

	buf_add(&out, line->data, line->len);
	record_line_end(&out, begin);
	if (buf_failed(line) || buf_failed(&out)) {
		errno = ENOMEM;
		return -1;
	}
	return fs_write_all(f->fd, out.data, out.len);
}
