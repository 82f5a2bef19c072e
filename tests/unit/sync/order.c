/*
 * The order in which files of a directory are published: markers (small files that refer to
 * others), their data, and very many files.
 */
#include "plan_fixture.h"

/* Each directory has one queue, which does not wait for other directories. */
static void a_directory_is_published_in_the_order_of_closes(void **state)
{
	struct fixture *f = *state;
	struct job data, other, none;

	saved(f, "a/data", 1000);
	saved(f, "a/marker", 1);
	saved(f, "b/file", 1);
	f->now += QUIET;

	assert_string_equal(next(f, &data), "whole a/data");
	assert_string_equal(next(f, &other), "whole b/file");
	assert_string_equal(next(f, &none), "");
	done_as(f, &data, JOB_DONE);
	assert_string_equal(run_all(f), "whole a/marker;");
	done_as(f, &other, JOB_DONE);
}

/* If the first version of the data never appeared, the next version takes its place in the
 * queue. */
static void a_marker_waits_while_its_data_is_written_again(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", LARGE);
	saved(f, "marker", 1);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole data");
	changed(f, "data");
	done_as(f, &job, JOB_CHANGED);
	f->now += 1000;
	assert_string_equal(next(f, &job), "");

	closed_as(f, "data", LARGE, CLOSE_TRUE);

	assert_string_equal(run_all(f), "whole data;whole marker;");
}

/* The data keeps its place even if its upload fails while it is written again. */
static void a_marker_waits_while_the_upload_of_its_data_fails(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", LARGE);
	saved(f, "marker", 1);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole data");
	saved(f, "data", LARGE);
	done_as(f, &job, JOB_FAILED);
	f->now += 1000;

	assert_string_equal(run_all(f), "whole data;whole marker;");
}

/* The data keeps its place even if the upload of its copy fails: the copy is sent again, and then
 * the new version. */
static void a_marker_waits_while_the_upload_of_a_copy_fails(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", 1000);
	saved(f, "marker", 1);
	saved(f, "data", 1000);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "frozen data");
	saved(f, "other", LARGE);
	saved(f, "data", LARGE);
	done_as(f, &job, JOB_FAILED);
	f->now += 1000;

	assert_string_equal(run_all(f), "frozen data;frozen marker;whole other;whole data;");
}

/* The data keeps its place even if it is already being written for the third time. */
static void a_marker_waits_while_its_data_is_written_again_and_again(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", LARGE);
	saved(f, "marker", 1);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole data");
	saved(f, "data", LARGE);
	changed(f, "data");
	done_as(f, &job, JOB_CHANGED);
	assert_string_equal(next(f, &job), "");

	closed_as(f, "data", LARGE, CLOSE_TRUE);

	assert_string_equal(run_all(f), "whole data;whole marker;");
}

/* If both files are small, the larger one is the data. */
static void a_marker_waits_while_its_small_data_is_written_again(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", 1000);
	saved(f, "marker", 1);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole data");
	changed(f, "data");
	done_as(f, &job, JOB_CHANGED);
	f->now += 1000;
	assert_string_equal(next(f, &job), "");

	closed_as(f, "data", 1000, CLOSE_TRUE);

	assert_string_equal(run_all(f), "frozen data;frozen marker;");
}

/* A version that was closed during the upload of the previous version keeps its place, even if its
 * file is opened again before that upload has ended. */
static void a_marker_waits_for_a_version_closed_during_an_upload(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", LARGE);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole data");
	saved(f, "data", LARGE);
	saved(f, "marker", 1);
	changed(f, "data");
	done_as(f, &job, JOB_DONE);
	f->now += 1000;
	assert_string_equal(next(f, &job), "");

	closed_as(f, "data", LARGE, CLOSE_TRUE);

	assert_string_equal(run_all(f), "whole data;whole marker;");
}

/* If the data is closed twice during the upload, the marker may refer to the first of these
 * versions. */
static void a_marker_waits_for_a_version_closed_twice_during_an_upload(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", LARGE);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole data");
	saved(f, "data", LARGE);
	saved(f, "marker", 1);
	saved(f, "data", LARGE);
	done_as(f, &job, JOB_DONE);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole data;whole marker;");
}

/* The marker also waits if the data is closed twice while a copy is being sent. */
static void a_marker_waits_for_a_version_closed_twice_after_a_copy(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "data", 1000);
	saved(f, "data", 1000);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "frozen data");
	saved(f, "data", LARGE);
	saved(f, "marker", 1);
	saved(f, "data", LARGE);
	done_as(f, &job, JOB_DONE);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole data;whole marker;");
}

/* The data was moved into place and written again before the events were read, so the first event
 * already finds the content of the last close. */
