/* Tests the names that cp, mv and sync give to their targets, with dry runs, which copy no data. */
#include "copy_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include "copy/internal.h"

#define MOST 6 /* words of a command, and the names that result */

struct world {
	struct copy_store s;
	struct strlist targets; /* targets of items, in their order */
	struct strlist failed; /* sources of the failed copies */
	unsigned kept;
};

static void on_done(void *cookie, const struct copy_item *item)
{
	struct world *w = cookie;

	assert_int_equal(0, strlist_add(&w->targets, item->to ? item->to : item->from));
}

static void on_same(void *cookie, const struct copy_item *item)
{
	struct world *w = cookie;

	(void)item;
	w->kept++;
}

static void on_failed(void *cookie, const struct copy_item *item, const struct penstock_error *err)
{
	struct world *w = cookie;

	assert_int_equal(PENSTOCK_E_INVALID, err->code);
	assert_int_equal(0, strlist_add(&w->failed, item->from));
}

/* Creates "d/a.txt", "d/sub/b.txt" and "d/sub/deep/c.txt" in the test's directory and in the
 * bucket, and the directory "there". */
static int set_up(void **state)
{
	static const char *const names[] = {"d/a.txt", "d/sub/b.txt", "d/sub/deep/c.txt"};
	static struct world w;

	memset(&w, 0, sizeof(w));
	copy_store_begin(&w.s);
	assert_int_equal(0, chdir(w.s.dir));
	assert_int_equal(0, fs_mkdirs("d/sub/deep", 0777, NULL));
	assert_int_equal(0, fs_mkdirs("there", 0777, NULL));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[64];

		assert_int_equal(0, fs_write_atomic(names[i], "1", 1, 0666, NULL));
		snprintf(path, sizeof(path), "/bucket/%s", names[i]);
		tiny_make(&w.s.store, path, "1", 1);
	}
	*state = &w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	assert_int_equal(0, chdir("/"));
	strlist_release(&w->targets);
	strlist_release(&w->failed);
	copy_store_end(&w->s);
	return 0;
}

struct command {
	const char *words[MOST]; /* sources, then the target; NULL at the end */
	bool recursive;
	const char *names[MOST]; /* ends of the targets, sorted */
	const char *include, *exclude;
	bool raw, move, force;
};

static size_t count(const char *const *words)
{
	size_t n = 0;

	while (n < MOST && words[n])
		n++;
	return n;
}

static void set_list(struct strlist *list, const char *pattern)
{
	if (pattern)
		assert_int_equal(0, strlist_add(list, pattern));
}

/* Returns the result of the checks or, if they pass, of the dry run. */
static int run(struct world *w, const struct command *command, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist include = {0}, exclude = {0};
	struct place places[MOST] = {0};
	size_t n = count(command->words);
	struct copy_request request = {
		.sources = places, .n = n - 1, .target = &places[n - 1], command->recursive};
	struct copy_options options = {.engine = w->s.f.engine,
		.from = w->s.s3,
		.to = w->s.s3,
		.same_store = true,
		.dry_run = true,
		.move = command->move,
		.force = command->force,
		.filter = {&include, &exclude},
		.report = {.done = on_done, .same = on_same, .failed = on_failed, .cookie = w}};
	struct copy copy = {0};
	int r = 0;

	strlist_release(&w->targets);
	strlist_release(&w->failed);
	set_list(&include, command->include);
	set_list(&exclude, command->exclude);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(0, place_parse(&places[i], command->words[i],
					    command->raw || i == n - 1, err));
	r = copy_check(&request, command->move, err);
	if (r == 0)
		r = copy_begin(&copy, &options, err);
	if (r == 0)
		r = copy_check_overlap(&copy, &request, err);
	if (r == 0)
		r = copy_sources(&copy, &request, err);
	if (r == 0)
		r = copy_finish(&copy, err);
	copy_end(&copy);
	for (size_t i = 0; i < n; i++)
		place_release(&places[i]);
	return r;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void check(struct world *w, const struct command *commands, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct command *c = &commands[i];
		size_t names = count(c->names);

		assert_int_equal(0, run(w, c, NULL));
		if (w->targets.n)
			qsort(w->targets.items, w->targets.n, sizeof(char *), by_text);
		for (size_t j = 0; j < names && j < w->targets.n; j++)
			assert_string_equal(c->names[j], w->targets.items[j]);
		if (names != w->targets.n)
			fail_msg("%s: %zu names", c->words[0], w->targets.n);
	}
}

