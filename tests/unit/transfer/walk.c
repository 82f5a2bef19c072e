/* Sorted streams of local files, and the sorter of their names. */
#include "transfer/listing.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "transfer/list/sort.h"
#include "transfer/state/part_file.h"
#include "transfer/state/record_file.h"

static char dir[64];

static int set_up(void **state)
{
	/* Use a tmpfs if possible. ext4 without a journal avoids inodes of recently removed files,
	 * and checks each of them for every new file. */
	const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

	(void)state;
	snprintf(dir, sizeof(dir), "%s/penstock-walk-XXXXXX", top);
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

/* Creates `path` below the directory, with its parents. If `path` ends in "/", creates a
 * directory. */
static bool make(const char *path, size_t size)
{
	_cleanup_free_ char *full = path_join(dir, path);
	_cleanup_close_ int fd = -1;
	char *slash = strrchr(full, '/');

	*slash = '\0';
	if (fs_mkdirs(full, 0755, NULL) < 0)
		return false;
	*slash = '/';
	if (!slash[1])
		return true;
	fd = open(full, O_WRONLY | O_CREAT | O_EXCL, 0640);
	return fd >= 0 && ftruncate(fd, (off_t)size) == 0;
}

struct seen {
	struct strlist paths;
	struct strlist problems;
	enum penstock_code last;
	const char *leave_out;
};

static void seen_release(struct seen *seen)
{
	strlist_release(&seen->paths);
	strlist_release(&seen->problems);
}

static int on_problem(void *cookie, const char *path, const struct penstock_error *problem)
{
	struct seen *seen = cookie;

	seen->last = problem->code;
	return strlist_add(&seen->problems, path);
}

static int walk(struct seen *seen, const struct walk_options *given, struct penstock_error *err)
{
	struct walk_options options = *given;
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	struct entry entry;
	int r;

	if (!options.cookie)
		options.cookie = seen;
	r = entry_source_files(&source, dir, &options, err);
	while (r == 0 && (r = entry_source_next(source, &entry, err)) > 0) {
		assert_int_equal(strlen(entry.path), entry.path_len);
		strlist_add(&seen->paths, entry.path);
		r = 0;
	}
	return r;
}

static void assert_paths(const struct strlist *list, const char *const *wanted)
{
	size_t n = 0;

	for (; wanted[n]; n++) {
		if (n < list->n)
			assert_string_equal(wanted[n], list->items[n]);
	}
	assert_int_equal(n, list->n);
}

/* "/" sorts like any other byte: the entries of "a" come after "a-b" and "a.txt", and before
 * "a0". */
static void slash_sorts_as_a_byte(void **state)
{
	static const char *const wanted[] = {
		"a-b", "a.txt", "a/x-/y", "a/x.y", "a/x/z", "a0", "b", NULL};
	_cleanup_(seen_release) struct seen seen = {0};

	(void)state;
	for (size_t i = 0; wanted[i]; i++)
		assert_true(make(wanted[i], i));

	assert_int_equal(0, walk(&seen, &(struct walk_options){0}, NULL));

	assert_paths(&seen.paths, wanted);
}

/* ---- random trees ---- */

static const char *const parts[] = {
	"a", "a-", "a.", "a0", "b", "-", ".x", "\xff\x01", "\n", "A b", "\xc3\xa4", "a\x7f", "0"};

/* Makes a path of up to five random parts. */
static void random_path(unsigned *seed, char *out, size_t size)
{
	unsigned depth = 1 + (unsigned)rand_r(seed) % 5;
	size_t n = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < depth; i++) {
		unsigned words = 1 + (unsigned)rand_r(seed) % 2;

		for (unsigned w = 0; w < words; w++)
			n += (size_t)snprintf(out + n, size - n, "%s",
				parts[(unsigned)rand_r(seed) % ARRAY_SIZE(parts)]);
		if (i + 1 < depth)
			n += (size_t)snprintf(out + n, size - n, "/");
	}
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* For any names, the walk returns the paths in the order of a plain sort. */
static void random_trees_come_as_sorted(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		_cleanup_(seen_release) struct seen seen = {0};
		struct strlist wanted = {0};
		unsigned seed = round;
		char path[256];

		assert_int_equal(0, set_up(NULL));
		for (unsigned i = 0; i < 300; i++) {
			random_path(&seed, path, sizeof(path));
			if (make(path, 0))
				assert_int_equal(0, strlist_add(&wanted, path));
		}
		assert_true(wanted.n > 50);
		qsort(wanted.items, wanted.n, sizeof(*wanted.items), by_bytes);

		assert_int_equal(0, walk(&seen, &(struct walk_options){0}, NULL));

		assert_paths(&seen.paths, (const char *const *)wanted.items);
		strlist_release(&wanted);
		assert_int_equal(0, tear_down(NULL));
	}
}

