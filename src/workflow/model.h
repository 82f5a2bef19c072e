/*
 * The model of a workflow: every dialect is read into the model, and the rest of penstock uses
 * nothing else. src/workflow/workflow.h has the functions that read a file into the model.
 *
 * The `struct workflow` owns everything here until workflow_free(). Nothing is modified after
 * reading, except inputs that are outputs of other runs (cli/history/artifacts_place.h). "value
 * NULL" in a comment means that the member `value` of the text is NULL. Every value has the place
 * where it was given, so that a later message can say "wf.json:5:20: resources.cpusPerTask asks for
 * 8, this machine has 2": workflow_place_format(). Defaults are already applied; `given` (or a
 * non-zero line or an option in `at`) is set if the file or an option gives the value.
 *
 * Secrets: `value` of a text may be a secret if `shown` differs from it. Print, record and log
 * `shown` only (workflow_shown()). All secret values were passed to log_redact() while reading.
 */
#ifndef WORKFLOW_MODEL_H
#define WORKFLOW_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workflow/document/diagnostics.h"

struct workflow_text {
	const char *value; /* NULL if it is not given and has no default */
	const char *shown; /* as written, with `${{ secrets.X }}`; NULL if it equals `value` */
	struct workflow_place at;
};

struct workflow_number {
	int64_t value;
	bool given;
	struct workflow_place at; /* if not given: the map that could contain the value */
};

struct workflow_flag {
	bool value;
	bool given;
	struct workflow_place at;
};

/* The source of a credential; never its value. */
enum workflow_source {
	WORKFLOW_FROM_NOWHERE, /* not given: the environment, profiles and roles decide */
	/* in the workflow; `name` is its field, "output.s3.accessKeyId" */
	WORKFLOW_FROM_FILE,
	WORKFLOW_FROM_OPTION, /* in a --set; `name` is its field */
	WORKFLOW_FROM_SECRET, /* ${{ secrets.NAME }} */
	WORKFLOW_FROM_ENV, /* ${{ env.NAME }} */
};

struct workflow_credential {
	const char *value; /* NULL if it is not given */
	enum workflow_source source;
	/* name of the field, secret or variable; NULL if the source is WORKFLOW_FROM_NOWHERE */
	const char *name;
	/* for records and messages: "file:output.s3.secretAccessKey", "option:…", "secret:NAME",
	 * "env:NAME"; NULL if the source is WORKFLOW_FROM_NOWHERE */
	const char *reference;
	struct workflow_place at;
};

struct workflow_env {
	const char *key; /* [a-zA-Z_][a-zA-Z0-9_]*, never PATH or LD_LIBRARY_PATH */
	struct workflow_text value;
	struct workflow_place at;
};

/* A later entry of the same key wins. */
struct workflow_env_list {
	struct workflow_env *items;
	size_t n;
};

struct workflow_mount {
	struct workflow_text host_dir; /* absolute */
	struct workflow_text container_dir; /* absolute, without ".." */
	bool read_only;
	bool slave; /* the container sees what is mounted below host_dir later */
	struct workflow_place at;
};

/* The container of a `run`. */
struct workflow_container {
	bool given; /* false if the step runs on the host */
	/* "name[:tag][@sha256:…]", with a host in front if `registry` has no value; an absolute
	 * path is a file below $STORAGE_PATH. */
	struct workflow_text image;
	/* value NULL for the registry in the image's name or, if the name has none, Docker's */
	struct workflow_text registry;
	struct workflow_text username; /* value NULL for the user's own login, if there is one */
	struct workflow_credential password;
	struct workflow_flag x11;
	struct workflow_flag mount_home;
	struct workflow_flag read_only_root;
	struct workflow_mount *mounts;
	size_t n_mounts;
	struct workflow_place at;
};

/* Resources of the whole job. If the file has no `resources`, they are the largest needs of its
 * steps. */
struct workflow_resources {
	struct workflow_number tasks; /* ≥ 1 */
	struct workflow_number cpus_per_task; /* ≥ 1 */
	struct workflow_number mem_per_cpu; /* MB (2^20 bytes); 0 if not limited */
	struct workflow_number gpus; /* GPUs of the whole job, even if gpusPerTask was given */
	struct workflow_number gpus_per_task; /* the older key; steps inherit it if `given` */
	/* penstock's own key; 0 if any number is allowed. A cluster spreads the tasks of the run
	 * over its nodes accordingly. */
	struct workflow_number tasks_per_node;
	/* penstock's own key; for each step; steps inherit it if `given` */
	struct workflow_number max_processes;
	bool given;
	struct workflow_place at;
};

