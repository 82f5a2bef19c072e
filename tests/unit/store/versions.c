/* Buckets with versioning, compared with a model. */
#include "base/buf.h"
#include "fixture.h"

#define KEYS	 4
#define VERSIONS 64
#define STEPS	 3000
#define LARGE	 (STORE_INLINE_MAX + 1) /* size of a body that is stored in a file */

struct version {
	char name[STORE_VERSION_SIZE];
	bool marker;
	int content; /* the first bytes */
	bool large;
	const char *etag; /* NULL for the ETag of put_full() */
};

/* The versions of each key, newest first. */
struct model {
	struct fixture *f;
	enum store_versioning versioning;
	struct version versions[KEYS][VERSIONS];
	size_t n[KEYS];
	unsigned seed;
	int contents;
};

static const char *const keys[KEYS] = {"a", "a/b", "a/c", "b"};

static unsigned pick(struct model *m, unsigned n)
{
	return (unsigned)rand_r(&m->seed) % n;
}

static void model_remove(struct model *m, size_t key, size_t i)
{
	m->n[key]--;
	memmove(&m->versions[key][i], &m->versions[key][i + 1],
		(m->n[key] - i) * sizeof(struct version));
}

static size_t model_find(const struct model *m, size_t key, const char *name)
{
	size_t i = 0;

	while (i < m->n[key] && strcmp(m->versions[key][i].name, name) != 0)
		i++;
	return i;
}

/* Adds the newest version, which replaces all versions if the bucket has no versioning, and the
 * version "null" if versioning is suspended. */
static void model_add(struct model *m, size_t key, struct version v)
{
	size_t i;

	if (m->versioning == STORE_UNVERSIONED)
		m->n[key] = 0;
	if (m->versioning != STORE_VERSIONED && (i = model_find(m, key, "null")) < m->n[key])
		model_remove(m, key, i);
	assert_true(m->n[key] < VERSIONS);
	memmove(&m->versions[key][1], &m->versions[key][0], m->n[key] * sizeof(v));
	m->versions[key][0] = v;
	m->n[key]++;
}

/* --- steps ----------------------------------------------------------------------------------- */

static void step_put(struct model *m, size_t key)
{
	struct store_put put = {.key = keys[key]};
	struct version v = {.content = ++m->contents, .large = pick(m, 3) == 0};
	static char data[LARGE];

	snprintf(data, sizeof(data), "%d", v.content);
	assert_int_equal(put_full(m->f, &put, data, v.large ? LARGE : 16), STORE_OK);
	if (m->versioning == STORE_UNVERSIONED)
		assert_string_equal(put.version, "");
	snprintf(v.name, sizeof(v.name), "%s", *put.version ? put.version : "null");
	assert_int_equal(strcmp(v.name, "null") == 0, m->versioning != STORE_VERSIONED);
	model_add(m, key, v);
}

static void step_delete(struct model *m, size_t key)
{
	struct store_delete item = {.key = keys[key]};
	struct version v = {.marker = true};
	bool exists = m->n[key] && !m->versions[key][0].marker;

	assert_int_equal(store_delete(m->f->store, "b", 0, &item, 1, NULL), STORE_OK);
	assert_int_equal(item.existed, exists);
	assert_int_equal(item.marker, m->versioning != STORE_UNVERSIONED);
	if (m->versioning == STORE_UNVERSIONED) {
		m->n[key] = 0;
		return;
	}
	memcpy(v.name, item.made, sizeof(v.name));
	model_add(m, key, v);
}

static void step_delete_version(struct model *m, size_t key)
{
	struct store_delete item = {.key = keys[key], .version = "0000000000000001"};
	size_t i = pick(m, (unsigned)m->n[key] + 1);
	bool exists = i < m->n[key];

	if (exists)
		item.version = m->versions[key][i].name;
	assert_int_equal(store_delete(m->f->store, "b", 0, &item, 1, NULL), STORE_OK);
	assert_int_equal(item.existed, exists);
	assert_int_equal(item.marker, exists && m->versions[key][i].marker);
	assert_string_equal(item.made, "");
	if (exists)
		model_remove(m, key, i);
}

