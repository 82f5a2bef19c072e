#include "plan_fixture.h"

/* No file is sent while it is open, or directly after a change. */
static void a_file_is_published_when_it_was_closed_and_is_quiet(void **state)
{
	struct fixture *f = *state;
	struct job job;

	changed(f, "ckpt");
	f->now += 100;
	assert_string_equal(next(f, &job), "");
	closed_as(f, "ckpt", 10, CLOSE_TRUE);
	f->now += QUIET - 1;
	assert_string_equal(next(f, &job), "");
	f->now += 1;

	assert_string_equal(run_all(f), "whole ckpt;");
	assert_int_equal(at(f, "ckpt")->state, ENTRY_CLEAN);
	assert_null(at(f, "ckpt")->work);
	assert_string_equal(f->notes, "CP");
}

/* The first version never appeared, so the second one is sent from a snapshot directly after its
 * close. */
static void a_file_that_changes_under_its_upload_is_taken_from_a_snapshot(void **state)
{
	struct fixture *f = *state;
	struct job job;

	saved(f, "ckpt", LARGE);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole ckpt");
	assert_false(job.snapshot);
	assert_true(plan_still_valid(&f->plan, &job));
	changed(f, "ckpt");
	assert_false(plan_still_valid(&f->plan, &job));
	closed_as(f, "ckpt", LARGE, CLOSE_TRUE);
	done_as(f, &job, JOB_CHANGED);

	assert_string_equal(next(f, &job), "whole ckpt");
	assert_true(job.snapshot);
	changed(f, "ckpt");
	assert_true(plan_still_valid(&f->plan, &job));
	done_as(f, &job, JOB_DONE);
	assert_int_equal(at(f, "ckpt")->state, ENTRY_OPEN);
	closed_as(f, "ckpt", LARGE, CLOSE_TRUE);
	assert_string_equal(run_all(f), "whole ckpt;");
	assert_null(at(f, "ckpt")->work);
}

/* A file that a kill closed is sent once to partial/, and under its name only after a regular
 * close. */
static void a_suspect_goes_to_partial_only(void **state)
{
	struct fixture *f = *state;

	changed(f, "ckpt");
	closed_as(f, "ckpt", 5, CLOSE_KILLED);
	f->now += 10000;
	assert_string_equal(run_all(f), "partial ckpt;");
	f->now += 10000;
	assert_string_equal(run_all(f), "");
	assert_string_equal(f->notes, "S");

	saved(f, "ckpt", 10);
	f->now += QUIET;
	assert_string_equal(run_all(f), "whole ckpt;");
	assert_int_equal(at(f, "ckpt")->state, ENTRY_CLEAN);
}

/* If it is unknown how the writer ended, the next report of a task's end decides if the close
 * counts or is suspect. Without a report, the close counts after a second. */
static void a_close_by_an_exit_waits_for_news(void **state)
{
	struct fixture *f = *state;
	struct job job;

	changed(f, "killed");
	closed_as(f, "killed", 5, CLOSE_EXIT);
	f->now += 500;
	assert_string_equal(next(f, &job), "");
	plan_task_ended(&f->plan, true, f->now);
	assert_string_equal(run_all(f), "partial killed;");

	changed(f, "ended");
	closed_as(f, "ended", 5, CLOSE_EXIT);
	plan_task_ended(&f->plan, false, f->now);
	assert_string_equal(run_all(f), "whole ended;");

	changed(f, "unknown");
	closed_as(f, "unknown", 5, CLOSE_EXIT);
	f->now += PLAN_HOLD_MS;
	assert_string_equal(run_all(f), "whole unknown;");
	assert_string_equal(f->notes, "SCPCP");
}

/* A close by a writer that was not found counts, unless a kill is detected directly after it. */
static void an_unseen_close_just_before_a_death_is_suspect(void **state)
{
	struct fixture *f = *state;

	closed_as(f, "early", 5, CLOSE_UNSEEN);
	f->now += PLAN_DYING_MS + 1;
	closed_as(f, "late", 5, CLOSE_UNSEEN);
	plan_task_ended(&f->plan, true, f->now);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole early;partial late;");
}