static void a_marker_waits_for_data_that_was_found_before_its_close(void **state)
{
	struct fixture *f = *state;
	struct ident ident = ident_of(f, LARGE);

	plan_closed(&f->plan, at(f, "data"), &ident, 0100644, CLOSE_UNSEEN, f->now);
	plan_found(at(f, "data"));
	saved(f, "marker", 1);
	plan_closed(&f->plan, at(f, "data"), &ident, 0100644, CLOSE_TRUE, f->now);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole data;whole marker;");
}

/* A version that was closed during the upload of the previous version is published after all files
 * that were closed before it. */
static void a_newer_version_goes_behind_what_was_closed_before_it(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "latest", 10);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole latest");
	saved(f, "ckpt2", 1000);
	saved(f, "latest", 10);
	done_as(f, &job, JOB_DONE);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole ckpt2;frozen latest;");
}

/* A marker that is rewritten before it was sent never refers to a file that is not in the store
 * yet. */
static void a_small_file_rewritten_in_the_queue_follows_what_it_may_need(void **state)
{
	struct fixture *f = *state;

	saved(f, "latest", 10);
	saved(f, "ckpt2", LARGE);
	saved(f, "latest", 10);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole ckpt2;frozen latest;");
	assert_null(at(f, "latest")->work);
}

/* The rest of a log whose writer was killed has a place in the queue. If the log is closed again,
 * it may refer to files that were closed in between. */
static void a_log_closed_again_in_the_queue_follows_what_it_may_need(void **state)
{
	struct fixture *f = *state;

	changed(f, "log");
	at(f, "log")->work->appender = true;
	plan_task_ended(&f->plan, true, f->now);
	saved(f, "ckpt", LARGE);
	saved(f, "log", 20);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole ckpt;frozen log;");
}

/* Data that is rewritten keeps its place, even if other data is larger. */
static void data_rewritten_in_the_queue_keeps_its_place(void **state)
{
	struct fixture *f = *state;

	saved(f, "data1", LARGE);
	saved(f, "latest", 10);
	saved(f, "data2", 2 * LARGE);
	saved(f, "data1", LARGE);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole data1;whole latest;whole data2;");
}

/* A copy of the marker is published in its turn, although the marker is written meanwhile. The next
 * copy is made after this publication. */
static void a_marker_that_never_rests_is_published_all_the_same(void **state)
{
	struct fixture *f = *state;
	unsigned markers = 0, data = 0;
	struct job job;

	for (unsigned step = 0; step < 1000; step++) {
		const char *what;

		saved(f, "latest", 10);
		if (step % 3 == 0) {
			what = next(f, &job);
			markers += strcmp(what, "frozen latest") == 0;
			data += strncmp(what, "whole data", 10) == 0;
			if (*what)
				done_as(f, &job, JOB_DONE);
		}
		f->now += 5;
		saved(f, step % 2 ? "data1" : "data2", LARGE);
		f->now += 5;
	}

	assert_in_range(markers, 10, 200);
	assert_in_range(data, 20, 330);
	f->now += PLAN_RESTLESS_MS;
	run_all(f);
	assert_null(f->table.works);
	assert_int_equal(f->plan.frozen_bytes, 0);
}

/* One marker refers to a small file, which refers to data. Small files are copied at the same
 * moment, and published in the order of their closes. */
static void small_files_of_a_directory_are_copied_together(void **state)
{
	struct fixture *f = *state;

	saved(f, "latest", 10);
	saved(f, "step.json", 20);
	saved(f, "ckpt", LARGE);
	saved(f, "step.json", 20);
	saved(f, "latest", 10);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole ckpt;frozen step.json;frozen latest;");
}

/* The journal must end with the last close; otherwise the file would look incomplete after a
 * kill. */
static void a_copy_that_is_published_leaves_the_later_close_on_record(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "latest", 10);
	saved(f, "latest", 10);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "frozen latest");
	saved(f, "latest", 10);
	done_as(f, &job, JOB_DONE);
	f->now += PLAN_RESTLESS_MS;

	assert_string_equal(f->notes, "CCCPC");
	assert_string_equal(run_all(f), "frozen latest;");
	assert_int_equal(at(f, "latest")->state, ENTRY_CLEAN);
}

/* A file whose upload was refused returns at the end of the queue when it is tried again. A version
 * of another file that was closed during the upload of a copy is still sent before markers that
 * were closed after this version. */
