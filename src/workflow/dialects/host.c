/* Notes about steps of other runners that run on this machine instead of a machine of their own. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialects/shell.h"

struct host {
	const struct workflow *workflow;
	struct diagnostics *found;
	bool any; /* at least one step runs on the host */
};

/* Commands that change the machine. */
static const char *const changes[] = {"shutdown", "poweroff", "reboot", "halt", "apt", "apt-get",
	"dpkg", "yum", "dnf", "systemctl", "sudo", "pkill", "killall", "useradd", "modprobe",
	"sysctl"};

static const char *const homes[] = {
	"/home/ubuntu/", "/home/gcpuser/", "/home/azureuser/", "/home/sky/", "/home/$USER/"};

static bool names(const struct workflow_env_list *env, const char *text)
{
	for (size_t i = 0; i < env->n; i++) {
		if (env->items[i].value.value && strstr(env->items[i].value.value, text))
			return true;
	}
	return false;
}

#define note(h, step, ...)                                                                         \
	diagnostics_add(                                                                           \
		(h)->found, DIAGNOSTIC_NOTE, (h)->workflow->file, &(step)->run.at, __VA_ARGS__)

static void note_machine(const struct host *h, const struct workflow_step *step, const char *text)
{
	if (step->run.resources.tasks.value > 1 &&
		(shell_has_word(text, "mpirun") || shell_has_word(text, "ssh")))
		note(h, step,
			"'%s' uses `mpirun` or `ssh`, which reach the other nodes only if these "
			"accept ssh from each other",
			step->label);
	if (strstr(text, "sky_templates"))
		note(h, step, "'%s' uses ~/sky_templates, which only SkyPilot's machines have",
			step->label);
	for (size_t i = 0; i < ARRAY_SIZE(homes); i++) {
		if (strstr(text, homes[i]) || names(&h->workflow->env, homes[i]))
			note(h, step,
				"'%s' names a path below %s, which is the home on SkyPilot's "
				"machines; here the home is $HOME",
				step->label, homes[i]);
	}
}

static int note_step(void *cookie, const struct workflow_step *step)
{
	struct host *h = cookie;
	const char *command = step->run.command.value;
	_cleanup_(buf_release) struct buf list = BUF_INIT(LIMIT_LOG_LINE);

	if (step->kind != WORKFLOW_STEP_RUN || !command)
		return 0;
	note_machine(h, step, command);
	if (step->run.container.given)
		return 0;
	h->any = true;
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		if (shell_has_word(command, changes[i]))
			buf_printf(&list, "%s`%s`", list.len ? ", " : "", changes[i]);
	}
	if (list.len)
		note(h, step, "'%s' calls %s, which changes this machine permanently", step->label,
			buf_str(&list));
	return 0;
}

void workflow_note_host(const struct workflow *workflow, bool here, struct diagnostics *found)
{
	struct host h = {.workflow = workflow, .found = found};
	const struct workflow_place at = {.line = 1, .column = 1};

	if (strcmp(workflow->dialect, "penstock") == 0)
		return;
	workflow_walk(&workflow->steps, note_step, &h);
	if (h.any)
		diagnostics_add(found, DIAGNOSTIC_NOTE, workflow->file, &at,
			"steps run on this machine, with its programs and its files, not in an "
			"image or VM of their own; --image IMAGE puts them into a container");
	if (!here && !workflow->resources.cpus_per_task.given)
		diagnostics_add(found, DIAGNOSTIC_NOTE, workflow->file, &at,
			"each task gets one CPU of the cluster, because the file gives no number; "
			"set the number with --set resources.cpusPerTask=N");
	diagnostics_sort(found);
}
