/*
 * The key space is a list of ranges, each up to the first key of the next range. A thread takes the
 * first idle range and fetches its next page; if all ranges are busy, the thread splits a range,
 * some pages (`reach`) ahead of the known keys, using the model of split.h. A range ends when one
 * of its pages reaches the next range's start. The number of keys in the range then adjusts the
 * reach.
 */
#include "transfer/list/ranges.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "transfer/list/split.h"
#include "transfer/client/internal.h"

#define POLL_MS	     50 /* interval for checking the caller's cancel flag */
#define RANGE_PAGES  ((uint64_t)12) /* pages of a range; about half of the last page is unused */
#define MAX_REACH    ((uint64_t)1 << 30)
#define MAX_PARALLEL 32
#define CHAIN_AHEAD  4 /* pages read ahead if there is one range */
#define PAGE_KEYS    1000
#define MODEL_SAMPLE 16 /* the model learns one key in this many */
/* Memory of a page in flight, in units of `page_cost`: the page, its document, the parser's
 * results. */
#define UNDER_WAY_COST 6

struct range {
	struct range *next; /* in key order */
	char *after; /* starts after this key; NULL for the start of the listing */
	struct list_page *head, **tail;
	unsigned waiting; /* pages in the queue of `head` */
	char *token; /* token of the next page; NULL at the start */
	bool v1;
	bool begun;
	bool busy;
	bool finished;
	uint64_t kept; /* keys of the accepted pages */
	unsigned empty; /* consecutive pages without a new key */
	char *last; /* last key so far */
	/* Input for the model: the first and last key of a page of this range, or of the range it
	 * was split from. */
	char *page_first, *page_last;
};

struct list_ranges {
	struct list_query query; /* `query.cancel` points to `stop` */
	const atomic_int *cancel;
	unsigned parallel;
	atomic_int stop;

	pthread_mutex_t lock;
	pthread_cond_t work; /* wakes the threads: a page may be ready to fetch */
	pthread_cond_t pages; /* wakes the caller: a page or a verdict is available */
	/* Under the lock. */
	struct range *ranges; /* the caller reads the first */
	struct list_model *model;
	pthread_t threads[MAX_PARALLEL];
	unsigned started;
	unsigned idle;
	unsigned under_way;
	size_t held; /* bytes of queued pages */
	size_t page_cost; /* bytes of the largest page so far */
	uint64_t reach; /* pages from one split to the next */
	uint64_t used; /* keys of the accepted pages of all ranges */
	unsigned page_keys; /* keys of the longest page so far */
	int verdict; /* LIST_RANGES_NO_START, LIST_RANGES_DISORDER, or an error */
	struct penstock_error error;
	struct {
		uint64_t pages; /* fetched */
		uint64_t ranges; /* created */
		uint64_t dropped; /* duplicate keys, from neighbouring ranges */
	} counters;
};

/* ---- ranges ---- */

static void range_free(struct range *range)
{
	while (range->head) {
		struct list_page *page = range->head;

		range->head = page->next;
		list_page_free(page);
	}
	free(range->after);
	free(range->token);
	free(range->last);
	free(range->page_first);
	free(range->page_last);
	free(range);
}

static struct range *range_new(struct list_ranges *l)
{
	struct range *range = calloc(1, sizeof(*range));

	if (range) {
		range->tail = &range->head;
		l->counters.ranges++;
	}
	return range;
}

static bool replace(char **text, const char *with)
{
	char *copy = strdup(with);

	if (copy) {
		free(*text);
		*text = copy;
	}
	return copy != NULL;
}

static void fail(struct list_ranges *l, struct penstock_error *err)
{
	if (!l->verdict)
		l->verdict = error_move(&l->error, err);
	else
		penstock_error_release(err);
	atomic_store(&l->stop, 1);
}

static void say(struct list_ranges *l, int verdict)
{
	if (!l->verdict)
		l->verdict = verdict;
	atomic_store(&l->stop, 1);
}

