/* Interrupted downloads, and the calls that resume them. */
#include "objects_fixture.h"

#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "transfer/state/record_file.h"

#define OBJECT (40 * MIB + 5)
#define KEPT   (21 * MIB) /* bytes received before the interrupt */

static char *initial; /* first content of the object */
static char *_Atomic object; /* content of the object in the store */
static const char *_Atomic etag;
static atomic_ullong asked; /* bytes of the requested ranges */
static atomic_ullong got; /* reported progress of the current call */
static char directory[] = "/tmp/penstock-resume-XXXXXX";

/* ---- the store ---- */

static bool store(struct mini_http *m, const struct mini_request *r, int fd)
{
	uint64_t first, last;
	char match[64];

	(void)m;
	if (!etag)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (mini_header(r, "If-Match", match, sizeof(match)) && strcmp(match, etag) != 0)
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	if (strcmp(r->method, "HEAD") == 0)
		return mini_printf(fd, "HTTP/1.1 200 OK\r\nETag: %s\r\nContent-Length: %zu\r\n\r\n",
			etag, (size_t)OBJECT);
	if (mini_range(r, OBJECT, &first, &last))
		asked += last - first + 1;
	else
		asked += OBJECT;
	return mini_serve(r, fd, etag, object, OBJECT);
}

/* ---- the client ---- */

static char *in_directory(const char *name)
{
	return path_join(directory, name);
}

/* Interrupts the call half a MiB after the first KEPT bytes. */
static void interrupt(void *cookie, int64_t bytes)
{
	struct fixture *f = cookie;

	got += (unsigned long long)bytes;
	if (f->trouble && got >= KEPT + MIB / 2)
		atomic_store(&f->cancel, 1);
}

static int get(struct fixture *f, const char *key, bool interrupted)
{
	_cleanup_free_ char *path = in_directory("file");

	f->trouble = interrupted;
	atomic_store(&f->cancel, 0);
	asked = got = 0;
	return object_get_file(object_at(f->s3, "bucket", key), path,
		&(struct object_get_options){.resume = true,
			.parallel = interrupted ? 1 : 4,
			.progress = interrupt,
			.cookie = f,
			.cancel = &f->cancel},
		NULL, &f->err);
}

static void interrupted(struct fixture *f)
{
	assert_int_equal(-(int)PENSTOCK_E_CANCELLED, get(f, "key", true));
}

static bool there(const char *name)
{
	_cleanup_free_ char *path = in_directory(name);

	return access(path, F_OK) == 0;
}

static void overwrite(const char *name, uint64_t at, const char *bytes)
{
	_cleanup_free_ char *path = in_directory(name);
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(0, fs_pwrite_all(fd, bytes, strlen(bytes), (off_t)at));
}

/* Asserts that the object is under its name, and that the download left no other file. */
static void assert_whole(void)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(2 * OBJECT);
	_cleanup_free_ char *path = in_directory("file");

	assert_int_equal(0, fs_read(path, &bytes, NULL));
	assert_int_equal(OBJECT, bytes.len);
	assert_memory_equal(object, bytes.data, OBJECT);
	assert_false(there("file.journal.penstock-part"));
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	object = initial;
	for (size_t i = 0; i < OBJECT; i++)
		initial[i] = (char)(i * 2654435761u >> 13);
	etag = "\"first\"";
	assert_int_equal(0, mkdir(directory, 0700));
	begin(f, store);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	end(*state);
	if (object != initial)
		free(object);
	free(*state);
	return fs_remove_tree(directory, NULL);
}

/* ---- tests ---- */

static void the_next_call_fetches_only_what_is_missing(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	assert_true(there("file.penstock-part"));
	assert_false(there("file"));

	assert_int_equal(0, get(f, "key", false));

	assert_true(asked <= OBJECT - KEPT);
	assert_int_equal(OBJECT, got); /* existing bytes count as progress */
	assert_whole();
	assert_false(there("file.penstock-part"));
}

static void an_object_that_has_changed_starts_anew(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	etag = "\"second\"";
	/* The old content is not changed, because a thread of the store may still be sending it. */
	char *second = malloc(OBJECT);
	memcpy(second, initial, OBJECT);
	for (size_t i = 0; i < OBJECT; i += 4096)
		second[i] ^= 1;
	object = second;

	assert_int_equal(0, get(f, "key", false));

	assert_int_equal(OBJECT, asked);
	assert_whole();
}

static void another_object_for_the_same_path_starts_anew(void **state)
{
	struct fixture *f = *state;

	interrupted(f);

	assert_int_equal(0, get(f, "other", false));

	assert_int_equal(OBJECT, asked);
	assert_whole();
	assert_false(there("file.penstock-part"));
}

/* After any change of the part file, its content is compared with the journal. */
static void bytes_that_were_altered_are_fetched_again(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	overwrite("file.penstock-part", 3 * MIB + 77, "not what was fetched");

	assert_int_equal(0, get(f, "key", false));

	assert_true(asked <= OBJECT - KEPT + MIB);
	assert_whole();
}

