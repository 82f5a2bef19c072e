#include "archive_maker.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "net/http/http.h"
#include "run/stage/stage.h"

/* The directories of a run, a workflow, and the reported progress of the staging. */
struct site {
	struct yard yard;
	struct run_layout layout;
	struct stores stores;
	struct workflow workflow;
	struct workflow_input inputs[8];
	struct stage_options options;
	struct penstock_error err;
	struct buf provenance;
	pthread_mutex_t lock; /* protects the progress, which several threads report */
	uint64_t told_done, told_total;
	size_t told;
};

static void note_progress(void *cookie, const char *name, uint64_t done, uint64_t total)
{
	struct site *s = cookie;

	LOCK_SCOPE(&s->lock);
	assert_non_null(name);
	s->told_done = done;
	s->told_total = total;
	s->told++;
}

static int setup(void **state)
{
	struct site *s = calloc(1, sizeof(*s));
	struct yard *y;

	assert_int_equal(yard_setup((void **)&y), 0);
	s->yard = *y;
	free(y);
	assert_int_equal(run_layout_init(&s->layout, s->yard.top, "r1", 1, &s->err), 0);
	assert_int_equal(run_layout_create(&s->layout, &s->err), 0);
	assert_int_equal(stores_init(&s->stores, NULL, NULL, &s->err), 0);
	pthread_mutex_init(&s->lock, NULL);
	s->workflow.file = "wf.json";
	s->workflow.inputs = s->inputs;
	s->options = (struct stage_options){.workflow = &s->workflow,
		.stores = &s->stores,
		.layout = &s->layout,
		.progress = note_progress,
		.cookie = s};
	buf_init(&s->provenance, MIB);
	snprintf(s->yard.in, sizeof(s->yard.in), "%s", s->layout.input);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct site *s = *state;

	stores_release(&s->stores);
	run_layout_release(&s->layout);
	penstock_error_release(&s->err);
	buf_release(&s->provenance);
	pthread_mutex_destroy(&s->lock);
	fs_remove_tree(s->yard.top, NULL);
	free(s);
	return 0;
}

static struct workflow_input *add_local(struct site *s, const char *path, const char *below)
{
	struct workflow_input *in = &s->inputs[s->workflow.n_inputs++];

	*in = (struct workflow_input){.kind = WORKFLOW_LOCAL};
	in->local_path.value = path;
	in->path.value = below;
	in->unpack.value = true;
	return in;
}

static int stage(struct site *s)
{
	penstock_error_release(&s->err);
	buf_clear(&s->provenance);
	return stage_inputs(&s->options, &s->provenance, &s->err);
}

static void must_stage(struct site *s)
{
	if (stage(s) < 0)
		fail_msg("%s", s->err.message);
}

/* Returns the path of a file next to the run's directories; valid until the test ends. */
static char *source(struct site *s, const char *name)
{
	static char paths[4][200];
	static size_t next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", s->yard.top, name);
	return path;
}

static void write_archive(struct site *s, const char *name, const char *text)
{
	const struct member members[] = {{"data/", 'd', NULL, 0}, {"data/file", 'f', text, 0}};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);

	make_archive(&a, "ustar", "gzip", members, ARRAY_SIZE(members));
	yard_write(s->yard.top, name, a.data, a.len);
}

/* A local archive is unpacked into the input directory, and the archive stays next to its
 * contents. */
static void an_archive_is_unpacked_and_kept(void **state)
{
	struct site *s = *state;

	write_archive(s, "d.tar.gz", "one");
	add_local(s, source(s, "d.tar.gz"), "");

	must_stage(s);

	assert_text(&s->yard, "data/file", "one");
	assert_int_equal(count_entries(s->layout.input), 2);
	assert_true(stat_of(&s->yard, "d.tar.gz").st_size > 0);
	assert_non_null(strstr(buf_str(&s->provenance), "d.tar.gz"));
	assert_true(s->told > 0 && s->told_done == s->told_total);
}

/* Several inputs are staged, each below its own path; an archive may also stay packed. */
static void inputs_go_below_their_paths(void **state)
{
	struct site *s = *state;

	write_archive(s, "a.tar.gz", "one");
	write_archive(s, "b.tar.gz", "two");
	yard_write(s->yard.top, "plain.csv", "1,2", 3);
	add_local(s, source(s, "a.tar.gz"), "train/x");
	add_local(s, source(s, "b.tar.gz"), "test");
	add_local(s, source(s, "plain.csv"), "");
	add_local(s, source(s, "b.tar.gz"), "whole")->unpack = (struct workflow_flag){
		.value = false, .given = true};

	must_stage(s);

	assert_text(&s->yard, "train/x/data/file", "one");
	assert_text(&s->yard, "test/data/file", "two");
	assert_text(&s->yard, "plain.csv", "1,2");
	assert_int_equal(stat_of(&s->yard, "whole/b.tar.gz").st_size > 0, 1);
	assert_int_equal(count_entries(s->layout.input), 4);
}

