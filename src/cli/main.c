#include "cli/commands.h"

/* In the order in which `penstock --help` shows them. */
static const struct command *const commands[] = {
	&command_run,
	&command_resume,
	&command_flush,
	&command_tag,
	&command_validate,
	&command_ps,
	&command_show,
	&command_logs,
	&command_stop,
	&command_preempt,
	&command_exec,
	&command_rm,
	&command_ls,
	&command_cat,
	&command_pull,
	&command_put,
	&command_cp,
	&command_mv,
	&command_sync,
	&command_artifacts,
	&command_batch,
	&command_stat,
	&command_du,
	&command_presign,
	&command_mb,
	&command_rb,
	&command_runners,
	&command_secret,
	&command_serve,
	&command_doctor,
	NULL,
};

int main(int argc, char **argv)
{
	return cli_main(argc, argv, commands);
}