/* Makes the replica of a version or marker; its name may already exist. */
static enum store_status make_replica(struct model *m, size_t key, struct version *v)
{
	static char data[LARGE];
	char headers[64];
	int len = snprintf(headers, sizeof(headers), "%s%c%s", STORE_REPLICA_HEADER, '\0', v->name);
	struct store_put put = {.key = keys[key],
		.etag = v->etag,
		.headers = headers,
		.headers_len = (size_t)len + 1};
	struct store_delete item = {.key = keys[key], .replica = v->name};

	if (v->marker) {
		assert_int_equal(store_delete(m->f->store, "b", 0, &item, 1, NULL), STORE_OK);
		assert_string_equal(item.made, item.status == STORE_OK ? v->name : "");
		return item.status;
	}
	snprintf(data, sizeof(data), "%d", v->content);
	return put_full(m->f, &put, data, v->large ? LARGE : 16);
}

/* Adds a version as another store sends it: before or after the newest one, or a second time. */
static void step_replica(struct model *m, size_t key)
{
	struct version v = {
		.content = ++m->contents, .large = pick(m, 3) == 0, .marker = pick(m, 4) == 0};
	size_t i = pick(m, (unsigned)m->n[key] + 1);
	unsigned long long time;

	if (!m->n[key] || strcmp(m->versions[key][i ? i - 1 : 0].name, "null") == 0)
		return;
	v.large = v.large && !v.marker;
	time = strtoull(m->versions[key][i ? i - 1 : 0].name, NULL, 16);
	snprintf(v.name, sizeof(v.name), "%016llx", i ? time - 1 : time + 100);
	if (i && pick(m, 4) == 0) {
		const struct version *old = &m->versions[key][i - 1];

		memcpy(v.name, old->name, sizeof(v.name));
		v.etag = pick(m, 2) ? NULL : "other";
		assert_int_equal(make_replica(m, key, &v),
			v.marker != old->marker || (!v.marker && v.etag) ? STORE_VERSION_TAKEN
			: v.marker					 ? STORE_OK
									 : STORE_PRECONDITION);
		return;
	}
	if (i < m->n[key] && strcmp(m->versions[key][i].name, v.name) == 0)
		return;
	assert_int_equal(make_replica(m, key, &v), STORE_OK);
	assert_true(m->n[key] < VERSIONS);
	memmove(&m->versions[key][i + 1], &m->versions[key][i], (m->n[key] - i) * sizeof(v));
	m->versions[key][i] = v;
	m->n[key]++;
}

static void step_versioning(struct model *m)
{
	m->versioning = pick(m, 2) ? STORE_VERSIONED : STORE_SUSPENDED;
	assert_int_equal(
		store_bucket_set_versioning(m->f->store, "b", 0, m->versioning, NULL), STORE_OK);
}

/* --- comparing ------------------------------------------------------------------------------- */

static void check_version(const struct model *m, size_t key, size_t i)
{
	const struct version *v = &m->versions[key][i];
	struct store_object *object = NULL;
	char *data, text[16];

	assert_int_equal(store_version_get(m->f->store, "b", keys[key],
				 i || rand() % 2 ? v->name : NULL, &object, NULL),
		STORE_OK);
	assert_string_equal(object->version, v->name);
	assert_int_equal(object->marker, v->marker);
	assert_int_equal(object->versioned, m->versioning != STORE_UNVERSIONED);
	if (!v->marker) {
		data = content(object);
		snprintf(text, sizeof(text), "%d", v->content);
		assert_string_equal(data, text);
		free(data);
	}
	store_object_unref(object);
}

