/* Interrupted uploads, and the calls that resume them. */
#include "parts_store.h"

#include <dirent.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "transfer/state/record_file.h"

#define PART  (5 * MIB)
#define PARTS ((SIZE + PART - 1) / PART)

static char directory[] = "/tmp/penstock-resume-XXXXXX";
static atomic_llong moved; /* reported progress of the current call */

static char *in_directory(const char *name)
{
	return path_join(directory, name);
}

static void write_source(const char *bytes, size_t len)
{
	_cleanup_free_ char *path = in_directory("source");

	assert_int_equal(0, fs_write_atomic(path, bytes, len, 0644, NULL));
}

static void count(void *cookie, int64_t bytes)
{
	(void)cookie;
	moved += bytes;
}

static int put_as(struct fixture *f, const char *name, const char *type, bool interrupted)
{
	_cleanup_free_ char *path = in_directory(name);
	_cleanup_free_ char *journals = in_directory("journals/below");
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	assert_int_equal(0, fstat(fd, &st));
	store.interrupt_at = interrupted ? PARTS : 0;
	store.cancel = &f->cancel;
	atomic_store(&f->cancel, 0);
	moved = 0;
	store.sent_parts = 0;
	object_info_release(&f->info);
	return object_put_file(object_at(f->s3, "bucket", "key"), fd, (uint64_t)st.st_size,
		&(struct object_put_options){.resume_dir = journals,
			.content_type = type,
			.part_size = PART,
			.parallel = 1,
			.progress = count,
			.cookie = f,
			.cancel = &f->cancel},
		&f->info, &f->err);
}

static int put(struct fixture *f, bool interrupted)
{
	return put_as(f, "source", NULL, interrupted);
}

static void interrupted(struct fixture *f)
{
	assert_int_equal(-(int)PENSTOCK_E_CANCELLED, put(f, true));
	assert_null(store.object);
}

/* Returns the path of the only journal, or NULL if there is none. The caller has to free the
 * text. */
static char *journal(void)
{
	_cleanup_free_ char *path = in_directory("journals/below");
	_cleanup_closedir_ DIR *d = opendir(path);
	char *found = NULL;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		assert_null(found);
		found = path_join(path, e->d_name);
	}
	return found;
}

static void assert_whole(void)
{
	_cleanup_free_ char *left = journal();

	assert_int_equal(SIZE, store.object_len);
	assert_memory_equal(data, store.object, SIZE);
	assert_int_equal(0, store_alive());
	assert_null(left);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fill_data();
	store_reset();
	assert_int_equal(0, mkdir(directory, 0700));
	write_source(data, SIZE);
	begin(f, store_answer);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	end(*state);
	store_reset();
	free(*state);
	return fs_remove_tree(directory, NULL);
}

/* ---- tests ---- */

static void the_next_call_sends_only_what_is_missing(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	assert_int_equal(1, store_alive());

	assert_int_equal(0, put(f, false));

	assert_int_equal(1, store.uploads);
	assert_int_equal(PARTS - 2, store.sent_parts);
	assert_int_equal(SIZE, moved); /* existing parts count as progress */
	assert_int_equal(SIZE, f->info.size);
	assert_string_equal(store.object_etag, f->info.etag);
	assert_whole();
}

static void a_file_that_has_changed_starts_anew(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	data[77] ^= 1;
	write_source(data, SIZE);

	assert_int_equal(0, put(f, false));

	assert_int_equal(2, store.uploads);
	assert_int_equal(1, store.aborts);
	assert_int_equal(PARTS, store.sent_parts);
	assert_whole();
}

static void an_object_with_other_properties_starts_anew(void **state)
{
	struct fixture *f = *state;

	interrupted(f);

	assert_int_equal(0, put_as(f, "source", "text/plain", false));

	assert_int_equal(1, store.aborts);
	assert_int_equal(PARTS, store.sent_parts);
	assert_whole();
}

/* If the store lists a part with another ETag than the journal has, the part is sent again. */
static void a_part_that_the_store_lists_otherwise_is_sent_again(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	store.wrong_etag = 1;

	assert_int_equal(0, put(f, false));

	assert_int_equal(PARTS - 1, store.sent_parts);
	assert_whole();
}

/* Rewrites the journal with the times of the current file, as if the bytes had changed without
 * changing the times. */