/* A local directory is copied with modes, times and links. */
static void a_directory_is_copied(void **state)
{
	struct site *s = *state;
	struct stat was;

	assert_int_equal(fs_mkdirs(source(s, "set/sub"), 0750, NULL), 0);
	yard_write(source(s, "set/sub"), "file", "contents", 8);
	yard_write(source(s, "set"), "run.sh", "#!/bin/sh", 9);
	assert_int_equal(chmod(source(s, "set/run.sh"), 0755), 0);
	assert_int_equal(symlink("sub/file", source(s, "set/link")), 0);
	add_local(s, source(s, "set"), "");

	must_stage(s);

	assert_text(&s->yard, "sub/file", "contents");
	assert_text(&s->yard, "link", "contents");
	assert_true(S_ISLNK(stat_of(&s->yard, "link").st_mode));
	assert_int_equal(stat_of(&s->yard, "run.sh").st_mode & 0777, 0755);
	assert_int_equal(stat(source(s, "set/run.sh"), &was), 0);
	assert_int_equal(stat_of(&s->yard, "run.sh").st_mtim.tv_nsec, was.st_mtim.tv_nsec);
	assert_int_equal(stat_of(&s->yard, "sub").st_mode & 0777, 0750);
}

/* A complete input is not staged again, even if its source is gone. */
static void a_complete_staging_is_recognised(void **state)
{
	_cleanup_free_ char *first = NULL;
	struct site *s = *state;

	write_archive(s, "d.tar.gz", "one");
	add_local(s, source(s, "d.tar.gz"), "");
	must_stage(s);
	first = strdup(buf_str(&s->provenance));
	yard_write(s->layout.input, "made-by-a-step", "x", 1);
	unlink(source(s, "d.tar.gz"));

	must_stage(s);

	assert_text(&s->yard, "made-by-a-step", "x");
	assert_text(&s->yard, "data/file", "one");
	assert_string_equal(buf_str(&s->provenance), first);
}

/* If the inputs or the directory changed, the files that were staged before are removed first. */
static void other_inputs_start_anew(void **state)
{
	struct site *s = *state;

	write_archive(s, "a.tar.gz", "one");
	yard_write(s->yard.top, "b.csv", "b", 1);
	add_local(s, source(s, "a.tar.gz"), "");
	must_stage(s);
	s->inputs[0].local_path.value = source(s, "b.csv");
	must_stage(s);
	assert_text(&s->yard, "b.csv", "b");
	assert_int_equal(count_entries(s->layout.input), 1);

	assert_int_equal(fs_remove_tree(s->layout.input, NULL), 0);
	must_stage(s);
	assert_text(&s->yard, "b.csv", "b");
}

/* After a crash of the machine, files that were never synced may be damaged, so all inputs are
 * staged again. */
static void a_reboot_starts_anew(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	_cleanup_free_ char *path = NULL;
	struct site *s = *state;
	char *boot;

	yard_write(s->yard.top, "b.csv", "b", 1);
	add_local(s, source(s, "b.csv"), "");
	must_stage(s);
	yard_write(s->layout.input, "b.csv", "lost", 4);
	path = path_join(s->layout.state, "stage.json");
	assert_int_equal(fs_read(path, &text, NULL), 0);
	boot = strstr(text.data, "\"boot\": \"");
	assert_non_null(boot);
	boot[9] = boot[9] == '0' ? '1' : '0';
	yard_write(s->layout.state, "stage.json", text.data, text.len);

	must_stage(s);

	assert_text(&s->yard, "b.csv", "b");
}

/* After a failure, the next call stages the remaining inputs. The message names the input and its
 * place in the workflow. */
static void a_missing_input_is_named(void **state)
{
	struct site *s = *state;

	yard_write(s->yard.top, "there.csv", "b", 1);
	add_local(s, source(s, "there.csv"), "");
	add_local(s, source(s, "missing.csv"), "");

	assert_int_equal(stage(s), -PENSTOCK_E_NOT_FOUND);
	assert_non_null(strstr(s->err.message, "wf.json"));
	assert_non_null(strstr(s->err.message, "missing.csv"));
	yard_write(s->yard.top, "missing.csv", "c", 1);
	must_stage(s);

	assert_text(&s->yard, "there.csv", "b");
	assert_text(&s->yard, "missing.csv", "c");
}

