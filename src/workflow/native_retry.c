/* `retry`: which failures of a run are not its end, and how often. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native.h"
#include "base/banned.h"

#define BACKOFF_MS     10000
#define BACKOFF_MAX_MS (24 * 3600 * 1000)

static const struct {
	const char *name;
	unsigned class;
	const char *refused; /* why it cannot be retried; NULL: it can */
} classes[] = {
	{"input", WORKFLOW_RETRY_INPUT, NULL},
	{"image", WORKFLOW_RETRY_IMAGE, NULL},
	{"oom", WORKFLOW_RETRY_OOM, NULL},
	{"user", WORKFLOW_RETRY_USER, NULL},
	{"output", WORKFLOW_RETRY_OUTPUT, NULL},
	{"node", WORKFLOW_RETRY_NODE, NULL},
	{"timeout", WORKFLOW_RETRY_TIMEOUT, NULL},
	{"workflow", 0, "what is wrong in the file is as wrong the next time"},
	{"preempted", 0,
		"the machine goes away; the same command, `penstock watch` or Slurm continues the "
		"run"},
};

static void take_code(
	struct reader *rd, const struct workflow_text *text, struct workflow_retry *retry)
{
	char quoted[QUOTE_SIZE];
	uint64_t code;

	if (!str_to_u64(text->value, 1, 255, &code)) {
		reader_error(rd, &text->at,
			"a member of `%s` is an exit code from 1 to 255, not %s",
			reader_field(rd, "codes"), quote(workflow_shown(text), quoted));
		return;
	}
	retry->codes[retry->n_codes++] = (int)code;
}

static void read_codes(struct reader *rd, const struct node *map, struct workflow_retry *retry)
{
	const struct node *node = node_get(map, "codes");
	struct workflow_texts texts = {0};

	if (!node)
		return;
	read_texts(rd, map, "codes", true, &texts);
	if (node->kind == NODE_LIST && node->n == 0)
		reader_error(rd, &node->at,
			"`%s` is empty; leave it out to retry whatever the exit code is",
			reader_field(rd, "codes"));
	retry->codes = workflow_arena_array(rd->arena, texts.n + 1, sizeof(*retry->codes));
	for (size_t i = 0; retry->codes && i < texts.n; i++)
		take_code(rd, &texts.items[i], retry);
}

static void take_class(
	struct reader *rd, const struct workflow_text *text, struct workflow_retry *retry)
{
	char quoted[QUOTE_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (strcmp(classes[i].name, text->value) != 0)
			continue;
		retry->classes |= classes[i].class;
		if (classes[i].refused)
			reader_error(rd, &text->at, "`%s` cannot hold %s: %s",
				reader_field(rd, "classes"), text->value, classes[i].refused);
		return;
	}
	reader_error(rd, &text->at,
		"a member of `%s` is input, image, oom, user, output, node or timeout, not %s",
		reader_field(rd, "classes"), quote(workflow_shown(text), quoted));
}

static void read_classes(struct reader *rd, const struct node *map, struct workflow_retry *retry)
{
	const struct node *node = node_get(map, "classes");
	struct workflow_texts texts = {0};

	if (!node)
		return;
	read_texts(rd, map, "classes", false, &texts);
	if (node->kind == NODE_LIST && node->n == 0)
		reader_error(rd, &node->at,
			"`%s` is empty; leave it out to retry whatever the failure is",
			reader_field(rd, "classes"));
	for (size_t i = 0; i < texts.n; i++)
		take_class(rd, &texts.items[i], retry);
}

void read_retry(struct reader *rd, const struct node *job)
{
	struct workflow_retry *retry = &rd->workflow->retry;
	struct node *map = reader_map(rd, job, "retry");
	size_t saved;

	retry->at = job->at;
	if (!map)
		return;
	retry->at = map->at;
	saved = reader_enter(rd, "retry", 0);
	reader_check_map(rd, map, &schema_retry);
	if (!node_get(map, "max"))
		reader_missing(rd, map, &schema_retry, "max", "how often at most");
	reader_number(rd, map, "max", 1, LIMIT_WORKFLOW_RETRIES, &retry->max);
	read_codes(rd, map, retry);
	read_classes(rd, map, retry);
	if (!node_get(map, "codes") && !node_get(map, "classes"))
		retry->classes = WORKFLOW_RETRY_ALL;
	retry->backoff.value = BACKOFF_MS;
	read_duration(rd, map, "backoff", &retry->backoff);
	if (retry->backoff.value > BACKOFF_MAX_MS)
		reader_error(
			rd, &retry->backoff.at, "`%s` is at most 1d", reader_field(rd, "backoff"));
	reader_leave(rd, saved);
}
