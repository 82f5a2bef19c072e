/*
 * Which of our descendants belong to which task, where several tasks live at a time. The supervisor is a
 * subreaper, so whoever is left behind by a task becomes its child; a task is told from another by its
 * leader, by the session that the leader began, and by a mark in the environment, which also those have that
 * left the session.
 *
 *	family_mark(mark);				goes into the environment of what is started
 *	family_join(&member, leader, mark);		at its start
 *	family_kill(&member);				ends it, and what it left behind
 *	family_leave(&member);
 *
 * For one thread, as everything that starts and ends tasks.
 */
#ifndef RUN_FAMILY_H
#define RUN_FAMILY_H

#include <stdbool.h>
#include <sys/types.h>

#define FAMILY_MARK_SIZE 40

struct family_member {
	pid_t leader;
	char mark[FAMILY_MARK_SIZE]; /* "PENSTOCK_TASK=…" */
	bool reaped;		     /* the leader's end was taken; set by the owner */
	struct family_member *next;
};

/* A mark that no other task has; to be asked for right before the task is started. */
void family_mark(char mark[static FAMILY_MARK_SIZE]);
void family_join(struct family_member *member, pid_t leader, const char *mark);
void family_leave(struct family_member *member);

/* Whether anything of the task lives but for its leader. */
bool family_left(const struct family_member *member);
/* Ends whatever lives of the task, and reaps it but for the leader. What cannot be told to belong to anybody
 * is ended with the last task that lives. */
void family_kill(struct family_member *member);

#endif
