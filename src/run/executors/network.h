/*
 * A network of a step's own: slirp4netns or pasta lead from it to the machine's, and further interfaces are made in it.
 *
 *	network_prepare(&setup, &spec->network, box, err);	finds the programs, writes the files that they need
 *	network_start(&setup.plan, &seen);			in the init: no memory may be taken there
 *	network_release(&setup);
 */
#ifndef RUN_EXECUTORS_NETWORK_H
#define RUN_EXECUTORS_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/str.h"

struct penstock_error;
struct process_info;
struct task_network;

/*
 * All that lose their parent become the init's children, and some end before it knows who they are: the task itself may be
 * done before crun is. So what it sees end on the way is remembered, for as long as somebody may ask.
 */
#define SEEN 64
struct seen {
	pid_t pid[SEEN];
	int status[SEEN];
	int n;
};
int seen_wait(pid_t pid, int *status, struct seen *seen);

/* An interface beside that of the program that leads outside. */
struct network_command {
	const char *const *argv;
	const char *file; /* below NETWORK_RUN, written before; NULL: none is needed */
	const char *text;
	bool stays; /* it runs beside the step, and again when it ends */
};
/* In a file system in memory that only these commands see. */
#define NETWORK_RUN "/run/wireguard"

struct network_plan {
	const char *const *program; /* argv; NULL: the machine's network */
	bool tells;	   /* it writes a byte when it is ready, else it goes into the background */
	const char *netns; /* a file that becomes the name of the network */
	const char *log;   /* a file that gets what the commands say */
	struct network_command *commands;
	size_t n_commands;
};

struct network_setup {
	struct network_plan plan;
	char *resolv; /* a file for /etc/resolv.conf */
	char *netns, *log;
	struct strlist program;
	struct strlist *argvs; /* of the commands */
	struct strlist texts;
};

/* Whether the programs that it needs are on this machine. */
int network_check(const struct task_network *network, struct penstock_error *err);

int network_prepare(struct network_setup *setup, const struct task_network *network,
	const char *box, struct penstock_error *err);
void network_release(struct network_setup *setup);

/* Moves the caller, a process alone, into a network of its own. -1 and errno. */
int network_start(const struct network_plan *plan, struct seen *seen);

/* After a failure: what the commands said, else which program it was. */
int network_explain(const struct network_plan *plan, int errnum, struct penstock_error *err);

/* Whether the process is one of ours for the network, and none of the step's. */
bool network_is_helper(const struct process_info *info);

#endif
