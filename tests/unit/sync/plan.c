#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/str.h"
#include "sync/plan.h"

#define QUIET  30
#define APPEND 2000
#define LARGE  (PLAN_MARKER + 1) /* bytes: it points to nothing */
#define ETAG   "\"0123456789abcdef0123456789abcdef\""

/* A plan with a clock that the test moves and a store that takes everything. */
struct fixture {
	struct table table;
	struct procs procs;
	struct plan plan;
	int64_t now;
	uint64_t version; /* makes every content another */
	char notes[256];  /* letters of the journal */
};

static void on_note(
	void *cookie, enum journal_type type, struct entry *e, const struct ident *ident)
{
	struct fixture *f = cookie;
	size_t len = strlen(f->notes);

	(void)e;
	(void)ident;
	if (len + 1 < sizeof(f->notes))
		f->notes[len] = (char)type;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_int_equal(table_init(&f->table), 0);
	f->plan = (struct plan){.table = &f->table,
		.procs = &f->procs,
		.note = on_note,
		.cookie = f,
		.quiet_ms = QUIET,
		.append_ms = APPEND,
		.workers = 6,
		.continuous = true};
	f->now = 1000;
	*state = f;
	return 0;
}

static void on_found_writer(void *cookie, void *tag, struct proc *p, bool append)
{
	struct fixture *f = cookie;

	plan_add_writer(&f->plan, tag, p, append);
}

static void forget_writers(struct fixture *f)
{
	for (struct work *w = f->table.works; w; w = w->all_next)
		if (w->opening)
			memset(w->opening->writers, 0, sizeof(w->opening->writers));
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	forget_writers(f);
	table_release(&f->table);
	procs_release(&f->procs);
	free(f);
	return 0;
}

static struct entry *at(struct fixture *f, const char *path)
{
	return table_get_path(&f->table, path);
}

static struct ident ident_of(struct fixture *f, uint64_t size)
{
	f->version++;
	return (struct ident){size, (int64_t)f->version, (int64_t)f->version, 1};
}

static void changed(struct fixture *f, const char *path)
{
	assert_int_equal(plan_changed(&f->plan, at(f, path), f->now), 0);
}

static void closed_as(struct fixture *f, const char *path, uint64_t size, enum close_kind kind)
{
	struct ident ident = ident_of(f, size);

	assert_int_equal(plan_closed(&f->plan, at(f, path), &ident, 0100644, kind, f->now), 0);
}

/* The usual save: opened, written, closed. */
static void saved(struct fixture *f, const char *path, uint64_t size)
{
	changed(f, path);
	closed_as(f, path, size, CLOSE_TRUE);
}

/* A copy of each small file that is closed, as freeze_dir() makes it. */
static void freeze(struct fixture *f, struct dir *d)
{
	for (struct work *w = d->head; w; w = w->next) {
		struct frozen *copy;

		if (w->entry->state != ENTRY_CLOSED || w->entry->seen.size > PLAN_MARKER)
			continue;
		copy = calloc(1, sizeof(*copy));
		copy->ident = w->entry->seen;
		copy->close = w->close;
		plan_freeze(&f->plan, w, copy);
	}
	plan_queue_frozen(&f->plan, d);
}

/* The next job, as "kind path", "frozen path" for what is sent from a copy; "" where there is none now. */
static const char *next(struct fixture *f, struct job *job)
{
	static const char *const kinds[] = {"whole", "grown", "partial", "delete"};
	static char text[300];
	struct buf path = BUF_INIT(256);
	int64_t wake = INT64_MAX;
	bool any;

	text[0] = '\0';
	while ((any = plan_next(&f->plan, f->now, job, &wake)) && job->kind == JOB_FREEZE)
		freeze(f, job->dir);
	if (any) {
		entry_path(job->entry, &path);
		snprintf(text, sizeof(text), "%s %s", job->frozen ? "frozen" : kinds[job->kind],
			buf_str(&path));
		buf_release(&path);
	}
	return text;
}