/* A refused archive leaves no files, and a corrected archive is fetched. */
static void a_refused_archive_is_fetched_again(void **state)
{
	static const struct member evil = {"../outside", 'f', "x", 0};
	_cleanup_(buf_release) struct buf a = BUF_INIT(0);
	struct site *s = *state;

	make_archive(&a, "ustar", "gzip", &evil, 1);
	yard_write(s->yard.top, "d.tar.gz", a.data, a.len);
	add_local(s, source(s, "d.tar.gz"), "");

	assert_int_equal(stage(s), -PENSTOCK_E_INVALID);
	assert_non_null(strstr(s->err.message, "../outside"));
	assert_int_equal(count_entries(s->layout.input), 0);
	write_archive(s, "d.tar.gz", "good");
	must_stage(s);

	assert_text(&s->yard, "data/file", "good");
}

/* A wrong digest is an error, and no file is staged. */
static void a_wrong_digest_is_refused(void **state)
{
	struct site *s = *state;

	yard_write(s->yard.top, "b.csv", "b", 1);
	add_local(s, source(s, "b.csv"), "")->sha256.value =
		"0000000000000000000000000000000000000000000000000000000000000000";

	assert_int_equal(stage(s), -PENSTOCK_E_CORRUPT);
	assert_int_equal(count_entries(s->layout.input), 0);
	s->inputs[0].sha256.value =
		"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";
	must_stage(s);

	assert_text(&s->yard, "b.csv", "b");
	assert_non_null(strstr(buf_str(&s->provenance), "3e23e816"));
}

/* If two files had the same name in one directory, one would replace the other. */
static void one_name_twice_is_refused(void **state)
{
	struct site *s = *state;

	yard_write(s->yard.top, "b.csv", "b", 1);
	add_local(s, source(s, "b.csv"), "");
	add_local(s, source(s, "b.csv"), "");

	assert_int_equal(stage(s), -PENSTOCK_E_INVALID);
	assert_non_null(strstr(s->err.message, "b.csv"));
}

/* inputMode applies to every file and directory; a user who may read a directory may also search
 * it. */
static void the_input_mode_is_applied(void **state)
{
	struct site *s = *state;

	write_archive(s, "d.tar.gz", "one");
	add_local(s, source(s, "d.tar.gz"), "sub");
	s->workflow.input_mode = (struct workflow_number){.value = 0444, .given = true};

	must_stage(s);

	assert_int_equal(stat_of(&s->yard, "sub/data/file").st_mode & 0777, 0444);
	assert_int_equal(stat_of(&s->yard, "sub/data").st_mode & 0777, 0555);
	assert_int_equal(stat_of(&s->yard, ".").st_mode & 0777, 0555);
}

/* Without inputMode, only the owner has access to the directory. */
static void the_input_directory_is_private(void **state)
{
	struct site *s = *state;

	must_stage(s);

	assert_int_equal(stat_of(&s->yard, ".").st_mode & 0777, 0700);
	assert_string_equal(buf_str(&s->provenance), "[]");
}

/* A cancel ends the staging, and the next call completes it. */
static void a_cancel_ends_staging(void **state)
{
	atomic_int cancel = 1;
	struct site *s = *state;

	write_archive(s, "d.tar.gz", "one");
	add_local(s, source(s, "d.tar.gz"), "");
	s->options.cancel = &cancel;

	assert_int_equal(stage(s), -PENSTOCK_E_CANCELLED);
	assert_int_equal(count_entries(s->layout.input), 0);
	cancel = 0;
	must_stage(s);

	assert_text(&s->yard, "data/file", "one");
	assert_int_equal(count_entries(s->layout.input), 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(an_archive_is_unpacked_and_kept),
		TEST(inputs_go_below_their_paths),
		TEST(a_directory_is_copied),
		TEST(a_complete_staging_is_recognised),
		TEST(other_inputs_start_anew),
		TEST(a_reboot_starts_anew),
		TEST(a_missing_input_is_named),
		TEST(a_refused_archive_is_fetched_again),
		TEST(a_wrong_digest_is_refused),
		TEST(one_name_twice_is_refused),
		TEST(the_input_mode_is_applied),
		TEST(the_input_directory_is_private),
		TEST(a_cancel_ends_staging),
	};

	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