/* If the next task is killed at once, the closes of a task that ended normally still count. */
static void an_unseen_close_of_a_task_that_ended_well_counts(void **state)
{
	struct fixture *f = *state;

	closed_as(f, "ckpt", 5, CLOSE_UNSEEN);
	plan_task_ended(&f->plan, false, f->now);
	plan_task_ended(&f->plan, true, f->now);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole ckpt;");
}

/* If the writer turns out to have been killed, its upload in flight is abandoned. */
static void the_upload_of_a_file_that_becomes_suspect_is_abandoned(void **state)
{
	struct fixture *f = *state;
	struct job job;

	closed_as(f, "ckpt", 5, CLOSE_UNSEEN);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole ckpt");
	plan_task_ended(&f->plan, true, f->now);

	assert_false(plan_still_valid(&f->plan, &job));
	done_as(f, &job, JOB_CHANGED);
	assert_string_equal(run_all(f), "partial ckpt;");
}

/* A file that was open at a kill and has no living writer is suspect, even before its close was
 * reported. */
static void an_open_file_without_a_living_writer_is_suspect_at_a_death(void **state)
{
	struct fixture *f = *state;

	changed(f, "ckpt");
	plan_task_ended(&f->plan, true, f->now);
	closed_as(f, "ckpt", 5, CLOSE_UNSEEN);
	closed_as(f, "other", 5, CLOSE_TRUE);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole other;partial ckpt;");
}

/* The sync can distinguish writers that are alive, that ended by themselves, and that were killed,
 * before and after their parent reaped them. */
static void the_fate_of_a_writer_is_known(void **state)
{
	struct fixture *f = *state;
	static const struct {
		int signal;
		enum close_kind kind;
	} cases[] = {{0, CLOSE_TRUE}, {SIGKILL, CLOSE_KILLED}, {SIGTERM, CLOSE_KILLED}};

	for (size_t i = 0; i < 3; i++) {
		char path[] = "/tmp/plan-XXXXXX";
		int fd = mkstemp(path), pipes[2];
		struct pid_list pids = {0};
		struct wanted wanted = {0};
		struct stat st;
		pid_t pid;

		assert_int_equal(pipe(pipes), 0);
		pid = fork();
		if (pid == 0) {
			char c;

			close(pipes[1]);
			if (read(pipes[0], &c, 1) == 0 && cases[i].signal)
				raise(cases[i].signal);
			_exit(3);
		}
		close(pipes[0]);
		changed(f, path + 1);
		fstat(fd, &st);
		wanted = (struct wanted){
			.dev = st.st_dev, .ino = st.st_ino, .tag = at(f, path + 1)->work};
		pid_list_add_descendants(&pids, getpid());
		writers_find(&f->procs, &pids, &wanted, 1, on_found_writer, f);
		assert_non_null(at(f, path + 1)->work->opening->writers[0]);
		assert_int_equal(plan_judge(at(f, path + 1)->work), CLOSE_TRUE);

		close(pipes[1]);
		waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
		assert_int_equal(plan_judge(at(f, path + 1)->work), cases[i].kind);
		waitpid(pid, NULL, 0);
		proc_forget_pidfd_info(true);
		assert_int_equal(plan_judge(at(f, path + 1)->work), CLOSE_EXIT);
		proc_forget_pidfd_info(false);
		pid_list_release(&pids);
		close(fd);
		unlink(path);
	}
}

/* Open files are checked every few seconds, or less often if sending them takes long. */
static void an_open_file_is_published_as_it_grows(void **state)
{
	struct fixture *f = *state;
	struct job job;

	changed(f, "log");
	f->now += APPEND - 1;
	assert_string_equal(next(f, &job), "");
	f->now += PLAN_SWEEP_MS;
	assert_string_equal(next(f, &job), "grown log");
	assert_false(job.grown_known);
	at(f, "log")->seen = ident_of(f, 7);
	f->now += 500;
	done_as(f, &job, JOB_DONE);
	assert_string_equal(f->notes, "A");

	f->now += 4999;
	assert_string_equal(next(f, &job), "");
	f->now += PLAN_SWEEP_MS;
	assert_string_equal(next(f, &job), "grown log");
	assert_int_equal(job.grown.size, 7);
	done_as(f, &job, JOB_NOTHING);
	closed_as(f, "log", 9, CLOSE_TRUE);
	f->now += QUIET;
	assert_string_equal(run_all(f), "whole log;");
}