static void a_file_of_somebody_else_is_left_alone(void **state)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(KIB);
	_cleanup_free_ char *part = in_directory("file.penstock-part");
	struct fixture *f = *state;

	overwrite("file.penstock-part", 0, "somebody's notes");

	interrupted(f);
	assert_int_equal(0, get(f, "key", false));

	assert_true(asked <= OBJECT - KEPT);
	assert_whole();
	assert_int_equal(0, fs_read(part, &bytes, NULL));
	assert_string_equal("somebody's notes", buf_str(&bytes));
}

static void a_part_file_that_was_exchanged_is_somebody_elses(void **state)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(KIB);
	_cleanup_free_ char *part = in_directory("file.penstock-part");
	struct fixture *f = *state;

	interrupted(f);
	overwrite("new", 0, "somebody's notes");
	_cleanup_free_ char *new = in_directory("new");
	assert_int_equal(0, rename(new, part));

	assert_int_equal(0, get(f, "key", false));

	assert_int_equal(OBJECT, asked);
	assert_whole();
	assert_int_equal(0, fs_read(part, &bytes, NULL));
	assert_string_equal("somebody's notes", buf_str(&bytes));
}

static void a_journal_of_somebody_else_is_left_alone(void **state)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(KIB);
	_cleanup_free_ char *journal = in_directory("file.journal.penstock-part");
	struct fixture *f = *state;

	overwrite("file.journal.penstock-part", 0, "somebody's diary");

	assert_int_equal(0, get(f, "key", false));

	assert_int_equal(0, fs_read(journal, &bytes, NULL));
	assert_string_equal("somebody's diary", buf_str(&bytes));
	assert_false(there("file.penstock-part"));
	assert_true(there("file"));
}

/* If a link has the name of the part file or of the journal, the target of the link is not
 * overwritten. */
static void a_link_is_not_followed(void **state)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(KIB);
	_cleanup_free_ char *part = in_directory("file.penstock-part");
	_cleanup_free_ char *journal = in_directory("file.journal.penstock-part");
	_cleanup_free_ char *precious = in_directory("precious");
	struct fixture *f = *state;

	overwrite("precious", 0, "precious");
	assert_int_equal(0, symlink("precious", part));
	assert_int_equal(0, symlink("precious", journal));

	assert_int_equal(0, get(f, "key", false));

	assert_int_equal(0, fs_read(precious, &bytes, NULL));
	assert_string_equal("precious", buf_str(&bytes));
	assert_true(there("file"));
}

/* There are two downloads to one path. The second one works without a journal, and neither affects
 * the other. */
static void another_download_to_the_same_path_is_not_disturbed(void **state)
{
	_cleanup_(record_file_close) struct record_file held = RECORD_FILE_INIT;
	_cleanup_free_ char *journal = in_directory("file.journal.penstock-part");
	struct fixture *f = *state;

	interrupted(f);
	assert_int_equal(0, record_file_open(&held, journal, NULL));

	assert_int_equal(0, get(f, "key", false));
	assert_int_equal(OBJECT, asked);
	assert_true(there("file.penstock-part"));
	record_file_close(&held);

	assert_int_equal(0, get(f, "key", false));
	assert_true(asked <= OBJECT - KEPT);
	assert_whole();
}

/* A truncated or damaged line costs only the block that it describes. */
static void a_damaged_line_costs_one_block(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	_cleanup_free_ char *path = in_directory("file.journal.penstock-part");
	struct fixture *f = *state;
	char *line;

	interrupted(f);
	assert_int_equal(0, fs_read(path, &text, NULL));
	line = strstr(text.data, " B 7 ");
	assert_non_null(line);
	overwrite("file.journal.penstock-part", (uint64_t)(line - text.data), " B 9 ");
	overwrite("file.journal.penstock-part", text.len, "0123abcd B 3");

	assert_int_equal(0, get(f, "key", false));

	assert_true(asked <= OBJECT - KEPT + MIB);
	assert_whole();
}

static void without_the_option_nothing_is_kept(void **state)
{
	_cleanup_free_ char *path = in_directory("file");
	struct fixture *f = *state;

	f->trouble = 1;
	got = 0;
	assert_int_equal(-(int)PENSTOCK_E_CANCELLED,
		object_get_file(object_at(f->s3, "bucket", "key"), path,
			&(struct object_get_options){
				.progress = interrupt, .cookie = f, .cancel = &f->cancel},
			NULL, &f->err));

	assert_int_equal(0, rmdir(directory));
	assert_int_equal(0, mkdir(directory, 0700));
}

static void an_object_that_is_gone_leaves_nothing(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	etag = NULL;

	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, get(f, "key", false));

	assert_int_equal(0, rmdir(directory));
	assert_int_equal(0, mkdir(directory, 0700));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_next_call_fetches_only_what_is_missing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_object_that_has_changed_starts_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			another_object_for_the_same_path_starts_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			bytes_that_were_altered_are_fetched_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_file_of_somebody_else_is_left_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_file_that_was_exchanged_is_somebody_elses, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_journal_of_somebody_else_is_left_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_link_is_not_followed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			another_download_to_the_same_path_is_not_disturbed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_damaged_line_costs_one_block, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			without_the_option_nothing_is_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_object_that_is_gone_leaves_nothing, set_up, tear_down),
	};
	int failed;

	initial = malloc(OBJECT);
	if (!initial || !mkdtemp(directory) || rmdir(directory) < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(initial);
	return failed;
}
