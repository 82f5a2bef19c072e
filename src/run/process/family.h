/*
 * Assigns the descendants of this process to tasks, if several tasks are alive. The supervisor is a
 * subreaper, so processes left by a task become children of the supervisor; tasks are distinguished
 * by their leader, by the session that the leader started, and by a mark in the environment, which
 * processes still have after they left the session.
 *
 *	family_mark(mark);	// put the mark in the environment of the task
 *	family_join(&member, leader, mark);	// at its start
 *	family_kill(&member);	// kills the task and the processes that it left
 *	family_leave(&member);
 *
 * The same thread calls these functions and all other functions that start and end tasks.
 */
#ifndef RUN_PROCESS_FAMILY_H
#define RUN_PROCESS_FAMILY_H

#include <stdbool.h>
#include <sys/types.h>

#define FAMILY_MARK_SIZE 40

struct family_member {
	pid_t leader;
	char mark[FAMILY_MARK_SIZE]; /* "PENSTOCK_TASK=…" */
	bool reaped; /* the leader was reaped; set by the owner */
	struct family_member *next;
};

/* Creates a unique mark; call it right before the task is started. */
void family_mark(char mark[static FAMILY_MARK_SIZE]);
void family_join(struct family_member *member, pid_t leader, const char *mark);
void family_leave(struct family_member *member);

/* Returns true if processes of the task other than its leader are alive. */
bool family_left(const struct family_member *member);
/* Kills all processes of the task, and reaps all but the leader. Processes that cannot be assigned
 * to a task are killed with the last task. */
void family_kill(struct family_member *member);

#endif
