/* The merge of two sorted streams, and the comparison of two entries. */
#include "transfer/compare.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/list/listing_internal.h"

/* A stream of the test's entries. As documented, its strings are valid until the next call. */
struct fake {
	struct entry_source source;
	const struct entry *entries;
	size_t n, at;
	char path[64];
};

static int fake_next(struct entry_source *source, struct entry *entry, struct penstock_error *err)
{
	struct fake *f = (struct fake *)source;

	memset(f->path, 'X', sizeof(f->path));
	if (f->at == f->n)
		return 0;
	if (!f->entries[f->at].path)
		return error_set(err, PENSTOCK_E_IO, "the source broke");
	*entry = f->entries[f->at++];
	snprintf(f->path, sizeof(f->path), "%s", entry->path);
	entry->path = f->path;
	entry->path_len = strlen(f->path);
	return 1;
}

static void fake_init(struct fake *f, const struct entry *entries, size_t n)
{
	*f = (struct fake){.source = {fake_next, NULL, 1}, .entries = entries, .n = n};
}

struct outcome {
	struct buf text;
	size_t stop_after;
	size_t n;
};

static int on_verdict(void *cookie, enum compare_verdict verdict, const struct entry *from,
	const struct entry *to, struct penstock_error *err)
{
	static const char marks[] = {'=', '+', '!', '-'};
	const struct entry *entry = from ? from : to;
	struct outcome *o = cookie;

	if (!entry)
		fail();
	assert_true((verdict == COMPARE_GONE) == (from == NULL));
	assert_true((verdict == COMPARE_NEW) == (to == NULL));
	buf_printf(&o->text, "%c%s ", marks[verdict], entry ? entry->path : "");
	if (++o->n == o->stop_after)
		return error_set(err, PENSTOCK_E_NO_SPACE, "enough");
	return 0;
}

static int compare(struct outcome *o, const struct entry *from, size_t n_from,
	const struct entry *to, size_t n_to, const struct compare_rules *rules,
	struct penstock_error *err)
{
	struct fake a, b;

	fake_init(&a, from, n_from);
	fake_init(&b, to, n_to);
	return compare_trees(&a.source, &b.source, rules, on_verdict, o, err);
}

#define OUTCOME(name)                                                                              \
	_cleanup_(outcome_release) struct outcome name = {.text = BUF_INIT(LIMIT_STRING)}

static void outcome_release(struct outcome *o)
{
	buf_release(&o->text);
}

#define S(seconds) ((seconds)*NS_PER_S)

/* Each path is returned once, in order, with its verdict. */
static void merges_in_order(void **state)
{
	static const struct entry from[] = {{.path = "a"}, {.path = "a-"}, {.path = "a/x"},
		{.path = "c", .size = 1}, {.path = "d"}, {.path = "z"}};
	static const struct entry to[] = {{.path = "a-"}, {.path = "a0"}, {.path = "b"},
		{.path = "c", .size = 2}, {.path = "d"}};
	OUTCOME(o);
	OUTCOME(empty);

	(void)state;
	assert_int_equal(0, compare(&o, from, ARRAY_SIZE(from), to, ARRAY_SIZE(to), NULL, NULL));
	assert_int_equal(0, compare(&empty, NULL, 0, to, 2, NULL, NULL));

	assert_string_equal("+a =a- +a/x -a0 -b !c =d +z ", buf_str(&o.text));
	assert_string_equal("-a- -a0 ", buf_str(&empty.text));
}

static const char *verdict_of(
	const struct entry *from, const struct entry *to, const struct compare_rules *rules)
{
	static char mark[2];
	OUTCOME(o);

	assert_int_equal(0, compare(&o, from, 1, to, 1, rules, NULL));
	mark[0] = buf_str(&o.text)[0];
	return mark;
}

static const char *verdict_of_times(int64_t from, int64_t to, bool exact)
{
	const struct compare_rules rules = {.exact_times = exact};

	return verdict_of(&(struct entry){.path = "a", .mtime_ns = from},
		&(struct entry){.path = "a", .mtime_ns = to}, &rules);
}

/* A file that is not older than its source is equal, within the resolution of the coarser clock. */
static void times_decide(void **state)
{
	(void)state;
	assert_string_equal("=", verdict_of_times(S(10), S(10), false));
	assert_string_equal("=", verdict_of_times(S(10), S(11), false));
	assert_string_equal("!", verdict_of_times(S(11), S(10), false));
	/* The target's times have whole seconds, so the source may be newer within the same
	 * second. */
	assert_string_equal("=", verdict_of_times(S(10) + 700000001, S(10), false));
	assert_string_equal("!", verdict_of_times(S(11) + 700000001, S(10), false));
	/* Milliseconds on one side, nanoseconds on the other. */
	assert_string_equal("=", verdict_of_times(S(10) + 7000001, S(10) + 7000000, false));
	assert_string_equal("!", verdict_of_times(S(10) + 8000001, S(10) + 7000000, false));
	assert_string_equal("!", verdict_of_times(S(10) + 8, S(10) + 7, false));
	assert_string_equal("!", verdict_of_times(S(10), S(11), true));
	assert_string_equal("=", verdict_of_times(S(10) + 5, S(10), true));
}

