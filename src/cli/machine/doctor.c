#include <stdarg.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/machine/doctor.h"
#include "cli/objects/remote.h"

#include "base/banned.h"

static const char *const verdict_names[] = {"ok", "warn", "fail"};

void doctor_say(struct doctor *doctor, enum verdict verdict, const char *subject,
	const char *advice, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (verdict > doctor->worst)
		doctor->worst = verdict;
	json_array_append_new(doctor->array,
		json_pack("{s:s, s:s, s:o, s:o}", "status", verdict_names[verdict], "subject",
			subject, "detail", json_text(buf_str(&text)), "advice", json_text(advice)));
	grid_add(&doctor->grid, verdict_names[verdict]);
	grid_add(&doctor->grid, subject);
	grid_addf(
		&doctor->grid, "%s%s%s", buf_str(&text), advice ? "; " : "", advice ? advice : "");
}

static int run_doctor(const struct cli *cli)
{
	struct doctor doctor = {.grid = grid_new("STATUS", "SUBJECT", "DETAIL"),
		.array = cli_has(cli, "json") ? json_array() : NULL};
	int r;

	doctor.grid.state_column = 0;
	doctor.grid.whole = true;
	doctor_machine(&doctor);
	doctor_store(&doctor, cli);
	r = show_list(&doctor.grid, doctor.array, 0);
	return r == 0 && doctor.worst == VERDICT_FAIL ? CLI_EXIT_CONFIG : r;
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