static void done_as(struct fixture *f, const struct job *job, enum job_outcome outcome)
{
	char etag[] = ETAG;
	struct job_result r = {.outcome = outcome,
		.kind = job->kind,
		.ident = job->frozen ? job->frozen->ident : job->entry->seen,
		.etag = etag,
		.error = PENSTOCK_E_UNAVAILABLE,
		.retryable = true};

	plan_done(&f->plan, job, &r, f->now);
}

/* Runs jobs until there is none for now; their names, each followed by ";". */
static const char *run_all(struct fixture *f)
{
	static char all[2000];
	struct job job;

	all[0] = '\0';
	for (const char *text = next(f, &job); *text; text = next(f, &job)) {
		size_t len = strlen(all);

		snprintf(all + len, sizeof(all) - len, "%s;", text);
		done_as(f, &job, JOB_DONE);
	}
	return all;
}

/* Nothing is sent before the file was quiet for a moment, nor while it is open. */
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

/* The second version comes from a snapshot, at once after its close; the first never appeared. */
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

/* One directory is one queue; another directory does not wait for it. */
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

/* The marker of a version that never appeared waits for the version after it. */
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

/* The same while it is being written for the third time. */
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

/* The same where both are small: the larger one is the data. */
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

/* A version closed while the one before was being sent goes behind what was closed since. */
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

/* A pointer that is rewritten before it was ever sent never points to what is not there yet. */
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

/* Its data may be smaller than other data. */
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

/* What was copied appears, in its turn, whatever is written meanwhile; the next copy is not made before. */
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

/* What points to a small file that points to data: all as they were at one moment, in the order of their closes. */
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

/* The journal says last what was closed last, or after a kill the file would look broken. */
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

/* A copy of what is gone, or suspect by now, is forgotten. */
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

/* So many that they would take too much memory wait in the line, which is as good a place as the queue. */
static void save_many(struct fixture *f, const char *dir, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/f%u", dir, i);
		saved(f, path, 10);
	}
}

/* The names of all that is published, in order, each by itself. */
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

/* A marker that has an object already waits for the line, too; and it is restless when it was rewritten. */
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

/* Whatever becomes of a file in the line is dealt with when its turn comes, and it is counted once. */
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

	f->plan.n_parked--; /* the one that was removed without being told to the plan */
	f->plan.parked_bytes -= 10;
	publish_all(f, &order);
	assert_in_range(
		order.n, 5990, 6004); /* those before the one that is open, and the suspect */
	closed_as(f, "a/f6003", 10, CLOSE_TRUE);
	publish_all(f, &order);
	assert_int_equal(order.n, 3 * PLAN_QUEUED - 2); /* one to partial/ */
	place(&order, "a/f6000");
	place(&order, "a/f6002");
	assert_int_equal(f->plan.n_parked + f->plan.parked_bytes + f->plan.n_queued, 0);
	assert_null(table_find_path(&f->table, "a/f6001"));
	assert_string_equal(next(f, &job), "");
	strlist_release(&order);
}

/* A head that stays open holds the others up for a while, not for ever. */
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

/* Closed by a death: never under its name, once to partial/, until a true close. */
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

/* Nobody knows how the writer ended: news decides, and without news a second. */
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

/* A close that nobody saw the writer of counts, unless the death follows at once. */
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

/* The next task may be killed at once: what a task closed that ended well is none of that one's. */
static void an_unseen_close_of_a_task_that_ended_well_counts(void **state)
{
	struct fixture *f = *state;

	closed_as(f, "ckpt", 5, CLOSE_UNSEEN);
	plan_task_ended(&f->plan, false, f->now);
	plan_task_ended(&f->plan, true, f->now);
	f->now += QUIET;

	assert_string_equal(run_all(f), "whole ckpt;");
}

/* An upload that is under way when its writer turns out to be dead is abandoned, snapshot or not. */
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

/* What was open at a death and has no living writer is suspect, also before its close was seen. */
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

/* A process that is alive, ended by itself, or was killed is told apart, before and after its parent reaped it. */
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

/* Open files are looked at every few seconds, and no more often than they are worth. */
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

