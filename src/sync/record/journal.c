#include "sync/record/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "transfer/state/record_file.h"

#define FIELDS	 10
#define WRITE_AT (256 * KIB) /* pending bytes after which journal_add() writes */

struct journal {
	char *path; /* NULL if the journal keeps nothing */
	int fd;
	uint64_t size;
	struct buf pending;
	bool damaged;
	bool torn; /* the file may end in the middle of a line */
};

void journal_format(struct buf *out, const struct journal_record *r)
{
	size_t begin = record_line_begin(out);

	buf_add_char(out, (char)r->type);
	record_add_text(out, r->path);
	buf_printf(out, " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64 " %o", r->ident.size,
		r->ident.mtime_ns, r->ident.ctime_ns, r->ident.ino, r->mode);
	record_add_text(out, r->etag);
	if (r->has_crc)
		buf_printf(out, " %" PRIx64, r->crc);
	else
		buf_add_str(out, " -");
	record_add_text(out, r->key);
	record_line_end(out, begin);
}

/* Parses a number in base `base`, of at most `most` characters of `digits`. */
static bool parse_digits(const char *s, const char *digits, size_t most, int base, uint64_t *out)
{
	size_t len = strlen(s);

	if (!len || len > most || strspn(s, digits) != len)
		return false;
	*out = strtoull(s, NULL, base);
	return true;
}

bool journal_parse(char *line, struct journal_record *r)
{
	char *f[FIELDS];
	uint64_t mode;

	if (!record_line_is_whole(line, strlen(line)) ||
		record_line_split(line + RECORD_LINE_TEXT, f, FIELDS) != FIELDS ||
		strlen(f[0]) != 1 || !strchr("HCPASDXKLMRUV", f[0][0]) ||
		!parse_digits(f[6], "01234567", 7, 8, &mode))
		return false;
	*r = (struct journal_record){.type = (enum journal_type)f[0][0],
		.path = f[1],
		.etag = f[7],
		.mode = (uint32_t)mode,
		.has_crc = strcmp(f[8], "-") != 0,
		.key = f[9]};
	return str_to_u64(f[2], 0, UINT64_MAX, &r->ident.size) &&
	       str_to_i64(f[3], INT64_MIN, INT64_MAX, &r->ident.mtime_ns) &&
	       str_to_i64(f[4], INT64_MIN, INT64_MAX, &r->ident.ctime_ns) &&
	       str_to_u64(f[5], 0, UINT64_MAX, &r->ident.ino) &&
	       (!r->has_crc || parse_digits(f[8], "0123456789abcdefABCDEF", 16, 16, &r->crc)) &&
	       record_decode(f[1]) && record_decode(f[7]) && record_decode(f[9]);
}

int journal_replay(const char *path, journal_fn fn, void *cookie, unsigned *skipped,
	struct penstock_error *err)
{
	_cleanup_free_ char *line = NULL;
	_cleanup_fclose_ FILE *f = NULL;
	unsigned torn = 0;
	size_t cap = 0;
	ssize_t n = 0;

	f = fopen(path, "re");
	if (!f && errno != ENOENT)
		return error_errno(err, errno, "cannot read the journal '%s'", path);
	while (f && (n = getline(&line, &cap, f)) > 0) {
		struct journal_record r;

		/* A last line without a newline may be cut, even if its CRC matches. */
		if (line[n - 1] != '\n') {
			torn++;
			break;
		}
		line[n - 1] = '\0';
		if (n == 1)
			continue;
		if (!journal_parse(line, &r))
			torn++;
		else if (fn(cookie, &r))
			break;
	}
	if (f && n < 0 && !feof(f) && !ferror(f))
		return error_memory(err);
	if (f && ferror(f))
		return error_errno(err, errno, "cannot read the journal '%s'", path);
	if (skipped)
		*skipped = torn;
	return 0;
}