/* ---- splitting ---- */

static char *cut_of(const struct list_ranges *l, const struct range *range)
{
	const char *at = range->last ? range->last : range->after;
	char *cut;

	if (range->finished || !range->page_last || !at)
		return NULL;
	cut = list_model_ahead(l->model, l->query.at.key ? l->query.at.key : "", range->page_first,
		range->page_last, at, l->reach);
	if (cut && range->next && strcmp(cut, range->next->after) >= 0) {
		free(cut);
		cut = NULL;
	}
	return cut;
}

/* Creates a new range by splitting the first one that is long enough. Returns NULL if there is
 * none, or if out of memory; both are harmless. */
static struct range *cut_ranges(struct list_ranges *l)
{
	/* Wrong splits list keys twice: stop splitting if too many keys (an eighth, plus four
	 * pages) are duplicates. */
	if (l->counters.dropped > l->used / 8 + (uint64_t)4 * l->page_keys)
		return NULL;
	for (struct range *range = l->ranges; range; range = range->next) {
		char *cut = cut_of(l, range);
		struct range *other = cut ? range_new(l) : NULL;

		if (!cut)
			continue;
		if (!other || !replace(&other->page_first, range->page_first) ||
			!replace(&other->page_last, range->page_last)) {
			if (other)
				range_free(other);
			free(cut);
			return NULL;
		}
		other->after = cut;
		other->v1 = range->v1;
		other->next = range->next;
		range->next = other;
		return other;
	}
	return NULL;
}

/* Ends the range, and adapts the reach to its length. */
static void range_finish(struct list_ranges *l, struct range *range)
{
	uint64_t wanted = RANGE_PAGES * l->page_keys;

	range->finished = true;
	if (!range->next)
		return;
	if (range->kept < wanted / 2 && l->reach < MAX_REACH)
		l->reach *= 2;
	else if (range->kept > 2 * wanted && l->reach > 2)
		l->reach /= 2;
}

/* ---- pages ---- */

/* Drops a known key from the front of the page, and keys of the next range from its end. */
static void trim(struct list_ranges *l, struct range *range, struct list_page *page)
{
	const char *before = range->last ? range->last : range->after;
	size_t n = page->n;

	if (before && page->n && strcmp(list_page_key(page, 0), before) == 0)
		page->at = 1;
	if (range->next) {
		size_t low = page->at, high = page->n;

		while (low < high) {
			size_t middle = low + (high - low) / 2;

			if (strcmp(list_page_key(page, middle), range->next->after) <= 0)
				low = middle + 1;
			else
				high = middle;
		}
		page->n = low;
	}
	l->counters.dropped += n - (page->n - page->at);
}

static int learn(struct list_ranges *l, struct range *range, const struct list_page *page)
{
	if (page->at == page->n)
		return 0;
	if (!replace(&range->last, list_page_key(page, page->n - 1)))
		return -1;
	if (l->parallel < 2)
		return 0;
	for (size_t i = page->at; i < page->n; i += MODEL_SAMPLE)
		list_model_add(l->model, list_page_key(page, i));
	list_model_add(l->model, list_page_key(page, page->n - 1));
	/* Few keys give a poor estimate of the density. */
	if (page->n - page->at < 16 && range->page_last)
		return 0;
	return replace(&range->page_first, list_page_key(page, page->at)) &&
			       replace(&range->page_last, list_page_key(page, page->n - 1))
		       ? 0
		       : -1;
}

/* Returns true if the page continues its range; else sets the verdict. */
static bool follows(struct list_ranges *l, const struct range *range, const struct list_page *page)
{
	const char *before = range->last ? range->last : range->after;

	if (!page->sorted) {
		say(l, LIST_RANGES_DISORDER);
		return false;
	}
	if (page->n && before && strcmp(list_page_key(page, 0), before) < 0) {
		say(l, range->begun ? LIST_RANGES_DISORDER : LIST_RANGES_NO_START);
		return false;
	}
	return true;
}