static void check_key(const struct model *m, size_t key)
{
	bool exists = m->n[key] && !m->versions[key][0].marker;
	struct store_object *object = NULL;

	assert_int_equal(store_object_get(m->f->store, "b", keys[key], &object, NULL),
		exists ? STORE_OK : STORE_NO_SUCH_KEY);
	if (exists) {
		assert_string_equal(object->version, m->versions[key][0].name);
		assert_int_equal(object->versioned, m->versioning != STORE_UNVERSIONED);
	}
	store_object_unref(object);
	for (size_t i = 0; i < m->n[key]; i++)
		check_version(m, key, i);
	assert_int_equal(
		store_version_get(m->f->store, "b", keys[key], "0000000000000001", &object, NULL),
		STORE_NO_SUCH_VERSION);
	assert_null(object);
	if (m->n[key] == 0)
		assert_int_equal(
			store_version_get(m->f->store, "b", keys[key], NULL, &object, NULL),
			STORE_NO_SUCH_KEY);
}

/* Compares all pages of the list with the model. */
static void check_list(const struct model *m, const char *prefix, size_t max)
{
	struct store_list_query query = {.bucket = "b", .prefix = prefix, .max = max};
	char version[STORE_VERSION_SIZE];
	const char *after_version = NULL;
	struct store_list list = {0};
	size_t at = 0;

	for (size_t key = 0; key < KEYS; key++) {
		for (size_t i = 0; i < m->n[key]; i++) {
			const struct store_list_entry *e;

			if (strncmp(keys[key], prefix, strlen(prefix)) != 0)
				continue;
			if (at == list.n) {
				store_list_release(&list);
				assert_int_equal(store_version_list(m->f->store, &query,
							 after_version, &list, NULL),
					STORE_OK);
				at = 0;
			}
			assert_true(at < list.n);
			e = &list.entries[at++];
			assert_string_equal(e->key, keys[key]);
			assert_string_equal(e->version, m->versions[key][i].name);
			assert_int_equal(e->is_marker, m->versions[key][i].marker);
			assert_int_equal(e->is_latest, i == 0);
			query.after = keys[key];
			after_version = version;
			if (at % 2)
				store_version_place(e, version);
			else
				memcpy(version, e->version, sizeof(version));
		}
	}
	assert_int_equal(at, list.n);
	assert_false(list.truncated);
	store_list_release(&list);
}

static size_t large_bodies(const struct model *m)
{
	size_t n = 0;

	for (size_t key = 0; key < KEYS; key++)
		for (size_t i = 0; i < m->n[key]; i++)
			n += m->versions[key][i].large;
	return n;
}

/* A list of objects is the same with and without versioning. */
static void check_objects(const struct model *m)
{
	struct store_list_query query = {.bucket = "b", .max = 100};
	struct store_list list = {0};
	size_t n = 0;

	assert_int_equal(store_list_objects(m->f->store, &query, &list, NULL), STORE_OK);
	for (size_t key = 0; key < KEYS; key++) {
		if (!m->n[key] || m->versions[key][0].marker)
			continue;
		assert_true(n < list.n);
		assert_string_equal(list.entries[n++].key, keys[key]);
	}
	assert_int_equal(n, list.n);
	store_list_release(&list);
}

static void versions_are_those_of_the_model(void **state)
{
	struct model m = {.f = *state, .seed = 1};

	for (int step = 0; step < STEPS; step++) {
		size_t key = pick(&m, KEYS);

		if (m.n[key] == VERSIONS || pick(&m, 3) == 0)
			step_delete_version(&m, key);
		else if (m.versioning == STORE_VERSIONED && pick(&m, 4) == 0)
			step_replica(&m, key);
		else if (pick(&m, 3) == 0)
			step_delete(&m, key);
		else
			step_put(&m, key);
		if (step > STEPS / 10 && pick(&m, 20) == 0)
			step_versioning(&m);
		if (pick(&m, 500) == 0) {
			store_close(m.f->store);
			fixture_open(m.f, false);
		}
		check_key(&m, key);
		check_list(&m, pick(&m, 2) ? "" : "a/", 1 + pick(&m, 5));
		check_objects(&m);
		assert_int_equal(count_files(m.f), large_bodies(&m));
	}
}

