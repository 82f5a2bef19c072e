/* A lifecycle walk, compared with a model, on random objects, versions, tags and rules. */
#include "../store/fixture.h"

#include <stdatomic.h>

#include "base/cleanup.h"
#include "s3/bucket/lifecycle.h"
#include "server/bucket/lifecycle.h"
#include "server/request/tags.h"

#define DAY_NS	 (INT64_C(1000) * 1000) /* 1 ms, so that a day passes in a few changes */
#define KEYS	 12
#define CHANGES	 60
#define VERSIONS 4096
#define RULES	 4

static uint64_t seed;

static unsigned dice(unsigned n)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned)(seed >> 33) % n;
}

/* --- the model ------------------------------------------------------------------------------- */

struct rule {
	bool enabled, marker;
	const char *prefix, *tag;
	unsigned above, below, days, noncurrent, keep; /* 0 if the rule lacks the element */
	int64_t date_ns; /* 0 if the rule has no date */
};

struct version {
	char key[8], name[STORE_VERSION_SIZE], tag[8];
	int64_t modified_ns;
	unsigned size;
	bool marker, latest, gone;
};

static int64_t after(int64_t since, unsigned days)
{
	int64_t at = since + days * DAY_NS;

	return at % DAY_NS ? (at / DAY_NS + 1) * DAY_NS : at;
}

static bool means(const struct rule *r, const struct version *v)
{
	if (!r->enabled || strncmp(v->key, r->prefix, strlen(r->prefix)) != 0)
		return false;
	if (v->marker)
		return !*r->tag && !r->above && !r->below;
	return (!*r->tag || strcmp(r->tag, v->tag) == 0) && (!r->above || v->size > r->above) &&
	       (!r->below || v->size < r->below);
}

/* Returns true if the rule removes `v`, the i-th of the `n` versions of its key, newest first. */
static bool ends(const struct rule *r, const struct version *v, size_t i, size_t n, int64_t now)
{
	unsigned newer = 0;

	if (!means(r, v))
		return false;
	if (i == 0) {
		bool due = (r->days && after(v->modified_ns, r->days) <= now) ||
			   (r->date_ns && r->date_ns <= now);

		return v->marker ? n == 1 && (due || r->marker) : due;
	}
	for (size_t k = 1; k < i; k++)
		newer += !v[-(ptrdiff_t)k].marker;
	return r->noncurrent && newer >= r->keep && after(v[-1].modified_ns, r->noncurrent) <= now;
}

/* Marks the versions that a walk removes. In a bucket with versioning, an expired current version
 * stays and gets a delete marker. Returns the number of new markers. */
static size_t apply(
	struct version *v, size_t n, const struct rule *rules, int64_t now, bool versioned)
{
	size_t markers = 0;

	for (size_t first = 0, of_key; first < n; first += of_key) {
		for (of_key = 1;
			first + of_key < n && strcmp(v[first].key, v[first + of_key].key) == 0;)
			of_key++;
		for (size_t i = 0; i < of_key; i++) {
			struct version *at = &v[first + i];
			bool gone = false;

			for (size_t k = 0; k < RULES; k++)
				gone = gone || ends(&rules[k], at, i, of_key, now);
			if (gone && i == 0 && !at->marker && versioned) {
				markers++;
				gone = false;
			}
			at->gone = gone;
		}
	}
	return markers;
}

/* --- the store ------------------------------------------------------------------------------- */

static const char *const tags[] = {"", "a=1", "a=2"};
static const char *const prefixes[] = {"", "a", "a1", "b"};

static void change(struct fixture *f)
{
	char key[8], headers[16] = TAGS_HEADER, text[64];
	const char *tag = tags[dice(3)];
	size_t len = sizeof(TAGS_HEADER);

	snprintf(key, sizeof(key), "%c%u", "ab"[dice(2)], dice(KEYS / 2));
	if (dice(4) == 0) {
		struct store_delete item = {.key = key};

		assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
		return;
	}
	memcpy(headers + len, tag, strlen(tag) + 1);
	len = *tag ? len + strlen(tag) + 1 : 0;
	memset(text, 'x', sizeof(text));
	assert_int_equal(
		put_full(f, &(struct store_put){.key = key, .headers = headers, .headers_len = len},
			text, dice(sizeof(text))),
		STORE_OK);
}

