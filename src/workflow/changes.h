/*
 * Differences between records of workflows, as workflow_write_record() and workflow_write_file()
 * write them. Pure functions.
 *
 *	struct workflow_changes changes;
 *
 *	workflow_compare(before, now, &changes, err);
 *	// changes.names is "steps.train.run.command, env.EPOCHS"
 */
#ifndef WORKFLOW_CHANGES_H
#define WORKFLOW_CHANGES_H

#include <stddef.h>
#include <stdint.h>

struct buf;
struct penstock_error;

#define WORKFLOW_CHANGES_NAMES 512

struct workflow_changes {
	size_t n; /* fields that differ */
	char names[WORKFLOW_CHANGES_NAMES]; /* names of the first few of these fields */
	/*
	 * The first top-level step whose result may differ: its own definition has changed, in more
	 * than its name, resources, restarts, time limits and CPU binding. 0 if inputs, `python` or
	 * `mounts` have changed. If steps were only added or removed at the end, the number of
	 * steps that both workflows have. SIZE_MAX if no result may differ.
	 */
	size_t first_step;
};

int workflow_compare(const char *before, const char *now, struct workflow_changes *changes,
	struct penstock_error *err);

/* Appends `record` with the changes that lead from `before` to `now`: edits of the file are
 * applied, and overrides, which only the record has, stay. */
int workflow_merge(const char *before, const char *now, const char *record, struct buf *out,
	struct penstock_error *err);

#endif
