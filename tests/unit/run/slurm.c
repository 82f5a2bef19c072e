#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "run/cluster/remote.h"
#include "run/cluster/memory.h"
#include "run/cluster/slurm.h"

/* A line of squeue shows whether a job is running or waiting, and the reason for waiting. */
static void a_line_of_squeue_says_how_a_job_is(void **state)
{
	struct slurm_status s;

	(void)state;
	assert_true(slurm_status_parse(
		"RUNNING|None|n[1-2]|2026-11-21T22:10:05|/h/runs/a1/slurm.sh\n", "a1", &s));
	assert_true(s.known && s.lives && !s.pending && !s.held);
	assert_string_equal(s.nodes, "n[1-2]");
	assert_true(s.end_s > INT64_C(1700000000));
	assert_true(slurm_status_parse("PENDING|Resources||N/A|", "a1", &s));
	assert_true(s.lives && s.pending && !s.held && s.end_s == 0);
	assert_string_equal(s.reason, "Resources");
	assert_true(slurm_status_parse("PENDING|JobHeldUser||N/A|", "a1", &s));
	assert_true(s.held && !s.max_requeue);
	assert_true(slurm_status_parse("PENDING|job requeued in held state||N/A|", "a1", &s));
	assert_true(s.held && !s.max_requeue);
	assert_true(slurm_status_parse("PENDING|launch failed requeued held||N/A|", "a1", &s));
	assert_true(s.held && !s.max_requeue);
	assert_true(slurm_status_parse("PENDING|JobHoldMaxRequeue||N/A|", "a1", &s));
	assert_true(s.held && s.max_requeue);
	assert_true(slurm_status_parse("COMPLETED|None|n1|2026-11-21T22:10:05|(null)", "a1", &s));
	assert_true(s.known && !s.lives);
	assert_true(
		slurm_status_parse("NODE_FAIL|NonZeroExitCode|n1|x|/h/runs/a1/slurm.sh", "a1", &s));
	assert_true(!s.lives && s.end_s == 0);
}

/* Slurm reuses the number of a forgotten job, so the number may now belong to another user's
 * job. */
static void a_job_of_somebody_else_is_none(void **state)
{
	struct slurm_status s;

	(void)state;
	assert_true(slurm_status_parse("RUNNING|None|n1|x|/h/runs/b2/slurm.sh", "a1", &s));
	assert_false(s.known || s.lives || s.pending);
	assert_true(slurm_status_parse("RUNNING|None|n1|x|/home/me/train.sh\n", "a1", &s));
	assert_false(s.known || s.lives);
	assert_true(slurm_status_parse(
		"RUNNING|None|n1|x|/elsewhere/a|b/runs/a1/slurm.sh\n", "a1", &s));
	assert_true(s.known && s.lives);
}

/* Other lines are refused, and nothing is written beyond the fields. */
static void other_lines_are_refused(void **state)
{
	struct slurm_status s;
	char huge[4096];

	(void)state;
	assert_false(slurm_status_parse("", "a1", &s));
	assert_false(slurm_status_parse("RUNNING", "a1", &s));
	assert_false(slurm_status_parse("RUNNING|a|b", "a1", &s));
	assert_false(slurm_status_parse("|a|b|c", "a1", &s));
	assert_false(slurm_status_parse("slurm_load_jobs error", "a1", &s));
	assert_false(s.known || s.lives);
	memset(huge, 'x', sizeof(huge));
	huge[sizeof(huge) - 1] = '\0';
	huge[1000] = huge[2000] = huge[3000] = huge[4094] = '|';
	assert_true(slurm_status_parse(huge, "a1", &s));
	assert_int_equal(strlen(s.state), sizeof(s.state) - 1);
	assert_int_equal(strlen(s.nodes), sizeof(s.nodes) - 1);
}

