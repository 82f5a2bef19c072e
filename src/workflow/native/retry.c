/* `retry`: the failures after which a run tries again. */
#include "base/cleanup.h"
#include "base/limits.h"
#include "workflow/native/native.h"
#include "base/banned.h"

#define BACKOFF_MS     10000
#define BACKOFF_MAX_MS (24 * 3600 * 1000)

static const char *const class_words[] = {
	"input", "image", "oom", "user", "output", "node", "timeout", NULL};

static void check_retry(struct reader *rd, const struct node *map, void *out)
{
	(void)rd;
	if (!node_get(map, "codes") && !node_get(map, "classes"))
		((struct workflow_retry *)out)->classes = WORKFLOW_RETRY_ALL;
}

static const struct schema_key retry_keys[] = {
	{"max", NUMBER(workflow_retry, max, 1, LIMIT_WORKFLOW_RETRIES), .flags = KEY_REQUIRED,
		.says = "attempts after failures; counted since the run began or a person continued "
			"it"},
	{"codes", WHOLES(workflow_retry, codes, n_codes, 1, 255),
		.says = "exit codes of a step after which the run is retried"},
	{"classes", WORDS(workflow_retry, classes, class_words),
		.refused = "mistakes in the workflow are not retried, and a preempted run is "
			   "continued by the same command, `penstock watch` or Slurm",
		.otherwise = "all of them, if there are no `codes`",
		.says = "classes of failures; a failure is retried if its code or its class is "
			"listed"},
	{"backoff", DURATION(workflow_retry, backoff, 1, BACKOFF_MAX_MS), .flags = KEY_SHOWN,
		.preset = BACKOFF_MS, .value = "duration up to 1d",
		.says = "before the first retry; each later one waits twice as long, up to 10 "
			"minutes (or `backoff`, if that is longer), ± 20 %"},
};
const struct schema schema_retry = {
	SCHEMA("retry", "`retry`", retry_keys), AT(workflow_retry, at), .check = check_retry};
