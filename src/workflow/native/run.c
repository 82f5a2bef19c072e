/* `run` of a step. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/native.h"

#define MAX_RESTARTS 1000
#define MAX_ID	     4294967294 /* the next number means "no change" to the kernel */

static void check_shell(struct reader *rd, struct workflow_run *run)
{
	static const char *const shells[] = {"/bin/sh", "/bin/bash", "/bin/ash"};
	struct workflow_text *shell = &run->shell;

	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		bool short_form = strcmp(shell->value, shells[i] + strlen("/bin/")) == 0;

		if (!short_form && strcmp(shell->value, shells[i]) != 0)
			continue;
		if (short_form)
			reader_note(rd, &shell->at, "`shell: %s` is read as %s", shell->value,
				shells[i]);
		shell->value = shells[i];
		shell->shown = NULL;
		return;
	}
	if (strcmp(shell->value, "ENTRYPOINT") != 0)
		reader_refuse(rd, shell, "shell",
			"be /bin/sh, /bin/bash, /bin/ash or, in a container, ENTRYPOINT");
	else if (!run->container.given)
		reader_error(rd, &shell->at,
			"`shell: ENTRYPOINT` is the entry point of an image and needs a "
			"`container`; name a shell, such as /bin/sh");
}

static void check_run(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_run *run = out;
	const struct node *network = node_get(map, "network");
	struct workflow_flag root = {0};

	run->network_at = network ? network->at : map->at;
	if (run->command.value && !run->container.given &&
		!run->command.value[strspn(run->command.value, " \t\r\n")])
		reader_error_of(rd, &run->command.at, "command",
			"is empty, which is only allowed in a container");
	check_shell(rd, run);
	read_step_resources(rd, map, run);
	check_network(rd, map, run);
	reader_flag(rd, map, "mapRoot", &root);
	if (root.value && (run->map_uid.given || run->map_gid.given))
		reader_error_of(rd, &root.at, "mapRoot",
			"is the older form of `mapUid: 0` and `mapGid: 0`; keep one of them");
	else if (root.value)
		run->map_uid = run->map_gid = (struct workflow_number){0, true, root.at};
	if (reader_knows(rd, &run->work_dir) && *run->work_dir.value != '/')
		reader_refuse(rd, &run->work_dir, "workDir",
			"be an absolute path or left out, for a start in $STORAGE_PATH; `context: .` "
			"copies the directory of this file there");
}

static const char *const shell_words[] = {
	"/bin/sh", "/bin/bash", "/bin/ash", "ENTRYPOINT", "sh", "bash", "ash", NULL};
static const char *const network_words[] = {
	[WORKFLOW_NETWORK_HOST] = "host",
	[WORKFLOW_NETWORK_SLIRP4NETNS] = "slirp4netns",
	[WORKFLOW_NETWORK_PASTA] = "pasta",
	NULL,
};
static const char *const mpi_words[] = {"none", "pmix_v4", "pmi2", NULL};

static const struct schema_key run_keys[] = {
	{"command", TEXT(workflow_run, command),
		.flags = KEY_REQUIRED | KEY_SHOWN | KEY_NO_SECRET | KEY_MOVABLE,
		.says = "a command for the shell; may be empty only in a container"},
	{"shell", TEXT(workflow_run, shell), .flags = KEY_SHOWN, .preset_text = "/bin/sh",
		.words = shell_words,
		.value = "`/bin/sh`, `/bin/bash`, `/bin/ash`; in a container also `ENTRYPOINT`",
		.says = "the program that runs the command"},
	{"workDir", TEXT(workflow_run, work_dir), .flags = KEY_SHOWN, .value = "absolute path",
		.otherwise = "`$STORAGE_PATH/work` with `context`, `python`, `artifacts` or "
			     "`link`, else `$STORAGE_PATH`, or in a container the image's",
		.says = "the directory in which the command starts"},
	{"env", VARIABLES(workflow_run, env), .flags = KEY_SHOWN, .below = &schema_env,
		.says = "variables of this step only"},
	{"resources", MAP(workflow_run, resources, &schema_step_resources),
		.flags = KEY_SHOWN | KEY_OWN,
		.otherwise = "one task with the run's `cpusPerTask` and `memPerCpu`",
		.says = "the step's share of the run's resources"},
	{"container", MAP(workflow_run, container, &schema_container),
		.shown = {SET(workflow_run, container.given)},
		.says = "runs the step in a [container](containers.md), not on the machine "
			"itself"},
	{"restarts", NUMBER(workflow_run, restarts, 0, MAX_RESTARTS), .otherwise = "0",
		.says = "the number of times that the step is restarted after a failure; "
			"`$PENSTOCK_RESTART` has the number of the restart, and "
			"`$PENSTOCK_CHECKPOINT` the newest checkpoint; extension"},
	{"timeout", DURATION(workflow_run, timeouts.timeout, 1, LIMIT_WORKFLOW_DURATION),
		.says = "the time that each execution of this step may take; extension"},
	{"hangTimeout", DURATION(workflow_run, timeouts.hang, 1, LIMIT_WORKFLOW_DURATION),
		.otherwise = "the workflow's",
		.says = "as the workflow's `hangTimeout`, for this step; extension"},
	{"network", WORD(workflow_run, network, network_words),
		.says = "the machine's network, or [the step's own](#networks)"},
	{"dns", TEXTS(workflow_run, dns), .value = "list of addresses",
		.otherwise = "the machine's",
		.says = "name servers of a step with its own network"},
	{"customNetworkInterfaces", LIST(workflow_run, interfaces, n_interfaces, &schema_interface),
		.value = "list of [interfaces](#networks)",
		.says = "further interfaces of a step with its own network"},
	{"mapUid", NUMBER(workflow_run, map_uid, 0, MAX_ID), .otherwise = "the calling user",
		.says = "the user id that the step sees as its own"},
	{"mapGid", NUMBER(workflow_run, map_gid, 0, MAX_ID), .otherwise = "the calling group",
		.says = "the group id that the step sees as its own"},
	{"mapRoot", .kinds = KEY_FLAG, .flags = KEY_OWN,
		.says = "the older form of `mapUid: 0` and `mapGid: 0`"},
	{"disableCpuBinding", FLAG(workflow_run, disable_cpu_binding),
		.says = "the tasks of the step may use every CPU of the run"},
	{"mpi", WORD(workflow_run, mpi, mpi_words),
		.otherwise = "`none`; on Slurm, Slurm's default",
		.says = "the interface through which MPI starts several tasks"},
	{"image", .kinds = KEY_TEXT, .flags = KEY_LEGACY},
	{"registry", .kinds = KEY_TEXT, .flags = KEY_LEGACY},
	{"mounts", .kinds = KEY_LIST, .below = &schema_mount, .flags = KEY_LEGACY},
};
const struct schema schema_run = {
	SCHEMA("run", "`run`", run_keys), AT(workflow_run, at), .check = check_run};
