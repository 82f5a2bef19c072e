/*
 * The private network of a step: slirp4netns or pasta connects it to the network of the machine,
 * and further interfaces are created in it.
 *
 *	network_prepare(&setup, spec, box, err);	// finds the programs
 *	network_start(&setup.plan, body_fd, &seen);	// in the init, without allocating memory
 *	network_release(&setup);
 */
#ifndef RUN_TASK_NETWORK_H
#define RUN_TASK_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/str.h"

struct penstock_error;
struct process_info;
struct task_network;
struct task_spec;

/* Orphans become children of the init, and some end before the init knows their role: the task
 * itself may end before crun. So the init keeps the exit status of each child for seen_wait(). */
#define SEEN 64
struct seen {
	pid_t pid[SEEN];
	int status[SEEN];
	int n;
};
int seen_wait(pid_t pid, int *status, struct seen *seen);
/* Writes a file without allocating memory; `flags` are additional flags of open(). Returns -1 and
 * sets errno on failure. */
int network_write_file(const char *path, int flags, const char *text);

/* The command for an interface in addition to the interface of slirp4netns or pasta. */
struct network_command {
	const char *const *argv;
	const char *file; /* below NETWORK_RUN, written before the command runs; may be NULL */
	const char *text;
	bool stays; /* the command runs next to the step, and is restarted when it ends */
};
/* Directory in a file system in memory that only these commands see. */
#define NETWORK_RUN "/run/wireguard"

struct network_plan {
	uint16_t keys_port; /* port of the run's key server; 0 if there is none */
	const char *const *program; /* argv; NULL for the machine's network */
	/* the program writes a byte when it is ready, instead of going to the background */
	bool reports_ready;
	const char *netns; /* a file that becomes the name of the network namespace */
	const char *log; /* a file for the output of the commands */
	struct network_command *commands;
	size_t n_commands;
};

struct network_setup {
	struct network_plan plan;
	char *resolv; /* a file for /etc/resolv.conf */
	char *netns, *log;
	struct strlist program;
	struct strlist *argvs; /* argv of each command */
	struct strlist texts;
};

/* Checks that the required programs are installed. */
int network_check(const struct task_network *network, struct penstock_error *err);

int network_prepare(struct network_setup *setup, const struct task_spec *spec, const char *box,
	struct penstock_error *err);
void network_release(struct network_setup *setup);

/* Moves the caller, a process without threads, into its own network; does nothing for the machine's
 * network. If the run has a key server, a socket on the same port in the new network is passed to
 * the parent through `body_fd`. Returns -1 and sets errno on failure. */
int network_start(const struct network_plan *plan, int body_fd, struct seen *seen);

/* Reports a failure: the output of the commands, or the name of the program. */
int network_explain(const struct network_plan *plan, int errnum, struct penstock_error *err);

/* Returns true if the process is one of penstock's network helpers and does not belong to the
 * step. */
bool network_is_helper(const struct process_info *info);

#endif
