#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "run/executors/remote.h"
#include "run/slurm/slurm.h"

/* A line of squeue says whether a job lives, waits, and why. */
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

/* The number of a job that Slurm has forgotten is given again; what has it now is not ours. */
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

/* What is no such line says nothing, and nothing is written beyond the fields. */
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

/* What a task on another node has left is read back, and half of it is nothing. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_of_squeue_says_how_a_job_is),
		cmocka_unit_test(a_job_of_somebody_else_is_none),
		cmocka_unit_test(other_lines_are_refused),
		cmocka_unit_test(the_end_of_a_task_is_read_from_its_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