static void uploads(void **state)
{
	static const struct command commands[] = {
		{{"d/a.txt", "s3://bucket"}, false, {"s3://bucket/a.txt"}},
		{{"d/a.txt", "s3://bucket/x"}, false, {"s3://bucket/x"}},
		{{"d/a.txt", "s3://bucket/x/"}, false, {"s3://bucket/x/a.txt"}},
		{{"d/a.txt", "d/sub/b.txt", "s3://bucket/x"}, false,
			{"s3://bucket/x/a.txt", "s3://bucket/x/b.txt"}},
		{{"d", "s3://bucket/x/"}, true,
			{"s3://bucket/x/d/a.txt", "s3://bucket/x/d/sub/b.txt",
				"s3://bucket/x/d/sub/deep/c.txt"}},
		{{"d", "s3://bucket/x"}, true,
			{"s3://bucket/x/a.txt", "s3://bucket/x/sub/b.txt",
				"s3://bucket/x/sub/deep/c.txt"}},
		{{"d/", "s3://bucket/x/"}, true,
			{"s3://bucket/x/a.txt", "s3://bucket/x/sub/b.txt",
				"s3://bucket/x/sub/deep/c.txt"}},
		{{"d/", "s3://bucket/x"}, true,
			{"s3://bucket/x/a.txt", "s3://bucket/x/sub/b.txt",
				"s3://bucket/x/sub/deep/c.txt"}},
		{{"d/sub/*.txt", "s3://bucket/x"}, false,
			{"s3://bucket/x/b.txt", "s3://bucket/x/deep/c.txt"}},
		{{"d/*b.txt", "s3://bucket/x"}, false, {"s3://bucket/x/sub/b.txt"}},
		{{"d", "s3://bucket"}, true, {"s3://bucket/d/a.txt", "s3://bucket/d/sub/b.txt"},
			NULL, "*deep*"},
		{{"d/", "s3://bucket"}, true, {"s3://bucket/sub/b.txt"}, "sub/b*", NULL},
		{{"d/", "s3://bucket"}, true, {"s3://bucket/a.txt"}, NULL, "sub/*"},
		{{"d/", "s3://bucket"}, true, {NULL}, "*.csv", NULL},
	};

	check(*state, commands, ARRAY_SIZE(commands));
}

static void downloads(void **state)
{
	static const struct command commands[] = {
		{{"s3://bucket/d/a.txt", "."}, false, {"./a.txt"}},
		{{"s3://bucket/d/a.txt", "new"}, false, {"new"}},
		{{"s3://bucket/d/a.txt", "new/"}, false, {"new/a.txt"}},
		{{"s3://bucket/d/a.txt", "there"}, false, {"there/a.txt"}},
		{{"s3://bucket/d/a.txt", "deep/down/new"}, false, {"deep/down/new"}},
		{{"s3://bucket/d/a.txt", "s3://bucket/d/sub/b.txt", "new"}, false,
			{"new/a.txt", "new/b.txt"}},
		{{"s3://bucket/d", "there"}, true,
			{"there/d/a.txt", "there/d/sub/b.txt", "there/d/sub/deep/c.txt"}},
		{{"s3://bucket/d/", "there"}, true,
			{"there/a.txt", "there/sub/b.txt", "there/sub/deep/c.txt"}},
		{{"s3://bucket/d", "new"}, true,
			{"new/a.txt", "new/sub/b.txt", "new/sub/deep/c.txt"}},
		{{"s3://bucket", "new"}, true,
			{"new/d/a.txt", "new/d/sub/b.txt", "new/d/sub/deep/c.txt"}},
		{{"s3://bucket/d/*.txt", "new"}, false,
			{"new/a.txt", "new/sub/b.txt", "new/sub/deep/c.txt"}},
		{{"s3://bucket/*/b.txt", "there"}, false, {"there/d/sub/b.txt"}},
		{{"s3://bucket", "new"}, true, {NULL}, "*", "*.txt"},
	};

	check(*state, commands, ARRAY_SIZE(commands));
}

static void copies_within_the_store(void **state)
{
	static const struct command commands[] = {
		{{"s3://bucket/d/a.txt", "s3://bucket/x/"}, false, {"s3://bucket/x/a.txt"}},
		{{"s3://bucket/d/sub", "s3://bucket/x"}, true,
			{"s3://bucket/x/b.txt", "s3://bucket/x/deep/c.txt"}},
		{{"s3://bucket/d/sub", "s3://bucket/x/"}, true,
			{"s3://bucket/x/sub/b.txt", "s3://bucket/x/sub/deep/c.txt"}},
		{{"s3://bucket/d/sub/deep/*", "s3://bucket/d/sub/"}, false,
			{"s3://bucket/d/sub/c.txt"}},
	};

	check(*state, commands, ARRAY_SIZE(commands));
}