struct workflow_step_resources {
	struct workflow_number tasks; /* ≥ 1; default 1 */
	struct workflow_number cpus_per_task; /* default: the job's */
	struct workflow_number mem_per_cpu; /* MB; default: the job's; 0 if not limited */
	/* default: the job's gpusPerTask if given, else 0 */
	struct workflow_number gpus_per_task;
	/* including threads; 0 if not limited; if neither the step nor the job gives it, `given` is
	 * false and the run chooses a limit (run/step/group.c) */
	struct workflow_number max_processes;
	bool own_processes; /* the step gives maxProcesses, not the job */
	struct workflow_place at;
	/* "steps[0].run.resources", as in --set; NULL in a module, which --set cannot change. */
	const char *field;
};

/* Time limits of a run or a step, in milliseconds; no limit if not given. */
struct workflow_timeouts {
	struct workflow_number timeout; /* time from the start */
	struct workflow_number hang; /* time without any output and any use of the CPU */
};

/* Notifications of a run. */
enum workflow_notify_event {
	WORKFLOW_NOTIFY_START = 1, /* the steps of the run start */
	WORKFLOW_NOTIFY_END = 2, /* the run has ended, with any result */
	WORKFLOW_NOTIFY_FAILURE = 4, /* the run has failed */
};
struct workflow_notify {
	/* value NULL if there are no notifications; the address is a secret */
	struct workflow_credential url;
	unsigned events; /* enum workflow_notify_event */
	struct workflow_place at;
};

enum workflow_transport {
	WORKFLOW_NO_TRANSPORT,
	WORKFLOW_HTTP,
	WORKFLOW_S3, /* also `gs` */
	WORKFLOW_LOCAL, /* a file or directory of this machine; inputs only */
	/* the output of another run; for inputs only, until the run is resolved */
	WORKFLOW_ARTIFACTS,
};

struct workflow_s3 {
	struct workflow_text region;
	struct workflow_text bucket_url; /* "s3://bucket" */
	const char *bucket; /* "bucket" */
	struct workflow_text path; /* as written, "/" or "/runs/7" */
	const char *prefix; /* "" or "runs/7/": keys below it belong to this path */
	struct workflow_text endpoint_url; /* "https://host"; value NULL if `embedded` */
	bool embedded; /* `endpointUrl: embedded`: penstock's own store */
	bool google; /* for `gs`, Google Cloud Storage; region and usually endpoint have no value */
	struct workflow_credential service_account_key; /* for `gs`: the JSON of a key file */
	struct workflow_credential access_key_id; /* both are given or neither */
	struct workflow_credential secret_access_key;
	struct workflow_flag delete_sync; /* default false; no effect on inputs */
	struct workflow_flag create_bucket; /* default false; no effect on inputs */
	struct workflow_place at;
};

/* The output of another run, by its name or by a tag; one of them has a value. */
struct workflow_artifacts {
	struct workflow_text run; /* the name of a run; the newest run of that name is used */
	struct workflow_text tag;
	struct workflow_place at;
};

/* One source of data. `input` is the first source, and the sources of `inputs` follow. */
struct workflow_input {
	enum workflow_transport kind;
	struct workflow_text http_url; /* HTTP */
	struct workflow_s3 s3; /* S3 */
	/* LOCAL: absolute if the workflow's display name is absolute, else relative to the
	 * workflow's folder */
	struct workflow_text local_path;
	struct workflow_artifacts artifacts; /* ARTIFACTS */
	struct workflow_text path; /* below the input directory, "" or "a/b"; never outside of it */
	/* link in the working directory to the data; "." for a link to each of its entries; value
	 * NULL if there is none */
	struct workflow_text link;
	/* 64 lower-case digits of the fetched file; value NULL if not given */
	struct workflow_text sha256;
	struct workflow_flag unpack; /* default: true for HTTP and LOCAL, else false */
	struct workflow_place at;
};

struct workflow_output {
	enum workflow_transport kind; /* WORKFLOW_NO_TRANSPORT, WORKFLOW_HTTP or WORKFLOW_S3 */
	struct workflow_text http_url;
	struct workflow_s3 s3;
	struct workflow_place at;
};

struct workflow_texts {
	struct workflow_text *items;
	size_t n;
	struct workflow_place at;
};

enum workflow_network {
	WORKFLOW_NETWORK_HOST, /* the machine's network */
	WORKFLOW_NETWORK_SLIRP4NETNS,
	WORKFLOW_NETWORK_PASTA,
};