static size_t list(struct fixture *f, struct version *out)
{
	struct store_list page;
	size_t n;

	assert_int_equal(store_version_list(f->store,
				 &(struct store_list_query){.bucket = "b", .max = VERSIONS}, NULL,
				 &page, NULL),
		STORE_OK);
	n = page.n;
	for (size_t i = 0; i < n; i++) {
		const struct store_list_entry *e = &page.entries[i];
		struct store_object *object = NULL;
		const char *tag;

		out[i] = (struct version){.modified_ns = e->modified_ns,
			.size = (unsigned)e->size,
			.marker = e->is_marker,
			.latest = e->is_latest};
		snprintf(out[i].key, sizeof(out[i].key), "%s", e->key);
		snprintf(out[i].name, sizeof(out[i].name), "%s", e->version);
		assert_int_equal(
			store_version_get(f->store, "b", e->key, e->version, &object, NULL),
			STORE_OK);
		tag = store_object_header(object, TAGS_HEADER);
		snprintf(out[i].tag, sizeof(out[i].tag), "%s", tag ? tag : "");
		store_object_unref(object);
	}
	store_list_release(&page);
	return n;
}

static void make_rules(struct rule *rules, int64_t now, struct buf *xml)
{
	buf_clear(xml);
	buf_add_str(xml, "<LifecycleConfiguration>");
	for (size_t i = 0; i < RULES; i++) {
		struct rule *r = &rules[i];

		*r = (struct rule){.enabled = dice(5) != 0, .prefix = prefixes[dice(4)], .tag = ""};
		r->marker = dice(3) == 0;
		if (!r->marker) {
			r->tag = tags[dice(3)];
			r->above = dice(3) ? 0 : 1 + dice(30);
			r->below = dice(3) ? 0 : 31 + dice(30);
			r->days = dice(2) ? 1 + dice(9) : 0;
			/* The date of a rule is the midnight of a real day. */
			r->date_ns = r->days || dice(6) ? 0
				     : dice(2)		? S3_DAY_NS
							: (now / S3_DAY_NS + 2) * S3_DAY_NS;
		}
		r->noncurrent = dice(2) || (!r->marker && !r->days && !r->date_ns) ? 1 + dice(9)
										   : 0;
		r->keep = r->noncurrent ? dice(3) : 0;
		buf_printf(xml, "<Rule><Status>%s</Status><Filter><And><Prefix>%s</Prefix>",
			r->enabled ? "Enabled" : "Disabled", r->prefix);
		if (*r->tag)
			buf_printf(xml, "<Tag><Key>a</Key><Value>%s</Value></Tag>", r->tag + 2);
		if (r->above)
			buf_printf(
				xml, "<ObjectSizeGreaterThan>%u</ObjectSizeGreaterThan>", r->above);
		if (r->below)
			buf_printf(xml, "<ObjectSizeLessThan>%u</ObjectSizeLessThan>", r->below);
		buf_add_str(xml, "</And></Filter>");
		if (r->days)
			buf_printf(xml, "<Expiration><Days>%u</Days></Expiration>", r->days);
		if (r->date_ns)
			buf_printf(xml, "<Expiration><Date>%s</Date></Expiration>",
				r->date_ns < now ? "1970-01-02" : "9999-01-01");
		if (r->marker)
			buf_add_str(xml, "<Expiration><ExpiredObjectDeleteMarker>true"
					 "</ExpiredObjectDeleteMarker></Expiration>");
		if (r->noncurrent)
			buf_printf(xml,
				"<NoncurrentVersionExpiration><NoncurrentDays>%u</NoncurrentDays>",
				r->noncurrent);
		if (r->keep)
			buf_printf(xml, "<NewerNoncurrentVersions>%u</NewerNoncurrentVersions>",
				r->keep);
		if (r->noncurrent)
			buf_add_str(xml, "</NoncurrentVersionExpiration>");
		buf_add_str(xml, "</Rule>");
	}
	buf_add_str(xml, "</LifecycleConfiguration>");
}

