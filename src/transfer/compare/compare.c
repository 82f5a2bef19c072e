#include "transfer/compare.h"

#include <string.h>

#include "base/clock.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/compare/content.h"

/* One side of the merge and its current entry. */
struct side {
	struct entry_source *source;
	struct entry entry;
	bool there;
	struct buf last; /* path of the previous entry, to verify the order */
	const char *name;
};

static int compare_paths(const struct entry *a, const struct entry *b)
{
	size_t n = a->path_len < b->path_len ? a->path_len : b->path_len;
	int r = memcmp(a->path, b->path, n);

	return r ? r : (a->path_len > b->path_len) - (a->path_len < b->path_len);
}

static int advance(struct side *side, struct penstock_error *err)
{
	struct entry last;
	int r;

	buf_clear(&side->last);
	if (side->there && buf_add(&side->last, side->entry.path, side->entry.path_len) < 0)
		return error_memory(err);
	last = (struct entry){.path = buf_str(&side->last), .path_len = side->last.len};
	r = entry_source_next(side->source, &side->entry, err);
	if (r < 0)
		return r;
	if (r > 0 && side->there && compare_paths(&last, &side->entry) >= 0)
		return error_set(err, PENSTOCK_E_INTERNAL, "'%s' comes after '%s' in a sorted list",
			side->entry.path, last.path);
	side->there = r > 0;
	return 0;
}

/* Returns the resolution of a time, estimated from its trailing zeros. */
static int64_t resolution(int64_t ns)
{
	if (ns % NS_PER_S == 0)
		return NS_PER_S;
	return ns % NS_PER_MS == 0 ? NS_PER_MS : 1;
}

static bool same_times(
	const struct compare_rules *rules, const struct entry *from, const struct entry *to)
{
	int64_t a = resolution(from->mtime_ns), b = resolution(to->mtime_ns);
	int64_t coarse = a > b ? a : b;
	int64_t x = from->mtime_ns / coarse, y = to->mtime_ns / coarse;

	return rules->exact_times ? x == y : x <= y;
}

/* Returns 1 if the entries are the same, 0 if not, or a negative error. */
static int same(const struct compare_rules *rules, const struct entry *from, const struct entry *to,
	struct penstock_error *err)
{
	if (from->kind == ENTRY_DIRECTORY || from->kind == ENTRY_PREFIX)
		return from->kind == to->kind;
	if (from->size != to->size || to->kind == ENTRY_DIRECTORY || to->kind == ENTRY_PREFIX)
		return 0;
	if (rules->size_only)
		return 1;
	if (rules->checksum)
		return compare_content(rules, from, to, err);
	return same_times(rules, from, to);
}

static int judge(struct side *from, struct side *to, const struct compare_rules *rules,
	compare_fn fn, void *cookie, struct penstock_error *err)
{
	int order = !from->there ? 1 : !to->there ? -1 : compare_paths(&from->entry, &to->entry);
	int r;

	if (order < 0)
		r = fn(cookie, COMPARE_NEW, &from->entry, NULL, err);
	else if (order > 0)
		r = fn(cookie, COMPARE_GONE, NULL, &to->entry, err);
	else {
		r = same(rules, &from->entry, &to->entry, err);
		if (r >= 0)
			r = fn(cookie, r ? COMPARE_SAME : COMPARE_CHANGED, &from->entry, &to->entry,
				err);
	}
	if (r == 0 && order <= 0)
		r = advance(from, err);
	if (r == 0 && order >= 0)
		r = advance(to, err);
	return r;
}

int compare_trees(struct entry_source *from, struct entry_source *to,
	const struct compare_rules *rules, compare_fn fn, void *cookie, struct penstock_error *err)
{
	static const struct compare_rules none;
	struct side a = {.source = from, .last = BUF_INIT(LIMIT_STRING)};
	struct side b = {.source = to, .last = BUF_INIT(LIMIT_STRING)};
	int r = advance(&a, err);

	if (!rules)
		rules = &none;
	if (r == 0)
		r = advance(&b, err);
	while (r == 0 && (a.there || b.there)) {
		r = judge(&a, &b, rules, fn, cookie, err);
		if (r == 0 && rules->cancel && atomic_load(rules->cancel))
			r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	}
	buf_release(&a.last);
	buf_release(&b.last);
	return r;
}