/* If a log only grew, its rest is sent even if its writer was killed. */
static void a_log_of_a_killed_writer_is_sent_to_its_end(void **state)
{
	struct fixture *f = *state;
	struct job job;

	changed(f, "log");
	f->now += APPEND;
	assert_string_equal(next(f, &job), "grown log");
	at(f, "log")->seen = ident_of(f, 7);
	done_as(f, &job, JOB_DONE);
	changed(f, "log");
	closed_as(f, "log", 9, CLOSE_KILLED);

	assert_string_equal(next(f, &job), "grown log");
	assert_true(job.closed);
	done_as(f, &job, JOB_DONE);
	assert_int_equal(at(f, "log")->state, ENTRY_CLEAN);
}

/* A kill during the upload of an earlier version may have shortened the file, which is then no
 * continuation of the log. */
static void a_log_of_a_killed_writer_stays_a_log_under_its_upload(void **state)
{
	struct fixture *f = *state;
	const enum job_outcome outcomes[] = {JOB_CHANGED, JOB_FAILED, JOB_DONE};
	struct job job;

	for (size_t i = 0; i < 3; i++) {
		changed(f, "log");
		f->now += APPEND;
		assert_string_equal(next(f, &job), "grown log");
		done_as(f, &job, JOB_DONE);
		saved(f, "log", 9);
		f->now += QUIET;
		assert_string_equal(next(f, &job), "whole log");
		changed(f, "log");
		closed_as(f, "log", 3, CLOSE_KILLED);
		done_as(f, &job, outcomes[i]);
		f->now += 10000;

		assert_string_equal(run_all(f), "grown log;");
	}
}

/* If the store does not reply, the pauses between attempts grow, and only one file is tried at a
 * time. */
static void failures_are_retried_with_growing_pauses(void **state)
{
	struct fixture *f = *state;
	int64_t pause = 0;
	struct job job;

	saved(f, "a/1", 1);
	saved(f, "b/2", 1);
	f->now += QUIET;
	for (int i = 0; i < 12; i++) {
		int64_t begun = f->now;

		while (!*next(f, &job))
			f->now += 50;
		assert_true(f->now - begun >= pause);
		pause = f->now - begun;
		done_as(f, &job, JOB_FAILED);
	}
	assert_true(pause <= 31000);
	f->now += 31000;
	assert_string_equal(run_all(f), "whole a/1;whole b/2;");
}

/* A file that can never be sent does not delay other files, and is tried again later. */
static void a_hopeless_file_holds_up_nobody(void **state)
{
	struct fixture *f = *state;
	struct job_result hopeless = {.outcome = JOB_FAILED, .error = PENSTOCK_E_PERMISSION};
	struct job job;

	saved(f, "secret", 1);
	saved(f, "ckpt", 1);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole secret");
	plan_done(&f->plan, &job, &hopeless, f->now);

	assert_string_equal(run_all(f), "whole ckpt;");
	f->now += PLAN_RETRY_MS + PLAN_SWEEP_MS;
	assert_string_equal(run_all(f), "whole secret;");
}

/* Two workers are reserved for small files. */
static void small_files_do_not_starve_behind_large_ones(void **state)
{
	struct fixture *f = *state;
	char path[16];
	struct job job;

	for (int i = 0; i < 6; i++) {
		snprintf(path, sizeof(path), "d%d/large", i);
		saved(f, path, PLAN_LARGE);
	}
	saved(f, "s/small", 1);
	f->now += QUIET;
	for (int i = 0; i < 4; i++)
		assert_non_null(strstr(next(f, &job), "large"));

	assert_string_equal(next(f, &job), "whole s/small");
	done_as(f, &job, JOB_DONE);
	assert_string_equal(next(f, &job), "");
}

/* deleteSync deletes the object of a removed file after a short delay, in which the file may
 * return. */
static void a_deleted_file_is_deleted_in_the_bucket_if_it_may_be(void **state)
{
	struct fixture *f = *state;
	struct job job;

	f->plan.may_delete = true;
	saved(f, "gone", 1);
	saved(f, "back", 1);
	f->now += QUIET;
	run_all(f);
	plan_gone(&f->plan, at(f, "gone"), f->now);
	plan_gone(&f->plan, at(f, "back"), f->now);
	assert_string_equal(next(f, &job), "");
	saved(f, "back", 1);
	f->now += PLAN_DELETE_MS;

	assert_string_equal(run_all(f), "delete gone;whole back;");
	assert_null(table_find_path(&f->table, "gone"));
}