enum workflow_interface_kind { WORKFLOW_WIREGUARD, WORKFLOW_BORE, WORKFLOW_VNET };

struct workflow_peer {
	struct workflow_text public_key;
	struct workflow_credential pre_shared_key;
	struct workflow_texts allowed_ips;
	struct workflow_text endpoint; /* "host:port"; value NULL if there is none */
	struct workflow_number persistent_keepalive;
	struct workflow_place at;
};

/* One of `customNetworkInterfaces`. */
struct workflow_interface {
	enum workflow_interface_kind kind;
	struct {
		struct workflow_texts address;
		struct workflow_credential private_key;
		struct workflow_peer *peers;
		size_t n_peers;
	} wireguard;
	struct {
		struct workflow_text address; /* "host:port" */
		struct workflow_number target_port;
		struct workflow_credential secret;
	} bore;
	struct {
		struct workflow_text name; /* name of one of the workflow's virtual networks */
		struct workflow_text address; /* "10.0.0.2/24" */
	} vnet;
	struct workflow_place at;
};

/* One of the job's `virtualNetworks`. */
struct workflow_virtual_network {
	struct workflow_text name;
	struct workflow_text gateway_address; /* "10.0.0.1/24" */
	struct workflow_place at;
};

struct workflow_run {
	/* empty only in a container, which then runs the image's command */
	struct workflow_text command;
	/* "/bin/sh" (default), "/bin/bash", "/bin/ash"; only in a container also "ENTRYPOINT",
	 * whose arguments are in `command` */
	struct workflow_text shell;
	/* absolute; value NULL for $STORAGE_PATH/work if `has_work_dir`, else $STORAGE_PATH or, in
	 * a container, the directory of the image */
	struct workflow_text work_dir;
	struct workflow_env_list env;
	struct workflow_step_resources resources;
	/* limits of each execution; `hang` is the job's if not given */
	struct workflow_timeouts timeouts;
	struct workflow_container container;
	enum workflow_network network;
	struct workflow_place network_at;
	struct workflow_texts dns; /* addresses; only for a network of the step's own */
	struct workflow_interface *interfaces; /* only for a network of the step's own */
	size_t n_interfaces;
	struct workflow_number map_uid,
		map_gid; /* the user and group of the step inside its namespace */
	struct workflow_flag disable_cpu_binding;
	/* "none", "pmix_v4" or "pmi2"; value NULL for the machine's default */
	struct workflow_text mpi;
	struct workflow_number restarts; /* restarts after a failure; default 0 */
	struct workflow_place at;
};

/* Steps that run one after another. */
struct workflow_steps {
	struct workflow_step *items;
	size_t n;
	struct workflow_place at;
};

enum workflow_step_kind {
	WORKFLOW_STEP_EMPTY, /* does nothing, which is valid */
	WORKFLOW_STEP_RUN,
	WORKFLOW_STEP_GROUP, /* `steps` */
	WORKFLOW_STEP_FOR,
	WORKFLOW_STEP_LAUNCH,
	WORKFLOW_STEP_USE,
};

/* The body is `steps` of the step. */
struct workflow_for {
	struct workflow_flag parallel;
	bool has_items;
	struct workflow_texts items; /* values of `items` */
	/* values of `range`; both ends are included; increment is not 0 */
	struct workflow_number begin, end, increment;
	uint64_t count; /* iterations; 0 if the loop does nothing */
};

/* The body is `steps` of the step. */
struct workflow_launch {
	struct workflow_text handle; /* upper case; value NULL if no step can wait for the launch */
	struct workflow_number signal; /* sent at the end of the enclosing scope; 0 for no signal */
};

/* `steps` of the step are the steps of the module or, if the module was not read, the steps of
 * `use` that the module may insert. */
struct workflow_use {
	struct workflow_text source;
	struct workflow_env_list args; /* as given */
	struct workflow_text export_env_as; /* value NULL if outputs stay inside the module */
	bool resolved; /* the module was read; the fields below describe it */
	struct workflow_text module_name;
	struct workflow_env_list env; /* all inputs of the module, defaults applied */
	struct workflow_texts outputs; /* names of variables */
};

