/* `run` of a step. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native.h"
#include "base/banned.h"

#define MAX_RESTARTS 1000

#define MAX_ID 4294967294 /* the last one is "nobody changes it" for the kernel */

static void read_shell(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	static const char *const shells[] = {"/bin/sh", "/bin/bash", "/bin/ash"};
	struct workflow_text given = {0};
	char quoted[QUOTE_SIZE];

	run->shell = (struct workflow_text){.value = shells[0], .at = map->at};
	if (!reader_text(rd, map, "shell", &given))
		return;
	run->shell.at = given.at;
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		bool short_form = strcmp(given.value, shells[i] + strlen("/bin/")) == 0;

		if (!short_form && strcmp(given.value, shells[i]) != 0)
			continue;
		if (short_form)
			reader_note(
				rd, &given.at, "`shell: %s` is read as %s", given.value, shells[i]);
		run->shell.value = shells[i];
		return;
	}
	if (strcmp(given.value, "ENTRYPOINT") != 0)
		reader_error(rd, &given.at,
			"`%s` is /bin/sh, /bin/bash, /bin/ash or, in a container, ENTRYPOINT, not "
			"%s",
			reader_field(rd, "shell"), quote(workflow_shown(&given), quoted));
	else if (!run->container.given)
		reader_error(rd, &given.at,
			"`shell: ENTRYPOINT` is the entry point of an image and needs a "
			"`container`; name a shell, such as /bin/sh");
	else
		run->shell.value = "ENTRYPOINT";
}

static void read_command(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	const struct node *node = node_get(map, "command");

	run->command.at = map->at;
	if (!node) {
		reader_missing(rd, map, &schema_run, "command", "it is what the step runs");
		return;
	}
	if (refuse_secret_in_command(rd, node, reader_field(rd, "command")) &&
		reader_text(rd, map, "command", &run->command) && !run->container.given &&
		run->command.value[strspn(run->command.value, " \t\r\n")] == '\0')
		reader_error(rd, &run->command.at,
			"`%s` is empty, which only a container has a meaning for",
			reader_field(rd, "command"));
}

/* Who the step sees itself as. `mapRoot` is the older way to say 0 and 0. */
static void read_ids(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	struct workflow_flag root = {0};

	reader_number(rd, map, "mapUid", 0, MAX_ID, &run->map_uid);
	reader_number(rd, map, "mapGid", 0, MAX_ID, &run->map_gid);
	if (!reader_flag(rd, map, "mapRoot", &root) || !root.value)
		return;
	if (run->map_uid.given || run->map_gid.given) {
		reader_error(rd, &root.at,
			"`%s` is the older way to say `mapUid: 0` and `mapGid: 0`; give one of "
			"them",
			reader_field(rd, "mapRoot"));
		return;
	}
	run->map_uid = run->map_gid = (struct workflow_number){0, true, root.at};
}

static void read_mpi(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	static const char *const kinds[] = {"none", "pmix_v4", "pmi2"};
	char quoted[QUOTE_SIZE];

	if (!reader_text(rd, map, "mpi", &run->mpi))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(run->mpi.value, kinds[i]) == 0)
			return;
	}
	reader_error(rd, &run->mpi.at, "`%s` is none, pmix_v4 or pmi2, not %s",
		reader_field(rd, "mpi"), quote(workflow_shown(&run->mpi), quoted));
}

void read_run(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	char quoted[QUOTE_SIZE];

	run->at = map->at;
	if (!reader_check_map(rd, map, &schema_run))
		return;
	read_container(rd, map, &run->container);
	read_command(rd, map, run);
	read_shell(rd, map, run);
	read_env(rd, map, &run->env);
	read_step_resources(rd, map, run);
	reader_number(rd, map, "restarts", 0, MAX_RESTARTS, &run->restarts);
	read_timeouts(rd, map, &run->timeouts);
	read_network(rd, map, run);
	read_ids(rd, map, run);
	reader_flag(rd, map, "disableCpuBinding", &run->disable_cpu_binding);
	read_mpi(rd, map, run);
	if (reader_text(rd, map, "workDir", &run->work_dir) &&
		!reader_is_open(rd, &run->work_dir) && *run->work_dir.value != '/')
		reader_error(rd, &run->work_dir.at,
			"`%s` must be an absolute path, not %s; without it a step starts in "
			"$STORAGE_PATH",
			reader_field(rd, "workDir"), quote(workflow_shown(&run->work_dir), quoted));
}