/* If the sizes differ, the times do not matter. */
static void sizes_decide(void **state)
{
	const struct compare_rules rules = {.size_only = true};
	const struct entry small = {.path = "a", .size = 1, .mtime_ns = S(99)};
	const struct entry same = {.path = "a", .size = 1, .mtime_ns = S(1)};
	const struct entry large = {.path = "a", .size = 2, .mtime_ns = S(100)};

	(void)state;
	assert_string_equal("!", verdict_of(&small, &large, NULL));
	assert_string_equal("!", verdict_of(&small, &same, NULL));
	assert_string_equal("=", verdict_of(&small, &same, &rules));
	assert_string_equal("!", verdict_of(&small, &large, &rules));
}

/* A directory has no content, so directories on both sides are equal, regardless of their times. */
static void directories_have_no_time(void **state)
{
	const struct entry a = {.path = "a/", .kind = ENTRY_DIRECTORY, .mtime_ns = S(9)};
	const struct entry b = {.path = "a/", .kind = ENTRY_DIRECTORY, .mtime_ns = S(1)};

	(void)state;
	assert_string_equal("=", verdict_of(&a, &b, NULL));
}

/* An error of the caller or of a source, and an unsorted stream, end the merge; the error is
 * returned unchanged. */
static void errors_end_it(void **state)
{
	static const struct entry two[] = {{.path = "a"}, {.path = "b"}};
	static const struct entry broken[] = {{.path = "a"}, {.path = NULL}};
	static const struct entry unsorted[] = {{.path = "b"}, {.path = "a"}};
	static const struct entry twice[] = {{.path = "b"}, {.path = "b"}};
	atomic_int cancel = 1;
	OUTCOME(o);

	(void)state;
	o.stop_after = 1;
	assert_int_equal(-PENSTOCK_E_NO_SPACE, compare(&o, two, 2, two, 2, NULL, NULL));
	assert_int_equal(-PENSTOCK_E_IO, compare(&o, broken, 2, two, 2, NULL, NULL));
	assert_int_equal(-PENSTOCK_E_IO, compare(&o, two, 2, broken, 2, NULL, NULL));
	assert_int_equal(-PENSTOCK_E_INTERNAL, compare(&o, two, 2, unsorted, 2, NULL, NULL));
	assert_int_equal(-PENSTOCK_E_INTERNAL, compare(&o, twice, 2, two, 2, NULL, NULL));
	assert_int_equal(-PENSTOCK_E_CANCELLED,
		compare(&o, two, 2, two, 2, &(struct compare_rules){.cancel = &cancel}, NULL));
}

/* For random sets of entries, the merge gives the same result as set operations. */
static void random_streams_merge_as_sets(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 200; seed++) {
		struct entry from[26], to[26];
		char names[26][2];
		unsigned s = seed;
		size_t n_from = 0, n_to = 0;
		_cleanup_(buf_release) struct buf wanted = BUF_INIT(LIMIT_STRING);
		OUTCOME(o);

		for (unsigned i = 0; i < 26; i++) {
			unsigned where = (unsigned)rand_r(&s) % 4,
				 differ = (unsigned)rand_r(&s) % 2;

			snprintf(names[i], sizeof(names[i]), "%c", 'a' + (int)i);
			if (where & 1)
				from[n_from++] = (struct entry){.path = names[i], .size = 1};
			if (where & 2)
				to[n_to++] = (struct entry){.path = names[i], .size = 1 + differ};
			if (where)
				buf_printf(&wanted, "%c%s ",
					where == 1   ? '+'
					: where == 2 ? '-'
					: differ     ? '!'
						     : '=',
					names[i]);
		}

		assert_int_equal(0, compare(&o, from, n_from, to, n_to, NULL, NULL));

		assert_string_equal(buf_str(&wanted), buf_str(&o.text));
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(merges_in_order),
	cmocka_unit_test(times_decide),
	cmocka_unit_test(sizes_decide),
	cmocka_unit_test(directories_have_no_time),
	cmocka_unit_test(errors_end_it),
	cmocka_unit_test(random_streams_merge_as_sets),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
