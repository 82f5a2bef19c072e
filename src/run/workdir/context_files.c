#include "run/workdir/context_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"
#include "s3/sum/checksum.h"

enum { NAMES_SHOWN = 3 };

void context_files_release(struct context_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->items[i].path);
	free(files->items);
	*files = (struct context_files){0};
}

static struct context_file *add(struct context_files *files, const char *path)
{
	struct context_file *f;

	if (files->n == files->cap) {
		size_t cap = files->cap ? 2 * files->cap : 64;
		struct context_file *items = reallocarray(files->items, cap, sizeof(*items));

		if (!items)
			return NULL;
		files->items = items;
		files->cap = cap;
	}
	f = &files->items[files->n];
	*f = (struct context_file){.path = strdup(path)};
	if (!f->path)
		return NULL;
	files->n++;
	return f;
}

struct context_file *context_files_add(
	struct context_files *files, const char *path, const struct stat *st)
{
	struct context_file *f = add(files, path);

	if (!f)
		return NULL;
	f->mode = st->st_mode & (S_IFMT | 0777);
	f->size = (uint64_t)st->st_size;
	f->inode = st->st_ino;
	f->mtime_ns = st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
	f->ctime_ns = st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec;
	return f;
}

static int by_path(const void *left, const void *right)
{
	const struct context_file *a = left, *b = right;

	return strcmp(a->path, b->path);
}

void context_files_sort(struct context_files *files)
{
	if (files->n)
		qsort(files->items, files->n, sizeof(*files->items), by_path);
}

const struct context_file *context_files_find(const struct context_files *files, const char *path)
{
	size_t low = 0, high = files->n;

	while (low < high) {
		size_t at = low + (high - low) / 2;
		int order = strcmp(path, files->items[at].path);

		if (order == 0)
			return &files->items[at];
		if (order < 0)
			high = at;
		else
			low = at + 1;
	}
	return NULL;
}

bool context_file_is_untouched(const struct context_file *known, const struct context_file *now)
{
	return known->size == now->size && known->inode == now->inode && known->inode &&
	       known->mtime_ns == now->mtime_ns && known->ctime_ns == now->ctime_ns &&
	       known->mode == now->mode;
}

bool context_file_is_same(const struct context_file *a, const struct context_file *b)
{
	return a->mode == b->mode && strcmp(a->sum, b->sum) == 0;
}

static void add_name(struct buf *names, const char *path, size_t n)
{
	if (n < NAMES_SHOWN)
		buf_printf(names, "%s%s", n ? ", " : "", path);
}

size_t context_files_changes(
	const struct context_files *before, const struct context_files *now, struct buf *names)
{
	size_t n = 0, i = 0, j = 0;

	while (i < before->n || j < now->n) {
		const struct context_file *a = i < before->n ? &before->items[i] : NULL;
		const struct context_file *b = j < now->n ? &now->items[j] : NULL;
		int order = !a ? 1 : !b ? -1 : strcmp(a->path, b->path);

		MUST(order > 0 ? b != NULL : a != NULL);
		i += order <= 0;
		j += order >= 0;
		if (a && b && order == 0 && context_file_is_same(a, b))
			continue;
		add_name(names, a && order <= 0 ? a->path : b->path, n++);
	}
	if (n > NAMES_SHOWN)
		buf_printf(names, " and %zu more", n - NAMES_SHOWN);
	return n;
}

int context_files_digest(const struct context_files *files, char digest[static CONTEXT_SUM_SIZE],
	struct penstock_error *err)
{
	uint8_t sum[CHECKSUM_MAX_SIZE];
	struct checksum c;
	char head[CONTEXT_SUM_SIZE + 16];
	int r = checksum_init(&c, CHECKSUM_SHA256, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < files->n; i++) {
		const struct context_file *f = &files->items[i];
		int len = snprintf(head, sizeof(head), "%s %o ", f->sum, f->mode);

		checksum_update(&c, head, (size_t)len);
		checksum_update(&c, f->path, strlen(f->path) + 1);
	}
	checksum_final(&c, sum);
	checksum_release(&c);
	str_hex(sum, CONTEXT_SUM_SIZE / 2, digest);
	return 0;
}

/* ---- the file: records that end with a NUL, as a path may contain a newline ---- */

static bool parse(struct context_files *out, const char *record)
{
	struct context_file f = {0};
	int at = 0;
	struct context_file *added;

	if (sscanf(record, "%64[0-9a-f] %o %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 "%n",
		    f.sum, &f.mode, &f.size, &f.inode, &f.mtime_ns, &f.ctime_ns, &at) != 6 ||
		record[at] != ' ')
		return false;
	added = add(out, record + at + 1);
	if (!added)
		return false;
	f.path = added->path;
	*added = f;
	return true;
}

int context_files_read(struct context_files *out, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CONTEXT_LIST);
	struct context_files files = {0};
	int r;

	*out = files;
	if (access(path, F_OK) < 0)
		return 0;
	r = fs_read(path, &text, err);
	if (r < 0)
		return r;
	for (size_t at = 0; at < text.len; at += strlen(text.data + at) + 1) {
		if (!parse(&files, text.data + at)) {
			context_files_release(&files);
			break;
		}
	}
	context_files_sort(&files);
	*out = files;
	return 0;
}

int context_files_write(
	const struct context_files *files, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CONTEXT_LIST);

	for (size_t i = 0; i < files->n; i++) {
		const struct context_file *f = &files->items[i];

		buf_printf(&text, "%s %o %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %s",
			f->sum, f->mode, f->size, f->inode, f->mtime_ns, f->ctime_ns, f->path);
		buf_add(&text, "", 1);
	}
	if (buf_failed(&text))
		return buf_error(&text, "the list of the context", err);
	return fs_write_atomic(path, buf_str(&text), text.len, 0600, err);
}