/* If names exceed the limit of memory, they are sorted in a file, and each name is returned
 * once. */
static void long_directories_come_sorted(void **state)
{
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	const unsigned n = (unsigned)(LIMIT_WALK_NAMES / 255 + 2000);
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct entry entry;
	char name[256], before[256] = "";
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%0255u", i * 2654435761U);
		close(openat(fd, name, O_WRONLY | O_CREAT, 0600));
	}

	assert_int_equal(0, entry_source_files(&source, dir, NULL, NULL));

	for (; entry_source_next(source, &entry, NULL) > 0; seen++) {
		assert_true(strcmp(before, entry.path) < 0);
		memcpy(before, entry.path, entry.path_len + 1);
	}
	assert_int_equal(n, seen);
}

/* ---- links ---- */

static void make_link(const char *target, const char *path)
{
	_cleanup_free_ char *full = path_join(dir, path);

	assert_int_equal(0, symlink(target, full));
}

/* Links are left out, kept or followed, as the caller requests. A link to a directory that is
 * followed sorts as a directory. */
static void links_as_asked(void **state)
{
	static const char *const skipped[] = {"d/x", "f", NULL};
	static const char *const kept[] = {"d/x", "f", "l", "l-", NULL};
	static const char *const followed[] = {"d/x", "f", "l-", "l/x", NULL};
	_cleanup_(seen_release) struct seen skip = {0}, keep = {0}, follow = {0};

	(void)state;
	assert_true(make("d/x", 3) && make("f", 0));
	make_link("d", "l");
	make_link("f", "l-");

	assert_int_equal(0, walk(&skip, &(struct walk_options){.links = WALK_LINKS_SKIP}, NULL));
	assert_int_equal(0, walk(&keep, &(struct walk_options){.links = WALK_LINKS_KEEP}, NULL));
	assert_int_equal(
		0, walk(&follow, &(struct walk_options){.links = WALK_LINKS_FOLLOW}, NULL));

	assert_paths(&skip.paths, skipped);
	assert_paths(&keep.paths, kept);
	assert_paths(&follow.paths, followed);
}

/* A link to a directory that contains the link would never end; a link without a target has no
 * content. */
static void bad_links_are_problems(void **state)
{
	static const char *const wanted[] = {"d/x", NULL};
	static const char *const problems[] = {"nowhere", "d/back/", "self", NULL};
	_cleanup_(seen_release) struct seen seen = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct walk_options options = {.links = WALK_LINKS_FOLLOW};
	struct walk_options telling = options;

	(void)state;
	telling.on_problem = on_problem;
	assert_true(make("d/x", 3));
	make_link("../d", "d/back");
	make_link("gone", "nowhere");
	make_link("self", "self");

	assert_int_equal(0, walk(&seen, &telling, NULL));
	assert_true(walk(&seen, &options, &err) < 0);

	assert_int_equal(1, seen.paths.n);
	assert_string_equal(wanted[0], seen.paths.items[0]);
	assert_int_equal(3, seen.problems.n);
	for (size_t i = 0; i < 3; i++) {
		bool found = false;

		for (size_t k = 0; k < 3; k++)
			found = found || strcmp(problems[i], seen.problems.items[k]) == 0;
		assert_true(found);
	}
}

/* ---- other entries ---- */

/* Sockets and other special files have no content to send, so they are reported and left out. */
static void special_files_are_problems(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	_cleanup_(seen_release) struct seen seen = {0};

	(void)state;
	assert_true(make("file", 1));
	snprintf(address.sun_path, sizeof(address.sun_path), "%.60s/socket", dir);
	assert_int_equal(0, bind(fd, (struct sockaddr *)&address, sizeof(address)));

	assert_int_equal(0, walk(&seen, &(struct walk_options){.on_problem = on_problem}, NULL));

	assert_int_equal(1, seen.paths.n);
	assert_int_equal(1, seen.problems.n);
	assert_int_equal(PENSTOCK_E_UNSUPPORTED, seen.last);
}