/* Adds a page to the queue of its range, and updates the range, the model and the verdict. Takes
 * ownership of the page. */
static void accept(struct list_ranges *l, struct range *range, struct list_page *page)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t all = page->n;

	if (!follows(l, range, page)) {
		list_page_free(page);
		return;
	}
	trim(l, range, page);
	if (learn(l, range, page) < 0) {
		list_page_free(page);
		error_memory(&err);
		fail(l, &err);
		return;
	}
	range->begun = true;
	range->v1 = page->v1;
	free(range->token);
	range->token = take_pointer(page->token);
	range->empty = page->at == page->n ? range->empty + 1 : 0;
	range->kept += page->n - page->at;
	l->used += page->n - page->at;
	if (all > l->page_keys)
		l->page_keys = (unsigned)all;
	if (page->bytes > l->page_cost)
		l->page_cost = page->bytes;
	if (!range->token && page->n == all) {
		/* The store has no keys after this page: end all later ranges that have not
		 * started. */
		for (struct range *r = range->next; r; r = r->next)
			r->finished = r->finished || !r->begun;
	}
	if (!range->token || page->n < all ||
		(range->next && range->last && strcmp(range->last, range->next->after) == 0))
		range_finish(l, range);
	else if (range->empty > LIMIT_S3_EMPTY_PAGES) {
		list_stuck(&l->query, &err);
		fail(l, &err);
	}
	if (page->at == page->n) {
		list_page_free(page);
		return;
	}
	l->held += page->bytes;
	range->waiting++;
	*range->tail = page;
	range->tail = &page->next;
}

/* ---- the threads ---- */

/* Returns true if one more page may be fetched; always true for the range that the caller waits
 * for. */
static bool has_room(const struct list_ranges *l, const struct range *range)
{
	if (range == l->ranges && !range->head)
		return true;
	if (l->parallel < 2)
		return range->waiting < CHAIN_AHEAD;
	return l->held + (l->under_way + 1) * l->page_cost * UNDER_WAY_COST <= LIMIT_LIST_AHEAD;
}

/* Returns a range, perhaps a new one, whose next page should be fetched now; NULL if there is
 * none. */
static struct range *choose(struct list_ranges *l)
{
	if (l->stop)
		return NULL;
	for (struct range *range = l->ranges; range; range = range->next) {
		if (!range->busy && !range->finished && has_room(l, range))
			return range;
	}
	if (l->parallel < 2 || !l->ranges || !has_room(l, NULL))
		return NULL;
	return cut_ranges(l);
}

static void fetch(struct list_ranges *l, struct range *range)
{
	struct list_query query = l->query;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct list_page *page = NULL;
	int r;

	query.after = range->token ? NULL : range->after;
	query.token = range->token;
	query.v1 = range->v1;
	range->busy = true;
	l->under_way++;
	/* A thread that found work wakes the next one. */
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
	r = list_page_fetch(&page, &query, &err);
	pthread_mutex_lock(&l->lock);
	l->under_way--;
	range->busy = false;
	l->counters.pages++;
	if (r == 0)
		accept(l, range, page);
	/* If a store rejects a start key, the listing falls back to one range. */
	else if (!range->begun && range->after &&
		 (err.code == PENSTOCK_E_INVALID || err.code == PENSTOCK_E_UNSUPPORTED ||
			 err.code == PENSTOCK_E_PROTOCOL))
		say(l, LIST_RANGES_NO_START);
	else
		fail(l, &err);
	penstock_error_release(&err);
	pthread_cond_signal(&l->pages);
}

