/* Finds the files of a workflow: the file itself, and files of other runners in its directory. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/objects/remote.h"
#include "cli/workflow/load.h"
#include "cli/workflow/modules.h"
#include "records/claims.h"
#include "run/cluster/slurm.h"
#include "run/config/user_limits.h"
#include "transfer/location.h"
#include "transfer/objects.h"

void load_source_release(struct load_source *source)
{
	buf_release(&source->bytes);
	buf_release(&source->variables);
	buf_release(&source->defaults);
	free(source->shown);
	free(source->pick);
	free(source->run_args);
	free(source->context);
	free(source->endpoint_url);
	free(source->region);
	free(source->variables_name);
	free(source->defaults_name);
	buf_release(&source->as_written);
	strlist_release(&source->siblings);
}

/* Returns DIR/NAME.yaml or .yml, or NULL if there is none. */
static char *find_yaml(const char *dir, const char *name)
{
	static const char *const endings[] = {"yaml", "yml"};

	for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
		_cleanup_free_ char *path = str_printf(
			"%s/%s.%s", strcmp(dir, "/") == 0 ? "" : dir, name, endings[i]);

		if (!path || access(path, R_OK) == 0)
			return take_pointer(path);
	}
	return NULL;
}

/* Adds the names of the workflows of a file of .dstack/workflows/; adds nothing for other files. */
static int add_names(const char *folder, const char *file, struct strlist *out)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(LIMIT_WORKFLOW_FILE);
	_cleanup_free_ char *path = path_join(folder, file);

	if (!path)
		return -1;
	if ((!str_ends(path, ".yaml") && !str_ends(path, ".yml")) ||
		fs_read(path, &bytes, NULL) < 0)
		return 0;
	return workflow_defined(buf_str(&bytes), bytes.len, out);
}

/* Returns the file of DIR/.dstack/workflows/ that defines the workflow, or NULL if no file does. */
static char *find_in_folder(const char *dir, const char *name)
{
	_cleanup_free_ char *folder = path_join(dir, ".dstack/workflows");
	_cleanup_closedir_ DIR *list = folder ? opendir(folder) : NULL;
	const struct dirent *e;

	while (list && (e = fs_next_entry(list))) {
		_cleanup_(strlist_release) struct strlist names = {0};

		if (add_names(folder, e->d_name, &names) < 0)
			return NULL;
		for (size_t i = 0; i < names.n; i++) {
			if (strcmp(names.items[i], name) == 0)
				return path_join(folder, e->d_name);
		}
	}
	return NULL;
}

/* Collects the names of all workflows next to a file of .dstack/workflows/. */
static int find_siblings(struct load_source *source, struct penstock_error *err)
{
	_cleanup_free_ char *folder = strdup(source->shown);
	_cleanup_closedir_ DIR *list = NULL;
	const struct dirent *e;

	if (!folder)
		return error_memory(err);
	if (*folder != '/' || !strstr(folder, "/.dstack/workflows/"))
		return 0;
	*strrchr(folder, '/') = '\0';
	list = opendir(folder);
	while (list && (e = fs_next_entry(list))) {
		if (add_names(folder, e->d_name, &source->siblings) < 0)
			return error_memory(err);
	}
	return 0;
}

/*
 * Returns the file that find() finds in `dir` or in the nearest directory above. The file must
 * belong to this user, to root, or to the owner of `dir`: the file decides what is run and where
 * the output goes, and a parent directory may be writable for other users, as /tmp is.
 */
static char *find_above(
	const char *dir, char *(*find)(const char *dir, const char *name), const char *name)
{
	_cleanup_free_ char *at = realpath(dir, NULL);
	struct stat own, st;

	if (!at || stat(at, &own) < 0)
		return NULL;
	for (char *end = at + strlen(at); end; end = strrchr(at, '/')) {
		_cleanup_free_ char *found = NULL;

		*end = '\0';
		found = find(*at ? at : "/", name);
		if (found && (stat(found, &st) < 0 || st.st_uid == geteuid() || st.st_uid == 0 ||
				     st.st_uid == own.st_uid))
			return take_pointer(found);
		if (found)
			log_warn("ignoring '%s': it belongs to another user; to use the file, copy "
				 "it or give its path",
				found);
	}
	return NULL;
}

static bool is_dstack(const char *path)
{
	return strstr(path, "/.dstack/workflows/") || str_ends(path, "/.dstack/workflows.yaml") ||
	       str_ends(path, "/.dstack/workflows.yml");
}