static void make_journal_of_now(const char *path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB), line = BUF_INIT(KIB);
	_cleanup_(record_file_close) struct record_file file = RECORD_FILE_INIT;
	_cleanup_free_ char *source = in_directory("source");
	struct stat st;
	char *lines[16], *at;
	size_t n = 0;

	assert_int_equal(0, stat(source, &st));
	assert_int_equal(0, fs_read(path, &text, NULL));
	for (at = text.data; n < 16 && (lines[n] = strsep(&at, "\n")) && *lines[n]; n++)
		;
	assert_int_equal(0, record_file_open(&file, path, NULL));
	assert_int_equal(0, record_file_clear(&file));
	for (size_t i = 1; i < n; i++) {
		buf_clear(&line);
		if (lines[i][9] == 'F')
			buf_printf(&line, "F %lld %lld %lld %llu %llu", (long long)st.st_size,
				(long long)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec,
				(long long)st.st_ctim.tv_sec * NS_PER_S + st.st_ctim.tv_nsec,
				(unsigned long long)st.st_ino, (unsigned long long)st.st_dev);
		else
			buf_add_str(&line, lines[i] + 9);
		assert_int_equal(0, record_file_add(&file, &line));
	}
}

/* The bytes of the file differ from the stored part, although the journal describes them as
 * equal. */
static void a_part_whose_bytes_have_changed_is_sent_again(void **state)
{
	_cleanup_free_ char *path = NULL;
	struct fixture *f = *state;

	interrupted(f);
	data[2 * PART - 1] ^= 1;
	write_source(data, SIZE);
	path = journal();
	make_journal_of_now(path);

	assert_int_equal(0, put(f, false));

	assert_int_equal(1, store.uploads);
	assert_int_equal(PARTS - 1, store.sent_parts);
	assert_whole();
}

/* Changes a byte in the given line of the journal. Returns the number of lines. */
static unsigned damage(unsigned number)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	_cleanup_free_ char *path = journal();
	unsigned lines = 0;

	assert_int_equal(0, fs_read(path, &text, NULL));
	for (char *at = text.data; (at = strchr(at, '\n')) && at[1]; at++)
		if (++lines == number)
			at[10] ^= 0x20; /* the tag, which follows the checksum of the line */
	assert_int_equal(0, fs_write_atomic(path, text.data, text.len, 0600, NULL));
	return lines;
}

/* A part may be sent again, but no upload is forgotten. */
static void a_damaged_line_of_the_journal_costs_a_part_at_most(void **state)
{
	struct fixture *f = *state;

	for (unsigned number = 1, lines = 1; number <= lines; number++) {
		interrupted(f);
		lines = damage(number);
		assert_in_range(lines, 9, 20);

		assert_int_equal(0, put(f, false));

		assert_int_equal(1, store.uploads);
		assert_in_range(store.sent_parts, PARTS - 2, PARTS - 1);
		assert_whole();
		store_reset();
	}
}

/* The name of the journal is derived from the target, so the journal is used even without the lines
 * that describe the target. */
static void a_journal_that_does_not_say_what_it_is_about_is_used(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	damage(1);
	damage(2);

	assert_int_equal(0, put(f, false));

	assert_int_equal(1, store.uploads);
	assert_whole();
}

/* The journal no longer identifies the file, so no part is reused, and the upload is aborted. */
static void an_upload_of_a_file_that_nobody_knows_is_ended(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	damage(3);
	damage(4);

	assert_int_equal(0, put(f, false));

	assert_int_equal(2, store.uploads);
	assert_int_equal(1, store.aborts);
	assert_whole();
}

/* The ETags do not depend on the bytes, and a request that the client does not know has stored the
 * part again. */
static void a_part_that_was_stored_twice_is_known_by_its_checksum(void **state)
{
	struct fixture *f = *state;

	store.resent = 2;
	store.lists_sums = true;

	assert_int_equal(0, put(f, false));

	assert_int_equal(2, store.completes);
	assert_whole();
}

/* Without a checksum, the client cannot know the content of the part. */
static void a_part_that_nobody_knows_is_not_put_into_an_object(void **state)
{
	struct fixture *f = *state;

	store.resent = 2;

	assert_true(put(f, false) < 0);

	assert_null(store.object);

	/* The next call sends the part again. */
	store.resent = 0;
	assert_int_equal(0, put(f, false));
	assert_int_equal(1, store.sent_parts);
	assert_whole();
}

static void an_upload_that_is_gone_starts_anew(void **state)
{
	struct fixture *f = *state;

	interrupted(f);
	store.loses_upload = true;

	assert_int_equal(0, put(f, false));

	assert_int_equal(2, store.uploads);
	assert_int_equal(PARTS, store.sent_parts);
	assert_whole();
}