/* Without permission, the object stays, and the entry remembers the object. */
static void without_permission_nothing_is_deleted(void **state)
{
	struct fixture *f = *state;

	saved(f, "gone", 1);
	f->now += QUIET;
	run_all(f);
	plan_gone(&f->plan, at(f, "gone"), f->now);
	f->now += 100000;

	assert_string_equal(run_all(f), "");
	assert_int_equal(at(f, "gone")->state, ENTRY_GONE);
	assert_true(at(f, "gone")->flags & ENTRY_PUBLISHED);
}

/* If the file is removed during its upload, the new object may only be deleted with permission. */
static void what_goes_away_under_its_upload_is_deleted_only_with_leave(void **state)
{
	struct fixture *f = *state;
	struct job job;

	for (int may_delete = 0; may_delete < 2; may_delete++) {
		f->plan.may_delete = may_delete;
		saved(f, "x", 1);
		f->now += QUIET;
		assert_string_equal(next(f, &job), "whole x");
		plan_gone(&f->plan, at(f, "x"), f->now);
		done_as(f, &job, JOB_DONE);
		f->now += PLAN_DELETE_MS;

		assert_string_equal(run_all(f), may_delete ? "delete x;" : "");
		assert_int_equal(plan_flush_pending(&f->plan), 0);
	}
}

/* No version of the file was published, so an object under its name belongs to another program. */
static void what_was_never_published_is_not_deleted(void **state)
{
	struct fixture *f = *state;
	struct job job;

	f->plan.may_delete = true;
	saved(f, "x", 1);
	f->now += QUIET;
	assert_string_equal(next(f, &job), "whole x");
	plan_gone(&f->plan, at(f, "x"), f->now);
	done_as(f, &job, JOB_CHANGED);
	f->now += PLAN_DELETE_MS;

	assert_string_equal(run_all(f), "");
	assert_null(table_find_path(&f->table, "x"));
}

/* Reports that the upload failed, and that the store may have the object. */
static void done_without_reply(struct fixture *f, const struct job *job)
{
	plan_done(&f->plan, job,
		&(struct job_result){.outcome = JOB_CHANGED,
			.kind = job->kind,
			.ident = job->entry->seen,
			.unsure = true},
		f->now);
}

/* Two files had the name "x" and were renamed. Neither upload got a reply, so the object may have
 * the content of either file. */
static void an_object_without_a_reply_stays_until_the_new_names_have_one(void **state)
{
	const char *const names[] = {"d/new", "e/new"};
	struct fixture *f = *state;
	struct ident ident[2];
	struct job job;

	f->plan.may_delete = true;
	for (size_t i = 0; i < 2; i++) {
		ident[i] = ident_of(f, LARGE);
		plan_closed(&f->plan, at(f, "x"), &ident[i], 0100644, CLOSE_TRUE, f->now);
		f->now += QUIET;
		assert_string_equal(next(f, &job), "whole x");
		done_without_reply(f, &job);
		plan_gone(&f->plan, at(f, "x"), f->now);
		plan_closed(&f->plan, at(f, names[i]), &ident[i], 0100644, CLOSE_TRUE, f->now);
		changed(f, names[i]);
	}
	f->now += PLAN_DELETE_MS;
	assert_string_equal(run_all(f), "");
	plan_closed(&f->plan, at(f, "e/new"), &ident[1], 0100644, CLOSE_TRUE, f->now);
	f->now += QUIET;
	assert_string_equal(run_all(f), "whole e/new;");
	plan_closed(&f->plan, at(f, "d/new"), &ident[0], 0100644, CLOSE_TRUE, f->now);
	f->now += QUIET;
	assert_string_equal(run_all(f), "whole d/new;delete x;");
}

/* The file gets its old name back after the deletion of the old object was requested. The object of
 * the other name may then be the only one, even if the deletion seems to have failed. */