int load_variables(const char *workflows, struct buf *text, char **name, struct penstock_error *err)
{
	_cleanup_free_ char *path = realpath(workflows, NULL);

	*name = NULL;
	if (!path || !is_dstack(path))
		return 0;
	*strrchr(path, '/') = '\0';
	if (str_ends(path, "/.dstack/workflows"))
		*strrchr(path, '/') = '\0';
	*name = find_yaml(path, "variables");
	return *name ? fs_read(*name, text, err) : 0;
}

static int read_variables_and_defaults(struct load_source *out, struct penstock_error *err)
{
	_cleanup_free_ char *folder = *out->shown == '/' ? strdup(out->shown) : NULL;
	_cleanup_free_ char *user = user_config_path();
	int r;

	if (!folder)
		return 0;
	r = load_variables(out->shown, &out->variables, &out->variables_name, err);
	/* The search for the project's penstock.yaml begins in the folder of the file or, if the
	 * file is in .dstack/, in the folder that has .dstack/. */
	*strrchr(folder, '/') = '\0';
	if (str_ends(folder, "/.dstack/workflows"))
		*strrchr(folder, '/') = '\0';
	if (str_ends(folder, "/.dstack"))
		*strrchr(folder, '/') = '\0';
	out->defaults_name = find_above(*folder ? folder : "/", find_yaml, "penstock");
	if (!out->defaults_name && user && access(user, F_OK) == 0)
		out->defaults_name = take_pointer(user);
	if (r == 0 && out->defaults_name)
		r = fs_read(out->defaults_name, &out->defaults, err);
	return r;
}

/* Returns the variables of the command line as text: "--epochs 3 --lr 0.1". */
static char *join_variables(const struct strlist *variables)
{
	struct buf out = BUF_INIT(LIMIT_STRING);

	for (size_t i = 0; variables && i < variables->n; i++) {
		const char *pair = variables->items[i];
		size_t len = strcspn(pair, "=");

		buf_printf(&out, "%s--%.*s %s", i ? " " : "", (int)len, pair, pair + len + 1);
	}
	return buf_take(&out);
}

static int fetch_object(const char *url, struct buf *bytes, struct penstock_error *err)
{
	_cleanup_(remote_release) struct remote remote = {0};
	_cleanup_free_ char *bucket = NULL;
	const char *key = strchr(url + 5, '/');
	int r;

	if (!key || !key[1] || key == url + 5)
		return error_set(
			err, PENSTOCK_E_INVALID, "invalid URL '%s'; use %.5sBUCKET/KEY", url, url);
	bucket = strndup(url + 5, (size_t)(key - url) - 5);
	if (!bucket)
		return error_memory(err);
	r = remote_open_default(&remote, *url == 'g', err);
	if (r == 0)
		r = object_get(object_at(remote.client, bucket, key + 1), NULL, bytes, NULL, err);
	return r;
}

/* Reads the bytes of "path", "-" or "s3://bucket/key"; sets `shown`. */
static int load_bytes(struct load_source *out, const char *source, struct penstock_error *err)
{
	struct stat st;
	int r;

	if (strcmp(source, "-") == 0) {
		r = fs_read("/dev/stdin", &out->bytes, err);
		if (r < 0)
			return error_prefix(err, "standard input");
		out->shown = strdup("<stdin>");
	} else if (location_is_object(source)) {
		r = fetch_object(source, &out->bytes, err);
		out->shown = strdup(source);
	} else {
		if (stat(source, &st) == 0 && S_ISDIR(st.st_mode)) /* a common mistake */
			return error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot read '%s': it is a directory; give the workflow file in it",
				source);
		r = fs_read(source, &out->bytes, err);
		if (r == 0)
			out->shown = realpath(source, NULL);
	}
	return r < 0 ? r : out->shown ? 0 : error_memory(err);
}

void load_tasks(const char *operand, struct strlist *out)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(LIMIT_WORKFLOW_FILE);
	struct stat st;

	/* Read only a regular file: a pipe could not be read again. */
	if (stat(operand, &st) == 0 && S_ISREG(st.st_mode) && fs_read(operand, &bytes, NULL) == 0)
		workflow_pipeline(buf_str(&bytes), bytes.len, out);
}

