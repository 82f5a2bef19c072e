/* Streams of objects from several concurrent ranges, and from stores that break the rules. */
#include "base/str.h"
#include "transfer/listing.h"

#include "objects_fixture.h"

#include "base/cleanup.h"
#include "s3/ascii.h"
#include "s3/message/messages.h"
#include "s3/uri.h"
#include "transfer/list/ranges.h"
#include "transfer/list/split.h"

/* ---- a store that lists ---- */

enum lie {
	HONEST,
	IGNORES_START, /* ignores start-after and lists from the start */
	REFUSES_START, /* replies 400 to start-after */
	INCLUSIVE_START, /* lists the key of start-after, too */
	OLD_FORM, /* replies in the first version, with markers */
	SHUFFLED, /* has no order */
	SHUFFLED_PAGES, /* has an order only within a page */
	EMPTY_PAGES, /* every second page has only a token */
	ONLY_EMPTY, /* all pages are empty, without end */
	CIRCLE, /* the last page continues with the first */
	NO_WAY_ON, /* the third page is empty, and announces more keys without a token */
	BREAKS, /* refuses all requests from some request on */
	OUTSIDE /* lists keys outside of the prefix */
};

struct store {
	struct strlist keys; /* in the order in which the store lists them */
	unsigned page;
	enum lie lie;
	unsigned breaks_at;
	atomic_uint requests;
	unsigned wait_for; /* requests in flight before the next page is sent */
	atomic_uint starts; /* number of requests with start-after */
	atomic_uint at_once, most_at_once;
};

static bool query_value(const char *target, const char *name, struct buf *out)
{
	size_t len = strlen(name);

	for (const char *p = strpbrk(target, "?&"); p; p = strpbrk(p + 1, "&")) {
		const char *end;

		if (strncmp(p + 1, name, len) != 0 || p[1 + len] != '=')
			continue;
		p += len + 2;
		end = strchr(p, '&');
		assert_int_equal(0, uri_decode(out, p, end ? (size_t)(end - p) : strlen(p), true));
		return true;
	}
	return false;
}

/* Returns the index of the first key to list. */
static size_t begin_at(const struct store *s, const char *token, const char *after)
{
	size_t at = 0;

	if (token)
		return strtoul(token + 1, NULL, 10);
	if (!after || s->lie == IGNORES_START)
		return 0;
	if (s->lie == SHUFFLED || s->lie == SHUFFLED_PAGES)
		return 0;
	while (at < s->keys.n &&
		strcmp(s->keys.items[at], after) <= (s->lie == INCLUSIVE_START ? -1 : 0))
		at++;
	return at;
}