struct workflow_step {
	struct workflow_text name; /* value NULL if the step has no name; names may repeat */
	/* for messages: the name of the step, else "step 2.1"; never holds a secret */
	const char *label;
	const char *path; /* the field, "steps[1].for.steps[0]" */
	struct workflow_texts depends_on; /* handles, upper case, launched before and in scope */
	/* `if`: an expression for bash's [[ ]]; value NULL if always true */
	struct workflow_text condition;
	enum workflow_step_kind kind;
	struct workflow_run run;
	struct workflow_for loop;
	struct workflow_launch launch;
	struct workflow_use use;
	struct workflow_steps steps; /* steps of GROUP, FOR, LAUNCH and USE */
	struct workflow_steps catch_steps, finally_steps;
	struct workflow_place at;
};

/* Experiment trackers whose variables the steps get. */
struct workflow_mlflow {
	bool given;
	struct workflow_text uri; /* address of the server; may have a user and a password */
	struct workflow_text experiment; /* name of the experiment */
	struct workflow_place at;
};
struct workflow_wandb {
	bool given;
	struct workflow_text project;
	struct workflow_text entity; /* value NULL for the default entity of the key */
	/* data is sent while the steps run; otherwise all data stays below the output */
	bool online;
	struct workflow_place at;
};
struct workflow_aim {
	bool given;
	/* "aim://host:port", an absolute path, or a path below the output; default "." */
	struct workflow_text repo;
	struct workflow_place at;
};
struct workflow_tracking {
	struct workflow_mlflow mlflow;
	struct workflow_wandb wandb;
	struct workflow_aim aim;
	bool given;
	struct workflow_place at;
};

/* Files of a context that are not copied. */
enum workflow_ignore {
	WORKFLOW_IGNORE_NONE,
	WORKFLOW_IGNORE_GIT, /* .git/ and the matches of .gitignore files */
	WORKFLOW_IGNORE_DET, /* Determined's defaults, and the matches of .detignore */
};

/* A directory whose copy is the working directory of every step. */
struct workflow_context {
	struct workflow_text path; /* value NULL if not given */
	enum workflow_ignore ignore;
	struct workflow_number max_bytes; /* 0 if only the disk limits the context */
	struct workflow_place at;
};

/* Packages for the steps that run on the host. */
struct workflow_python {
	bool given;
	/* below the working directory; value NULL if not given */
	struct workflow_text requirements;
	struct workflow_text version; /* "3.11"; value NULL for the version of python3 */
	/* the packages of the machine are visible; default true */
	struct workflow_flag system_packages;
	/* Determined's Core API works without its master; default false */
	struct workflow_flag determined;
	struct workflow_place at;
};

/* Sources of preemption notices. */
enum workflow_notice_kind {
	WORKFLOW_NOTICE_AUTO, /* the cloud of this machine */
	WORKFLOW_NOTICE_GCP,
	WORKFLOW_NOTICE_AWS,
	WORKFLOW_NOTICE_AZURE,
	WORKFLOW_NOTICE_FILE, /* the file `value` exists */
	WORKFLOW_NOTICE_COMMAND, /* the command `value` exits with 0 */
};
/* Names of the kinds up to WORKFLOW_NOTICE_AZURE; ends with NULL. */
extern const char *const workflow_notice_words[];
struct workflow_notice_source {
	enum workflow_notice_kind kind;
	struct workflow_text value;
	struct workflow_place at;
};

/* Handling of preemption notices. A configuration file has these keys too, and gives the values of
 * keys that the workflow does not give. */
struct workflow_preemption {
	bool sources_given;
	/* sources in addition to signals, which are always notices */
	struct workflow_notice_source *sources;
	size_t n_sources;
	bool signal_given;
	int signal; /* sent to the tasks; 0 if only the file is written */
	/* ms from a notice to the end, if the source does not give the time */
	struct workflow_number grace;
	struct workflow_number reserve; /* ms of `grace` that are kept for publishing */
	struct workflow_text gcp, aws, azure; /* addresses of the metadata services */
	struct workflow_place at;
};

/* Checkpoints of the output that are kept; without `keep` all checkpoints are kept. The newest
 * checkpoint is always kept. */
struct workflow_checkpoints {
	bool given;
	struct workflow_text path; /* below the output, "." or "a/b"; default "checkpoints" */
	/* for files that are checkpoints by themselves; value NULL if not given */
	struct workflow_text pattern;
	bool keeps; /* one of the following is given */
	struct workflow_number latest;
	/* checkpoints of steps that are multiples of this number are kept */
	struct workflow_number every;
	struct workflow_text metric; /* metric of the best checkpoints; value NULL if not given */
	bool larger; /* larger values of the metric are better */
	struct workflow_number best; /* number of the best checkpoints that are kept */
	struct workflow_place at;
};

