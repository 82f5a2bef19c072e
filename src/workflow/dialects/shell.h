/*
 * The shell around the commands of steps of other runners: Python, conda, sudo, and files at paths
 * outside of the working directory.
 *
 *	struct shell s;
 *
 *	shell_init(&s, rd, "cat /data/a");
 *	shell_place(&s, "$DEEPSQUARE_INPUT/a", "/data/a", SHELL_COPY);
 *	native_text(rd, run, "command", shell_command(&s, "export A=1\n", "cat /data/a"), at);
 *	shell_release(&s);
 */
#ifndef WORKFLOW_DIALECTS_SHELL_H
#define WORKFLOW_DIALECTS_SHELL_H

#include "base/buf.h"
#include "workflow/dialects/dialect.h"

/* Shell code that prints the address of each node, one per line. */
#define SHELL_NODE_ADDRESSES                                                                           \
	"for node in ${PENSTOCK_NODES:-127.0.0.1}; do ip=$(getent ahostsv4 \"$node\" 2>/dev/null | { " \
	"read -r ip _; echo \"$ip\"; }); echo \"${ip:-$node}\"; done"

struct shell {
	struct reader *rd;
	const char *commands; /* commands of all steps, which are searched for words */
	bool contained; /* the steps run in a container */
	const char *python; /* the version of Python on the host; NULL for the version of python3 */

	/* Shell code that puts files at their targets when a step starts. */
	struct buf links; /* lines that make links, below the home and in a container */
	struct buf mounts; /* words FROM TO HOW for each mount on the host */
	bool own_home; /* the home is a directory of the run */
};

void shell_init(struct shell *s, struct reader *rd, const char *commands);
void shell_release(struct shell *s);

/* Returns true if the text has the word by itself, not as a part of a longer name or path. */
bool shell_has_word(const char *text, const char *word);

enum shell_how { SHELL_COPY, SHELL_MOUNT };
/* Puts `from`, which the shell expands, at `target` when a step starts. */
void shell_place(struct shell *s, const char *from, const char *target, enum shell_how how);
/* Adds an input whose files are at `target` when a step starts; the caller adds its source. */
struct node *shell_input(struct shell *s, struct node *inputs, const char *target,
	enum shell_how how, const struct workflow_place *at);
/* Mounts a path of the host, which the shell does not expand. A relative target is below the
 * working directory. */
void shell_bind(struct shell *s, const char *host, const char *target, bool read_only);
/* Returns the command of a step: `first`, the lines for links, and `commands`, after the mounts on
 * the host. */
const char *shell_command(struct shell *s, const char *first, const char *commands);
/* Returns `body`, for `program -c`, after the mounts on the host. */
const char *shell_mounted(struct shell *s, const char *program, const char *body);

#endif