int journal_open(struct journal **out, const char *path, struct penstock_error *err)
{
	struct journal *j = calloc(1, sizeof(*j));
	off_t end;

	if (!j)
		return error_memory(err);
	buf_init(&j->pending, LIMIT_SYNC_JOURNAL_PENDING);
	j->fd = -1;
	if (path) {
		j->path = strdup(path);
		j->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (!j->path || j->fd < 0) {
			int rc = error_errno(err, errno, "cannot open the journal '%s'", path);

			journal_free(j);
			return rc;
		}
		end = lseek(j->fd, 0, SEEK_END);
		j->size = end > 0 ? (uint64_t)end : 0;
		j->torn = end > 0;
	}
	*out = j;
	return 0;
}

void journal_free(struct journal *j)
{
	if (!j)
		return;
	if (j->fd >= 0)
		close(j->fd);
	buf_release(&j->pending);
	free(j->path);
	free(j);
}

void journal_add(struct journal *j, const struct journal_record *record)
{
	if (!j->path)
		return;
	journal_format(&j->pending, record);
	if (buf_failed(&j->pending)) {
		buf_clear(&j->pending);
		j->damaged = true;
	}
	if (j->pending.len > WRITE_AT)
		journal_write(j);
}

void journal_lost(struct journal *j)
{
	j->damaged = true;
}

int journal_write(struct journal *j)
{
	ssize_t n;

	if (!j->path || !j->pending.len)
		return 0;
	if (j->torn && fs_write_all(j->fd, "\n", 1) < 0)
		return -1;
	j->torn = false;
	n = write(j->fd, j->pending.data, j->pending.len);
	if (n < 0)
		return errno == EINTR ? 0 : -1;
	j->size += (uint64_t)n;
	if ((size_t)n < j->pending.len) {
		/* The file may now end in the middle of a line: that line is lost, and the next
		 * record starts on a new line. */
		const char *rest = memchr(j->pending.data + n, '\n', j->pending.len - (size_t)n);

		if (j->pending.data[n - 1] != '\n') {
			j->torn = true;
			j->damaged = true;
			n = rest ? rest + 1 - j->pending.data : (ssize_t)j->pending.len;
		}
	}
	buf_consume(&j->pending, (size_t)n);
	return 0;
}

int journal_sync(struct journal *j)
{
	return j->path ? fdatasync(j->fd) : 0;
}

bool journal_damaged(const struct journal *j)
{
	return j->damaged;
}

uint64_t journal_size(const struct journal *j)
{
	return j->size;
}

int journal_rewrite(struct journal *j, void (*fill)(void *cookie, struct journal *j), void *cookie,
	struct penstock_error *err)
{
	_cleanup_free_ char *tmp = NULL, *dir = NULL;
	struct journal next = {.fd = -1};
	char *slash;
	int rc = 0;

	if (!j->path)
		return 0;
	tmp = str_printf("%s.new", j->path);
	if (!tmp)
		return error_memory(err);
	next.fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	if (next.fd < 0)
		return error_errno(err, errno, "cannot write the journal '%s'", tmp);
	next.path = tmp;
	buf_init(&next.pending, LIMIT_SYNC_JOURNAL_PENDING);
	fill(cookie, &next);
	while (next.pending.len && rc == 0)
		rc = journal_write(&next);
	if (rc < 0 || next.damaged || fdatasync(next.fd) < 0 || rename(tmp, j->path) < 0) {
		rc = error_errno(
			err, next.damaged ? ENOSPC : errno, "cannot write the journal '%s'", tmp);
		close(next.fd);
		unlink(tmp);
		buf_release(&next.pending);
		return rc;
	}
	buf_release(&next.pending);
	close(j->fd);
	j->fd = next.fd;
	j->size = next.size;
	j->torn = j->damaged = false;
	buf_clear(&j->pending);
	dir = strdup(j->path);
	slash = dir ? strrchr(dir, '/') : NULL;
	if (!slash)
		return 0;
	*slash = '\0';
	return fs_fsync_dir(*dir ? dir : "/", err);
}
