#include "cli/workflow/load.h"
#include "cli/workflow/load_again.h"
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
#include "workflow/document/secrets.h"

/* Sources for the credentials of a recorded run. */
struct lookup {
	const char *file;
	bool given; /* the file is from --credentials-from, and is not the original */
	struct buf bytes; /* contents of `file`; empty if the file is missing */
	char *pick; /* name of the workflow, if the file has several */
	struct buf variables; /* variables.yaml of dstack, from the same directory */
	char *variables_name; /* NULL without variables.yaml */
	bool places_only; /* see workflow_options */
	bool gone; /* a credential that is needed was not found */
};

static bool resolve(void *cookie, enum workflow_source source, const char *name, struct buf *value);

/* Resolves a reference that has replaced a key in the file since the run was recorded. Warns if the
 * reference has no value. */
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

static bool resolve(void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	struct lookup *lookup = cookie;
	const char *found;
	bool needed = !lookup->places_only || str_starts(name, "output.") ||
		      str_starts(name, "input");

	switch (source) {
	case WORKFLOW_FROM_OPTION: /* for a value of --set, look only in --credentials-from */
	case WORKFLOW_FROM_FILE:
		if ((lookup->given || source == WORKFLOW_FROM_FILE) && lookup->bytes.len &&
			workflow_find_field(lookup->file, lookup->bytes.data, lookup->bytes.len,
				name,
				&(struct workflow_options){
					.resolve = needed ? resolve_moved : resolve,
					.cookie = cookie,
					.pick = lookup->pick,
					.variables = lookup->variables_name
							     ? buf_str(&lookup->variables)
							     : NULL,
					.variables_len = lookup->variables.len,
					.variables_name = lookup->variables_name,
				},
				value, NULL) == 0)
			return true;
		lookup->gone |= needed;
		return false;
	case WORKFLOW_FROM_ENV:
		found = getenv(name);
		return found && buf_add_str(value, found) == 0;
	case WORKFLOW_FROM_SECRET:
		return secret_find(name, value);
	default:
		return false;
	}
}

/* Returns true if a variable may be a secret. Secrets are not stored next to a run. */
static bool has_secret(const struct strlist *variables)
{
	static const char *const words[] = {"key", "token", "secret", "passw", "credential"};

	for (size_t i = 0; variables && i < variables->n; i++) {
		_cleanup_free_ char *name = strdup(variables->items[i]);
		char *equals = name ? strchr(name, '=') : NULL;

		if (!equals)
			return true;
		*equals = '\0';
		if (secret_variable(name, equals + 1))
			return true;
		for (size_t k = 0; k < ARRAY_SIZE(words); k++) {
			if (strcasestr(name, words[k]))
				return true;
		}
	}
	return false;
}

int load_source_read(struct workflow **out, struct load_source *source,
	const struct load_given *given, struct penstock_error *err)
{
	struct workflow_options options = load_source_options(source, given);
	struct diagnostics found = {0};
	int r;

	options.resolve = resolve;
	options.cookie = &(struct lookup){.file = source->shown};
	if (!has_secret(options.arguments))
		options.as_written = &source->as_written;
	r = workflow_read(out, source->shown, buf_str(&source->bytes), source->bytes.len, &options,
		&found, err);
	if (r == 0)
		workflow_note_host(*out, given->here, &found);
	if (given->strict)
		diagnostics_be_strict(&found);
	load_print_found(&found, source->shown, &source->bytes);
	if (r == 0 && found.errors)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot load '%s': with --strict, its %zu notes are errors", source->shown,
			found.errors);
	source->wrong_defaults = options.defaults_name &&
				 diagnostics_all_of(&found, options.defaults_name);
	diagnostics_release(&found);
	if (r == 0)
		load_warn_of_keys(*out, NULL);
	return r;
}

static void lookup_release(struct lookup *lookup)
{
	buf_release(&lookup->bytes);
	buf_release(&lookup->variables);
	free(lookup->variables_name);
	free(lookup->pick);
}

int load_run_workflow(struct workflow **out, const char *home, const struct records_run *run,
	const struct load_run_given *given, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf kept = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	_cleanup_(lookup_release) struct lookup lookup = {
		.file = given->credentials_from ? given->credentials_from : run->workflow,
		.given = given->credentials_from != NULL,
		.places_only = given->places_only,
		.pick = load_again_pick(home, run->id),
		.bytes = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.variables = BUF_INIT(LIMIT_WORKFLOW_FILE),
	};
	_cleanup_free_ char *path = run_path(home, run->id, RUN_FILE_WORKFLOW);
	struct diagnostics found = {0};
	int r;

	if (!path)
		return error_memory(err);
	r = fs_read(path, &kept, err);
	if (r < 0)
		return error_prefix(err, "cannot read the workflow of run '%s'", run->id);
	if (given->again && !given->credentials_from) {
		r = load_again(home, run, &kept, given->again, err);
		if (r < 0)
			return r;
	}
	/* Ignore a missing file, unless the user has named the file: a credential that is needed
	 * and was only in the file is an error later. */
	r = fs_read(lookup.file, &lookup.bytes, lookup.given ? err : NULL);
	if (r < 0 && lookup.given)
		return r;
	if (r < 0)
		buf_clear(&lookup.bytes);
	else if (load_variables(lookup.file, &lookup.variables, &lookup.variables_name, NULL) < 0)
		buf_clear(&lookup.variables);
	r = workflow_read(out, run->workflow, buf_str(&kept), kept.len,
		&(struct workflow_options){
			.sets = given->sets,
			.env = given->env,
			.resolve = resolve,
			.cookie = &lookup,
			.places_only = given->places_only,
		},
		&found, err);
	/* Diagnostics name the original file, so remove the line numbers, which are those of the
	 * copy. */
	for (size_t i = 0; i < found.n; i++)
		found.items[i].line = found.items[i].column = 0;
	load_print_found(&found, NULL, NULL);
	diagnostics_release(&found);
	if (r < 0)
		return error_prefix(err, "cannot read the stored workflow of run '%s'%s", run->id,
			lookup.gone ? "; give --credentials-from FILE for the missing credential"
				    : "");
	return 0;
}
