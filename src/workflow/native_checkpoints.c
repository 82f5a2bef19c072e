/* `checkpoints`: where they are, and which of them stay. */
#include <string.h>

#include "base/str.h"
#include "workflow/reader.h"
#include "base/banned.h"

#define MAX_KEPT 1000000

static bool has_control(const char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < ' ' || *text == 127)
			return true;
	}
	return false;
}

static void read_path(struct reader *rd, const struct node *map, struct workflow_text *out)
{
	char quoted[QUOTE_SIZE];
	struct workflow_text given = {0};

	out->value = "checkpoints";
	out->at = map->at;
	if (!reader_text(rd, map, "path", &given))
		return;
	*out = given;
	if (reader_is_open(rd, out) || strcmp(out->value, ".") == 0)
		return;
	if (*out->value == '/' || str_ends(out->value, "/") || strstr(out->value, "//") ||
		reader_has_dots(out->value) || has_control(out->value) ||
		strcmp(out->value, ".penstock") == 0 || str_starts(out->value, ".penstock/"))
		reader_error(rd, &out->at,
			"`%s` is a directory below the output, such as checkpoints or model/saved, "
			"or . "
			"for the output itself, not %s",
			reader_field(rd, "path"), quote(workflow_shown(out), quoted));
}

static void read_pattern(struct reader *rd, const struct node *map, struct workflow_text *out)
{
	char quoted[QUOTE_SIZE];

	if (!reader_text(rd, map, "pattern", out) || reader_is_open(rd, out))
		return;
	if (!*out->value || strchr(out->value, '/'))
		reader_error(rd, &out->at,
			"`%s` is a pattern for names of files, such as *.pth; the directory they "
			"are "
			"in is `path`; not %s",
			reader_field(rd, "pattern"), quote(workflow_shown(out), quoted));
}

static void read_best(
	struct reader *rd, const struct node *keep, struct workflow_checkpoints *checkpoints)
{
	struct node *map = reader_map(rd, keep, "best");
	struct workflow_text mode = {0};
	char quoted[QUOTE_SIZE];
	size_t saved;

	if (!map)
		return;
	saved = reader_enter(rd, "best", 0);
	reader_check_map(rd, map, &schema_best);
	if (!node_get(map, "metric"))
		reader_missing(rd, map, &schema_best, "metric",
			"the name that a checkpoint gives what is compared");
	reader_text(rd, map, "metric", &checkpoints->metric);
	if (reader_text(rd, map, "mode", &mode)) {
		checkpoints->larger = strcmp(mode.value, "max") == 0;
		if (!checkpoints->larger && strcmp(mode.value, "min") != 0)
			reader_error(rd, &mode.at, "`%s` is min or max, not %s",
				reader_field(rd, "mode"), quote(workflow_shown(&mode), quoted));
	}
	checkpoints->best.value = 1;
	reader_number(rd, map, "n", 1, MAX_KEPT, &checkpoints->best);
	reader_leave(rd, saved);
}

static void read_keep(
	struct reader *rd, const struct node *map, struct workflow_checkpoints *checkpoints)
{
	struct node *keep = reader_map(rd, map, "keep");
	size_t saved;

	if (!keep)
		return;
	saved = reader_enter(rd, "keep", 0);
	reader_check_map(rd, keep, &schema_keep);
	reader_number(rd, keep, "latest", 1, MAX_KEPT, &checkpoints->latest);
	reader_number(rd, keep, "every", 1, INT64_MAX, &checkpoints->every);
	read_best(rd, keep, checkpoints);
	checkpoints->keeps = checkpoints->latest.given || checkpoints->every.given ||
			     checkpoints->metric.value;
	reader_leave(rd, saved);
	if (keep->n == 0)
		reader_error(rd, &keep->at,
			"`%s` is empty: leave it out to keep all checkpoints, or give latest: 1 to "
			"keep only the newest",
			reader_field(rd, "keep"));
}

void read_checkpoints(struct reader *rd, const struct node *job)
{
	struct workflow_checkpoints *checkpoints = &rd->workflow->checkpoints;
	struct node *map = reader_map(rd, job, "checkpoints");
	size_t saved;

	checkpoints->at = checkpoints->path.at = job->at;
	checkpoints->path.value = "checkpoints";
	if (!map)
		return;
	checkpoints->given = true;
	checkpoints->at = map->at;
	saved = reader_enter(rd, "checkpoints", 0);
	reader_check_map(rd, map, &schema_checkpoints);
	read_path(rd, map, &checkpoints->path);
	read_pattern(rd, map, &checkpoints->pattern);
	read_keep(rd, map, checkpoints);
	reader_leave(rd, saved);
	if (checkpoints->pattern.value && rd->workflow->output.kind != WORKFLOW_S3)
		reader_note(rd, &checkpoints->pattern.at,
			"`checkpoints.pattern` has no effect without an S3 output: a file becomes "
			"a "
			"checkpoint when it was published");
	if (checkpoints->pattern.value && checkpoints->metric.value)
		reader_note(rd, &checkpoints->pattern.at,
			"files that `checkpoints.pattern` finds have no metrics: "
			"`checkpoints.keep.best` keeps none of them");
}