static void what_cannot_be_copied_is_refused(void **state)
{
	static const struct command commands[] = {
		{{"d/a.txt", "there/"}, false, {NULL}},
		{{"-", "d/a.txt", "s3://bucket/"}, false, {NULL}},
		{{"-", "s3://bucket/"}, false, {NULL}},
		{{"-", "-"}, false, {NULL}},
		{{"s3://bucket/*", "-"}, false, {NULL}},
		{{"s3://bucket/d", "s3://bucket/x", "-"}, false, {NULL}},
		{{"s3://bucket/*", "http://h/x/"}, false, {NULL}},
		{{"http://h/", "there"}, false, {NULL}},
		{.words = {"http://h/a", "there"}, .move = true},
		{.words = {"-", "s3://bucket/a"}, .move = true},
		{.words = {"s3://bucket/a", "-"}, .move = true},
		{{"d/a.txt", "there/a.txt", "s3://bucket/"}, false, {NULL}},
		{.words = {"d/", "there/", "s3://bucket/"}, .recursive = true, .move = true},
		{{"s3://bucket/a", "gs://bucket/b", "there"}, false, {NULL}},
		{{"s3://bucket/d/", "s3://bucket/d/sub/"}, true, {NULL}},
		{{"s3://bucket/d", "s3://bucket/"}, true, {NULL}},
		{{"s3://bucket", "s3://bucket/x"}, true, {NULL}},
		{{"s3://bucket/d/*", "s3://bucket/d/"}, false, {NULL}},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		int r = run(w, &commands[i], &err);

		if (r != -(int)PENSTOCK_E_INVALID || w->targets.n)
			fail_msg("%s: %d", commands[i].words[0], r);
		penstock_error_release(&err);
	}
}

/* Items with a possible name are copied. */
static void items_without_a_possible_name_are_left_out(void **state)
{
	struct world *w = *state;
	const struct command tree = {{"s3://bucket", "new"}, true, {NULL}};

	tiny_make(&w->s.store, "/bucket/d", "1", 1); /* next to "d/a.txt" */
	tiny_make(&w->s.store, "/bucket/e/../f", "1", 1);
	tiny_make(&w->s.store, "/bucket/e//f", "1", 1);
	tiny_make(&w->s.store, "/bucket/full/", "1", 1);
	tiny_make(&w->s.store, "/bucket/empty/", "", 0);

	assert_int_equal(0, run(w, &tree, NULL));

	assert_int_equal(1, w->targets.n);
	assert_string_equal("new/d", w->targets.items[0]);
	assert_int_equal(6, w->failed.n);
}

static void a_move_leaves_the_state_of_runs(void **state)
{
	struct world *w = *state;
	struct command move = {.words = {"s3://bucket", "new"}, .recursive = true, .move = true};

	tiny_make(&w->s.store, "/bucket/.penstock/owner.json", "1", 1);

	assert_int_equal(0, run(w, &move, NULL));
	assert_int_equal(3, w->targets.n);
	move.force = true;
	assert_int_equal(0, run(w, &move, NULL));
	assert_int_equal(4, w->targets.n);
}

/* An object that is moved onto the name of another source would be moved a second time, or be
 * removed together with that source. */
static void nothing_is_moved_onto_another_source(void **state)
{
	struct world *w = *state;
	const struct command move = {.words = {"s3://bucket/d/*", "s3://bucket/"}, .move = true};

	tiny_make(&w->s.store, "/bucket/d/d/a.txt", "1", 1);

	assert_int_equal(0, run(w, &move, NULL));

	assert_int_equal(1, w->failed.n);
	assert_string_equal("s3://bucket/d/d/a.txt", w->failed.items[0]);
	assert_int_equal(3, w->targets.n);
}

static int sync_dry(struct world *w, const char *from, const char *to, bool remove)
{
	_cleanup_(place_release) struct place source = {0}, target = {0};
	struct copy_sync sync = {
		.source = &source, .target = &target, .remove = remove, .size_only = true};
	struct copy copy = {0};
	int r;

	strlist_release(&w->targets);
	w->kept = 0;
	assert_int_equal(0, place_parse(&source, from, true, NULL));
	assert_int_equal(0, place_parse(&target, to, true, NULL));
	r = copy_sync_check(&sync, NULL);
	if (r == 0)
		r = copy_begin(&copy,
			&(struct copy_options){.engine = w->s.f.engine,
				.from = w->s.s3,
				.to = w->s.s3,
				.same_store = true,
				.dry_run = true,
				.report = {.done = on_done, .same = on_same, .cookie = w}},
			NULL);
	if (r == 0)
		r = copy_sync_check_overlap(&copy, &sync, NULL);
	if (r == 0)
		r = copy_sync_trees(&copy, &sync, NULL);
	copy_end(&copy);
	return r;
}

