/* Implements <penstock/checkpoint.h> on top of src/checkpoint. */
#include <penstock/checkpoint.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "checkpoint/save.h"
#include "library/library.h"

#define TIMEOUT_DEFAULT 600.0
#define TIMEOUT_MAX	1e9 /* seconds; as milliseconds, fits an int64_t */

struct penstock_checkpoint {
	struct save *save;
};

/* Has no other member, so that a pointer to `c` can be converted to a pointer to this struct. */
struct penstock_commit {
	struct commit c;
};

/* ---- saving ---- */

static unsigned attempt_of(const struct penstock_checkpoint_options *o)
{
	const char *text = str_env("PENSTOCK_ATTEMPT");
	uint64_t number;

	if (o->attempt)
		return o->attempt;
	return text && str_to_u64(text, 1, INT_MAX, &number) ? (unsigned)number : 1;
}

static int begin(struct penstock_checkpoint *c, const char *dir, uint64_t step,
	const struct penstock_checkpoint_options *o, struct penstock_error *err)
{
	double timeout_s = o->timeout_s > 0 ? o->timeout_s : TIMEOUT_DEFAULT;
	int r;

	if (!dir)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot save the checkpoint without a directory; set "
			"PENSTOCK_CHECKPOINT_DIR or pass a directory");
	r = save_begin(&c->save, dir, step,
		&(struct save_options){
			.rank = o->rank,
			.world_size = o->world_size ? o->world_size : 1,
			.attempt = attempt_of(o),
			.run_id = o->run_id ? o->run_id : str_env("PENSTOCK_RUN_ID"),
			.timeout_ms = (int64_t)(1000 * (timeout_s < TIMEOUT_MAX ? timeout_s
										: TIMEOUT_MAX)),
			.cancel = o->cancel,
		},
		err);
	for (size_t i = 0; r == 0 && i < o->n_metrics; i++)
		r = save_metric(c->save, o->metrics[i].name, o->metrics[i].value, err);
	return r;
}

int penstock_checkpoint_begin(struct penstock_checkpoint **out, const char *dir, uint64_t step,
	const struct penstock_checkpoint_options *options, struct penstock_error *err)
{
	struct penstock_checkpoint_options own = {0};
	struct penstock_checkpoint *c;
	int r = library_adopt(
		&own, sizeof(own), options, "struct penstock_checkpoint_options", err);

	if (r < 0)
		return r;
	library_log_begin();
	c = calloc(1, sizeof(*c));
	if (!c)
		return error_memory(err);
	r = begin(c, dir, step, &own, err);
	if (r < 0) {
		penstock_checkpoint_free(c);
		return r;
	}
	*out = c;
	return 0;
}

const char *penstock_checkpoint_path(const struct penstock_checkpoint *c)
{
	return save_path(c->save);
}

int penstock_checkpoint_write(struct penstock_checkpoint *c, const char *name, const void *data,
	size_t size, struct penstock_error *err)
{
	return save_write(c->save, name, data, size, err);
}

int penstock_checkpoint_add(
	struct penstock_checkpoint *c, const char *name, struct penstock_error *err)
{
	return save_add(c->save, name, err);
}

int penstock_checkpoint_metric(
	struct penstock_checkpoint *c, const char *name, double value, struct penstock_error *err)
{
	return save_metric(c->save, name, value, err);
}

int penstock_checkpoint_commit(struct penstock_checkpoint *c, struct penstock_error *err)
{
	return save_commit(c->save, err);
}

void penstock_checkpoint_free(struct penstock_checkpoint *c)
{
	if (!c)
		return;
	save_free(c->save);
	free(c);
}

/* ---- finding and reading ---- */

int penstock_checkpoint_latest(struct penstock_commit **out, const char *dir,
	void (*passed)(void *cookie, const char *path, const char *why), void *cookie,
	struct penstock_error *err)
{
	struct commit *c = NULL;
	int r = commit_latest(&c, dir, passed, cookie, NULL, err);

	if (r == 0)
		*out = (struct penstock_commit *)c;
	return r;
}

int penstock_checkpoint_list(const char *dir,
	int (*each)(void *cookie, const char *path, const struct penstock_commit *commit,
		const char *why),
	void *cookie, struct penstock_error *err)
{
	_cleanup_(commit_list_release) struct commit_list list = {0};
	int r = commit_list_read(&list, dir, err);

	for (size_t i = 0; r == 0 && i < list.n; i++) {
		const struct commit_entry *e = &list.items[i];

		if (each(cookie, e->path, (const struct penstock_commit *)e->commit, e->why))
			break;
	}
	return r;
}

int penstock_checkpoint_open(
	struct penstock_commit **out, const char *path, struct penstock_error *err)
{
	struct commit *c = NULL;
	int r = commit_open(&c, path, err);

	if (r == 0)
		*out = (struct penstock_commit *)c;
	return r;
}

int penstock_commit_verify(
	const struct penstock_commit *commit, bool whole, struct penstock_error *err)
{
	return commit_verify(&commit->c, whole, NULL, err);
}

void penstock_commit_free(struct penstock_commit *commit)
{
	commit_free(commit ? &commit->c : NULL);
}

const char *penstock_commit_path(const struct penstock_commit *commit)
{
	return commit->c.path;
}

uint64_t penstock_commit_step(const struct penstock_commit *commit)
{
	return commit->c.step;
}

unsigned penstock_commit_attempt(const struct penstock_commit *commit)
{
	return commit->c.attempt;
}

const char *penstock_commit_run_id(const struct penstock_commit *commit)
{
	return commit->c.run;
}

int64_t penstock_commit_time_ns(const struct penstock_commit *commit)
{
	return commit->c.time_ns;
}

unsigned penstock_commit_world_size(const struct penstock_commit *commit)
{
	return commit->c.world_size;
}

uint64_t penstock_commit_size(const struct penstock_commit *commit)
{
	return commit_size(&commit->c);
}

size_t penstock_commit_n_metrics(const struct penstock_commit *commit)
{
	return commit->c.n_metrics;
}

void penstock_commit_metric_at(
	const struct penstock_commit *commit, size_t i, struct penstock_metric *metric)
{
	metric->name = commit->c.metrics[i].name;
	metric->value = commit->c.metrics[i].value;
}

bool penstock_commit_metric(const struct penstock_commit *commit, const char *name, double *value)
{
	const struct commit_metric *metric = commit_find_metric(&commit->c, name);

	if (metric)
		*value = metric->value;
	return metric != NULL;
}

size_t penstock_commit_n_files(const struct penstock_commit *commit)
{
	return commit->c.n_files;
}

int penstock_commit_file_at(const struct penstock_commit *commit, size_t i,
	struct penstock_commit_file *file, struct penstock_error *err)
{
	struct penstock_commit_file own = PENSTOCK_COMMIT_FILE_INIT;

	if (i >= commit->c.n_files)
		return error_set(err, PENSTOCK_E_INVALID,
			"checkpoint '%s' has %zu files, so index %zu is invalid", commit->c.path,
			commit->c.n_files, i);
	if (file->struct_size < sizeof(file->struct_size))
		return error_set(err, PENSTOCK_E_INVALID,
			"struct penstock_commit_file is not initialised: struct_size is %zu",
			file->struct_size);
	own.name = commit->c.files[i].name;
	own.size = commit->c.files[i].size;
	own.crc64nvme = commit->c.files[i].crc;
	library_give(file, &own, sizeof(own));
	return 0;
}