static void reply_list(const struct store *s, const char *prefix, size_t at, struct buf *out)
{
	struct s3_list list = {.version = s->lie == OLD_FORM ? 1 : 2,
		.bucket = "bucket",
		.prefix = prefix,
		.url_encoded = true,
		.max_keys = 1000};
	struct s3_list_entry entries[1000];
	char token[32];

	list.entries = entries;
	for (; at < s->keys.n && list.n_entries < s->page; at++) {
		if (!str_starts(s->keys.items[at], prefix) && s->lie != OUTSIDE)
			continue;
		entries[list.n_entries++] = (struct s3_list_entry){.key = s->keys.items[at],
			.etag = "\"d41d8cd98f00b204e9800998ecf8427e\"",
			.size = at,
			.modified_ns = 1700000000 * NS_PER_S};
	}
	while (at < s->keys.n && !str_starts(s->keys.items[at], prefix))
		at++;
	list.truncated = at < s->keys.n;
	if (s->lie == EMPTY_PAGES && s->requests % 2 && list.n_entries) {
		list.truncated = true;
		at -= list.n_entries;
		list.n_entries = 0;
	}
	if (s->lie == ONLY_EMPTY)
		list.truncated = true, list.n_entries = 0;
	if (s->lie == NO_WAY_ON && at > (size_t)3 * s->page)
		list.truncated = true, list.n_entries = 0, at = s->keys.n;
	if (s->lie == CIRCLE && !list.truncated)
		list.truncated = true, at = 0;
	snprintf(token, sizeof(token), "t%zu", at);
	if (list.truncated && s->lie != OLD_FORM && (s->lie != NO_WAY_ON || list.n_entries))
		list.next_continuation_token = token;
	s3_list_write(out, &list);
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	struct store *s = (struct store *)f->text;
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(LIMIT_STRING), after = prefix,
					  token = prefix, body = prefix;
	bool has_token, has_after, fine;
	unsigned number = atomic_fetch_add(&s->requests, 1) + 1;
	unsigned now = atomic_fetch_add(&s->at_once, 1) + 1, most = atomic_load(&s->most_at_once);

	while (now > most && !atomic_compare_exchange_weak(&s->most_at_once, &most, now))
		;
	query_value(r->target, "prefix", &prefix);
	has_token = query_value(r->target, "continuation-token", &token);
	has_after = query_value(r->target, s->lie == OLD_FORM ? "marker" : "start-after", &after);
	if (has_after)
		atomic_fetch_add(&s->starts, 1);
	for (unsigned ms = 0;
		has_token && ms < 60000 && atomic_load(&s->most_at_once) < s->wait_for; ms++)
		clock_sleep_ms(1);
	if (s->lie == BREAKS && number >= s->breaks_at) {
		fine = mini_reply(fd, "403 Forbidden", "", "", 0);
	} else if (s->lie == REFUSES_START && has_after) {
		fine = mini_reply(fd, "400 Bad Request", "", "", 0);
	} else {
		reply_list(s, buf_str(&prefix),
			begin_at(s, has_token ? buf_str(&token) : NULL,
				has_after ? buf_str(&after) : NULL),
			&body);
		fine = mini_reply(
			fd, "200 OK", "Content-Type: application/xml\r\n", body.data, body.len);
	}
	atomic_fetch_sub(&s->at_once, 1);
	return fine;
}

/* ---- keys ---- */

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void finish_keys(struct strlist *keys)
{
	size_t n = 0;

	qsort(keys->items, keys->n, sizeof(*keys->items), by_bytes);
	for (size_t i = 0; i < keys->n; i++) {
		if (n && strcmp(keys->items[n - 1], keys->items[i]) == 0)
			free(keys->items[i]);
		else
			keys->items[n++] = keys->items[i];
	}
	if (n)
		keys->items[n] = NULL;
	keys->n = n;
}

static void add_numbers(struct strlist *keys, const char *fmt_prefix, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(0, strlist_addf(keys, "%s%06u.jpg", fmt_prefix, i));
}

/* Adds directories of very different sizes, with various names. */
static void add_tree(struct strlist *keys, unsigned seed, unsigned n)
{
	static const char *const words[] = {"a", "b-", "train", "val", "\xc3\xa4\xc3\xb6", "x y",
		"+", "%41", "0", "Z", "&lt;", "a/", "\xf0\x9f\x98\x80", "~", "\x7f", "!"};

	while (keys->n < n) {
		unsigned here = 1U << (unsigned)rand_r(&seed) % 9;
		_cleanup_(buf_release) struct buf dir = BUF_INIT(LIMIT_STRING);

		for (unsigned d = (unsigned)rand_r(&seed) % 4; d; d--)
			buf_printf(&dir, "%s/", words[(unsigned)rand_r(&seed) % ARRAY_SIZE(words)]);
		for (unsigned i = 0; i < here; i++)
			assert_int_equal(
				0, strlist_addf(keys, "%s%s%u", buf_str(&dir),
					   words[(unsigned)rand_r(&seed) % ARRAY_SIZE(words)],
					   (unsigned)rand_r(&seed) % 5000));
	}
}

/* ---- results ---- */

struct outcome {
	struct strlist keys;
	int r;
};

static void outcome_release(struct outcome *o)
{
	strlist_release(&o->keys);
}