/* Limits for the copies that the run makes of objects before it overwrites them. */
struct workflow_replaced {
	bool given;
	struct workflow_number keep; /* number of newest copies of each file that are kept */
	struct workflow_number age; /* ms after which a copy is removed; no limit if not given */
	struct workflow_place at;
};

/* Failures after which a run may be retried; records.h has their meaning. */
enum workflow_retry_class {
	WORKFLOW_RETRY_INPUT = 1,
	WORKFLOW_RETRY_IMAGE = 2,
	WORKFLOW_RETRY_OOM = 4,
	WORKFLOW_RETRY_USER = 8,
	WORKFLOW_RETRY_OUTPUT = 16,
	WORKFLOW_RETRY_NODE = 32,
	WORKFLOW_RETRY_TIMEOUT = 64,
	WORKFLOW_RETRY_ALL = 127
};
struct workflow_retry {
	struct workflow_number max; /* attempts after a failure; 0 if there are no retries */
	int *codes; /* exit codes of a step, 1 to 255 */
	size_t n_codes;
	unsigned classes; /* enum workflow_retry_class; a match of code or class is enough */
	/* ms before the first retry; doubled for each later retry */
	struct workflow_number backoff;
	struct workflow_place at;
};

enum workflow_resume { WORKFLOW_RESUME_AUTO, WORKFLOW_RESUME_NEVER };

struct workflow {
	const char *file; /* display name: the path, URL or "<stdin>" */
	const char *dialect; /* "penstock", "dstack", "determined", "skypilot" */

	struct workflow_text name; /* value NULL if the digest is the identity */
	struct workflow_resources resources;
	/* variables of the job: its `secrets`, its `env`, and last the variables of --env */
	struct workflow_env_list env;
	struct workflow_mount *mounts; /* mounts of every container, before the mounts of its own */
	size_t n_mounts;
	struct workflow_flag enable_logging;
	struct workflow_input *inputs;
	size_t n_inputs;
	/* permission bits, 0 to 0777, for the whole input directory; modes of the source if not
	 * given */
	struct workflow_number input_mode;
	struct workflow_output output;
	struct workflow_flag continuous_output_sync; /* false if the output is not in a store */
	struct workflow_replaced replaced;
	struct workflow_steps steps; /* at least one */
	struct workflow_virtual_network *virtual_networks;
	size_t n_virtual_networks;
	struct workflow_context context;
	struct workflow_python python;
	/* paths of the working directory that belong to the output; a `/` at the end marks a
	 * directory */
	struct workflow_text *artifacts;
	size_t n_artifacts;
	/* steps start in a directory of their own, because a context, Python, an artifact or a
	 * `link` of an input is given */
	bool has_work_dir;
	enum workflow_resume resume;
	/* `timeout` of the whole run, from its first step; default `hang` of each step */
	struct workflow_timeouts timeouts;
	/* ms that the final upload waits for a store that does not reply */
	struct workflow_number store_patience;
	struct workflow_number ports; /* number of free ports for its steps */
	struct workflow_text price; /* per hour: digits with at most one point */
	struct workflow_notify notify;
	struct workflow_preemption preemption;
	struct workflow_checkpoints checkpoints;
	struct workflow_retry retry;
	struct workflow_tracking tracking;

	/* SHA-256, lower-case hexadecimal, of the workflow as written: without overrides, and with
	 * every credential masked (docs/workflow.md, "Identity"). */
	char digest[65];

	struct workflow_own *own; /* private: memory and document of the workflow */
};

/* Returns the form of a text for output, records and logs; NULL if the text was not given and has
 * no default. */
static inline const char *workflow_shown(const struct workflow_text *text)
{
	return text->shown ? text->shown : text->value;
}

/* Calls `fn` for every step of the tree in file order, including the steps of `catch`, `finally`
 * and modules. Stops at the first non-zero return of `fn` and returns it. */
int workflow_walk(const struct workflow_steps *steps,
	int (*fn)(void *cookie, const struct workflow_step *step), void *cookie);

/* Appends "wf.json:5:20", "--set resources.tasks", or "wf.json" if the value was not given. */
int workflow_place_format(
	const struct workflow *workflow, const struct workflow_place *at, struct buf *out);
/* Puts this place before the message of `err`. Returns -code. */
int workflow_error_at(const struct workflow *workflow, const struct workflow_place *at,
	struct penstock_error *err);

void workflow_free(struct workflow *workflow);
static inline void workflow_freep(struct workflow **workflow)
{
	workflow_free(*workflow);
	*workflow = NULL;
}

#endif
