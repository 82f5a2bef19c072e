#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/remote.h"
#include "cli/show_util.h"
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
	if (doctor->array) {
		json_t *object = json_object();

		json_object_set_new(object, "status", json_text(verdict_names[verdict]));
		json_object_set_new(object, "subject", json_text(subject));
		json_object_set_new(object, "detail", json_text(buf_str(&text)));
		json_object_set_new(object, "advice", json_text(advice));
		json_array_append_new(doctor->array, object);
		return;
	}
	grid_add(&doctor->grid, verdict_names[verdict]);
	grid_add(&doctor->grid, subject);
	grid_addf(
		&doctor->grid, "%s%s%s", buf_str(&text), advice ? "; " : "", advice ? advice : "");
}

static int run_doctor(const struct cli *cli)
{
	struct doctor doctor = {
		.grid = GRID_INIT(3), .array = cli_has(cli, "json") ? json_array() : NULL};
	int r = 0;

	doctor.grid.state_column = 0;
	doctor.grid.whole = true;
	grid_add(&doctor.grid, "STATUS");
	grid_add(&doctor.grid, "SUBJECT");
	grid_add(&doctor.grid, "DETAIL");
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

static const struct option_spec options[] = {
	{0, "bucket", "s3://BUCKET", "Also ask the store for this bucket"},
	{0, "json", NULL, "A list of objects, for programs"},
	REMOTE_OPTIONS,
	{0, NULL, NULL, NULL},
};

static const struct command_example examples[] = {
	{"penstock doctor", "Is this machine fit, and what should be changed"},
	{"penstock doctor --bucket s3://cifar10",
		"And can the bucket be read with the credentials of the environment"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {
	{"78", "Something would keep runs from working; the line says what to do"},
	{NULL, NULL},
};

const struct command command_doctor = {
	.name = "doctor",
	.summary = "check this machine and say what to change",
	.description =
		"Checks what penstock needs of this machine: features of the kernel, limits, "
		"resources, directories and their space, the clock, libraries, and whether "
		"there are credentials for object storage. Each line is ok, warn (works, "
		"but less well) or fail, with what to do.",
	.options = options,
	.examples = examples,
	.exits = exits,
	.run = run_doctor,
};