/* Makes the journal of a download of `name` whose bytes are in `part`. */
static void make_journal(const char *name, const char *part)
{
	struct record_file journal = RECORD_FILE_INIT;
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *path = path_join(dir, name), *file = NULL;

	assert_int_equal(0, part_file_name(path, ".journal", &file, NULL));
	assert_int_equal(0, record_file_open(&journal, file, NULL));
	buf_printf(&line, "S %064d", 7);
	record_add_text(&line, part);
	assert_int_equal(0, record_file_add(&journal, &line));
	record_file_close(&journal);
}

/* An unfinished download under its temporary name is left out, but a user's file with such a name
 * is not. */
static void unfinished_downloads_are_left_out(void **state)
{
	static const char *const wanted[] = {"a", "a.penstock-part", "a.penstock-part.json",
		"b.journal.penstock-part", "c.0123456789abcdef.penstock-part", "e.penstock-part",
		NULL};
	static const char *const made[] = {"a", "a.penstock-part", "a.penstock-part.json",
		"b.journal.penstock-part", "c.0123456789abcdef.penstock-part", "e.penstock-part"};
	_cleanup_free_ char *first = NULL, *random = NULL, *json = NULL;
	_cleanup_(seen_release) struct seen seen = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(made); i++)
		assert_true(make(made[i], 1));
	assert_int_equal(0, part_file_first_name("c", &first, NULL));
	assert_int_equal(0, part_file_random_name("d", &random, NULL));
	assert_true(make(first, 1) && make(random, 1));
	make_journal("f", "f.penstock-part");
	assert_true(make("f.penstock-part", 1));
	make_journal("e", random);
	assert_true(asprintf(&json, "%s.json", first) > 0 && make(json, 1));

	assert_int_equal(0, walk(&seen, &(struct walk_options){0}, NULL));

	assert_paths(&seen.paths, wanted);
}

/* Directories come before their entries, even if they are empty. */
static void directories_where_asked_for(void **state)
{
	static const char *const wanted[] = {"a-", "a/", "a/b", "e/", "e/f/", NULL};
	_cleanup_(seen_release) struct seen seen = {0};

	(void)state;
	assert_true(make("a/b", 1) && make("a-", 1) && make("e/f/", 0));

	assert_int_equal(0, walk(&seen, &(struct walk_options){.directories = true}, NULL));

	assert_paths(&seen.paths, wanted);
}

/* The tree is deeper than the limit of descriptors. */
static void deep_trees_need_few_descriptors(void **state)
{
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	struct rlimit before, few;
	struct entry entry;
	char path[2048] = "";
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		size_t n = strlen(path);

		snprintf(path + n, sizeof(path) - n, "%s/", i % 2 ? "d" : "e-");
		n = strlen(path);
		snprintf(path + n, sizeof(path) - n, "f");
		assert_true(make(path, 0));
		snprintf(path + n, sizeof(path) - n, "x");
		assert_true(make(path, 0));
		path[n] = '\0';
	}
	assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &before));
	few = before;
	few.rlim_cur = 100;
	assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &few));

	assert_int_equal(0, entry_source_files(&source, dir, NULL, NULL));
	while (entry_source_next(source, &entry, NULL) > 0)
		seen++;

	assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &before));
	assert_int_equal(600, seen);
}

/* Changes the tree when the walk reaches the path `at`. */
struct meddler {
	const char *at;
	void (*then)(void);
	bool refuse;
};

static bool meddle(void *cookie, const char *path, bool directory)
{
	struct meddler *m = cookie;

	(void)directory;
	if (strcmp(path, m->at) != 0)
		return true;
	if (m->then)
		m->then();
	return !m->refuse;
}

static void remove_b(void)
{
	_cleanup_free_ char *path = path_join(dir, "b");

	assert_int_equal(0, fs_remove_tree(path, NULL));
}

static void replace_b(void)
{
	remove_b();
	assert_true(make("b/new", 1));
}

static void replace_b_by_link(void)
{
	remove_b();
	make_link("/etc", "b");
}

static int told;
static int count_problem(void *cookie, const char *path, const struct penstock_error *problem)
{
	(void)cookie;
	(void)path;
	told++;
	return problem->code == PENSTOCK_E_CHANGED ? 0 : -1;
}

