/* `preemption`: who may say that the machine goes away, how the tasks are told, and how long there is. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native.h"
#include "workflow/workflow.h"
#include "base/banned.h"

/* ---- sources ---- */

static bool kind_of(const char *name, enum workflow_notice_kind *kind)
{
	static const struct {
		const char *name;
		enum workflow_notice_kind kind;
	} names[] = {{"auto", WORKFLOW_NOTICE_AUTO}, {"gcp", WORKFLOW_NOTICE_GCP},
		{"aws", WORKFLOW_NOTICE_AWS}, {"azure", WORKFLOW_NOTICE_AZURE}};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i].name) == 0) {
			*kind = names[i].kind;
			return true;
		}
	}
	return false;
}

/* {file: PATH} or {command: TEXT} */
static bool read_made_source(
	struct reader *rd, const struct node *node, struct workflow_notice_source *out)
{
	const char *field = reader_field(rd, "command");

	if (!reader_check_map(rd, node, &schema_notice_source))
		return false;
	if (!node_get(node, "file") == !node_get(node, "command")) {
		reader_error(rd, &node->at, "`%s` must have either `file` or `command`",
			buf_str(&rd->path));
		return false;
	}
	if (node_get(node, "file")) {
		out->kind = WORKFLOW_NOTICE_FILE;
		if (!reader_text(rd, node, "file", &out->value))
			return false;
		if (reader_is_open(rd, &out->value) || *out->value.value == '/')
			return true;
		reader_error(rd, &out->value.at, "`%s` must be an absolute path",
			reader_field(rd, "file"));
		return false;
	}
	out->kind = WORKFLOW_NOTICE_COMMAND;
	if (!refuse_secret_in_command(rd, node_get(node, "command"), field) ||
		!reader_text(rd, node, "command", &out->value))
		return false;
	if (out->value.value[strspn(out->value.value, " \t\r\n")])
		return true;
	reader_error(rd, &out->value.at, "`%s` is empty", field);
	return false;
}

static bool read_source(struct reader *rd, struct node *node, struct workflow_notice_source *out)
{
	struct workflow_text text = {0};
	char quoted[QUOTE_SIZE];

	out->at = node->at;
	if (node->kind == NODE_MAP)
		return read_made_source(rd, node, out);
	if (!reader_text_of(rd, node, buf_str(&rd->path), &text))
		return false;
	if (reader_is_open(rd, &text))
		return false;
	if (kind_of(text.value, &out->kind))
		return true;
	reader_error(rd, &node->at,
		"`%s` is auto, gcp, aws, azure, {file: PATH} or {command: TEXT}, not %s",
		buf_str(&rd->path), quote(workflow_shown(&text), quoted));
	return false;
}

/* Signals are heard in any case, so an empty list means: nothing else. */
static void read_sources(struct reader *rd, const struct node *map, struct workflow_preemption *out)
{
	struct node *list = reader_list(rd, map, "sources");
	size_t saved;

	if (!list)
		return;
	out->sources_given = true;
	if (list->n > LIMIT_NOTICE_SOURCES) {
		reader_error(rd, &list->at, "`%s` has more than %d members",
			reader_field(rd, "sources"), LIMIT_NOTICE_SOURCES);
		return;
	}
	out->sources = workflow_arena_array(rd->arena, list->n + 1, sizeof(*out->sources));
	if (!out->sources)
		return;
	saved = reader_enter(rd, "sources", 0);
	for (size_t i = 0; i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		if (read_source(rd, list->entries[i].value, &out->sources[out->n_sources]))
			out->n_sources++;
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

/* ---- the rest ---- */

static void read_signal(struct reader *rd, const struct node *map, struct workflow_preemption *out)
{
	static const struct {
		const char *name;
		int signal;
	} names[] = {{"none", 0}, {"TERM", SIGTERM}, {"INT", SIGINT}, {"HUP", SIGHUP},
		{"USR1", SIGUSR1}, {"USR2", SIGUSR2}};
	struct workflow_text text = {0};
	char quoted[QUOTE_SIZE];
	const char *name;

	if (!reader_text(rd, map, "signal", &text) || reader_is_open(rd, &text))
		return;
	name = str_starts(text.value, "SIG") ? text.value + 3 : text.value;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i].name) == 0) {
			out->signal = names[i].signal;
			out->signal_given = true;
			return;
		}
	}
	reader_error(rd, &text.at, "`%s` is TERM, INT, HUP, USR1, USR2 or none, not %s",
		reader_field(rd, "signal"), quote(workflow_shown(&text), quoted));
}

static void read_address(
	struct reader *rd, const struct node *map, const char *key, struct workflow_text *out)
{
	char quoted[QUOTE_SIZE];

	if (!reader_text(rd, map, key, out) || reader_is_open(rd, out) ||
		str_starts(out->value, "http://") || str_starts(out->value, "https://"))
		return;
	reader_error(rd, &out->at, "`%s` must begin with http:// or https://, not %s",
		reader_field(rd, key), quote(workflow_shown(out), quoted));
	out->value = NULL;
}

static void read_metadata(
	struct reader *rd, const struct node *map, struct workflow_preemption *out)
{
	struct node *metadata = reader_map(rd, map, "metadata");
	size_t saved;

	if (!metadata)
		return;
	saved = reader_enter(rd, "metadata", 0);
	reader_check_map(rd, metadata, &schema_metadata);
	read_address(rd, metadata, "gcp", &out->gcp);
	read_address(rd, metadata, "aws", &out->aws);
	read_address(rd, metadata, "azure", &out->azure);
	reader_leave(rd, saved);
}

static void read_members(struct reader *rd, const struct node *map, struct workflow_preemption *out)
{
	out->at = map->at;
	reader_check_map(rd, map, &schema_preemption);
	read_sources(rd, map, out);
	read_signal(rd, map, out);
	read_duration(rd, map, "grace", &out->grace);
	read_duration(rd, map, "reserve", &out->reserve);
	if (out->grace.given && out->reserve.given && out->reserve.value >= out->grace.value)
		reader_error(rd, &out->reserve.at,
			"`%s` must be shorter than `%s`, of which it is a part",
			reader_field(rd, "reserve"), reader_field(rd, "grace"));
	read_metadata(rd, map, out);
}

void read_preemption(struct reader *rd, const struct node *job)
{
	struct node *map = reader_map(rd, job, "preemption");
	size_t saved;

	rd->workflow->preemption.at = job->at;
	if (!map)
		return;
	saved = reader_enter(rd, "preemption", 0);
	read_members(rd, map, &rd->workflow->preemption);
	reader_leave(rd, saved);
}

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
	if (map->kind == NODE_MAP)
		read_members(&rd, map, out);
	else
		reader_error(
			&rd, &map->at, "`preemption` must be a map, not %s", node_kind_name(map));
	buf_release(&rd.path);
}