/* The file of a task on another node is read back unchanged; an incomplete file is ignored. */
static void the_end_of_a_task_is_read_from_its_file(void **state)
{
	char dir[] = "/tmp/penstock-test-XXXXXX";
	_cleanup_free_ char *first = NULL, *second = NULL;
	struct task_end end;
	int64_t when;

	(void)state;
	assert_non_null(mkdtemp(dir));
	first = path_join(dir, "end.0");
	second = path_join(dir, "end.1");
	assert_int_equal(fs_write_atomic(first, "7 0 1 42\n", 9, 0600, NULL), 0);
	assert_int_equal(fs_write_atomic(second, "7 0", 3, 0600, NULL), 0);

	assert_true(remote_read_end(dir, 0, &end, &when));
	assert_true(end.code == 7 && end.signal == 0 && end.oom && end.rank == 0 && when == 42);
	assert_false(remote_read_end(dir, 1, &end, &when));
	assert_false(remote_read_end(dir, 2, &end, &when));

	assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

/* A run that was never submitted has no job to leave. */
static void an_attempt_here_leaves_the_job_until_the_next_submission(void **state)
{
	const struct slurm_job job = {.job = "12"};
	char home[] = "/tmp/penstock-test-XXXXXX";
	_cleanup_free_ char *dir = NULL;

	(void)state;
	assert_non_null(mkdtemp(home));
	dir = path_join(home, "runs/a1");
	assert_int_equal(fs_mkdirs(dir, 0700, NULL), 0);

	assert_int_equal(slurm_job_leave(home, "a1", true, NULL), 0);
	assert_false(slurm_job_is_left(home, "a1"));
	assert_int_equal(slurm_job_write(&job, home, "a1", NULL), 0);
	assert_int_equal(slurm_job_leave(home, "a1", true, NULL), 0);
	assert_true(slurm_job_is_left(home, "a1"));
	assert_int_equal(slurm_job_leave(home, "a1", false, NULL), 0);
	assert_false(slurm_job_is_left(home, "a1"));
	assert_int_equal(slurm_job_leave(home, "a1", false, NULL), 0);

	assert_int_equal(fs_remove_tree(home, NULL), 0);
}

/* Slurm 20.11 and later print these messages about too little memory. The output arrives in pieces
 * of any size, and has other messages, too. */
static void a_step_with_too_little_memory_is_told_by_what_slurm_prints(void **state)
{
	static const char *const tell[] = {
		"slurmstepd: error: StepId=12.0 exceeded memory limit (8388608 > 4194304), being "
		"killed\n",
		"0: slurmstepd: error: StepId=12.0 exceeded virtual memory limit (9 > 4), being "
		"killed\n",
		"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.2. Some of your "
		"processes may have been killed by the cgroup out-of-memory handler.\n",
		"[2026-11-22T05:00:00.000] slurmstepd: error: Detected 2 oom_kill events in "
		"StepId=7.2. Some of the step tasks have been OOM Killed.\n",
		"slurmstepd-n1: error: StepId=1.0 exceeded virtual memory limit (2 > 1), being "
		"killed\n",
		"training\nsrun: error: n1: task 0: Out Of Memory\n",
	};
	static const char *const tell_not[] = {
		"RuntimeError: CUDA error: Out Of Memory\n",
		"the step exceeded memory limit (2 > 1) of its cache\n",
		"srun: error: n1: task 0: Exited with exit code 3\n",
		"slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-22T05:00:00 ***\n",
		"slurmstepd: error: StepId=12.0 exceeded memory limit (8388608 > 4194304), being",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(tell); i++) {
		for (size_t piece = 1; piece < 200; piece += 66) {
			struct slurm_memory memory = {0};
			size_t len = strlen(tell[i]);

			for (size_t at = 0; at < len; at += piece)
				slurm_memory_read(
					&memory, tell[i] + at, len - at < piece ? len - at : piece);
			assert_true(memory.over);
			assert_int_equal(memory.limit, i == 0 ? 4194304 : 0);
			assert_int_equal(memory.used, i == 0 ? 8388608 : 0);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(tell_not); i++) {
		struct slurm_memory memory = {0};

		slurm_memory_read(&memory, tell_not[i], strlen(tell_not[i]));
		assert_false(memory.over);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_of_squeue_says_how_a_job_is),
		cmocka_unit_test(a_step_with_too_little_memory_is_told_by_what_slurm_prints),
		cmocka_unit_test(a_job_of_somebody_else_is_none),
		cmocka_unit_test(other_lines_are_refused),
		cmocka_unit_test(the_end_of_a_task_is_read_from_its_file),
		cmocka_unit_test(an_attempt_here_leaves_the_job_until_the_next_submission),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