static void *thread_main(void *arg)
{
	struct list_ranges *l = arg;

	pthread_mutex_lock(&l->lock);
	while (!atomic_load(&l->stop)) {
		struct range *range = choose(l);

		if (range) {
			fetch(l, range);
			continue;
		}
		l->idle++;
		pthread_cond_wait(&l->work, &l->lock);
		l->idle--;
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* Starts one thread at first, because most listings are one page long. */
static void start_threads(struct list_ranges *l)
{
	unsigned wanted = l->counters.pages && l->ranges && !l->ranges->finished ? l->parallel : 1;

	while (l->started < wanted && l->idle == 0 &&
		thread_start(&l->threads[l->started], "list", thread_main, l, NULL) == 0)
		l->started++;
}

/* ---- interface ---- */

int list_ranges_new(struct list_ranges **out, const struct list_query *query, unsigned parallel,
	struct penstock_error *err)
{
	struct list_ranges *l = calloc(1, sizeof(*l));

	if (!l)
		return error_memory(err);
	l->query = *query;
	l->query.cancel = &l->stop;
	l->cancel = query->cancel;
	l->parallel = parallel > MAX_PARALLEL ? MAX_PARALLEL : parallel;
	l->reach = RANGE_PAGES;
	pthread_mutex_init(&l->lock, NULL);
	clock_cond_init(&l->work);
	clock_cond_init(&l->pages);
	l->ranges = range_new(l);
	l->model = parallel > 1 ? calloc(1, sizeof(*l->model)) : NULL;
	l->query.after = NULL;
	if (!l->ranges || !str_copy(&l->ranges->after, query->after) ||
		(parallel > 1 && !l->model)) {
		list_ranges_free(l);
		return error_memory(err);
	}
	*out = l;
	return 0;
}

void list_ranges_free(struct list_ranges *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->stop, 1);
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
	if (l->started)
		http_wake(l->query.at.client->engine);
	for (unsigned i = 0; i < l->started; i++)
		pthread_join(l->threads[i], NULL);
	log_debug("listing of %s://%s: %llu pages of %llu ranges, %llu keys, %llu duplicates",
		object_client_scheme(l->query.at.client), l->query.at.bucket,
		(unsigned long long)l->counters.pages, (unsigned long long)l->counters.ranges,
		(unsigned long long)l->used, (unsigned long long)l->counters.dropped);
	while (l->ranges) {
		struct range *range = l->ranges;

		l->ranges = range->next;
		range_free(range);
	}
	free(l->model);
	penstock_error_release(&l->error);
	pthread_cond_destroy(&l->work);
	pthread_cond_destroy(&l->pages);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* Checks the cancel flag of the caller or the client, because requests only obey `stop`. */
static bool cancelled(const struct list_ranges *l)
{
	const atomic_int *cancel = l->cancel ? l->cancel
					     : atomic_load(&l->query.at.client->patient_cancel);

	return cancel && atomic_load(cancel);
}

/* Waits for the next page. */
static int take(struct list_ranges *l, struct list_page **out, struct penstock_error *err)
{
	for (;;) {
		struct range *range = l->ranges;

		if (range && range->head) {
			*out = range->head;
			range->head = (*out)->next;
			if (!range->head)
				range->tail = &range->head;
			range->waiting--;
			l->held -= (*out)->bytes;
			if (l->idle)
				pthread_cond_signal(&l->work);
			return LIST_RANGES_PAGE;
		}
		if (!range)
			return LIST_RANGES_END;
		if (range->finished && !range->busy) {
			l->ranges = range->next;
			range_free(range);
			/* The range that the caller reads now continues even without room. */
			pthread_cond_signal(&l->work);
			continue;
		}
		if (l->verdict)
			return l->verdict < 0 ? error_move(err, &l->error) : l->verdict;
		start_threads(l);
		if (!l->started)
			return error_set(err, PENSTOCK_E_MEMORY,
				"cannot list the objects: cannot start a thread");
		clock_cond_wait_ms(&l->pages, &l->lock, POLL_MS);
		if (cancelled(l))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	}
}

int list_ranges_next(struct list_ranges *l, struct list_page **page, struct penstock_error *err)
{
	int r;

	pthread_mutex_lock(&l->lock);
	r = take(l, page, err);
	pthread_mutex_unlock(&l->lock);
	return r;
}
