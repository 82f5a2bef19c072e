/*
 * Checkpoints in the plan: a commit is sent after its data, the newest checkpoint is sent first,
 * and checkpoints that retention removed are deleted.
 */
#include "plan_fixture.h"

/* The order of the closes makes no difference, even across directories. */
static void a_commit_goes_after_all_that_lies_below_it(void **state)
{
	struct fixture *f = *state;
	struct job data, job;

	saved(f, "c/COMMIT.json", 100);
	saved(f, "c/deep/data", LARGE);
	f->now += QUIET;

	assert_string_equal(next(f, &data), "whole c/deep/data");
	assert_string_equal(next(f, &job), "");
	done_as(f, &data, JOB_DONE);
	assert_string_equal(run_all(f), "whole c/COMMIT.json;");
}

/* The file may have been closed a second time, which moved it to the end of the queue. */
static void the_commit_of_a_file_goes_after_it(void **state)
{
	struct fixture *f = *state;

	saved(f, "a.pth.COMMIT.json", 100);
	saved(f, "a.pth", LARGE);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole a.pth;whole a.pth.COMMIT.json;");
}

/* At the end of a run there may be time for only one checkpoint. */
static void a_flush_begins_with_the_newest_checkpoint(void **state)
{
	struct fixture *f = *state;
	struct job job;

	f->plan.continuous = false;
	saved(f, "other", LARGE);
	saved(f, "c1/data", LARGE);
	saved(f, "c1/COMMIT.json", 100);
	saved(f, "c2/data", LARGE);
	saved(f, "c2/COMMIT.json", 100);
	f->now += QUIET;
	plan_flush_begin(&f->plan);

	assert_string_equal(next(f, &job), "whole c2/data");
	assert_string_equal(next(f, &(struct job){0}), "");
	done_as(f, &job, JOB_DONE);
	assert_string_equal(next(f, &job), "whole c2/COMMIT.json");
	done_as(f, &job, JOB_DONE);
	assert_string_equal(next(f, &job), "whole c1/data");
	done_as(f, &job, JOB_DONE);
	assert_string_equal(run_all(f), "whole c1/COMMIT.json;whole other;");
	plan_flush_end(&f->plan);
}

/* A commit without its data is checked again later, and other files are sent meanwhile. A flush is
 * complete if only commits without data remain. */
static void a_commit_without_its_data_waits_and_holds_up_nobody(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "c/COMMIT.json", 100);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole c/COMMIT.json");
	done_as(f, &job, JOB_WAIT);
	assert_string_equal(next(f, &job), "");
	saved(f, "c/more", LARGE);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole c/more");
	done_as(f, &job, JOB_DONE);
	assert_string_equal(next(f, &job), "whole c/COMMIT.json");
	done_as(f, &job, JOB_WAIT);

	plan_flush_begin(&f->plan);
	assert_int_equal(plan_flush_pending(&f->plan), 1);
	f->now += PLAN_DATA_MS;
	assert_string_equal(next(f, &job), "whole c/COMMIT.json");
	done_as(f, &job, JOB_WAIT);
	assert_int_equal(plan_flush_pending(&f->plan), 0);
	plan_flush_end(&f->plan);
}

/* An upload that may not finish in time is not started if it would replace a good object. A file
 * that has no object yet is sent. */
static void what_would_not_be_through_in_time_is_not_begun_over_a_good_object(void **state)
{
	struct fixture *f = *state;

	saved(f, "good", 1000);
	f->now += QUIET;
	assert_string_equal(run_all(f), "whole good;");
	saved(f, "good", 1000);
	saved(f, "new", 1000);
	f->now += QUIET;
	f->plan.busy_ms = 1000;
	f->plan.busy_bytes = 1000;
	f->plan.deadline_ms = f->now + 900;
	plan_flush_begin(&f->plan);

	assert_string_equal(run_all(f), "whole new;");
	assert_true(f->plan.late);
	plan_flush_end(&f->plan);
	f->plan.deadline_ms = f->now + 2000;
	plan_flush_begin(&f->plan);
	assert_string_equal(run_all(f), "whole good;");
	assert_false(f->plan.late);
	plan_flush_end(&f->plan);
}

/* Without deleteSync, only the objects of files that retention removed are deleted. If such a file
 * returns, its object stays. */
static void only_what_was_retired_is_deleted(void **state)
{
	struct fixture *f = *state;

	saved(f, "a", LARGE);
	saved(f, "b", LARGE);
	saved(f, "c", LARGE);
	f->now += QUIET;
	run_all(f);
	f->plan.may_retire = true;
	at(f, "a")->flags |= ENTRY_RETIRED;
	at(f, "c")->flags |= ENTRY_RETIRED;
	saved(f, "c", LARGE);
	f->now += QUIET;
	run_all(f);
	plan_gone(&f->plan, at(f, "a"), f->now);
	plan_gone(&f->plan, at(f, "b"), f->now);
	plan_gone(&f->plan, at(f, "c"), f->now);
	f->now += PLAN_DELETE_MS;

	assert_string_equal(run_all(f), "delete a;");
}

/* The file system gives the inode of a removed file to the next file. That file is not a renamed
 * one, and its upload may take long. */
static void a_retired_object_does_not_wait_for_a_file_that_has_its_inode(void **state)
{
	struct fixture *f = *state;
	struct ident again;
	struct job job, deletion;

	saved(f, "a", LARGE);
	f->now += QUIET;
	run_all(f);
	f->plan.may_retire = true;
	again = ident_of(f, LARGE);
	again.ino = at(f, "a")->seen.ino;
	at(f, "a")->flags |= ENTRY_RETIRED;
	plan_gone(&f->plan, at(f, "a"), f->now);
	changed(f, "d/b");
	assert_int_equal(
		plan_closed(&f->plan, at(f, "d/b"), &again, 0100644, CLOSE_TRUE, f->now), 0);
	f->now += QUIET;

	assert_string_equal(next(f, &job), "whole d/b");
	f->now += PLAN_DELETE_MS;
	assert_string_equal(next(f, &deletion), "delete a");
	done_as(f, &deletion, JOB_DONE);
	done_as(f, &job, JOB_DONE);
}

/* Without a verified restore, no object is deleted. */
static void nothing_is_retired_before_a_restore_was_verified(void **state)
{
	struct fixture *f = *state;

	saved(f, "a", LARGE);
	f->now += QUIET;
	run_all(f);
	at(f, "a")->flags |= ENTRY_RETIRED;
	plan_gone(&f->plan, at(f, "a"), f->now);
	f->now += PLAN_DELETE_MS;

	assert_string_equal(run_all(f), "");
}

int main(void)
{
#define RULE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		RULE(a_commit_goes_after_all_that_lies_below_it),
		RULE(the_commit_of_a_file_goes_after_it),
		RULE(a_flush_begins_with_the_newest_checkpoint),
		RULE(a_commit_without_its_data_waits_and_holds_up_nobody),
		RULE(what_would_not_be_through_in_time_is_not_begun_over_a_good_object),
		RULE(only_what_was_retired_is_deleted),
		RULE(a_retired_object_does_not_wait_for_a_file_that_has_its_inode),
		RULE(nothing_is_retired_before_a_restore_was_verified),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
