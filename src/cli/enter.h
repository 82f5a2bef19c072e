/* Joining a step in its container, for `penstock exec`. */
#ifndef CLI_ENTER_H
#define CLI_ENTER_H

#include <sys/types.h>

struct penstock_error;
struct strlist;

/*
 * Before anything else, and before there are threads: goes on as a copy of this program in memory, unless it is one
 * already. Whoever has joined a container can be made to show it our program's file (a script of the image that asks
 * for "/proc/self/exe"), and where the caller may write that, so may the container.
 * The copy is given the command line as it stands in /proc/self/cmdline, so nobody may have changed that.
 */
int enter_prepare(struct penstock_error *err);

/*
 * Joins the namespaces of process `pid` (names as in /proc/PID/ns) and its directory, with no more privileges than it
 * has. On success it returns in a child of the caller; the caller itself ends with that child's status.
 */
int enter_container(pid_t pid, const struct strlist *namespaces, struct penstock_error *err);

#endif