static void a_marker_waits_for_its_data_if_another_file_is_tried_again(void **state)
{
	struct job_result hopeless = {.outcome = JOB_FAILED, .error = PENSTOCK_E_PERMISSION};
	struct fixture *f = *state;
	struct job job, none;

	saved(f, "secret", 1);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole secret");
	plan_done(&f->plan, &job, &hopeless, f->now);
	saved(f, "data", 1000);
	saved(f, "data", 1000);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "frozen data");
	saved(f, "data", LARGE);
	saved(f, "marker", 1);
	f->now += PLAN_RETRY_MS;
	assert_string_equal(next(f, &none), "");
	done_as(f, &job, JOB_DONE);

	assert_string_equal(run_all(f), "whole data;whole marker;whole secret;");
}

/* If a file is removed or becomes suspect, its copy is dropped. */
static void a_copy_goes_with_its_file(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "a", 10);
	saved(f, "b", 10);
	saved(f, "a", 10);
	saved(f, "b", 10);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "frozen a");
	plan_gone(&f->plan, at(f, "b"), f->now);
	changed(f, "a");
	closed_as(f, "a", 10, CLOSE_KILLED);
	done_as(f, &job, JOB_FAILED);

	assert_int_equal(f->plan.frozen_bytes, 0);
	assert_int_equal(f->table.top->n_frozen, 0);
	f->now += 100000;
	assert_string_equal(run_all(f), "partial a;");
}

/* A worker sends the head of the queue, so the plan makes no copy of it. */
static void a_marker_whose_partial_upload_runs_follows_what_it_may_need(void **state)
{
	struct fixture *f = *state;
	struct job job;

	changed(f, "latest");
	closed_as(f, "latest", 5, CLOSE_KILLED);
	assert_string_equal(next(f, &job), "partial latest");
	saved(f, "latest", 10);
	saved(f, "data", LARGE);
	saved(f, "latest", 10);
	plan_freeze_failed(&f->plan, f->table.top);
	done_as(f, &job, JOB_DONE);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole data;whole latest;");
}

/* The marker is open at each attempt to copy it, and is closed at the end. */
static void a_marker_that_cannot_be_copied_follows_what_it_may_need(void **state)
{
	struct fixture *f = *state;
	int64_t wake = INT64_MAX;
	struct job job;

	saved(f, "latest", 10);
	saved(f, "ckpt2", LARGE);
	saved(f, "latest", 10);
	f->now += QUIET;
	assert_true(plan_next(&f->plan, f->now, &job, &wake));
	assert_int_equal(job.kind, JOB_FREEZE);
	saved(f, "ckpt3", LARGE);
	saved(f, "latest", 10);
	plan_queue_frozen(&f->plan, job.dir);
	plan_freeze_failed(&f->plan, job.dir);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole ckpt2;whole ckpt3;whole latest;");
}

/* Saves so many files that some have to wait outside of the queue, to limit memory. */
static void save_many(struct fixture *f, const char *dir, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/f%u", dir, i);
		saved(f, path, 10);
	}
}

/* Publishes all files, and appends their names in that order. Returns their number. */
static unsigned publish_all(struct fixture *f, struct strlist *order)
{
	struct job job;
	unsigned n = 0;

	f->now += QUIET;
	for (const char *text = next(f, &job); *text; text = next(f, &job), n++) {
		assert_in_range(f->table.n_works, 0, PLAN_QUEUED + 2);
		assert_int_equal(strlist_add(order, strchr(text, ' ') + 1), 0);
		done_as(f, &job, JOB_DONE);
	}
	return n;
}

static size_t place(const struct strlist *order, const char *path)
{
	for (size_t i = 0; i < order->n; i++)
		if (strcmp(order->items[i], path) == 0)
			return i;
	fail_msg("%s was not published", path);
	return 0;
}

static void many_files_wait_in_a_line(void **state)
{
	struct strlist order = {0};
	struct fixture *f = *state;

	save_many(f, "a", 3 * PLAN_QUEUED);
	saved(f, "a/_SUCCESS", 1);
	saved(f, "b/file", 10);

	assert_in_range(f->table.n_works, PLAN_QUEUED_DIR, PLAN_QUEUED_DIR + 2);
	assert_int_equal(plan_flush_pending(&f->plan), 3 * PLAN_QUEUED + 2);
	assert_int_equal(publish_all(f, &order), 3 * PLAN_QUEUED + 2);
	assert_int_equal(place(&order, "a/_SUCCESS"), order.n - 1);
	assert_in_range(place(&order, "b/file"), 0, 2);
	assert_in_range(place(&order, "a/f5000"), 5000, 5001);
	assert_int_equal(f->plan.n_parked + f->plan.parked_bytes + f->plan.n_queued, 0);
	assert_int_equal(plan_flush_pending(&f->plan), 0);
	strlist_release(&order);
}

/* A marker that already has an object waits for the files outside of the queue, too, and is copied
 * if it was rewritten. */