/* The rest of a log is worth sending also when its writer was killed, if it only grew. */
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

/* A store that does not answer is asked less and less often, by one file at a time, and then again. */
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

/* A file that can never be sent as it is holds up nobody, and is not forgotten. */
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

/* Two workers are left for small files, however many large ones wait. */
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

/* deleteSync deletes what this run published, after a moment in which it may come back. */
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

/* Where it may not, the object stays and the entry remembers it. */
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

/* The file goes away while a worker sends it: that is no leave to delete what arrives. */
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

/* Nothing of it was published: what stands under its name is somebody else's. */
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

/* A directory took the name of a published file: the object goes, the directory stays. */
static void the_object_of_a_file_that_became_a_directory_is_deleted(void **state)
{
	struct fixture *f = *state;

	f->plan.may_delete = true;
	saved(f, "x", 1);
	f->now += QUIET;
	run_all(f);
	plan_gone(&f->plan, at(f, "x"), f->now);
	assert_non_null(table_make_dir(&f->table, at(f, "x")));
	at(f, "x")->state = ENTRY_CLEAN;
	saved(f, "x/below", 1);
	assert_int_equal(plan_flush_pending(&f->plan), 2);
	f->now += PLAN_DELETE_MS;

	assert_string_equal(run_all(f), "delete x;whole x/below;");
	assert_non_null(table_find_path(&f->table, "x/below"));
	assert_int_equal(plan_flush_pending(&f->plan), 0);
}

/* A close without a change is nothing, except where stores leave no trace. */
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

/* A flush waits for no quiet and no pause, and knows when it is done. */
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

/* The close comes while the open file is on its way to partial/: the flush is not through with it. */
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
		RULE(a_directory_is_published_in_the_order_of_closes),
		RULE(a_marker_waits_while_its_data_is_written_again),
		RULE(a_marker_waits_while_its_data_is_written_again_and_again),
		RULE(a_marker_waits_while_its_small_data_is_written_again),
		RULE(a_newer_version_goes_behind_what_was_closed_before_it),
		RULE(a_small_file_rewritten_in_the_queue_follows_what_it_may_need),
		RULE(data_rewritten_in_the_queue_keeps_its_place),
		RULE(a_marker_that_never_rests_is_published_all_the_same),
		RULE(small_files_of_a_directory_are_copied_together),
		RULE(a_copy_that_is_published_leaves_the_later_close_on_record),
		RULE(a_copy_goes_with_its_file),
		RULE(many_files_wait_in_a_line),
		RULE(a_marker_waits_for_the_line),
		RULE(files_in_the_line_change_and_go),
		RULE(a_file_opened_again_lets_the_others_pass_in_the_end),
		RULE(a_suspect_goes_to_partial_only),
		RULE(a_close_by_an_exit_waits_for_news),
		RULE(an_unseen_close_just_before_a_death_is_suspect),
		RULE(an_unseen_close_of_a_task_that_ended_well_counts),
		RULE(the_upload_of_a_file_that_becomes_suspect_is_abandoned),
		RULE(an_open_file_without_a_living_writer_is_suspect_at_a_death),
		RULE(the_fate_of_a_writer_is_known),
		RULE(an_open_file_is_published_as_it_grows),
		RULE(a_log_of_a_killed_writer_is_sent_to_its_end),
		RULE(failures_are_retried_with_growing_pauses),
		RULE(a_hopeless_file_holds_up_nobody),
		RULE(small_files_do_not_starve_behind_large_ones),
		RULE(a_deleted_file_is_deleted_in_the_bucket_if_it_may_be),
		RULE(without_permission_nothing_is_deleted),
		RULE(what_goes_away_under_its_upload_is_deleted_only_with_leave),
		RULE(what_was_never_published_is_not_deleted),
		RULE(the_object_of_a_file_that_became_a_directory_is_deleted),
		RULE(an_unchanged_file_is_not_sent_again),
		RULE(a_flush_sends_everything_at_once),
		RULE(a_flush_sends_what_is_closed_under_its_partial_upload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
