/* Ends of an attempt: exit codes by class and error, and the precedence of the first cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "records/layout.h"
#include "run/attempt/attempt.h"
#include "run/config/times.h"
#include "run/step/host.h"
#include "workflow/model.h"

struct heard {
	enum run_event_kind kind;
	char text[128];
	unsigned n;
};

static void hear(void *cookie, const struct run_event *event)
{
	struct heard *heard = cookie;

	heard->kind = event->kind;
	snprintf(heard->text, sizeof(heard->text), "%s", event->text);
	heard->n++;
}

static void exit_codes_follow_class_and_error(void **state)
{
	static const struct {
		enum run_class class;
		enum penstock_code code;
		int exit_code;
	} cases[] = {
		{RUN_CLASS_INPUT, PENSTOCK_E_NOT_FOUND, 66},
		{RUN_CLASS_INPUT, PENSTOCK_E_UNAVAILABLE, 66},
		{RUN_CLASS_INPUT, PENSTOCK_E_PERMISSION, 77},
		{RUN_CLASS_INPUT, PENSTOCK_E_NO_SPACE, 70},
		{RUN_CLASS_INPUT, PENSTOCK_E_MEMORY, 70},
		{RUN_CLASS_IMAGE, PENSTOCK_E_NOT_FOUND, 66},
		{RUN_CLASS_IMAGE, PENSTOCK_E_INVALID, 65},
		{RUN_CLASS_IMAGE, PENSTOCK_E_TIMEOUT, 69},
		{RUN_CLASS_WORKFLOW, PENSTOCK_E_INVALID, 65},
		{RUN_CLASS_WORKFLOW, PENSTOCK_E_PERMISSION, 77},
		{RUN_CLASS_OUTPUT, PENSTOCK_E_UNAVAILABLE, 69},
		{RUN_CLASS_OUTPUT, PENSTOCK_E_EXISTS, 69},
		{RUN_CLASS_OUTPUT, PENSTOCK_E_IO, 70},
		{RUN_CLASS_NODE, PENSTOCK_E_TIMEOUT, 69},
		{RUN_CLASS_NODE, PENSTOCK_E_INVALID, 70},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(run_exit_code(cases[i].class, cases[i].code), cases[i].exit_code);
}

static void the_first_end_counts_and_later_ones_are_reported(void **state)
{
	struct heard heard = {0};
	const struct run_observer observer = {hear, &heard};
	struct attempt attempt = {.voice.observer = &observer, .reserve_fd = -1};

	(void)state;
	run_end(&attempt, RUN_FAILED, RUN_CLASS_USER, 3, "'%s' exited with %d", "train", 3);
	assert_int_equal(heard.n, 0);
	run_end(&attempt, RUN_STOPPED, RUN_CLASS_USER, 130, "stopped");

	assert_int_equal(attempt.end.state, RUN_FAILED);
	assert_int_equal(attempt.end.exit_code, 3);
	assert_string_equal(attempt.end.message, "'train' exited with 3");
	assert_int_equal(heard.n, 1);
	assert_int_equal(heard.kind, RUN_EVENT_WARNING);
	assert_string_equal(heard.text, "stopped");

	attempt.end.step_code = 65;
	run_end_reset(&attempt);
	assert_false(attempt.end.decided);
	assert_null(attempt.end.message);
	assert_int_equal(attempt.end.step_code, 65);
	run_end(&attempt, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75, "preempted");
	assert_int_equal(attempt.end.state, RUN_PREEMPTED);
	assert_int_equal(attempt.end.step_code, 65);
	free(attempt.end.message);
}

/* The message is recorded, so it must not contain a secret. */
static void a_secret_is_masked_in_the_message(void **state)
{
	struct attempt attempt = {.reserve_fd = -1};

	(void)state;
	assert_int_equal(log_redact("hunter2hunter2"), 0);
	run_end(&attempt, RUN_FAILED, RUN_CLASS_USER, 1, "cannot log in with hunter2hunter2");
	assert_null(strstr(attempt.end.message, "hunter2"));
	free(attempt.end.message);
}

static void the_message_is_utf8(void **state)
{
	struct attempt attempt = {.reserve_fd = -1};

	(void)state;
	run_end(&attempt, RUN_FAILED, RUN_CLASS_NODE, 70, "cannot open '%s'", "\xc3\xa9\xff");
	assert_string_equal(attempt.end.message, "cannot open '\xc3\xa9?'");
	free(attempt.end.message);
}

static void reserved_space_is_freed_once(void **state)
{
	char dir[] = "/tmp/attempt-XXXXXX";
	struct attempt attempt = {.reserve_fd = -1};

	(void)state;
	assert_non_null(mkdtemp(dir));
	attempt.layout.dir = dir;
	assert_false(attempt_free_space(&attempt));
	attempt_reserve_space(&attempt);
	assert_true(attempt_free_space(&attempt));
	assert_false(attempt_free_space(&attempt));
	assert_int_equal(rmdir(dir), 0); /* fails if the directory is not empty */
}