static void list(struct fixture *f, struct store *s, const struct object_source_options *options,
	const char *prefix, struct outcome *o)
{
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	struct entry entry;

	begin(f, answer);
	f->text = (const char *)s;
	o->r = entry_source_objects(&source, object_at(f->s3, "bucket", prefix), options, &f->err);
	while (o->r == 0 && (o->r = entry_source_next(source, &entry, &f->err)) > 0) {
		assert_int_equal(strlen(entry.path), entry.path_len);
		assert_int_equal(0, strlist_add(&o->keys, entry.key));
		o->r = 0;
	}
}

static void assert_all(const struct outcome *o, const struct strlist *keys)
{
	assert_int_equal(0, o->r);
	for (size_t i = 0; i < keys->n && i < o->keys.n; i++)
		assert_string_equal(keys->items[i], o->keys.items[i]);
	assert_int_equal(keys->n, o->keys.n);
}

static void list_all(struct store *s, unsigned parallel, const struct strlist *wanted)
{
	_cleanup_(outcome_release) struct outcome o = {0};
	struct fixture f;

	list(&f, s, &(struct object_source_options){.whole_keys = true, .parallel = parallel}, "",
		&o);
	if (o.r < 0)
		print_error("%s\n", f.err.message);
	assert_all(&o, wanted);
	end(&f);
}

/* Keys that are numbers are listed in several concurrent ranges, and hardly any key is fetched
 * twice. */
static void numbers_come_from_several_ranges(void **state)
{
	struct store s = {.page = 10, .wait_for = 8};

	(void)state;
	add_numbers(&s.keys, "data/img_", 5000);

	list_all(&s, 8, &s.keys);

	assert_int_equal(8, s.most_at_once);
	/* A range may end in the middle of a page, and the last ranges may be beyond all keys. */
	assert_true(s.requests <= 500 + s.starts + 16);
	assert_true(s.starts <= 500 / 6);
	strlist_release(&s.keys);
}

/* With any distribution, each key is listed once and in order. */
static void any_keys_come_once_in_order(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 12; seed++) {
		struct store s = {.page = 1 + seed * 7 % 60};

		add_tree(&s.keys, seed, 1500);
		add_numbers(&s.keys, seed % 2 ? "m/" : "", seed % 3 * 700);
		finish_keys(&s.keys);

		list_all(&s, 1 + seed % 9, &s.keys);

		strlist_release(&s.keys);
	}
}

/* A single page takes one request, even if it is empty. */
static void short_listings_are_one_request(void **state)
{
	struct store s = {.page = 100}, none = {.page = 100};

	(void)state;
	add_numbers(&s.keys, "", 100);

	list_all(&s, 8, &s.keys);
	list_all(&none, 8, &none.keys);

	assert_int_equal(1, s.requests);
	assert_int_equal(1, none.requests);
	strlist_release(&s.keys);
}

/* Only keys below the prefix are listed, and their paths lack the prefix. */
static void lists_below_a_prefix(void **state)
{
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	struct store s = {.page = 7};
	struct fixture f;
	struct entry entry;
	char path[32];
	unsigned n = 0;

	(void)state;
	add_numbers(&s.keys, "a/", 100);
	add_numbers(&s.keys, "b/", 300);
	add_numbers(&s.keys, "c/", 100);
	assert_int_equal(0, strlist_add(&s.keys, "b/"));
	assert_int_equal(0, strlist_add(&s.keys, "b/d/"));
	finish_keys(&s.keys);
	begin(&f, answer);
	f.text = (const char *)&s;

	assert_int_equal(
		0, entry_source_objects(&source, object_at(f.s3, "bucket", "b/"), NULL, NULL));
	for (; entry_source_next(source, &entry, NULL) > 0 && n < 300; n++) {
		snprintf(path, sizeof(path), "%06u.jpg", n);
		assert_string_equal(path, entry.path);
		assert_int_equal(ENTRY_FILE, entry.kind);
	}

	assert_int_equal(300, n);
	assert_string_equal("d/", entry.path);
	assert_int_equal(ENTRY_DIRECTORY, entry.kind);
	assert_int_equal(0, entry_source_next(source, &entry, NULL));
	entry_source_free(take_pointer(source));
	end(&f);
	strlist_release(&s.keys);
}

/* ---- stores that break the rules ---- */