static void an_object_stays_while_that_of_the_new_name_may_be_deleted(void **state)
{
	const enum job_outcome outcomes[] = {JOB_FAILED, JOB_DONE};
	struct fixture *f = *state;
	struct job job, none;

	f->plan.may_delete = true;
	for (size_t i = 0; i < 2; i++) {
		struct ident ident = ident_of(f, LARGE);

		plan_closed(&f->plan, at(f, "x"), &ident, 0100644, CLOSE_TRUE, f->now);
		f->now += QUIET;
		assert_string_equal(run_all(f), "whole x;");
		plan_gone(&f->plan, at(f, "x"), f->now);
		ident.ctime_ns = (int64_t)++f->version;
		plan_closed(&f->plan, at(f, "d/y"), &ident, 0100644, CLOSE_TRUE, f->now);
		f->now += PLAN_DELETE_MS;
		assert_string_equal(next(f, &job), "whole d/y");
		done_as(f, &job, JOB_DONE);
		assert_string_equal(next(f, &job), "delete x");
		if (outcomes[i] == JOB_FAILED) {
			done_as(f, &job, JOB_FAILED);
			plan_returned(&f->plan, at(f, "x"));
		}
		ident.ctime_ns = (int64_t)++f->version;
		plan_closed(&f->plan, at(f, "x"), &ident, 0100644, CLOSE_TRUE, f->now);
		changed(f, "x");
		plan_gone(&f->plan, at(f, "d/y"), f->now);
		f->now += PLAN_DELETE_MS;
		assert_string_equal(next(f, &none), "");
		if (outcomes[i] == JOB_DONE)
			done_as(f, &job, JOB_DONE);
		plan_closed(&f->plan, at(f, "x"), &ident, 0100644, CLOSE_TRUE, f->now);
		f->now += QUIET;
		assert_string_equal(run_all(f), "whole x;delete d/y;");
		plan_gone(&f->plan, at(f, "x"), f->now);
		f->now += PLAN_DELETE_MS;
		assert_string_equal(run_all(f), "delete x;");
	}
}

/* The file is renamed again, and a worker does not find it before the event is read. Until then, no
 * name of the file is known. */
static void an_object_stays_if_its_file_is_found_after_the_deletion_was_handed_out(void **state)
{
	struct fixture *f = *state;
	struct ident ident = ident_of(f, LARGE);
	struct job job;

	f->plan.may_delete = true;
	plan_closed(&f->plan, at(f, "x"), &ident, 0100644, CLOSE_TRUE, f->now);
	f->now += QUIET;
	assert_string_equal(run_all(f), "whole x;");
	plan_gone(&f->plan, at(f, "x"), f->now);
	plan_closed(&f->plan, at(f, "d/y"), &ident, 0100644, CLOSE_TRUE, f->now);
	f->now += PLAN_DELETE_MS;
	assert_string_equal(next(f, &job), "whole d/y");
	done_as(f, &job, JOB_MISSING);
	assert_string_equal(next(f, &job), "delete x");
	assert_true(plan_still_valid(&f->plan, &job));
	plan_closed(&f->plan, at(f, "d/z"), &ident, 0100644, CLOSE_TRUE, f->now);
	assert_false(plan_still_valid(&f->plan, &job));
	done_as(f, &job, JOB_CHANGED);
	f->now += PLAN_SWEEP_MS;

	assert_string_equal(run_all(f), "whole d/z;delete x;");
}

/* A directory took the name of a published file. The object is deleted, and the directory stays. */
static void the_object_of_a_file_that_became_a_directory_is_deleted(void **state)
{
	struct fixture *f = *state;

	f->plan.may_delete = true;
	saved(f, "x", 1);
	f->now += QUIET;
	run_all(f);
	plan_gone(&f->plan, at(f, "x"), f->now);
	assert_non_null(table_make_dir(&f->table, at(f, "x")));
	plan_returned(&f->plan, at(f, "x"));
	saved(f, "x/below", 1);
	assert_int_equal(plan_flush_pending(&f->plan), 2);
	f->now += PLAN_DELETE_MS;

	assert_string_equal(run_all(f), "delete x;whole x/below;");
	assert_non_null(table_find_path(&f->table, "x/below"));
	assert_int_equal(plan_flush_pending(&f->plan), 0);
}

/* A close without a change is ignored, except if the file may have been written through mapped
 * memory, which may leave no trace. */