/* A client that empties a bucket deletes versions between pages. */
static void no_version_is_omitted_if_those_before_are_deleted(void **state)
{
	struct fixture *f = *state;
	struct store_list_query query = {.bucket = "b", .max = 1};
	struct store_put p = {.key = "k"};
	struct store_list list = {0};
	char place[STORE_VERSION_SIZE];
	const char *after = NULL;
	size_t n = 0;

	store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL);
	for (int i = 0; i < 2; i++)
		assert_int_equal(put_full(f, &p, "text", 4), STORE_OK);
	store_bucket_set_versioning(f->store, "b", 0, STORE_SUSPENDED, NULL);
	assert_int_equal(put_full(f, &p, "text", 4), STORE_OK);
	do {
		struct store_delete item = {.key = "k"};

		store_list_release(&list);
		assert_int_equal(
			store_version_list(f->store, &query, after, &list, NULL), STORE_OK);
		assert_int_equal(list.n, 1);
		assert_true(list.entries[0].is_latest);
		store_version_place(&list.entries[0], place);
		query.after = "k";
		after = place;
		item.version = list.entries[0].version;
		assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
		assert_true(item.existed);
		n++;
	} while (list.truncated);
	store_list_release(&list);
	assert_int_equal(n, 3);
	/* If a page starts after a deleted version, a version may be repeated, but none is
	 * omitted. */
	assert_int_equal(put_full(f, &p, "text", 4), STORE_OK);
	store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL);
	assert_int_equal(put_full(f, &p, "text", 4), STORE_OK);
	assert_int_equal(store_delete(f->store, "b", 0,
				 &(struct store_delete){.key = "k", .version = "null"}, 1, NULL),
		STORE_OK);
	assert_int_equal(store_version_list(f->store, &query, "null", &list, NULL), STORE_OK);
	assert_int_equal(list.n, 1);
	store_list_release(&list);
}

/* The time of the version "null" is not accepted as its name. */
static void a_version_has_one_name(void **state)
{
	struct fixture *f = *state;
	struct store_delete item = {.key = "k"};
	struct store_object *object = NULL;
	struct store_list_entry e = {0};
	char name[STORE_VERSION_SIZE];

	assert_int_equal(put(f, "k", "etag", "old"), STORE_OK);
	store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL);
	assert_int_equal(put(f, "k", "etag", "new"), STORE_OK);
	assert_int_equal(store_version_get(f->store, "b", "k", "null", &object, NULL), STORE_OK);
	e.modified_ns = object->modified_ns;
	store_object_unref(object);
	store_version_place(&e, name);
	assert_int_equal(
		store_version_get(f->store, "b", "k", name, &object, NULL), STORE_NO_SUCH_VERSION);
	item.version = name;
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
	assert_false(item.existed);
	assert_int_equal(store_annotate(f->store,
				 &(struct store_annotation){.bucket = "b",
					 .key = "k",
					 .version = name,
					 .name = ":note",
					 .value = "x"},
				 NULL),
		STORE_NO_SUCH_VERSION);
	assert_false(store_version_is_valid("0123456789ABCDEF"));
}

static void a_missing_object_may_be_behind_a_marker(void **state)
{
	struct fixture *f = *state;
	struct store_delete item = {.key = "k"};
	struct store_object *object = NULL;

	store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL);
	assert_int_equal(store_object_get(f->store, "b", "k", &object, NULL), STORE_NO_SUCH_KEY);
	assert_null(object);
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
	assert_int_equal(store_object_get(f->store, "b", "k", &object, NULL), STORE_NO_SUCH_KEY);
	assert_true(object->marker);
	assert_string_equal(object->version, item.made);
	store_object_unref(object);
}