static void walk_meddled(const char *at, void (*then)(void), int problems)
{
	static const char *const wanted[] = {"a", "c", NULL};
	_cleanup_(seen_release) struct seen seen = {0};
	struct meddler meddler = {.at = at, .then = then};

	told = 0;
	assert_int_equal(0,
		walk(&seen,
			&(struct walk_options){
				.takes = meddle, .cookie = &meddler, .on_problem = count_problem},
			NULL));
	assert_paths(&seen.paths, wanted);
	assert_int_equal(problems, told);
}

/* A file or directory that is removed during the walk is no error. */
static void what_vanishes_is_left_out(void **state)
{
	(void)state;
	assert_true(make("a", 1) && make("b", 1) && make("c", 1));
	walk_meddled("b", remove_b, 0);
	assert_true(make("b/x", 1));
	walk_meddled("b/", remove_b, 0);
}

/* If a file is replaced by another kind of file, this is reported; a link that replaces a directory
 * is not followed. */
static void what_is_replaced_is_told(void **state)
{
	(void)state;
	assert_true(make("a", 1) && make("b", 1) && make("c", 1));
	walk_meddled("b", replace_b, 1);
	walk_meddled("b/", replace_b_by_link, 1);
}

/* A directory that the caller refuses is not opened. */
static void refused_directories_are_not_entered(void **state)
{
	static const char *const wanted[] = {"a", NULL};
	_cleanup_(seen_release) struct seen seen = {0};
	struct meddler meddler = {.at = "b/", .refuse = true};

	(void)state;
	assert_true(make("a", 1) && make("b/x", 1));

	assert_int_equal(
		0, walk(&seen, &(struct walk_options){.takes = meddle, .cookie = &meddler}, NULL));

	assert_paths(&seen.paths, wanted);
}