static void an_output_with_entries_is_found(void **state)
{
	char dir[] = "/tmp/attempt-XXXXXX", file[64];
	struct attempt attempt = {.reserve_fd = -1};
	FILE *f;

	(void)state;
	assert_false(attempt_has_output(&attempt));
	assert_non_null(mkdtemp(dir));
	attempt.layout.output = dir;
	assert_false(attempt_has_output(&attempt));
	snprintf(file, sizeof(file), "%s/.hidden", dir);
	f = fopen(file, "we");
	assert_non_null(f);
	fclose(f);
	assert_true(attempt_has_output(&attempt));
	/* A directory that cannot be read may have entries. */
	attempt.layout.output = file;
	assert_true(attempt_has_output(&attempt));
	attempt.layout.output = dir;
	unlink(file);
	rmdir(dir);
	assert_false(attempt_has_output(&attempt));
}

static void paths_of_a_run(void **state)
{
	static const struct {
		enum run_file file;
		const char *path;
	} cases[] = {
		{RUN_FILE_DIR, "/home/p/runs/0123456789ab"},
		{RUN_FILE_LOCK, "/home/p/runs/0123456789ab/lock"},
		{RUN_FILE_WORKFLOW, "/home/p/runs/0123456789ab/workflow"},
		{RUN_FILE_GRACE, "/home/p/runs/0123456789ab/grace"},
		{RUN_FILE_PREEMPT, "/home/p/runs/0123456789ab/preempt"},
		{RUN_FILE_LEFT_ALONE, "/home/p/runs/0123456789ab/left-alone"},
		{RUN_FILE_SLURM_LOCK, "/home/p/runs/0123456789ab/slurm.lock"},
	};
	char prefix[RUN_STATE_PREFIX_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *path = run_path("/home/p", "0123456789ab", cases[i].file);

		assert_string_equal(path, cases[i].path);
		free(path);
	}
	for (int i = 0; i < RUN_FILE_COUNT_; i++)
		assert_non_null(run_file_name((enum run_file)i));
	run_state_prefix("0123456789ab", prefix);
	assert_string_equal(prefix, ".penstock/runs/0123456789ab");
}

static void the_number_in_a_file(void **state)
{
	static const struct {
		const char *text;
		int attempt;
	} cases[] = {{"7", 7}, {"0", 0}, {"-1", 0}, {"", 0}, {"7x", 0}, {"2147483647", 2147483647},
		{"2147483648", 0}};
	char path[] = "/tmp/number-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t len = strlen(cases[i].text);

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, cases[i].text, len, 0), (ssize_t)len);
		assert_int_equal(run_layout_read_attempt(path), cases[i].attempt);
	}
	close(fd);
	unlink(path);
	assert_int_equal(run_layout_read_attempt(path), 0);
}

static void grace_periods(void **state)
{
	(void)state;
	unsetenv("PENSTOCK_STOP_GRACE");
	assert_int_equal(stop_grace_given_ms(), -1);
	assert_int_equal(stop_grace_ms(), STOP_GRACE_DEFAULT_MS);
	setenv("PENSTOCK_STOP_GRACE", "0", 1);
	assert_int_equal(stop_grace_given_ms(), 0);
	assert_int_equal(stop_grace_ms(), 0);
	setenv("PENSTOCK_STOP_GRACE", "604800", 1);
	assert_int_equal(stop_grace_ms(), 604800000);
	setenv("PENSTOCK_STOP_GRACE", "604801", 1);
	assert_int_equal(stop_grace_given_ms(), -1);
	setenv("PENSTOCK_STOP_GRACE", "5s", 1);
	assert_int_equal(stop_grace_ms(), STOP_GRACE_DEFAULT_MS);
	unsetenv("PENSTOCK_STOP_GRACE");
}

static void the_earliest_deadline_is_named(void **state)
{
	struct run_times times = {0};
	struct workflow workflow = {0};
	struct workflow_run step = {0};
	char at[STEP_DEADLINE_SIZE];
	double own, job;

	(void)state;
	unsetenv("SLURM_JOB_END_TIME");
	step_deadline(&times, &workflow, &step, at);
	assert_string_equal(at, "");
	workflow.timeouts.timeout = (struct workflow_number){.given = true, .value = 60000};
	step_deadline(&times, &workflow, &step, at);
	job = strtod(at, NULL);
	step.timeouts.timeout = (struct workflow_number){.given = true, .value = 10000};
	step_deadline(&times, &workflow, &step, at);
	own = strtod(at, NULL);
	assert_true(own < job && job - own < 50.1);
	setenv("SLURM_JOB_END_TIME", "1000", 1);
	step_deadline(&times, &workflow, &step, at);
	assert_string_equal(at, "1000.000");
	unsetenv("SLURM_JOB_END_TIME");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_codes_follow_class_and_error),
		cmocka_unit_test(the_first_end_counts_and_later_ones_are_reported),
		cmocka_unit_test(a_secret_is_masked_in_the_message),
		cmocka_unit_test(the_message_is_utf8),
		cmocka_unit_test(reserved_space_is_freed_once),
		cmocka_unit_test(an_output_with_entries_is_found),
		cmocka_unit_test(paths_of_a_run),
		cmocka_unit_test(the_number_in_a_file),
		cmocka_unit_test(grace_periods),
		cmocka_unit_test(the_earliest_deadline_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
