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
#include "s3/sum/checksum.h"
#include "s3/uri.h"
#include "base/banned.h"

static const char first_line[] = "penstock-transfer 1\n";
#define FIRST	   (sizeof(first_line) - 1)
#define CRC_DIGITS 8
#define OPENINGS   3 /* attempts, for a file that others remove at the same moment */

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
	/* The first line may be cut like any other. */
	if (memcmp(f->text.data, first_line, (size_t)n < FIRST ? (size_t)n : FIRST) != 0)
		return not_ours(f->path, "is not a journal of penstock", err);
	f->at = FIRST;
	if ((size_t)n < FIRST)
		return record_file_clear(f) < 0
			       ? error_errno(err, errno, "cannot write '%s'", f->path)
			       : 0;
	/* End a line that a crash has cut, so that the next one is not joined to it. */
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

static uint32_t line_crc(const char *text, size_t len)
{
	return crc32_update(0, text, len);
}

static bool crc_is_right(const char *line, size_t len)
{
	char digits[CRC_DIGITS + 1], right[CRC_DIGITS + 1];

	if (len < CRC_DIGITS + 2 || line[CRC_DIGITS] != ' ')
		return false;
	snprintf(digits, sizeof(digits), "%.8s", line);
	snprintf(right, sizeof(right), "%08x",
		line_crc(line + CRC_DIGITS + 1, len - CRC_DIGITS - 1));
	return strcmp(digits, right) == 0;
}

char record_file_peek(struct record_file *f)
{
	while (f->at < f->text.len) {
		const char *line = f->text.data + f->at;
		const char *end = memchr(line, '\n', f->text.len - f->at);

		if (!end)
			break;
		if (crc_is_right(line, (size_t)(end - line)))
			return line[CRC_DIGITS + 1];
		f->at = (size_t)(end - f->text.data) + 1;
	}
	return '\0';
}

unsigned record_file_next(struct record_file *f, char *fields[], unsigned max)
{
	while (f->at < f->text.len) {
		char *line = f->text.data + f->at;
		char *end = memchr(line, '\n', f->text.len - f->at);
		unsigned n = 0;
		char *rest;

		if (!end)
			break;
		f->at = (size_t)(end - f->text.data) + 1;
		*end = '\0';
		if (strlen(line) != (size_t)(end - line) ||
			!crc_is_right(line, (size_t)(end - line)))
			continue;
		rest = line + CRC_DIGITS + 1;
		while (rest && n < max)
			fields[n++] = strsep(&rest, " ");
		if (!rest)
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
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	if (strcmp(field, "-") == 0) {
		*field = '\0';
		return true;
	}
	if (uri_decode(&out, field, strlen(field), URI_PLUS_LITERAL) < 0)
		return false;
	memcpy(field, buf_str(&out), out.len + 1);
	return true;
}

int record_file_add(struct record_file *f, const struct buf *line)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	if (buf_failed(line)) {
		errno = ENOMEM;
		return -1;
	}
	buf_printf(&out, "%08x %s\n", line_crc(line->data, line->len), buf_str(line));
	if (buf_failed(&out)) {
		errno = ENOMEM;
		return -1;
	}
	return fs_write_all(f->fd, out.data, out.len);
}