static void a_sync_is_about_what_is_in_both(void **state)
{
	static const char *const same[] = {"s3://bucket/d", "s3://bucket/d/"};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		assert_int_equal(0, sync_dry(w, "d", same[i], true));
		assert_int_equal(0, w->targets.n);
		assert_int_equal(3, w->kept);
	}
	assert_int_equal(0, fs_write_atomic("d/new", "12", 2, 0666, NULL));
	assert_int_equal(0, fs_write_atomic("d/a.txt", "12", 2, 0666, NULL));
	tiny_make(&w->s.store, "/bucket/d/gone", "1", 1);
	tiny_make(&w->s.store, "/bucket/d/.penstock/owner.json", "1", 1);
	assert_int_equal(0, sync_dry(w, "d/", "s3://bucket/d", false));
	assert_int_equal(2, w->targets.n);
	assert_string_equal("s3://bucket/d/a.txt", w->targets.items[0]);
	assert_string_equal("s3://bucket/d/new", w->targets.items[1]);
	assert_int_equal(0, sync_dry(w, "d", "s3://bucket/d", true));
	assert_int_equal(3, w->targets.n);
	assert_string_equal("s3://bucket/d/gone", w->targets.items[2]);
}

static void a_sync_that_makes_no_sense_is_refused(void **state)
{
	static const char *const pairs[][2] = {
		{"d", "there"},
		{"d/a.txt", "s3://bucket/x"},
		{"s3://bucket/d", "d/a.txt"},
		{"-", "s3://bucket/x"},
		{"s3://bucket/x", "http://h/x"},
		{"s3://bucket/d", "s3://bucket/d/sub"},
		{"s3://bucket/d/sub", "s3://bucket/d"},
		{"s3://bucket/d", "s3://bucket/d/"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		if (sync_dry(*state, pairs[i][0], pairs[i][1], false) != -(int)PENSTOCK_E_INVALID)
			fail_msg("%s %s", pairs[i][0], pairs[i][1]);
	}
	assert_int_equal(
		-(int)PENSTOCK_E_NOT_FOUND, sync_dry(*state, "none", "s3://bucket/x", false));
}

/* A mistyped source looks empty, too, so an empty source is an error. */
static void an_empty_source_deletes_nothing(void **state)
{
	struct world *w = *state;

	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, sync_dry(w, "there", "s3://bucket/d", true));
	assert_int_equal(0, w->targets.n);
}

static void stores_are_compared_by_their_addresses(void **state)
{
	(void)state;
	assert_true(copy_is_same_store("http://127.0.0.1:9000", "http://127.0.0.1:9000/"));
	assert_true(copy_is_same_store("http://localhost:9000", "http://127.0.0.1:9000"));
	assert_false(copy_is_same_store("http://127.0.0.1:9000", "http://127.0.0.1:9001"));
	assert_true(copy_is_same_store(
		"https://s3.eu-west-1.amazonaws.com", "https://s3.us-east-1.amazonaws.com"));
	assert_false(copy_is_same_store("http://no.such.host.invalid", "http://127.0.0.1"));
}

/* Files cannot be created in a directory that becomes read-only too early. */
static void the_modes_of_all_directories_are_set_at_the_end(void **state)
{
	struct copy copy = {0};
	const struct target target = {.path = (char[]){"d"}};

	(void)state;
	for (size_t i = 0; i < 70000; i++)
		assert_int_equal(copy_set_mode_later(&copy, &target, 0500), 0);
	copy_end(&copy);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(uploads),
		TEST(downloads),
		TEST(copies_within_the_store),
		TEST(what_cannot_be_copied_is_refused),
		TEST(items_without_a_possible_name_are_left_out),
		TEST(a_move_leaves_the_state_of_runs),
		TEST(nothing_is_moved_onto_another_source),
		TEST(a_sync_is_about_what_is_in_both),
		TEST(a_sync_that_makes_no_sense_is_refused),
		TEST(an_empty_source_deletes_nothing),
		TEST(stores_are_compared_by_their_addresses),
		cmocka_unit_test(the_modes_of_all_directories_are_set_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
