/* The verbs; each is defined in the file of its name and has a line in the table of main.c. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/command.h"

extern const struct command command_artifacts;
extern const struct command command_batch;
extern const struct command command_cat;
extern const struct command command_checkpoints;
extern const struct command command_cp;
extern const struct command command_doctor;
extern const struct command command_du;
extern const struct command command_exec;
extern const struct command command_flush;
extern const struct command command_logs;
extern const struct command command_ls;
extern const struct command command_mb;
extern const struct command command_mv;
extern const struct command command_preempt;
extern const struct command command_presign;
extern const struct command command_ps;
extern const struct command command_pull;
extern const struct command command_images;
extern const struct command command_put;
extern const struct command command_rb;
extern const struct command command_resume;
extern const struct command command_rm;
extern const struct command command_run;
extern const struct command command_runners;
extern const struct command command_schema;
extern const struct command command_secret;
extern const struct command command_serve;
extern const struct command command_show;
extern const struct command command_stat;
extern const struct command command_stop;
extern const struct command command_sync;
extern const struct command command_tag;
extern const struct command command_validate;
extern const struct command command_watch;

#endif
