/* Records in memory and in the file are <text length, extra length, text, NUL, extra>. */
#include "transfer/list/sort.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "transfer/listing.h"
#include "transfer/objects.h"

#define FIRST_TEXT  ((size_t)4 * KIB)
#define FIRST_ITEMS ((size_t)64)
#define RUN_BUFFER  ((size_t)64 * KIB) /* maximum memory for one run that is read back */
#define RUN_LEAST   ((size_t)4 * KIB)

struct head {
	uint32_t text_len;
	uint32_t extra_len;
};

/* The first bytes after the common prefix of all texts decide most comparisons without reading the
 * text. */
struct item {
	uint64_t first;
	uint32_t at;
};

/* A sorted part of the file. */
struct run {
	uint64_t offset, end; /* the bytes that are not read yet */
	char *data;
	size_t size;
	size_t len; /* bytes read into `data` */
	size_t at; /* start of the record at the front */
	size_t front; /* bytes of the record at `at`; 0 at the end of the run */
};

struct list_sorter {
	size_t memory;
	char *text;
	size_t text_len, text_cap;
	struct item *items;
	size_t n_items, items_cap;
	size_t next_item; /* once sealed: the item to return next */

	int fd; /* file of the runs */
	uint64_t file_size;
	struct run *runs; /* a heap once sealed */
	size_t n_runs;
	size_t runs_memory;
	bool front_taken; /* the record at the root of the heap was returned */
};

int list_sorter_new(struct list_sorter **out, size_t memory, struct penstock_error *err)
{
	struct list_sorter *s = calloc(1, sizeof(*s));

	if (!s)
		return error_memory(err);
	s->memory = memory;
	s->fd = -1;
	*out = s;
	return 0;
}

void list_sorter_free(struct list_sorter *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_runs; i++)
		free(s->runs[i].data);
	free(s->runs);
	free(s->text);
	free(s->items);
	cleanup_closep(&s->fd);
	free(s);
}

size_t list_sorter_memory(const struct list_sorter *s)
{
	return s->text_cap + s->items_cap * sizeof(*s->items) + s->runs_memory;
}

/* ---- in memory ---- */

static struct head head_at(const char *data)
{
	struct head head;

	memcpy(&head, data, sizeof(head));
	return head;
}

static size_t record_size(struct head head)
{
	return sizeof(head) + head.text_len + 1 + head.extra_len;
}

static struct list_record record_at(const char *data)
{
	struct head head = head_at(data);
	const char *text = data + sizeof(head);

	return (struct list_record){.text = text,
		.text_len = head.text_len,
		.extra = text + head.text_len + 1,
		.extra_len = head.extra_len};
}

static int compare_texts(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int r = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return r ? r : (a_len > b_len) - (a_len < b_len);
}

static int compare_items(const void *a, const void *b, void *cookie)
{
	const struct item *x = a, *y = b;
	const char *text = cookie;
	struct list_record p, q;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	p = record_at(text + x->at);
	q = record_at(text + y->at);
	return compare_texts(p.text, p.text_len, q.text, q.text_len);
}

static size_t common_length(const struct list_sorter *s)
{
	struct list_record first;
	size_t common;

	if (!s->n_items)
		return 0;
	first = record_at(s->text + s->items[0].at);
	common = first.text_len;
	for (size_t i = 1; i < s->n_items && common; i++) {
		struct list_record r = record_at(s->text + s->items[i].at);
		size_t n = r.text_len < common ? r.text_len : common;

		/* The texts nearly always agree in these bytes, so compare all bytes at once
		 * first. */
		if (n < common || memcmp(r.text, first.text, n) != 0) {
			for (common = 0; common < n && r.text[common] == first.text[common];)
				common++;
		}
	}
	return common;
}

static void sort_items(struct list_sorter *s)
{
	size_t common = common_length(s);

	for (size_t i = 0; i < s->n_items; i++) {
		struct list_record r = record_at(s->text + s->items[i].at);
		uint64_t first = 0;

		for (size_t k = common; k < common + sizeof(first); k++)
			first = first << 8 | (k < r.text_len ? (unsigned char)r.text[k] : 0);
		s->items[i].first = first;
	}
	if (s->n_items > 1)
		qsort_r(s->items, s->n_items, sizeof(*s->items), compare_items, s->text);
}

static int grow(void **array, size_t *cap, size_t wanted, size_t first, size_t item_size,
	struct penstock_error *err)
{
	size_t cap_new = *cap ? *cap : first;
	void *grown;

	if (wanted <= *cap)
		return 0;
	while (cap_new < wanted)
		cap_new *= 2;
	grown = realloc(*array, cap_new * item_size);
	if (!grown)
		return error_memory(err);
	*array = grown;
	*cap = cap_new;
	return 0;
}

