#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/machine/doctor.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "base/banned.h"

static int run_doctor(const struct cli *cli)
{
	struct doctor doctor = {.grid = grid_new("STATUS", "SUBJECT", "DETAIL"),
		.array = cli_has(cli, "json") ? json_array() : NULL};
	int r = 0;

	doctor.grid.state_column = 0;
	doctor.grid.whole = true;
	doctor_kernel(&doctor);
	doctor_machine(&doctor);
	doctor_places(&doctor);
	doctor_libraries(&doctor);
	doctor_store(&doctor, cli);
	if (doctor.array)
		r = show_json(doctor.array);
	else
		grid_print(&doctor.grid);
	grid_release(&doctor.grid);
	if (r)
		return r;
	return doctor.worst == VERDICT_FAIL ? CLI_EXIT_CONFIG : 0;
}

const struct command command_doctor = {
	.name = "doctor",
	.summary = "check this machine and say what to change",
	.description =
		"Checks what penstock needs from this machine: features of the kernel, limits, "
		"resources, directories and their space, the clock, libraries, and credentials "
		"for object storage. Each line is ok, warn (works with limitations) or fail, "
		"with advice.",
	.options = OPTIONS({0, "bucket", "s3://BUCKET", "Also check access to this bucket"},
		{0, "json", NULL, "Print a list of objects"}, REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock doctor", "Check this machine, and list what should be changed"},
		{"penstock doctor --bucket s3://cifar10",
			"Also check that the bucket is readable with the credentials of the environment"}),
	.exits = EXITS({"78",
		"A check failed that would keep runs from working; its line says what to do"}),
	.run = run_doctor,
};
