/* `checkpoints`: the place of the checkpoints, and the rules by which checkpoints are kept. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native/native.h"

#define MAX_KEPT 1000000

bool is_below_output(const char *path)
{
	for (const char *p = path; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 127)
			return false;
	}
	return *path != '/' && !str_ends(path, "/") && !strstr(path, "//") &&
	       !reader_has_dots(path) && strcmp(path, ".penstock") != 0 &&
	       !str_starts(path, ".penstock/");
}

static const char *const mode_words[] = {"min", "max", NULL};

static const struct schema_key best_keys[] = {
	{"metric", TEXT(workflow_checkpoints, metric), .flags = KEY_REQUIRED,
		.says = "the metric that is compared"},
	{"mode", WORD(workflow_checkpoints, larger, mode_words), .flags = KEY_SHOWN,
		.says = "`min`: the smallest value is the best; `max`: the largest"},
	{"n", NUMBER(workflow_checkpoints, best, 1, MAX_KEPT), .flags = KEY_SHOWN, .preset = 1,
		.says = "the number of best checkpoints to keep"},
};
static const struct schema schema_best = {SCHEMA("best", "`best`", best_keys)};

static void check_keep(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_checkpoints *c = out;

	c->keeps = c->latest.given || c->every.given || c->metric.value != NULL;
	if (map->n == 0)
		reader_error_of(rd, &map->at, NULL,
			"is empty; leave it out to keep all checkpoints, or give latest: 1 to "
			"keep only the newest");
}

static const struct schema_key keep_keys[] = {
	{"latest", NUMBER(workflow_checkpoints, latest, 1, MAX_KEPT),
		.says = "the number of newest checkpoints to keep"},
	{"every", NUMBER(workflow_checkpoints, every, 1, INT64_MAX), .value = "steps",
		.says = "keeps the checkpoints whose step is a multiple of this number"},
	{"best", MAP_OF(&schema_best), .shown = {SET(workflow_checkpoints, metric.value)},
		.says = "keeps the best checkpoints by a metric"},
};
static const struct schema schema_keep = {SCHEMA("keep", "`keep`", keep_keys), .check = check_keep};

static void check_checkpoints(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow_checkpoints *c = out;

	(void)map;
	if (reader_knows(rd, &c->path) && strcmp(c->path.value, ".") != 0 &&
		!is_below_output(c->path.value))
		reader_refuse(rd, &c->path, "path",
			"be a directory below the output, such as checkpoints or model/saved, or . "
			"for the output itself");
	if (reader_knows(rd, &c->pattern) && (!*c->pattern.value || strchr(c->pattern.value, '/')))
		reader_refuse(rd, &c->pattern, "pattern",
			"be a pattern for file names, such as *.pth, whose directory is `path`");
}

static const struct schema_key checkpoints_keys[] = {
	{"path", TEXT(workflow_checkpoints, path), .flags = KEY_SHOWN, .preset_text = "checkpoints",
		.value = "path below the output, or `.`", .says = "the place of the checkpoints"},
	{"pattern", TEXT(workflow_checkpoints, pattern), .value = "such as `*.pth`",
		.says = "a file whose name matches is a checkpoint by itself"},
	{"keep", MAP_OF(&schema_keep), .shown = {SET(workflow_checkpoints, keeps)},
		.otherwise = "all",
		.says = "the checkpoints that are kept; the newest is always kept"},
};
const struct schema schema_checkpoints = {SCHEMA("checkpoints", "`checkpoints`", checkpoints_keys),
	.given = offsetof(struct workflow_checkpoints, given) + 1, AT(workflow_checkpoints, at),
	.check = check_checkpoints};