static void list_lying(enum lie lie, unsigned page)
{
	struct store s = {.page = page, .lie = lie, .wait_for = lie == EMPTY_PAGES ? 0 : 2};

	add_numbers(&s.keys, "!/img_", 2500);
	add_tree(&s.keys, 7, 4000);
	finish_keys(&s.keys);

	list_all(&s, 8, &s.keys);

	assert_true(lie == EMPTY_PAGES || s.starts > 0);
	strlist_release(&s.keys);
}

/* If a store ignores or refuses start-after, or repeats keys, the listing takes longer, but loses
 * no key. */
static void stores_that_do_not_start_where_told(void **state)
{
	(void)state;
	list_lying(IGNORES_START, 10);
	list_lying(REFUSES_START, 10);
	list_lying(INCLUSIVE_START, 10);
	list_lying(OLD_FORM, 10);
	list_lying(EMPTY_PAGES, 10);
}

/* Keys that the store does not sort are sorted here, and each key is returned once. */
static void stores_without_order(void **state)
{
	struct store s = {.page = 100, .lie = SHUFFLED};
	struct strlist sorted = {0};
	unsigned seed = 3;

	(void)state;
	add_numbers(&s.keys, "x", 950);
	add_numbers(&sorted, "x", 950);
	for (size_t i = s.keys.n; i-- > 1;) {
		size_t k = (size_t)rand_r(&seed) % i;
		char *swap = s.keys.items[i];

		s.keys.items[i] = s.keys.items[k];
		s.keys.items[k] = swap;
	}

	list_all(&s, 8, &sorted);
	list_all(&s, 1, &sorted);

	strlist_release(&s.keys);
	strlist_release(&sorted);
}

/* Disorder that is detected after keys were returned is an error if some key that was not returned
 * sorts before the last returned key: continuing would lose that key. */
static void late_disorder_is_an_error(void **state)
{
	_cleanup_(outcome_release) struct outcome o = {0};
	struct store s = {.page = 10, .lie = SHUFFLED_PAGES};
	struct fixture f;

	(void)state;
	add_numbers(&s.keys, "m", 50);
	add_numbers(&s.keys, "b", 50);

	list(&f, &s, &(struct object_source_options){.parallel = 1}, "", &o);

	assert_int_equal(-PENSTOCK_E_PROTOCOL, o.r);
	assert_true(o.keys.n <= 50);
	end(&f);
	strlist_release(&s.keys);
}

static void fails_with(enum lie lie, enum penstock_code code)
{
	_cleanup_(outcome_release) struct outcome o = {0};
	struct store s = {.page = 10, .lie = lie, .breaks_at = 30};
	struct fixture f;

	add_numbers(&s.keys, "b/", 1000);
	add_numbers(&s.keys, "c/", 1000);
	if (lie == OUTSIDE)
		assert_int_equal(0, strlist_add(&s.keys, "a"));
	finish_keys(&s.keys);

	list(&f, &s, NULL, "b/", &o);

	assert_int_equal(-(int)code, o.r);
	assert_non_null(f.err.message);
	for (size_t i = 1; i < o.keys.n; i++)
		assert_true(strcmp(o.keys.items[i - 1], o.keys.items[i]) < 0);
	end(&f);
	strlist_release(&s.keys);
}

/* A listing that never ends, that has foreign keys, or that is refused half-way is an error. */
static void failures_end_it(void **state)
{
	(void)state;
	fails_with(BREAKS, PENSTOCK_E_PERMISSION);
	fails_with(ONLY_EMPTY, PENSTOCK_E_PROTOCOL);
	fails_with(CIRCLE, PENSTOCK_E_PROTOCOL);
	fails_with(NO_WAY_ON, PENSTOCK_E_PROTOCOL);
	fails_with(OUTSIDE, PENSTOCK_E_PROTOCOL);
}

