#include "fixture.h"

/* Keys from a small alphabet, so that many keys share prefixes, delimiters and neighbours. */
static const char *const letters[] = {
	"a", "b", "/", "//", "-", ".", "\x01", "\xc3\xa9", "\xf0\x9f\x98\x80", "~"};

#define N_KEYS 400

struct model {
	char *keys[N_KEYS];
	size_t n;
};

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *random_key(unsigned *seed)
{
	char key[64] = "";

	for (int n = 1 + rand_r(seed) % 6; n; n--)
		strncat(key, letters[rand_r(seed) % 10], sizeof(key) - strlen(key) - 1);
	return strdup(key);
}

static void fill(struct fixture *f, struct model *m, unsigned *seed)
{
	while (m->n < N_KEYS) {
		char *key = random_key(seed);
		bool known = false;

		for (size_t i = 0; i < m->n && !known; i++)
			known = strcmp(m->keys[i], key) == 0;
		if (known) {
			free(key);
			continue;
		}
		assert_int_equal(put(f, key, "e", "x"), STORE_OK);
		m->keys[m->n++] = key;
	}
	qsort(m->keys, m->n, sizeof(m->keys[0]), by_bytes);
}

/* Computes the expected listing by checking every key. */
static size_t expect(const struct model *m, const char *prefix, const char *delimiter,
	const char *after, char out[N_KEYS][80])
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++) {
		const char *key = m->keys[i], *at = NULL;
		char entry[80];

		if (strncmp(key, prefix, strlen(prefix)) != 0)
			continue;
		if (*delimiter)
			at = strstr(key + strlen(prefix), delimiter);
		if (at)
			snprintf(entry, sizeof(entry), "P%.*s",
				(int)(at - key) + (int)strlen(delimiter), key);
		else
			snprintf(entry, sizeof(entry), "K%s", key);
		if (strcmp(entry + 1, after) <= 0 || (n && strcmp(out[n - 1], entry) == 0))
			continue;
		snprintf(out[n++], 80, "%s", entry);
	}
	return n;
}

/* Compares all pages of at most `max` entries with the model. */
static void compare(struct fixture *f, const struct model *m, const char *prefix,
	const char *delimiter, const char *start, size_t max)
{
	static char wanted[N_KEYS][80];
	size_t n = expect(m, prefix, delimiter, start, wanted), at = 0;
	char after[80];
	bool more = true;

	snprintf(after, sizeof(after), "%s", start);
	while (more) {
		struct store_list list;
		struct store_list_query q = {.bucket = "b",
			.prefix = prefix,
			.delimiter = delimiter,
			.after = after,
			.max = max};

		assert_int_equal(store_list_objects(f->store, &q, &list, NULL), STORE_OK);
		assert_true(list.n <= max);
		for (size_t i = 0; i < list.n; i++) {
			assert_true(at < n);
			assert_int_equal(list.entries[i].is_prefix, wanted[at][0] == 'P');
			assert_string_equal(list.entries[i].key, wanted[at] + 1);
			at++;
		}
		more = list.truncated;
		assert_int_equal(more, at < n);
		if (list.n)
			snprintf(after, sizeof(after), "%s", list.entries[list.n - 1].key);
		store_list_release(&list);
	}
	assert_int_equal(at, n);
}

/* For random combinations of prefix, delimiter, start and page size, the listing equals the
 * model's. */
static void listings_agree_with_a_model(void **state)
{
	struct fixture *f = *state;
	static struct model m;
	unsigned seed = 20261121;

	fill(f, &m, &seed);
	for (int i = 0; i < 400; i++) {
		static const char *const delimiters[] = {"", "/", "//", "a", "-", "\xc3\xa9"};
		char *prefix = rand_r(&seed) % 3 ? strdup("") : random_key(&seed);
		char *start = rand_r(&seed) % 3 ? strdup("") : random_key(&seed);

		if (strlen(prefix) > 2)
			prefix[1] = '\0';
		compare(f, &m, prefix, delimiters[rand_r(&seed) % 6], start,
			1 + (size_t)rand_r(&seed) % 40);
		free(prefix);
		free(start);
	}
	for (size_t i = 0; i < m.n; i++)
		free(m.keys[i]);
}

/* A common prefix costs one seek, regardless of the number of objects below it. */
static void a_common_prefix_is_skipped_not_walked(void **state)
{
	struct fixture *f = *state;
	struct store_list list;
	struct store_list_query q = {.bucket = "b", .delimiter = "/", .max = 1000};
	char key[64];
	int64_t folded, all;

	for (int i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "folder%d/%06d", i % 2, i);
		assert_int_equal(put(f, key, "e", "x"), STORE_OK);
	}
	folded = clock_monotonic_ns();
	for (int i = 0; i < 20; i++) {
		assert_int_equal(store_list_objects(f->store, &q, &list, NULL), STORE_OK);
		assert_int_equal(list.n, 2);
		store_list_release(&list);
	}
	folded = clock_monotonic_ns() - folded;
	q.delimiter = "";
	q.max = 20000;
	all = clock_monotonic_ns();
	for (int i = 0; i < 20; i++) {
		assert_int_equal(store_list_objects(f->store, &q, &list, NULL), STORE_OK);
		assert_int_equal(list.n, 20000);
		store_list_release(&list);
	}
	all = clock_monotonic_ns() - all;

	assert_true(folded * 20 < all);
}

/* Tests an empty page and a missing bucket. */
static void edges_of_listings(void **state)
{
	struct fixture *f = *state;
	struct store_list list;
	struct store_list_query q = {.bucket = "b", .max = 0};

	put(f, "k", "e", "x");
	assert_int_equal(store_list_objects(f->store, &q, &list, NULL), STORE_OK);
	assert_int_equal(list.n, 0);
	assert_false(list.truncated);
	store_list_release(&list);
	q.bucket = "none";
	assert_int_equal(store_list_objects(f->store, &q, &list, NULL), STORE_NO_SUCH_BUCKET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(listings_agree_with_a_model),
		TEST(a_common_prefix_is_skipped_not_walked),
		TEST(edges_of_listings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