static void compare(struct fixture *f, const struct version *old, size_t n_old, size_t markers)
{
	_cleanup_free_ struct version *new = calloc(VERSIONS, sizeof(*new));
	size_t n = list(f, new), k = 0;

	for (size_t i = 0; i < n; i++) {
		while (k < n_old && old[k].gone)
			k++;
		if (k < n_old && strcmp(new[i].key, old[k].key) == 0 &&
			new[i].modified_ns == old[k].modified_ns) {
			k++;
			continue;
		}
		/* A new marker is the newest version of its key. */
		if (!new[i].marker || !new[i].latest || !markers)
			fail_msg(
				"'%s' version '%s' was not removed, or an older version is missing",
				new[i].key, new[i].name);
		markers--;
	}
	while (k < n_old && old[k].gone)
		k++;
	assert_int_equal(k, n_old);
	assert_int_equal(markers, 0);
}

static void one_round(struct fixture *f, bool versioned)
{
	static const atomic_bool stop;
	_cleanup_free_ struct version *versions = calloc(VERSIONS, sizeof(*versions));
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct rule rules[RULES];
	struct s3_lifecycle parsed = {0};
	struct lifecycle_walk walk = {.store = f->store,
		.bucket = "b",
		.rules = &parsed,
		.day_ns = DAY_NS,
		.stop = &stop};
	size_t n, markers;

	for (unsigned i = 0; i < CHANGES; i++)
		change(f);
	n = list(f, versions);
	walk.now_ns = clock_wall_ns() + dice(5) * DAY_NS;
	make_rules(rules, walk.now_ns, &xml);
	if (s3_lifecycle_parse(xml.data, xml.len, &parsed, NULL) < 0)
		fail_msg("%s: %s", xml.data, parsed.refusal.message);
	markers = apply(versions, n, rules, walk.now_ns, versioned);

	assert_int_equal(lifecycle_walk(&walk, NULL), 0);

	compare(f, versions, n, markers);
	s3_lifecycle_release(&parsed);
}

static void a_walk_removes_what_the_model_removes(void **state)
{
	struct fixture *f = *state;
	const char *given = getenv("LIFECYCLE_SEED");

	seed = given ? strtoull(given, NULL, 10) : (uint64_t)clock_wall_ns();
	print_message("LIFECYCLE_SEED=%llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < 10; i++)
		one_round(f, false);
	assert_int_equal(store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), 0);
	for (unsigned i = 0; i < 30; i++)
		one_round(f, true);
	assert_int_equal(store_bucket_set_versioning(f->store, "b", 0, STORE_SUSPENDED, NULL), 0);
}

/* A version that Object Lock protects stays; other versions of the key are removed. */
static void a_locked_version_stays(void **state)
{
	static const atomic_bool stop;
	static const char held[] = STORE_HOLD_HEADER "\0" STORE_HOLD_ON;
	static const char xml[] =
		"<LifecycleConfiguration><Rule><ID>x</ID><Status>Enabled</Status><Filter/>"
		"<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>"
		"</NoncurrentVersionExpiration></Rule></LifecycleConfiguration>";
	struct fixture *f = *state;
	struct s3_lifecycle rules = {0};
	struct lifecycle_walk walk = {.store = f->store,
		.bucket = "b",
		.rules = &rules,
		.day_ns = DAY_NS,
		.now_ns = clock_wall_ns() + S3_DAY_NS,
		.stop = &stop};
	struct version left[4];

	assert_int_equal(store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), 0);
	put(f, "k", "1", "old");
	put_full(f, &(struct store_put){.key = "k", .headers = held, .headers_len = sizeof(held)},
		"held", 4);
	put(f, "k", "3", "middle");
	put(f, "k", "4", "new");
	assert_int_equal(s3_lifecycle_parse(xml, strlen(xml), &rules, NULL), 0);

	assert_int_equal(lifecycle_walk(&walk, NULL), 0);

	assert_int_equal(walk.n_versions, 2);
	assert_int_equal(list(f, left), 2);
	assert_int_equal(left[1].size, 4);
	s3_lifecycle_release(&rules);
}