static void a_bucket_with_versions_is_not_empty(void **state)
{
	struct fixture *f = *state;
	struct store_delete item = {.key = "k"};

	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
	assert_int_equal(store_bucket_delete(f->store, "b", 0, NULL), STORE_BUCKET_NOT_EMPTY);
	item.version = item.made;
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);
	assert_int_equal(store_bucket_delete(f->store, "b", 0, NULL), STORE_OK);
	assert_int_equal(store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL),
		STORE_NO_SUCH_BUCKET);
}

static void names_of_versions_are_checked(void **state)
{
	(void)state;
	assert_true(store_version_is_valid("null"));
	assert_true(store_version_is_valid("0123456789abcdef"));
	assert_false(store_version_is_valid(""));
	assert_false(store_version_is_valid("nul"));
	assert_false(store_version_is_valid("0123456789abcde"));
	assert_false(store_version_is_valid("0123456789abcdeg"));
	assert_false(store_version_is_valid("f123456789abcdef"));
}

/* --- headers and configurations -------------------------------------------------------------- */

static const char *note(struct fixture *f, const char *version)
{
	static char value[32];
	struct store_object *object = NULL;
	const char *found;

	assert_int_equal(store_version_get(f->store, "b", "k", version, &object, NULL), STORE_OK);
	assert_string_equal(store_object_header(object, "content-type"), "text");
	found = store_object_header(object, ":note");
	snprintf(value, sizeof(value), "%s", found ? found : "-");
	store_object_unref(object);
	return value;
}

static void headers_of_the_store_are_changed_in_place(void **state)
{
	struct fixture *f = *state;
	struct store_put p = {.key = "k", .headers = "content-type\0text", .headers_len = 18};
	struct store_annotation a = {.bucket = "b", .key = "k", .name = ":note", .value = "one"};
	char first[STORE_VERSION_SIZE];

	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_NO_SUCH_KEY);
	assert_int_equal(put_full(f, &p, "1", 1), STORE_OK);
	memcpy(first, p.version, sizeof(first));
	assert_int_equal(put_full(f, &p, "2", 1), STORE_OK);

	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_OK);
	assert_string_equal(note(f, NULL), "one");
	assert_string_equal(note(f, first), "-");
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_CHANGED);
	a.version = first;
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_OK);
	a.expected = "one";
	a.value = "two";
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_OK);
	assert_string_equal(note(f, first), "two");
	assert_string_equal(note(f, p.version), "one");
	a.expected = "wrong";
	a.version = p.version;
	a.any = true;
	a.value = NULL;
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_OK);
	assert_string_equal(note(f, NULL), "-");
	a.version = "0000000000000001";
	assert_int_equal(store_annotate(f->store, &a, NULL), STORE_NO_SUCH_VERSION);
}

static void configurations_belong_to_their_bucket(void **state)
{
	struct fixture *f = *state;
	struct buf out = BUF_INIT(100);

	assert_int_equal(store_config_get(f->store, "b", "cors", &out, NULL), STORE_NO_SUCH_KEY);
	assert_int_equal(store_config_set(f->store, "b", 0, "cors", "text", 4, NULL), STORE_OK);
	assert_int_equal(store_config_get(f->store, "b", "cors", &out, NULL), STORE_OK);
	assert_string_equal(buf_str(&out), "text");
	assert_int_equal(store_config_set(f->store, "b", 0, "policy", "x", 1, NULL), STORE_OK);
	assert_int_equal(store_config_set(f->store, "b", 0, "cors", NULL, 0, NULL), STORE_OK);
	assert_int_equal(store_config_get(f->store, "b", "cors", &out, NULL), STORE_NO_SUCH_KEY);
	assert_int_equal(store_config_get(f->store, "n", "cors", &out, NULL), STORE_NO_SUCH_BUCKET);
	assert_int_equal(
		store_config_set(f->store, "n", 0, "cors", "x", 1, NULL), STORE_NO_SUCH_BUCKET);
	assert_int_equal(store_bucket_delete(f->store, "b", 0, NULL), STORE_OK);
	assert_int_equal(store_bucket_create(f->store, "b", "", NULL), STORE_OK);
	assert_int_equal(store_config_get(f->store, "b", "policy", &out, NULL), STORE_NO_SUCH_KEY);
	buf_release(&out);
}