static void a_marker_waits_for_the_line(void **state)
{
	struct strlist order = {0};
	struct fixture *f = *state;

	saved(f, "a/latest", 1);
	publish_all(f, &order);
	strlist_release(&order);
	save_many(f, "a", 2 * PLAN_QUEUED);
	saved(f, "a/latest", 1);
	saved(f, "a/late", 10);
	saved(f, "a/latest", 1);

	assert_int_equal(publish_all(f, &order), 2 * PLAN_QUEUED + 2);
	assert_in_range(place(&order, "a/latest"), 2 * PLAN_QUEUED, order.n);
	assert_true(place(&order, "a/latest") > place(&order, "a/late"));
	strlist_release(&order);
}

/* If a file that waits outside of the queue changes, the change is handled in the file's turn, and
 * the file is counted once. */
static void files_in_the_line_change_and_go(void **state)
{
	struct strlist order = {0};
	struct fixture *f = *state;
	struct job job;

	save_many(f, "a", 3 * PLAN_QUEUED);
	saved(f, "a/f6000", 20);
	saved(f, "a/f6000", 30);
	plan_gone(&f->plan, at(f, "a/f6001"), f->now);
	plan_gone(&f->plan, at(f, "a/f6002"), f->now);
	saved(f, "a/f6002", 10);
	changed(f, "a/f6003");
	changed(f, "a/f6004");
	closed_as(f, "a/f6004", 10, CLOSE_KILLED);
	table_remove(&f->table, at(f, "a/f6005"));
	assert_int_equal(f->plan.n_parked, 3 * PLAN_QUEUED - PLAN_QUEUED_DIR - 3);

	f->plan.n_parked--; /* a/f6005, whose removal the plan did not see */
	f->plan.parked_bytes -= 10;
	publish_all(f, &order);
	assert_in_range(order.n, 5990, 6004); /* files before a/f6003 (open), and a/f6004 */
	closed_as(f, "a/f6003", 10, CLOSE_TRUE);
	publish_all(f, &order); /* a/f6003 is sent after the copies of other files */
	publish_all(f, &order);
	assert_int_equal(order.n, 3 * PLAN_QUEUED - 2); /* one of them is in partial/ */
	place(&order, "a/f6000");
	place(&order, "a/f6002");
	assert_int_equal(f->plan.n_parked + f->plan.parked_bytes + f->plan.n_queued, 0);
	assert_null(table_find_path(&f->table, "a/f6001"));
	assert_string_equal(next(f, &job), "");
	strlist_release(&order);
}

/* If the first file stays open, other files wait only for a limited time. */
static void a_file_opened_again_lets_the_others_pass_in_the_end(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "db", 1000);
	saved(f, "ckpt", 10);
	changed(f, "db");
	f->now += QUIET;
	assert_string_equal(next(f, &job), "");
	f->now += PLAN_REOPEN_MS;
	while (strcmp(next(f, &job), "grown db") == 0)
		done_as(f, &job, JOB_NOTHING);

	assert_ptr_equal(job.entry, at(f, "ckpt"));
	done_as(f, &job, JOB_DONE);
}

int main(void)
{
#define RULE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		RULE(a_directory_is_published_in_the_order_of_closes),
		RULE(a_marker_waits_while_its_data_is_written_again),
		RULE(a_marker_waits_while_the_upload_of_its_data_fails),
		RULE(a_marker_waits_while_the_upload_of_a_copy_fails),
		RULE(a_marker_waits_while_its_data_is_written_again_and_again),
		RULE(a_marker_waits_while_its_small_data_is_written_again),
		RULE(a_marker_waits_for_a_version_closed_during_an_upload),
		RULE(a_marker_waits_for_a_version_closed_twice_during_an_upload),
		RULE(a_marker_waits_for_a_version_closed_twice_after_a_copy),
		RULE(a_marker_waits_for_data_that_was_found_before_its_close),
		RULE(a_newer_version_goes_behind_what_was_closed_before_it),
		RULE(a_small_file_rewritten_in_the_queue_follows_what_it_may_need),
		RULE(a_log_closed_again_in_the_queue_follows_what_it_may_need),
		RULE(data_rewritten_in_the_queue_keeps_its_place),
		RULE(a_marker_that_never_rests_is_published_all_the_same),
		RULE(small_files_of_a_directory_are_copied_together),
		RULE(a_copy_that_is_published_leaves_the_later_close_on_record),
		RULE(a_marker_waits_for_its_data_if_another_file_is_tried_again),
		RULE(a_copy_goes_with_its_file),
		RULE(a_marker_whose_partial_upload_runs_follows_what_it_may_need),
		RULE(a_marker_that_cannot_be_copied_follows_what_it_may_need),
		RULE(many_files_wait_in_a_line),
		RULE(a_marker_waits_for_the_line),
		RULE(files_in_the_line_change_and_go),
		RULE(a_file_opened_again_lets_the_others_pass_in_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