static void an_unchanged_file_is_not_sent_again(void **state)
{
	struct fixture *f = *state;
	struct ident ident = ident_of(f, 5);

	plan_closed(&f->plan, at(f, "x"), &ident, 0100644, CLOSE_TRUE, f->now);
	f->now += QUIET;
	run_all(f);
	plan_closed(&f->plan, at(f, "x"), &ident, 0100644, CLOSE_TRUE, f->now);
	f->now += QUIET;
	assert_string_equal(run_all(f), "");

	f->plan.always_dirty = true;
	plan_closed(&f->plan, at(f, "x"), &ident, 0100644, CLOSE_TRUE, f->now);
	f->now += QUIET;
	assert_string_equal(run_all(f), "whole x;");
}

/* A flush does not wait for files to be quiet or for pauses to end, and reports its completion. */
static void a_flush_sends_everything_at_once(void **state)
{
	struct fixture *f = *state;

	f->plan.continuous = false;
	saved(f, "a", 1);
	changed(f, "b");
	closed_as(f, "b", 1, CLOSE_EXIT);
	changed(f, "open");
	f->now += 100000;
	assert_string_equal(run_all(f), "");

	plan_flush_begin(&f->plan);
	assert_int_equal(plan_flush_pending(&f->plan), 3);
	assert_string_equal(run_all(f), "whole a;whole b;grown open;");
	assert_int_equal(plan_flush_pending(&f->plan), 0);
	plan_flush_end(&f->plan);
}

/* If the file is closed while it is being sent to partial/, the flush must still send it under its
 * name. */
static void a_flush_sends_what_is_closed_under_its_partial_upload(void **state)
{
	struct fixture *f = *state;
	char etag[] = ETAG;
	struct job job;

	f->plan.continuous = false;
	changed(f, "ckpt");
	f->now += 100000;
	plan_flush_begin(&f->plan);
	assert_string_equal(next(f, &job), "grown ckpt");
	closed_as(f, "ckpt", 10, CLOSE_TRUE);
	plan_done(&f->plan, &job,
		&(struct job_result){.outcome = JOB_DONE,
			.kind = JOB_PARTIAL,
			.ident = ident_of(f, 4),
			.etag = etag},
		f->now);

	assert_int_equal(plan_flush_pending(&f->plan), 1);
	assert_string_equal(run_all(f), "whole ckpt;");
	assert_int_equal(plan_flush_pending(&f->plan), 0);
	plan_flush_end(&f->plan);
}

int main(void)
{
#define RULE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		RULE(a_file_is_published_when_it_was_closed_and_is_quiet),
		RULE(a_file_that_changes_under_its_upload_is_taken_from_a_snapshot),
		RULE(a_suspect_goes_to_partial_only),
		RULE(a_close_by_an_exit_waits_for_news),
		RULE(an_unseen_close_just_before_a_death_is_suspect),
		RULE(an_unseen_close_of_a_task_that_ended_well_counts),
		RULE(the_upload_of_a_file_that_becomes_suspect_is_abandoned),
		RULE(an_open_file_without_a_living_writer_is_suspect_at_a_death),
		RULE(the_fate_of_a_writer_is_known),
		RULE(an_open_file_is_published_as_it_grows),
		RULE(a_log_of_a_killed_writer_is_sent_to_its_end),
		RULE(a_log_of_a_killed_writer_stays_a_log_under_its_upload),
		RULE(failures_are_retried_with_growing_pauses),
		RULE(a_hopeless_file_holds_up_nobody),
		RULE(small_files_do_not_starve_behind_large_ones),
		RULE(a_deleted_file_is_deleted_in_the_bucket_if_it_may_be),
		RULE(without_permission_nothing_is_deleted),
		RULE(what_goes_away_under_its_upload_is_deleted_only_with_leave),
		RULE(what_was_never_published_is_not_deleted),
		RULE(an_object_without_a_reply_stays_until_the_new_names_have_one),
		RULE(an_object_stays_while_that_of_the_new_name_may_be_deleted),
		RULE(an_object_stays_if_its_file_is_found_after_the_deletion_was_handed_out),
		RULE(the_object_of_a_file_that_became_a_directory_is_deleted),
		RULE(an_unchanged_file_is_not_sent_again),
		RULE(a_flush_sends_everything_at_once),
		RULE(a_flush_sends_what_is_closed_under_its_partial_upload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