/* Simulates a kill after the store's reply and before the removal of the journal. */
static void what_was_completed_is_not_sent_again(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	_cleanup_free_ char *path = NULL;
	struct fixture *f = *state;

	interrupted(f);
	path = journal();
	/* Keep the journal open, to read its last content after its removal. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(0, put(f, false));
	char *room = buf_reserve(&text, 64 * KIB);
	ssize_t n = fs_pread_all(fd, room, 64 * KIB, 0);
	assert_true(n > 0);
	assert_int_equal(0, fs_write_atomic(path, room, (size_t)n, 0600, NULL));

	assert_int_equal(0, put(f, false));

	assert_int_equal(1, store.uploads);
	assert_int_equal(0, store.sent_parts);
	assert_string_equal(store.object_etag, f->info.etag);
	assert_whole();
}

/* The object has the bytes that were sent. The file now has other bytes with the same times. */
static void what_was_completed_of_other_bytes_is_sent_again(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	_cleanup_free_ char *path = NULL;
	struct fixture *f = *state;

	interrupted(f);
	path = journal();
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(0, put(f, false));
	char *room = buf_reserve(&text, 64 * KIB);
	ssize_t n = fs_pread_all(fd, room, 64 * KIB, 0);
	assert_true(n > 0);
	assert_int_equal(0, fs_write_atomic(path, room, (size_t)n, 0600, NULL));
	data[2 * PART - 1] ^= 1;
	write_source(data, SIZE);
	make_journal_of_now(path);

	assert_int_equal(0, put(f, false));

	assert_int_equal(PARTS, store.sent_parts);
	assert_whole();
}

/* After a permanent failure, nothing is left to resume. */
static void a_refused_condition_ends_the_upload(void **state)
{
	_cleanup_free_ char *path = in_directory("source"),
			    *journals = in_directory("journals/below");
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *left = NULL;
	struct fixture *f = *state;

	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		object_put_file(object_at(f->s3, "bucket", "key"), fd, SIZE,
			&(struct object_put_options){
				.resume_dir = journals, .part_size = PART, .if_match = "\"other\""},
			NULL, &f->err));

	assert_int_equal(0, store_alive());
	left = journal();
	assert_null(left);
}

/* The upload of a file that no longer exists can never be resumed, so the next upload aborts it. */
static void what_nobody_can_go_on_with_is_swept(void **state)
{
	_cleanup_free_ char *path = in_directory("source"), *other = in_directory("other");
	struct fixture *f = *state;

	interrupted(f);
	assert_int_equal(0, rename(path, other));
	object_client_free(f->s3); /* a client only checks for old uploads once */
	char url[MINI_URL_SIZE];
	mini_url(&f->server, "", url);
	assert_int_equal(0, object_client_open(&f->s3, f->engine,
				    &(struct store_place){.endpoint_url = url,
					    .region = "us-east-1",
					    .access_key_id = "AKIDEXAMPLE",
					    .secret_access_key = "very/secret"},
				    &f->err));

	assert_int_equal(0, put_as(f, "other", NULL, false));

	assert_int_equal(1, store.aborts);
	assert_int_equal(PARTS, store.sent_parts);
	assert_whole();
}

static void a_file_without_a_name_needs_no_journal(void **state)
{
	_cleanup_free_ char *journals = in_directory("journals/below");
	_cleanup_close_ int fd = make_source(SIZE);
	_cleanup_free_ char *left = NULL;
	struct fixture *f = *state;

	assert_int_equal(
		0, object_put_file(object_at(f->s3, "bucket", "key"), fd, SIZE,
			   &(struct object_put_options){.resume_dir = journals, .part_size = PART},
			   NULL, &f->err));

	left = journal();
	assert_null(left);
	assert_memory_equal(data, store.object, SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_next_call_sends_only_what_is_missing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_file_that_has_changed_starts_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_object_with_other_properties_starts_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_that_the_store_lists_otherwise_is_sent_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_whose_bytes_have_changed_is_sent_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_damaged_line_of_the_journal_costs_a_part_at_most, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_journal_that_does_not_say_what_it_is_about_is_used, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_upload_of_a_file_that_nobody_knows_is_ended, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_that_was_stored_twice_is_known_by_its_checksum, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_that_nobody_knows_is_not_put_into_an_object, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_upload_that_is_gone_starts_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_was_completed_is_not_sent_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_was_completed_of_other_bytes_is_sent_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_refused_condition_ends_the_upload, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_nobody_can_go_on_with_is_swept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_file_without_a_name_needs_no_journal, set_up, tear_down),
	};

	if (!mkdtemp(directory) || rmdir(directory) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
