#include "transfer/tree_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/str.h"
#include "s3/uri.h"
#include "base/banned.h"

/*
 * First line: "penstock-download 1 BOOT bucket prefix", then "SIZE MTIME_NS ETAG path" for each
 * file; bucket, prefix, ETag and path are percent-encoded.
 */
#define UNKNOWN_BOOT "?"
#define OPENINGS     8 /* of what the download before it removes at its end */

struct entry {
	const char *path; /* decoded, in `text` */
	const char *etag;
	uint64_t size;
	int64_t mtime_ns;
};

struct tree_journal {
	char *dir;
	char *path;
	int fd; /* appended to; whole lines by one write() each */
	struct buf text;
	struct entry *entries; /* of the earlier call, by path */
	size_t n;
};

static int64_t mtime_of(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

/* Decodes in place; false: not something we wrote. */
static bool decode(char *text)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	if (uri_decode(&out, text, strlen(text), URI_PLUS_LITERAL) < 0)
		return false;
	memcpy(text, buf_str(&out), out.len + 1);
	return true;
}

static bool parse_line(char *line, struct entry *entry)
{
	char *fields[4];
	uint64_t mtime;

	for (int i = 0; i < 4; i++) {
		fields[i] = strsep(&line, " ");
		if (!fields[i])
			return false;
	}
	if (line || !str_to_u64(fields[0], 0, UINT64_MAX, &entry->size) ||
		!str_to_u64(fields[1], 0, INT64_MAX, &mtime) || !decode(fields[2]) ||
		!decode(fields[3]))
		return false;
	entry->mtime_ns = (int64_t)mtime;
	entry->etag = fields[2];
	entry->path = fields[3];
	return true;
}

/* The last line may have been cut by a kill: it does not end in a newline and is left out. */
static int parse_entries(struct tree_journal *j, size_t from, struct penstock_error *err)
{
	char *line = j->text.data + from;
	const char *behind = j->text.data + j->text.len;
	size_t cap = 0;

	for (char *end; (end = memchr(line, '\n', (size_t)(behind - line))); line = end + 1) {
		struct entry entry;

		*end = '\0';
		if (strlen(line) != (size_t)(end - line) || !parse_line(line, &entry))
			continue;
		if (j->n == cap) {
			struct entry *grown;

			cap = cap ? cap * 2 : 256;
			grown = realloc(j->entries, cap * sizeof(*grown));
			if (!grown)
				return error_memory(err);
			j->entries = grown;
		}
		j->entries[j->n++] = entry;
	}
	if (j->n)
		qsort(j->entries, j->n, sizeof(*j->entries), compare);
	return 0;
}

static int first_line(struct buf *out, const char *bucket, const char *prefix)
{
	char boot[PROCESS_BOOT_ID_SIZE];

	process_boot_id(boot);
	buf_printf(out, "penstock-download 1 %s %s ", *boot ? boot : UNKNOWN_BOOT, bucket);
	uri_encode(out, prefix, strlen(prefix), true);
	return buf_add_char(out, '\n');
}

static int load(struct tree_journal *j, const struct buf *first, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	if (fs_read(j->path, &j->text, &own) < 0)
		return own.code == PENSTOCK_E_NOT_FOUND ? 0 : error_move(err, &own);
	/* Of another source, or from before the machine went down: worth nothing. */
	if (strstr(buf_str(first), " " UNKNOWN_BOOT " ") || j->text.len < first->len ||
		memcmp(j->text.data, first->data, first->len) != 0) {
		buf_clear(&j->text);
		return 0;
	}
	return parse_entries(j, first->len, err);
}

/* Before anything of it is read or changed: it may be that of a download under way. */
static int open_locked(struct tree_journal *j, struct penstock_error *err)
{
	for (int tries = 0; tries < OPENINGS; tries++) {
		j->fd = open(j->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (j->fd < 0)
			return error_errno(err, errno, "cannot create %s", j->path);
		if (flock(j->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
			break;
		if (fs_is_named(j->fd, j->path))
			return 0;
		close(j->fd);
		j->fd = -1;
	}
	return error_set(err, PENSTOCK_E_EXISTS, "another download into %s is under way", j->dir);
}

int tree_journal_open(struct tree_journal **out, const char *dir, const char *bucket,
	const char *prefix, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf first = BUF_INIT(LIMIT_STRING);
	struct tree_journal *j = calloc(1, sizeof(*j));
	int r = 0;

	if (!j)
		return error_memory(err);
	j->fd = -1;
	buf_init(&j->text, LIMIT_TREE_JOURNAL);
	j->dir = strdup(dir);
	j->path = path_join(dir, TREE_JOURNAL_NAME);
	if (!j->dir || !j->path || first_line(&first, bucket, prefix) < 0)
		r = error_memory(err);
	if (r == 0)
		r = open_locked(j, err);
	if (r == 0)
		r = load(j, &first, err);
	if (r == 0) {
		bool fresh = j->text.len == 0;

		/* A cut line is ended, so that the next one is not glued to it. */
		if ((fresh && ftruncate(j->fd, 0) < 0) ||
			fs_write_all(j->fd, fresh ? buf_str(&first) : "\n", fresh ? first.len : 1) <
				0)
			r = error_errno(err, errno, "cannot write %s", j->path);
	}
	if (r < 0) {
		tree_journal_close(j);
		return r;
	}
	*out = j;
	return 0;
}

bool tree_journal_has(
	const struct tree_journal *journal, const char *path, uint64_t size, const char *etag)
{
	const struct entry wanted = {.path = path};
	const struct entry *entry;
	_cleanup_free_ char *full = NULL;
	struct stat st;

	if (!journal->n)
		return false;
	entry = bsearch(&wanted, journal->entries, journal->n, sizeof(wanted), compare);
	if (!entry || entry->size != size || strcmp(entry->etag, etag) != 0)
		return false;
	full = path_join(journal->dir, path);
	return full && lstat(full, &st) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == size && mtime_of(&st) == entry->mtime_ns;
}

int tree_journal_add(struct tree_journal *journal, const char *path, uint64_t size,
	const char *etag, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *full = path_join(journal->dir, path);
	struct stat st;

	if (!full)
		return error_memory(err);
	if (lstat(full, &st) < 0)
		return error_errno(err, errno, "cannot look at %s", full);
	buf_printf(&line, "%" PRIu64 " %" PRId64 " ", size, mtime_of(&st));
	uri_encode(&line, etag, strlen(etag), false);
	buf_add_char(&line, ' ');
	uri_encode(&line, path, strlen(path), true);
	buf_add_char(&line, '\n');
	if (buf_failed(&line))
		return buf_error(&line, "the path", err);
	if (fs_write_all(journal->fd, line.data, line.len) < 0)
		return error_errno(err, errno, "cannot write %s", journal->path);
	return 0;
}

void tree_journal_finish(struct tree_journal *journal)
{
	unlink(journal->path);
}

void tree_journal_close(struct tree_journal *journal)
{
	if (!journal)
		return;
	if (journal->fd >= 0)
		close(journal->fd);
	buf_release(&journal->text);
	free(journal->entries);
	free(journal->path);
	free(journal->dir);
	free(journal);
}
