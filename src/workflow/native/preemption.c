/* `preemption`: the sources of preemption notices, and the warning to the steps. */
#include <signal.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/native.h"
#include "workflow/workflow.h"

/* ---- sources ---- */

const char *const workflow_notice_words[] = {
	[WORKFLOW_NOTICE_AUTO] = "auto",
	[WORKFLOW_NOTICE_GCP] = "gcp",
	[WORKFLOW_NOTICE_AWS] = "aws",
	[WORKFLOW_NOTICE_AZURE] = "azure",
	NULL,
};

struct made_source {
	struct workflow_text file, command;
};

static const struct schema_key notice_source_keys[] = {
	{"file", TEXT(made_source, file), .value = "absolute path",
		.says = "there is a notice while this file exists"},
	{"command", TEXT(made_source, command), .flags = KEY_NO_SECRET,
		.says = "there is a notice if this command exits with 0"},
};
static const struct schema schema_notice_source = {
	SCHEMA("notice-source", "a member of `preemption.sources`", notice_source_keys)};

/* Reads {file: PATH} or {command: TEXT}. */
static void read_made_source(
	struct reader *rd, const struct node *node, struct workflow_notice_source *out)
{
	struct made_source made = {0};

	if (!reader_read(rd, node, &schema_notice_source, &made))
		return;
	if (!node_get(node, "file") == !node_get(node, "command")) {
		reader_error_of(rd, &node->at, NULL, "must have either `file` or `command`");
		return;
	}
	out->kind = made.file.value ? WORKFLOW_NOTICE_FILE : WORKFLOW_NOTICE_COMMAND;
	out->value = made.file.value ? made.file : made.command;
	if (reader_knows(rd, &made.file) && *made.file.value != '/')
		reader_refuse(rd, &made.file, "file", "be an absolute path");
	if (made.command.value && !made.command.value[strspn(made.command.value, " \t\r\n")])
		reader_error_of(rd, &made.command.at, "command", "is empty");
}

static bool read_source(struct reader *rd, struct node *node, void *out)
{
	struct workflow_notice_source *source = out;
	struct workflow_text text = {0};
	size_t k = 0;

	source->at = node->at;
	if (node->kind == NODE_MAP) {
		read_made_source(rd, node, source);
		return true;
	}
	if (!reader_text_of(rd, node, buf_str(&rd->path), &text) || reader_is_open(rd, &text))
		return true;
	while (workflow_notice_words[k] && strcmp(text.value, workflow_notice_words[k]) != 0)
		k++;
	if (workflow_notice_words[k])
		source->kind = (enum workflow_notice_kind)k;
	else
		reader_refuse(rd, &text, NULL,
			"be auto, gcp, aws, azure, {file: PATH} or {command: TEXT}");
	return true;
}

/* ---- signal, metadata and the whole map ---- */

static const char *const signal_words[] = {"none", "TERM", "INT", "HUP", "USR1", "USR2", NULL};

/* The valid values of `signal`, including those that messages do not list. */
static const char *const all_signal_words[] = {"none", "TERM", "INT", "HUP", "USR1", "USR2",
	"SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", NULL};

static void read_signal(struct reader *rd, const struct node *map, struct workflow_preemption *out)
{
	static const struct schema_key key = {.words = signal_words};
	static const int signals[] = {0, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
	struct workflow_text text = {0};
	size_t i;

	if (!reader_text(rd, map, "signal", &text) || reader_is_open(rd, &text))
		return;
	if (str_starts(text.value, "SIG"))
		text.value += strlen("SIG");
	if (!reader_word(rd, &text, reader_field(rd, "signal"), &key, &i))
		return;
	out->signal = signals[i];
	out->signal_given = true;
}

static void check_address(struct reader *rd, const char *key, struct workflow_text *address)
{
	if (!reader_knows(rd, address) || str_starts(address->value, "http://") ||
		str_starts(address->value, "https://"))
		return;
	reader_refuse(rd, address, key, "begin with http:// or https://");
	address->value = NULL;
}

static void check_metadata(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_preemption *p = out;

	(void)map;
	check_address(rd, "gcp", &p->gcp);
	check_address(rd, "aws", &p->aws);
	check_address(rd, "azure", &p->azure);
}

static const struct schema_key metadata_keys[] = {
	{"gcp", TEXT(workflow_preemption, gcp), .value = "URL", .otherwise = "the cloud's",
		.says = "the address of Google Cloud's metadata service"},
	{"aws", TEXT(workflow_preemption, aws), .value = "URL", .otherwise = "the cloud's",
		.says = "the address of AWS's metadata service"},
	{"azure", TEXT(workflow_preemption, azure), .value = "URL", .otherwise = "the cloud's",
		.says = "the address of Azure's metadata service"},
};
static const struct schema schema_metadata = {
	SCHEMA("metadata", "`preemption.metadata`", metadata_keys), .check = check_metadata};

static void check_preemption(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_preemption *p = out;
	const struct node *list = reader_list(rd, map, "sources");

	/* Signals are always notices, so an empty list means only signals. */
	p->sources_given = list != NULL;
	if (list && list->n > LIMIT_NOTICE_SOURCES)
		reader_error_of(
			rd, &list->at, "sources", "has more than %d members", LIMIT_NOTICE_SOURCES);
	else if (list)
		p->sources = reader_each(
			rd, map, "sources", sizeof(*p->sources), &p->n_sources, read_source);
	read_signal(rd, map, p);
	if (p->grace.given && p->reserve.given && p->reserve.value >= p->grace.value)
		reader_error_of(rd, &p->reserve.at, "reserve",
			"must be shorter than `%s`, which includes it", reader_field(rd, "grace"));
}

static const struct schema_key preemption_keys[] = {
	{"sources", .kinds = KEY_TEXTS | KEY_LIST, .below = &schema_notice_source,
		.words = workflow_notice_words,
		.value = "list of `auto`, `gcp`, `aws`, `azure`, `{file: PATH}`, `{command: TEXT}`",
		.otherwise = "`[auto]`", .says = "the sources of notices, in addition to signals"},
	{"signal", .kinds = KEY_TEXT, .value = "`TERM`, `INT`, `HUP`, `USR1`, `USR2` or `none`",
		.words = all_signal_words, .otherwise = "`TERM`",
		.says = "the signal that the steps get after a notice"},
	{"grace", DURATION(workflow_preemption, grace, 1, LIMIT_WORKFLOW_DURATION),
		.otherwise = "the source's, else 30s",
		.says = "the time from a notice to the end of the machine, if the source does "
			"not give it"},
	{"reserve", DURATION(workflow_preemption, reserve, 1, LIMIT_WORKFLOW_DURATION),
		.otherwise = "a sixth of `grace`, 1 s to 30 s",
		.says = "the part of `grace` that is kept for publishing"},
	{"metadata", MAP_OF(&schema_metadata), .says = "addresses of the metadata services"},
};
const struct schema schema_preemption = {SCHEMA("preemption", "`preemption`", preemption_keys),
	AT(workflow_preemption, at), .check = check_preemption};

void workflow_read_preemption(struct workflow_arena *arena, const char *file, struct node *map,
	struct workflow_preemption *out, struct diagnostics *found)
{
	static const struct workflow_options options;
	struct workflow workflow = {.file = file};
	struct reader rd = {
		.workflow = &workflow,
		.arena = arena,
		.options = &options,
		.found = found,
		.path = BUF_INIT(LIMIT_STRING),
	};

	reader_enter(&rd, "preemption", 0);
	reader_read(&rd, map, &schema_preemption, out);
	buf_release(&rd.path);
}