/* A path that is too long is an error of that file only. */
static void paths_that_are_too_long_are_told(void **state)
{
	char name[256];
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(seen_release) struct seen seen = {0};

	(void)state;
	memset(name, 'n', 250);
	name[250] = '\0';
	for (unsigned i = 0; i < 20; i++) {
		_cleanup_close_ int up = take_fd(fd);

		assert_int_equal(0, mkdirat(up, name, 0700));
		fd = openat(up, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(fd >= 0);
	}
	assert_true(make("z", 1));

	assert_int_equal(0, walk(&seen, &(struct walk_options){.on_problem = on_problem}, NULL));

	assert_int_equal(1, seen.paths.n);
	assert_int_equal(1, seen.problems.n);
	assert_int_equal(PENSTOCK_E_LIMIT, seen.last);
}

/* Size, time and mode equal those of the file. */
static void tells_size_time_and_mode(void **state)
{
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	_cleanup_free_ char *path = path_join(dir, "f");
	struct timespec times[2] = {{1, 0}, {1700000000, 123456789}};
	struct entry entry;

	(void)state;
	assert_true(make("f", 4711));
	assert_int_equal(0, chmod(path, 0750));
	assert_int_equal(0, utimensat(AT_FDCWD, path, times, 0));

	assert_int_equal(0, entry_source_files(&source, dir, NULL, NULL));
	assert_int_equal(1, entry_source_next(source, &entry, NULL));

	assert_int_equal(4711, entry.size);
	assert_true(entry.mtime_ns == INT64_C(1700000000123456789));
	assert_int_equal(0750, entry.mode);
	assert_int_equal(ENTRY_FILE, entry.kind);
	assert_int_equal(0, entry_source_next(source, &entry, NULL));
	assert_int_equal(0, entry_source_next(source, &entry, NULL));
}

/* ---- the sorter ---- */

static void sort_random(size_t memory, unsigned n, unsigned spill_at)
{
	struct list_sorter *sorter = NULL;
	struct list_record record;
	struct strlist wanted = {0};
	unsigned seed = n, got = 0;
	char text[300];

	assert_int_equal(0, list_sorter_new(&sorter, memory, NULL));
	for (unsigned i = 0; i < n; i++) {
		size_t len = (size_t)rand_r(&seed) % 20;

		snprintf(text, sizeof(text), "common-%u", (unsigned)rand_r(&seed));
		text[7 + len % strlen(text + 7)] = '\0';
		if (i % 100 == 0)
			memset(text, 'z', 250), text[250] = '\0';
		assert_int_equal(0, strlist_add(&wanted, text));
		assert_int_equal(0, list_sorter_add(sorter,
					    &(struct list_record){.text = text,
						    .text_len = strlen(text),
						    .extra = &text[3],
						    .extra_len = i % 3},
					    NULL));
	}
	if (n)
		qsort(wanted.items, wanted.n, sizeof(*wanted.items), by_bytes);

	assert_int_equal(0, list_sorter_seal(sorter, NULL));
	for (; list_sorter_next(sorter, &record, NULL) > 0; got++) {
		if (got >= wanted.n) {
			fail();
			break;
		}
		assert_string_equal(wanted.items[got], record.text);
		assert_int_equal(strlen(record.text), record.text_len);
		assert_memory_equal(&record.text[3], record.extra, record.extra_len);
		if (got == spill_at)
			assert_int_equal(0, list_sorter_spill(sorter, NULL));
		assert_true(list_sorter_memory(sorter) <= 4 * memory + 8192);
	}

	assert_int_equal(n, got);
	list_sorter_free(sorter);
	strlist_release(&wanted);
}

/* The result is that of a plain sort if the names are sorted in memory, in runs in a file, or moved
 * to the file half-way. */
static void sorter_sorts(void **state)
{
	(void)state;
	sort_random(1 * MIB, 0, 0);
	sort_random(1 * MIB, 1, 10);
	sort_random(1 * MIB, 3000, UINT32_MAX);
	sort_random(1 * MIB, 3000, 700);
	sort_random(16 * KIB, 3000, UINT32_MAX);
	sort_random(64 * KIB, 20000, 5);
}

/* If there is no space for the file, the error names its path. */
static void sorter_says_where_it_has_no_room(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct list_sorter *sorter = NULL;
	int r = 0;

	(void)state;
	setenv("TMPDIR", "/proc/self", 1);
	assert_int_equal(0, list_sorter_new(&sorter, 4096, NULL));
	for (unsigned i = 0; r == 0 && i < 1000; i++)
		r = list_sorter_add(
			sorter, &(struct list_record){.text = "name", .text_len = 4}, &err);
	unsetenv("TMPDIR");

	assert_true(r < 0);
	assert_non_null(strstr(err.message, "TMPDIR"));
	list_sorter_free(sorter);
}

/* The disk is full when a record is written that is larger than the buffer of a run. */
static void sorter_stops_at_a_failed_write(void **state)
{
	static char large[100 * KIB];
	struct list_sorter *sorter = NULL;
	struct rlimit whole, none;
	int r;

	(void)state;
	memset(large, 'b', sizeof(large));
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &whole));
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = whole.rlim_max};
	assert_int_equal(0, list_sorter_new(&sorter, 1 * MIB, NULL));
	assert_int_equal(0,
		list_sorter_add(sorter, &(struct list_record){.text = "a", .text_len = 1}, NULL));
	assert_int_equal(
		0, list_sorter_add(sorter,
			   &(struct list_record){.text = large, .text_len = sizeof(large)}, NULL));
	assert_int_equal(0, list_sorter_seal(sorter, NULL));

	assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &none));
	r = list_sorter_spill(sorter, NULL);
	assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &whole));

	assert_true(r < 0);
	list_sorter_free(sorter);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static const struct CMUnitTest tests[] = {
	IN_DIR(slash_sorts_as_a_byte),
	cmocka_unit_test(random_trees_come_as_sorted),
	IN_DIR(long_directories_come_sorted),
	IN_DIR(links_as_asked),
	IN_DIR(bad_links_are_problems),
	IN_DIR(special_files_are_problems),
	IN_DIR(unfinished_downloads_are_left_out),
	IN_DIR(directories_where_asked_for),
	IN_DIR(deep_trees_need_few_descriptors),
	IN_DIR(what_vanishes_is_left_out),
	IN_DIR(what_is_replaced_is_told),
	IN_DIR(refused_directories_are_not_entered),
	IN_DIR(paths_that_are_too_long_are_told),
	IN_DIR(tells_size_time_and_mode),
	cmocka_unit_test(sorter_sorts),
	cmocka_unit_test(sorter_says_where_it_has_no_room),
	cmocka_unit_test(sorter_stops_at_a_failed_write),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