/* A guest is a process that reads a store that another process owns. The owner does not notify its
 * guests of changes. */
static void a_guest_reads_the_newest_version(void **state)
{
	struct fixture *f = *state;
	struct fixture guest = *f;
	struct store_object *object = NULL;
	char *data;

	guest.store = NULL;
	assert_int_equal(store_open(&guest.store,
				 &(struct store_options){.root = f->root, .guest = true}, NULL),
		0);
	assert_int_equal(put(f, "k", "etag", "old"), STORE_OK);
	assert_content(&guest, "k", "old");
	assert_int_equal(put(f, "k", "etag", "new"), STORE_OK);
	assert_content(&guest, "k", "new");
	assert_int_equal(store_version_get(guest.store, "b", "k", "null", &object, NULL), STORE_OK);
	data = content(object);
	assert_string_equal(data, "new");
	free(data);
	store_object_unref(object);
	store_close(guest.store);
}

/* An account that keeps creating buckets with versioning does not slow down the readers of other
 * buckets. */
static void versioning_of_a_bucket_drops_no_snapshot_of_others(void **state)
{
	struct fixture *f = *state;
	struct store_object *before, *after;

	assert_int_equal(store_bucket_create(f->store, "other", "", NULL), STORE_OK);
	assert_int_equal(put(f, "k", "etag", "text"), STORE_OK);
	before = get(f, "k");

	assert_int_equal(
		store_bucket_set_versioning(f->store, "other", 0, STORE_VERSIONED, NULL), STORE_OK);
	after = get(f, "k");
	assert_ptr_equal(before, after);
	store_object_unref(after);

	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	after = get(f, "k");
	assert_true(after->versioned);
	store_object_unref(after);
	store_object_unref(before);
}

/* The first format had no versions. */
static void a_store_of_the_first_format_is_upgraded(void **state)
{
	struct fixture *f = *state;
	struct store_object *object = NULL;
	struct store_bucket bucket;
	char *data;

	assert_int_equal(put(f, "k", "etag", "old"), STORE_OK);
	store_close(f->store);
	fixture_exec(f,
		"ALTER TABLE buckets DROP COLUMN versioning; DROP TABLE versions; DROP TABLE configs");
	fixture_exec(f, "ALTER TABLE blobs DROP COLUMN seal; DROP TABLE keys");
	fixture_exec(f, "UPDATE objects SET body=(SELECT bytes FROM bodies WHERE id=body)");
	fixture_exec(f, "DROP TABLE bodies");
	fixture_exec(f, "DROP TABLE events; PRAGMA user_version=1");
	fixture_open(f, false);

	assert_content(f, "k", "old");
	assert_int_equal(store_bucket_get(f->store, "b", &bucket, NULL), STORE_OK);
	assert_int_equal(bucket.versioning, STORE_UNVERSIONED);
	assert_int_equal(
		store_bucket_set_versioning(f->store, "b", 0, STORE_VERSIONED, NULL), STORE_OK);
	assert_int_equal(put(f, "k", "etag", "new"), STORE_OK);
	assert_int_equal(store_version_get(f->store, "b", "k", "null", &object, NULL), STORE_OK);
	data = content(object);
	assert_string_equal(data, "old");
	free(data);
	store_object_unref(object);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(versions_are_those_of_the_model),
		TEST(no_version_is_omitted_if_those_before_are_deleted),
		TEST(a_version_has_one_name),
		TEST(a_missing_object_may_be_behind_a_marker),
		TEST(a_bucket_with_versions_is_not_empty),
		cmocka_unit_test(names_of_versions_are_checked),
		TEST(headers_of_the_store_are_changed_in_place),
		TEST(configurations_belong_to_their_bucket),
		TEST(a_guest_reads_the_newest_version),
		TEST(versioning_of_a_bucket_drops_no_snapshot_of_others),
		TEST(a_store_of_the_first_format_is_upgraded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
