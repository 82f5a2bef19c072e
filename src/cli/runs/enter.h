/* Joins a step in its container, for `penstock exec`. */
#ifndef CLI_RUNS_ENTER_H
#define CLI_RUNS_ENTER_H

#include <sys/types.h>

struct penstock_error;
struct strlist;

/*
 * Call this function before there are threads: it re-executes a copy of this program in memory,
 * unless this process is that copy already. A container that is joined can make the process open
 * the file of our program (through a script of the image with interpreter "/proc/self/exe"), and
 * could write to the file if the caller may. The copy gets its command line from
 * /proc/self/cmdline, which must be unchanged.
 */
int enter_prepare(struct penstock_error *err);

/*
 * Joins the directory and the `namespaces`, named as in /proc/PID/ns, of process `pid`, with no
 * more privileges than that process has. On success, returns in a child of the caller; the caller
 * itself exits with the status of that child.
 */
int enter_container(pid_t pid, const struct strlist *namespaces, struct penstock_error *err);

#endif
