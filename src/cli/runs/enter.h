/* Joins a step in its container, for `penstock exec`. */
#ifndef CLI_RUNS_ENTER_H
#define CLI_RUNS_ENTER_H

#include <sys/types.h>

struct penstock_error;
struct strlist;

/*
 * Executes a copy of this program in memory, unless this process is already the copy. Call this
 * function before there are threads. Without the copy, the container could change the program: a
 * script of the image with the interpreter "/proc/self/exe" can make a process that has joined the
 * container open the file of the program, and the container could write to that file with the
 * rights of the caller. The copy gets its command line from /proc/self/cmdline, which must be
 * unchanged.
 */
int enter_prepare(struct penstock_error *err);

/*
 * Enters the directory and the `namespaces` of process `pid`, with no more privileges than that
 * process has. The names of the namespaces are those of /proc/PID/ns. On success, returns in a
 * child of the caller; the caller itself exits with the status of that child.
 */
int enter_container(pid_t pid, const struct strlist *namespaces, struct penstock_error *err);

#endif