/* A client may change an object between the walk and the deletion. */
static void a_changed_version_is_not_removed(void **state)
{
	struct fixture *f = *state;
	struct version v[4] = {0};
	struct store_expiry item = {.kind = STORE_EXPIRE_OBJECT, .key = "k", .is_null = true};

	put(f, "k", "1", "one");
	assert_int_equal(list(f, v), 1);
	item.modified_ns = v[0].modified_ns;
	item.header = TAGS_HEADER;
	item.value = "a=1";
	assert_int_equal(store_expire(f->store, "b", NULL, &item, 1, NULL), STORE_OK);
	assert_false(item.done); /* the object has other tags */
	item.header = NULL;
	put(f, "k", "2", "two");
	assert_int_equal(store_expire(f->store, "b", NULL, &item, 1, NULL), STORE_OK);
	assert_false(item.done); /* the object was replaced */
	assert_content(f, "k", "two");

	assert_int_equal(list(f, v), 1);
	item.modified_ns = v[0].modified_ns;
	item.kind = STORE_EXPIRE_VERSION;
	assert_int_equal(store_expire(f->store, "b", NULL, &item, 1, NULL), STORE_OK);
	assert_false(item.done); /* the version is still the current one */
	item.kind = STORE_EXPIRE_OBJECT;
	assert_int_equal(store_expire(f->store, "b", NULL, &item, 1, NULL), STORE_OK);
	assert_true(item.done);
	assert_int_equal(list(f, v), 0);
}

/* The client that changed the rules already has the reply, so the old rules must not remove
 * anything. */
static void nothing_is_removed_by_rules_that_have_changed(void **state)
{
	static const char *const others[] = {"new", "longer", NULL};
	const struct store_rules rules = {.name = LIFECYCLE_CONFIG, .text = "old", .len = 3};
	struct fixture *f = *state;
	struct version v[4] = {0};
	struct store_expiry item = {.kind = STORE_EXPIRE_OBJECT, .key = "k", .is_null = true};

	put(f, "k", "1", "one");
	assert_int_equal(list(f, v), 1);
	item.modified_ns = v[0].modified_ns;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(store_config_set(f->store, "b", 0, LIFECYCLE_CONFIG, others[i],
					 others[i] ? strlen(others[i]) : 0, NULL),
			STORE_OK);
		assert_int_equal(
			store_expire(f->store, "b", &rules, &item, 1, NULL), STORE_CHANGED);
		assert_false(item.done);
	}
	assert_content(f, "k", "one");

	assert_int_equal(
		store_config_set(f->store, "b", 0, LIFECYCLE_CONFIG, "old", 3, NULL), STORE_OK);
	assert_int_equal(store_expire(f->store, "b", &rules, &item, 1, NULL), STORE_OK);
	assert_true(item.done);
}

static void uploads_end_by_their_own_rule(void **state)
{
	static const atomic_bool stop;
	static const char xml[] =
		"<LifecycleConfiguration><Rule><Status>Enabled</Status><Prefix>a</Prefix>"
		"<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation>"
		"</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>";
	struct fixture *f = *state;
	struct s3_lifecycle rules = {0};
	struct lifecycle_walk walk = {.store = f->store,
		.bucket = "b",
		.rules = &rules,
		.day_ns = S3_DAY_NS,
		.now_ns = clock_wall_ns() + S3_DAY_NS,
		.stop = &stop};
	char id[STORE_UPLOAD_ID_SIZE], none[] = "";
	struct store_list page;

	for (unsigned i = 0; i < 250; i++)
		assert_int_equal(store_upload_create(f->store, "b", 0, i % 2 ? "a" : "b",
					 &(struct store_upload){.headers = none}, id, NULL),
			STORE_OK);
	assert_int_equal(s3_lifecycle_parse(xml, strlen(xml), &rules, NULL), 0);

	assert_int_equal(lifecycle_walk(&walk, NULL), 0);
	assert_int_equal(walk.n_uploads, 0);
	walk.now_ns += 2 * S3_DAY_NS;
	assert_int_equal(lifecycle_walk(&walk, NULL), 0);

	assert_int_equal(walk.n_uploads, 125);
	assert_int_equal(
		store_upload_list(f->store, &(struct store_list_query){.bucket = "b", .max = 1000},
			NULL, &page, NULL),
		STORE_OK);
	assert_int_equal(page.n, 125);
	for (size_t i = 0; i < page.n; i++)
		assert_string_equal(page.entries[i].key, "b");
	store_list_release(&page);
	s3_lifecycle_release(&rules);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_walk_removes_what_the_model_removes, setup, teardown),
		cmocka_unit_test_setup_teardown(a_locked_version_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(a_changed_version_is_not_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(
			nothing_is_removed_by_rules_that_have_changed, setup, teardown),
		cmocka_unit_test_setup_teardown(uploads_end_by_their_own_rule, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