/* A listing may be freed before its end, and a cancelled listing returns an error. */
static void can_be_left_and_cancelled(void **state)
{
	struct store s = {.page = 10};
	struct fixture f;

	(void)state;
	add_numbers(&s.keys, "", 3000);
	begin(&f, answer);
	f.text = (const char *)&s;
	for (unsigned n = 0; n < 200; n += 40) {
		_cleanup_(entry_source_freep) struct entry_source *source = NULL;
		struct entry entry;

		assert_int_equal(
			0, entry_source_objects(&source, object_at(f.s3, "bucket", ""),
				   &(struct object_source_options){.cancel = &f.cancel}, NULL));
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(1, entry_source_next(source, &entry, NULL));
		atomic_store(&f.cancel, n == 160);
	}
	{
		_cleanup_(entry_source_freep) struct entry_source *source = NULL;
		struct entry entry;

		assert_int_equal(
			0, entry_source_objects(&source, object_at(f.s3, "bucket", ""),
				   &(struct object_source_options){.cancel = &f.cancel}, NULL));
		assert_int_equal(-PENSTOCK_E_CANCELLED, entry_source_next(source, &entry, NULL));
	}
	end(&f);
	strlist_release(&s.keys);
}

/* ---- the model ---- */

static void ahead(const char *const *keys, const char *first, const char *last, const char *at,
	uint64_t times, const char *wanted)
{
	struct list_model *model = calloc(1, sizeof(*model));
	_cleanup_free_ char *cut = NULL;

	for (; *keys; keys++)
		list_model_add(model, *keys);
	cut = list_model_ahead(model, "", first, last, at, times);
	if (wanted)
		assert_string_equal(wanted, cut);
	else
		assert_null(cut);
	free(model);
}

/* Numbers are extrapolated through all their digits. The model returns no split point if the text
 * before the number would have to change. */
static void models_count_on(void **state)
{
	static const char *const numbers[] = {"img_0000.jpg", "img_0099.jpg", "img_0123.jpg", NULL};
	static const char *const hex[] = {"0a", "ff", "70", NULL};
	static const char *const same[] = {"a", NULL};

	(void)state;
	ahead(numbers, "img_0000.jpg", "img_0100.jpg", "img_0100.jpg", 3, "img_0400.jpg");
	ahead(numbers, "img_0000.jpg", "img_0100.jpg", "img_0900.jpg", 12, "img_2100.jpg");
	ahead(hex, "00", "10", "10", 3, "40");
	ahead(hex, "00", "10", "f0", 3, NULL);
	ahead(same, "a", "a", "a", 3, NULL);
}

/* For any keys, a split point is UTF-8 text that sorts after the listed keys. */
static void models_make_usable_cuts(void **state)
{
	struct strlist keys = {0};

	(void)state;
	add_tree(&keys, 5, 3000);
	finish_keys(&keys);
	for (unsigned round = 0; round < 300; round++) {
		struct list_model *model = calloc(1, sizeof(*model));
		unsigned seed = round;
		size_t i = (size_t)rand_r(&seed) % (keys.n - 30),
		       n = 1 + (size_t)rand_r(&seed) % 20;
		_cleanup_free_ char *cut = NULL;

		for (size_t k = i; k <= i + n; k++)
			list_model_add(model, keys.items[k]);
		cut = list_model_ahead(model, "", keys.items[i], keys.items[i + n],
			keys.items[i + n], UINT64_C(1) << (unsigned)rand_r(&seed) % 30);
		if (cut) {
			assert_true(strcmp(cut, keys.items[i + n]) > 0);
			assert_true(str_is_utf8(cut, strlen(cut)));
		}
		free(model);
	}
	strlist_release(&keys);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(numbers_come_from_several_ranges),
	cmocka_unit_test(any_keys_come_once_in_order),
	cmocka_unit_test(short_listings_are_one_request),
	cmocka_unit_test(lists_below_a_prefix),
	cmocka_unit_test(stores_that_do_not_start_where_told),
	cmocka_unit_test(stores_without_order),
	cmocka_unit_test(late_disorder_is_an_error),
	cmocka_unit_test(failures_end_it),
	cmocka_unit_test(can_be_left_and_cancelled),
	cmocka_unit_test(models_count_on),
	cmocka_unit_test(models_make_usable_cuts),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
