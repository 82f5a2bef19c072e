#include "ui/changes.h"

#include <ctype.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "s3/sum/checksum.h"
#include "s3/uri.h"
#include "ui/answer.h"

struct digest {
	uint8_t bytes[16];
};

/* A list that a browser may have. */
struct list {
	char tag[ANSWER_TAG_SIZE];
	struct digest *entries;
	size_t n;
	uint64_t used; /* value of changes.clock at the last use */
};

struct changes {
	pthread_mutex_t lock; /* protects all other members */
	struct list lists[LIMIT_UI_LISTS];
	uint64_t clock;
};

struct changes *changes_new(void)
{
	struct changes *changes = calloc(1, sizeof(*changes));

	if (changes)
		pthread_mutex_init(&changes->lock, NULL);
	return changes;
}

void changes_free(struct changes *changes)
{
	if (!changes)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(changes->lists); i++)
		free(changes->lists[i].entries);
	pthread_mutex_destroy(&changes->lock);
	free(changes);
}

/* ---- entries ---- */

struct entries {
	struct span *texts;
	size_t n;
};

static int add_entry(struct entries *e, const char *from, const char *to)
{
	struct span *list;

	while (from < to && isspace((unsigned char)*from))
		from++;
	while (to > from && isspace((unsigned char)to[-1]))
		to--;
	if (from == to)
		return 0;
	list = array_grow(e->texts, e->n, sizeof(*list));
	if (!list)
		return -1;
	e->texts = list;
	list[e->n++] = (struct span){from, (size_t)(to - from)};
	return 0;
}

/* Finds the entries in the text of an array. */
static int split(const struct buf *list, struct entries *e)
{
	const char *text = buf_str(list), *end = text + list->len, *from = text;
	bool inside = false; /* true within a string */
	int depth = 0, r = 0;

	for (const char *at = text; at < end && r == 0; at++) {
		if (*at == '"')
			inside = !inside;
		else if (inside)
			at += *at == '\\';
		else if (*at == '[' || *at == '{')
			depth++;
		else if (*at == ']' || *at == '}')
			depth--;
		if (inside)
			continue;
		if ((*at == ',' && depth == 1) || (*at == ']' && depth == 0))
			r = add_entry(e, from, at);
		else if (*at != '[' || depth != 1)
			continue;
		from = at + 1;
	}
	return r;
}

static int digests_of(const struct entries *e, struct digest **out)
{
	struct digest *digests = calloc(e->n + 1, sizeof(*digests));
	uint8_t digest[CHECKSUM_MAX_SIZE];

	for (size_t i = 0; digests && i < e->n; i++) {
		if (checksum_of(CHECKSUM_SHA256, e->texts[i].p, e->texts[i].n, digest, NULL) < 0) {
			free(digests);
			return -1;
		}
		memcpy(digests[i].bytes, digest, sizeof(digests[i].bytes));
	}
	*out = digests;
	return digests ? 0 : -1;
}

/* ---- differences ---- */

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct digest));
}

static struct digest *sorted(const struct list *list)
{
	struct digest *copy = calloc(list->n + 1, sizeof(*copy));

	if (!copy)
		return NULL;
	memcpy(copy, list->entries, list->n * sizeof(*copy));
	qsort(copy, list->n, sizeof(*copy), by_bytes);
	return copy;
}

static bool has(const struct digest *set, size_t n, const struct digest *digest)
{
	return bsearch(digest, set, n, sizeof(*set), by_bytes) != NULL;
}

static bool write_changes(
	const struct list *old, const struct list *now, const struct entries *e, struct buf *out)
{
	_cleanup_free_ struct digest *olds = sorted(old), *nows = sorted(now);
	_cleanup_free_ struct digest *kept = calloc(old->n + 1, sizeof(*kept));
	size_t n_kept = 0, seen = 0, written = 0;

	if (!olds || !nows || !kept || (now->n && !e->texts))
		return false;
	buf_add_str(out, "{\"removed\":[");
	for (size_t i = 0; i < old->n; i++) {
		if (has(nows, now->n, &old->entries[i]))
			kept[n_kept++] = old->entries[i];
		else
			buf_printf(out, "%s%zu", written++ ? "," : "", i);
	}
	buf_add_str(out, "],\"changed\":[");
	written = 0;
	for (size_t i = 0; i < now->n; i++) {
		if (!has(olds, old->n, &now->entries[i])) {
			buf_printf(out, "%s[%zu,", written++ ? "," : "", i);
			buf_add(out, e->texts[i].p, e->texts[i].n);
			buf_add_char(out, ']');
		} else if (seen == n_kept || by_bytes(&kept[seen++], &now->entries[i]) != 0) {
			return false;
		}
	}
	buf_add_str(out, "]}");
	return seen == n_kept && !buf_failed(out);
}

/* Returns the list with the tag, which may lack its quotes. Returns NULL if there is no such
 * list. */
static struct list *find(struct changes *changes, const char *tag)
{
	size_t len = tag ? strlen(tag) : 0;

	for (size_t i = 0; tag && i < ARRAY_SIZE(changes->lists); i++) {
		struct list *list = &changes->lists[i];

		if (list->entries && (strcmp(list->tag, tag) == 0 ||
					     (len == ANSWER_TAG_SIZE - 3 &&
						     strncmp(list->tag + 1, tag, len) == 0)))
			return list;
	}
	return NULL;
}

/* Keeps the list in place of the least recently used list. */
static struct list *keep(struct changes *changes, const struct list *list)
{
	struct list *place = &changes->lists[0];

	for (size_t i = 1; i < ARRAY_SIZE(changes->lists); i++) {
		if (changes->lists[i].used < place->used)
			place = &changes->lists[i];
	}
	free(place->entries);
	*place = *list;
	return place;
}

bool changes_since(struct changes *changes, const char *since, const struct buf *list,
	const char *tag, struct buf *out)
{
	struct entries e = {0};
	struct list made = {0}, *now, *old;
	bool written = false;

	LOCK_SCOPE(&changes->lock);
	now = find(changes, tag);
	old = find(changes, since);
	if (now && !since) {
		now->used = ++changes->clock;
		return false;
	}
	if (now && now == old) {
		now->used = ++changes->clock;
		return buf_add_str(out, "{\"removed\":[],\"changed\":[]}") == 0;
	}
	if (split(list, &e) == 0 && digests_of(&e, &made.entries) == 0) {
		made.n = e.n;
		snprintf(made.tag, sizeof(made.tag), "%s", tag);
		written = old && write_changes(old, &made, &e, out);
		if (now)
			free(made.entries);
		else
			now = keep(changes, &made);
		now->used = ++changes->clock;
	}
	free(e.texts);
	return written;
}