/* ---- to the file and back ---- */

static int file_write(
	struct list_sorter *s, const char *data, size_t len, struct penstock_error *err)
{
	if (fs_pwrite_all(s->fd, data, len, (off_t)s->file_size) < 0)
		return error_errno(err, errno, "cannot write a long list to TMPDIR");
	s->file_size += len;
	return 0;
}

/* Writes items[from..] as one more run. */
static int run_write(struct list_sorter *s, size_t from, struct penstock_error *err)
{
	_cleanup_free_ char *out = malloc(RUN_BUFFER);
	struct run *grown = realloc(s->runs, (s->n_runs + 1) * sizeof(*grown));
	struct run run = {.offset = s->file_size};
	size_t used = 0;
	int r;

	if (grown)
		s->runs = grown;
	if (!grown || !out)
		return error_memory(err);
	if (s->fd < 0)
		s->fd = fs_open_unnamed("a long list", err);
	r = s->fd < 0 ? s->fd : 0;
	for (size_t i = from; r == 0 && i < s->n_items; i++) {
		const char *record = s->text + s->items[i].at;
		size_t size = record_size(head_at(record));

		if (used && used + size > RUN_BUFFER) {
			r = file_write(s, out, used, err);
			used = 0;
		}
		if (r == 0 && size > RUN_BUFFER) {
			r = file_write(s, record, size, err);
		} else if (r == 0) {
			memcpy(out + used, record, size);
			used += size;
		}
	}
	if (r == 0 && used)
		r = file_write(s, out, used, err);
	run.end = s->file_size;
	if (r == 0 && run.end > run.offset)
		s->runs[s->n_runs++] = run;
	return r;
}

static void memory_drop(struct list_sorter *s, bool all)
{
	s->text_len = s->n_items = s->next_item = 0;
	if (!all)
		return;
	free(take_pointer(s->text));
	free(take_pointer(s->items));
	s->text_cap = s->items_cap = 0;
}

/* Reads until at least `wanted` bytes after `at` are available. */
static int run_fill(
	struct list_sorter *s, struct run *run, size_t wanted, struct penstock_error *err)
{
	if (run->len - run->at >= wanted)
		return 0;
	memmove(run->data, run->data + run->at, run->len - run->at);
	run->len -= run->at;
	run->at = 0;
	if (wanted > run->size) {
		char *grown = realloc(run->data, wanted);

		if (!grown)
			return error_memory(err);
		s->runs_memory += wanted - run->size;
		run->data = grown;
		run->size = wanted;
	}
	while (run->len < wanted) {
		uint64_t left = run->end - run->offset;
		size_t room = run->size - run->len;
		ssize_t n = fs_pread_all(s->fd, run->data + run->len,
			left < room ? (size_t)left : room, (off_t)run->offset);

		if (n <= 0)
			return error_errno(err, n < 0 ? errno : EIO,
				"cannot read a long list back from TMPDIR");
		run->len += (size_t)n;
		run->offset += (uint64_t)n;
	}
	return 0;
}

/* Moves a run to its next record. */
static int run_advance(struct list_sorter *s, struct run *run, struct penstock_error *err)
{
	int r;

	run->at += run->front;
	run->front = 0;
	if (run->at == run->len && run->offset == run->end)
		return 0;
	r = run_fill(s, run, sizeof(struct head), err);
	if (r == 0)
		r = run_fill(s, run, record_size(head_at(run->data + run->at)), err);
	if (r == 0)
		run->front = record_size(head_at(run->data + run->at));
	return r;
}

static bool run_before(const struct run *a, const struct run *b)
{
	struct list_record x, y;

	if (!a->front || !b->front)
		return a->front && !b->front;
	x = record_at(a->data + a->at);
	y = record_at(b->data + b->at);
	return compare_texts(x.text, x.text_len, y.text, y.text_len) < 0;
}

static void heap_down(struct list_sorter *s, size_t i)
{
	for (;;) {
		size_t least = i;

		for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < s->n_runs; child++) {
			if (run_before(&s->runs[child], &s->runs[least]))
				least = child;
		}
		if (least == i)
			return;
		struct run swap = s->runs[i];

		s->runs[i] = s->runs[least];
		s->runs[least] = swap;
		i = least;
	}
}

static int runs_open(struct list_sorter *s, struct penstock_error *err)
{
	size_t size = s->memory / (s->n_runs ? s->n_runs : 1);
	int r = 0;

	if (size > RUN_BUFFER)
		size = RUN_BUFFER;
	if (size < RUN_LEAST)
		size = RUN_LEAST;
	for (size_t i = 0; r == 0 && i < s->n_runs; i++) {
		struct run *run = &s->runs[i];

		run->data = malloc(size);
		if (!run->data)
			return error_memory(err);
		run->size = size;
		s->runs_memory += size;
		r = run_advance(s, run, err);
	}
	for (size_t i = s->n_runs / 2; r == 0 && i-- > 0;)
		heap_down(s, i);
	return r;
}

