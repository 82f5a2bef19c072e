#include "cli/workflow/load.h"
#include "cli/workflow/secret_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "records/records.h"
#include "workflow/workflow.h"
#include "records/layout.h"
#include "base/banned.h"

static void print_found(const struct diagnostics *found)
{
	for (size_t i = 0; i < found->n; i++) {
		_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);

		diagnostic_format(&found->items[i], &line);
		fprintf(stderr, "%s\n", buf_str(&line));
	}
}

/* If `wrong_defaults` is not NULL, it is set to whether all errors are in the configuration. */
static int read_and_print(struct workflow **out, const char *shown, const struct buf *bytes,
	const struct workflow_options *options, bool *wrong_defaults, struct penstock_error *err)
{
	struct diagnostics found = {0};
	int r = workflow_read(out, shown, buf_str(bytes), bytes->len, options, &found, err);

	print_found(&found);
	if (wrong_defaults)
		*wrong_defaults = diagnostics_all_of(&found, options->defaults_name);
	diagnostics_release(&found);
	return r;
}

/* Sources for the credentials of a recorded run. */
struct lookup {
	const char *file;
	bool given; /* by --credentials-from, not the original */
	struct buf bytes; /* of that file; empty if the file is missing */
	struct buf variables; /* of dstack, from the same directory */
	char *variables_name; /* NULL if there are none */
	bool places_only; /* see workflow_options */
};

static bool resolve(void *cookie, enum workflow_source source, const char *name, struct buf *value);

/* The file has a reference now, in the place of the key: resolve it. */
static bool resolve_moved(
	void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	const struct lookup *lookup = cookie;

	if (resolve(cookie, source, name, value))
		return true;
	if (source == WORKFLOW_FROM_SECRET)
		log_warn("%s: secret '%s', which the file refers to now, is missing; store it "
			 "with 'penstock secret set %s', or set PENSTOCK_SECRET_%s in the "
			 "environment",
			lookup->file, name, name, name);
	else
		log_warn("%s: variable '%s', which the file refers to now, is not set in the "
			 "environment",
			lookup->file, name);
	return false;
}

static bool is_missed(const struct lookup *lookup, const char *field)
{
	return !lookup->places_only || str_starts(field, "output.") || str_starts(field, "input");
}

static bool resolve(void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	const struct lookup *lookup = cookie;
	const char *found;

	switch (source) {
	case WORKFLOW_FROM_OPTION: /* given by --set; the field is the same in a file */
		if (!lookup->given)
			return false;
		__attribute__((fallthrough));
	case WORKFLOW_FROM_FILE:
		return lookup->bytes.len &&
		       workflow_find_field(lookup->file, lookup->bytes.data, lookup->bytes.len,
			       name,
			       &(struct workflow_options){
				       .resolve = is_missed(lookup, name) ? resolve_moved : resolve,
				       .cookie = cookie,
				       .variables = lookup->variables_name
							    ? buf_str(&lookup->variables)
							    : NULL,
				       .variables_len = lookup->variables.len,
				       .variables_name = lookup->variables_name,
			       },
			       value, NULL) == 0;
	case WORKFLOW_FROM_ENV:
		found = getenv(name);
		return found && buf_add_str(value, found) == 0;
	case WORKFLOW_FROM_SECRET:
		return secret_find(name, value);
	default:
		return false;
	}
}

int load_source_read(struct workflow **out, struct load_source *source,
	const struct load_given *given, struct penstock_error *err)
{
	struct workflow_options options = load_source_options(source, given);
	int r;

	options.resolve = resolve;
	options.cookie = &(struct lookup){.file = source->shown};
	r = read_and_print(
		out, source->shown, &source->bytes, &options, &source->wrong_defaults, err);
	if (r == 0)
		load_warn_of_keys(*out);
	return r;
}

int load_workflow(struct workflow **out, const char *shown, const struct buf *bytes,
	const struct strlist *sets, const struct strlist *env, struct penstock_error *err)
{
	return read_and_print(
		out, shown, bytes, &(struct workflow_options){.sets = sets, .env = env}, NULL, err);
}

static void lookup_release(struct lookup *lookup)
{
	buf_release(&lookup->bytes);
	buf_release(&lookup->variables);
	free(lookup->variables_name);
}

/* A missing file matters only if a credential was in it; the error for that comes later. */
static int lookup_read(struct lookup *lookup, struct penstock_error *err)
{
	int r = fs_read(lookup->file, &lookup->bytes, lookup->given ? err : NULL);

	if (r < 0)
		buf_clear(&lookup->bytes);
	if (r < 0 && lookup->given)
		return err ? -(int)err->code : -(int)PENSTOCK_E_NOT_FOUND;
	if (r == 0 &&
		load_variables(lookup->file, &lookup->variables, &lookup->variables_name, NULL) < 0)
		buf_clear(&lookup->variables);
	return 0;
}

/* The lines of the copy mean nothing to the user: diagnostics name only the original file. */
static void forget_lines(struct diagnostics *found)
{
	for (size_t i = 0; i < found->n; i++)
		found->items[i].line = found->items[i].column = 0;
}

static int read_copy(struct workflow **out, const struct records_run *run, const struct buf *kept,
	const struct workflow_options *options, struct penstock_error *err)
{
	struct diagnostics found = {0};
	int r = workflow_read(out, run->workflow, buf_str(kept), kept->len, options, &found, err);

	forget_lines(&found);
	print_found(&found);
	diagnostics_release(&found);
	return r;
}

int load_run_workflow(struct workflow **out, const char *home, const struct records_run *run,
	const struct load_run_given *given, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf kept = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	_cleanup_(lookup_release) struct lookup lookup = {
		.file = given->credentials_from ? given->credentials_from : run->workflow,
		.given = given->credentials_from != NULL,
		.places_only = given->places_only,
		.bytes = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.variables = BUF_INIT(LIMIT_WORKFLOW_FILE),
	};
	_cleanup_free_ char *path = NULL;
	int r;

	path = run_path(home, run->id, RUN_FILE_WORKFLOW);
	if (!path)
		return error_memory(err);
	r = fs_read(path, &kept, err);
	if (r < 0)
		return error_prefix(err, "run %s", run->id);
	r = lookup_read(&lookup, err);
	if (r < 0)
		return r;
	r = read_copy(out, run, &kept,
		&(struct workflow_options){
			.sets = given->sets,
			.resolve = resolve,
			.cookie = &lookup,
			.places_only = given->places_only,
		},
		err);
	if (r < 0)
		return error_prefix(err,
			"cannot read the stored workflow of run %s; if a credential is gone, "
			"give --credentials-from FILE",
			run->id);
	return 0;
}