/* Measures the CPUs and GPUs that a run of this user may have on this machine. */
static int measure_machine(struct workflow_site *out, struct penstock_error *err)
{
	_cleanup_free_ struct machine_capacity *machine = calloc(1, sizeof(*machine));
	struct claim_limits limits;

	if (!machine)
		return error_memory(err);
	/* The run reports an invalid configuration later. */
	if (user_limits_read(&limits, NULL) < 0)
		limits = (struct claim_limits){.gpus = -1};
	machine_capacity(machine);
	out->cpus = machine->cpus;
	out->gpus = machine->gpus;
	if (limits.cpus > 0 && limits.cpus < out->cpus)
		out->cpus = (int)limits.cpus;
	if (limits.gpus >= 0 && limits.gpus < out->gpus)
		out->gpus = (int)limits.gpus;
	return 0;
}

int load_source_find(
	struct load_source *out, const struct load_given *given, struct penstock_error *err)
{
	_cleanup_free_ char *dstack = NULL;
	struct stat st;
	int r;

	/* An operand such as "train" is a file if that file exists; otherwise it may be the name of
	 * a workflow in a .dstack/. */
	if (strcmp(given->operand, "-") != 0 && !strchr(given->operand, '/') &&
		access(given->operand, F_OK) < 0) {
		dstack = find_above(".", find_yaml, ".dstack/workflows");
		if (!dstack)
			dstack = find_above(".", find_in_folder, given->operand);
	}

	*out = (struct load_source){
		.bytes = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.variables = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.defaults = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.as_written = BUF_INIT(LIMIT_WORKFLOW_RECORD),
	};
	r = load_bytes(out, dstack ? dstack : given->operand, err);
	if (r < 0)
		return r;
	out->dstack = is_dstack(out->shown) || str_ends(out->shown, ".dstack.yml") ||
		      str_ends(out->shown, ".dstack.yaml");
	out->run_args = join_variables(given->options.arguments);
	if (dstack || given->workflow) {
		out->pick = strdup(given->workflow ? given->workflow : given->operand);
		if (!out->pick)
			return error_memory(err);
	}
	if (!out->run_args)
		return error_memory(err);
	if (given->context) {
		out->context = realpath(given->context, NULL);
		if (!out->context)
			return error_errno(err, errno, "cannot use --context '%s'", given->context);
		if (stat(out->context, &st) < 0 || !S_ISDIR(st.st_mode))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot use --context '%s': it is not a directory", given->context);
	}
	r = find_siblings(out, err);
	return r < 0 ? r : read_variables_and_defaults(out, err);
}

/* Fills in the endpoint and the region. If the workflow is to run on another machine, nothing else
 * is known about that machine. */
static int describe_account(void *cookie, struct workflow_site *out, struct penstock_error *err)
{
	struct load_source *source = cookie;
	int r = source->region ? 0 : s3_place_resolve(&source->endpoint_url, &source->region, err);

	out->endpoint_url = source->endpoint_url;
	out->region = source->region;
	return r;
}

static int describe_site(void *cookie, struct workflow_site *out, struct penstock_error *err)
{
	int r = describe_account(cookie, out, err);

	return r == 0 ? measure_machine(out, err) : r;
}

/* Like describe_account(), and fills in the size of the nodes of the cluster. If Slurm does not
 * answer, the size stays unknown. */
static int describe_cluster(void *cookie, struct workflow_site *out, struct penstock_error *err)
{
	out->nodes = true;
	slurm_node_size(&out->cpus, &out->gpus, NULL);
	return describe_account(cookie, out, err);
}

static bool is_here(const char *path)
{
	return access(path, F_OK) == 0;
}

struct workflow_options load_source_options(
	struct load_source *source, const struct load_given *given)
{
	struct workflow_options options = given->options;

	options.is_here = given->here ? is_here : NULL;
	options.site = given->here || options.keep_references ? describe_site
		       : given->on_cluster		      ? describe_cluster
							      : describe_account;
	options.site_cookie = source;
	options.module = options.keep_references ? modules_find : modules_fetch;
	options.module_cookie = source->shown;
	options.pick = source->pick;
	options.run_args = source->run_args;
	options.siblings = source->siblings.n ? &source->siblings : NULL;
	options.context = source->context;
	options.variables = source->variables_name ? buf_str(&source->variables) : NULL;
	options.variables_len = source->variables.len;
	options.variables_name = source->variables_name;
	options.defaults = source->defaults_name ? buf_str(&source->defaults) : NULL;
	options.defaults_len = source->defaults.len;
	options.defaults_name = source->defaults_name;
	return options;
}