/* ---- interface ---- */

int list_sorter_add(
	struct list_sorter *s, const struct list_record *record, struct penstock_error *err)
{
	struct head head = {(uint32_t)record->text_len, (uint32_t)record->extra_len};
	size_t size = record_size(head);
	char *at;
	int r;

	if (record->text_len >= UINT32_MAX / 2 || record->extra_len >= UINT32_MAX / 4)
		return error_set(err, PENSTOCK_E_LIMIT, "cannot sort: a name is too long");
	if (s->n_items && s->text_len + size + (s->n_items + 1) * sizeof(struct item) > s->memory) {
		sort_items(s);
		r = run_write(s, 0, err);
		if (r < 0)
			return r;
		memory_drop(s, false);
	}
	r = grow((void **)&s->text, &s->text_cap, s->text_len + size, FIRST_TEXT, 1, err);
	if (r == 0)
		r = grow((void **)&s->items, &s->items_cap, s->n_items + 1, FIRST_ITEMS,
			sizeof(*s->items), err);
	if (r < 0)
		return r;
	s->items[s->n_items++] = (struct item){.at = (uint32_t)s->text_len};
	at = s->text + s->text_len;
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	if (record->text_len)
		memcpy(at, record->text, record->text_len);
	at[record->text_len] = '\0';
	if (record->extra_len)
		memcpy(at + record->text_len + 1, record->extra, record->extra_len);
	s->text_len += size;
	return 0;
}

int list_sorter_seal(struct list_sorter *s, struct penstock_error *err)
{
	int r = 0;

	sort_items(s);
	if (!s->n_runs)
		return 0;
	if (s->n_items)
		r = run_write(s, 0, err);
	memory_drop(s, true);
	return r == 0 ? runs_open(s, err) : r;
}

int list_sorter_next(struct list_sorter *s, struct list_record *record, struct penstock_error *err)
{
	if (!s->n_runs) {
		if (s->next_item == s->n_items)
			return 0;
		*record = record_at(s->text + s->items[s->next_item++].at);
		return 1;
	}
	if (s->front_taken) {
		int r = run_advance(s, &s->runs[0], err);

		if (r < 0)
			return r;
		heap_down(s, 0);
		s->front_taken = false;
	}
	if (!s->runs[0].front)
		return 0;
	*record = record_at(s->runs[0].data + s->runs[0].at);
	s->front_taken = true;
	return 1;
}

/* The `extra` bytes of a record. Bytes of `etag` after its NUL are not stored. */
struct kept {
	uint64_t size;
	int64_t mtime_ns;
	uint32_t cut; /* bytes of the key before the path */
	enum entry_kind kind;
	char etag[OBJECT_ETAG_SIZE];
};

int list_sorter_add_entry(
	struct list_sorter *s, const struct entry *entry, struct penstock_error *err)
{
	struct kept kept = {.size = entry->size,
		.mtime_ns = entry->mtime_ns,
		.cut = (uint32_t)(entry->path - entry->key),
		.kind = entry->kind};
	size_t etag = strlen(entry->etag);

	if (etag >= sizeof(kept.etag)) /* no request can have a longer ETag */
		etag = 0;
	memcpy(kept.etag, entry->etag, etag);
	return list_sorter_add(s,
		&(struct list_record){.text = entry->key,
			.text_len = strlen(entry->key),
			.extra = &kept,
			.extra_len = offsetof(struct kept, etag) + etag + 1},
		err);
}

int list_sorter_next_entry(struct list_sorter *s, struct entry *entry, struct penstock_error *err)
{
	struct list_record record;
	struct kept kept;
	int r = list_sorter_next(s, &record, err);

	if (r <= 0)
		return r;
	memcpy(&kept, record.extra, offsetof(struct kept, etag));
	*entry = (struct entry){.path = record.text + kept.cut,
		.path_len = record.text_len - kept.cut,
		.kind = kept.kind,
		.size = kept.size,
		.mtime_ns = kept.mtime_ns,
		.key = record.text,
		.etag = (const char *)record.extra + offsetof(struct kept, etag)};
	return 1;
}

int list_sorter_spill(struct list_sorter *s, struct penstock_error *err)
{
	int r;

	if (s->n_runs || s->next_item == s->n_items)
		return 0;
	r = run_write(s, s->next_item, err);
	if (r < 0)
		return r;
	memory_drop(s, true);
	return runs_open(s, err);
}
