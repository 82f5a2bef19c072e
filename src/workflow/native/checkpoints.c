/* `checkpoints`: where they are, and which of them are kept. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native/native.h"
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

static void check_path(struct reader *rd, const struct workflow_text *path)
{
	char quoted[QUOTE_SIZE];

	if (reader_is_open(rd, path) || strcmp(path->value, ".") == 0)
		return;
	if (*path->value == '/' || str_ends(path->value, "/") || strstr(path->value, "//") ||
		reader_has_dots(path->value) || has_control(path->value) ||
		strcmp(path->value, ".penstock") == 0 || str_starts(path->value, ".penstock/"))
		reader_error(rd, &path->at,
			"`%s` must be a directory below the output, such as checkpoints or "
			"model/saved, or . for the output itself, not %s",
			reader_field(rd, "path"), quote(workflow_shown(path), quoted));
}

static void check_pattern(struct reader *rd, const struct workflow_text *pattern)
{
	char quoted[QUOTE_SIZE];

	if (!pattern->value || reader_is_open(rd, pattern))
		return;
	if (!*pattern->value || strchr(pattern->value, '/'))
		reader_error(rd, &pattern->at,
			"`%s` must be a pattern for file names, such as *.pth; their directory is "
			"`path`; not %s",
			reader_field(rd, "pattern"), quote(workflow_shown(pattern), quoted));
}

static const char *const mode_words[] = {"min", "max", NULL};

static const struct schema_key best_keys[] = {
	{"metric", TEXT(workflow_checkpoints, metric), .flags = KEY_REQUIRED,
		.says = "the name of the number in a checkpoint that is compared"},
	{"mode", WORD(workflow_checkpoints, larger, mode_words), .flags = KEY_SHOWN,
		.says = "the smallest or the largest is the best"},
	{"n", NUMBER(workflow_checkpoints, best, 1, MAX_KEPT), .flags = KEY_SHOWN, .preset = 1,
		.says = "how many of the best are kept"},
};
static const struct schema schema_best = {SCHEMA("best", "`best`", best_keys)};

static void check_keep(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_checkpoints *c = out;

	c->keeps = c->latest.given || c->every.given || c->metric.value != NULL;
	if (map->n == 0)
		reader_error(rd, &map->at,
			"`%s` is empty; leave it out to keep all checkpoints, or give latest: 1 to "
			"keep only the newest",
			buf_str(&rd->path));
}

static const struct schema_key keep_keys[] = {
	{"latest", NUMBER(workflow_checkpoints, latest, 1, MAX_KEPT),
		.says = "how many of the newest are kept"},
	{"every", NUMBER(workflow_checkpoints, every, 1, INT64_MAX), .value = "steps",
		.says = "keeps those whose step is a multiple of it"},
	{"best", MAP_OF(&schema_best), .shown = {SET(workflow_checkpoints, metric.value)},
		.says = "keeps the best by a metric"},
};
static const struct schema schema_keep = {SCHEMA("keep", "`keep`", keep_keys), .check = check_keep};

static void check_checkpoints(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_checkpoints *c = out;

	(void)map;
	check_path(rd, &c->path);
	check_pattern(rd, &c->pattern);
}

static const struct schema_key checkpoints_keys[] = {
	{"path", TEXT(workflow_checkpoints, path), .flags = KEY_SHOWN, .preset_text = "checkpoints",
		.value = "path below the output, or `.`", .says = "where the checkpoints are"},
	{"pattern", TEXT(workflow_checkpoints, pattern), .value = "such as `*.pth`",
		.says = "files with matching names are checkpoints by themselves"},
	{"keep", MAP_OF(&schema_keep), .shown = {SET(workflow_checkpoints, keeps)},
		.otherwise = "all", .says = "which checkpoints are kept; the newest always is"},
};
const struct schema schema_checkpoints = {SCHEMA("checkpoints", "`checkpoints`", checkpoints_keys),
	.given = offsetof(struct workflow_checkpoints, given) + 1, AT(workflow_checkpoints, at),
	.check = check_checkpoints};
