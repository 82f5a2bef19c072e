/* The verbs, in the order of `penstock --help`; each is defined in the file of its name. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/command.h"

#define VERBS(X)                                                                                   \
	X(run)                                                                                     \
	X(resume)                                                                                  \
	X(flush)                                                                                   \
	X(watch)                                                                                   \
	X(tag)                                                                                     \
	X(validate)                                                                                \
	X(ps)                                                                                      \
	X(show)                                                                                    \
	X(logs)                                                                                    \
	X(stop)                                                                                    \
	X(preempt)                                                                                 \
	X(exec)                                                                                    \
	X(rm)                                                                                      \
	X(ls)                                                                                      \
	X(cat)                                                                                     \
	X(pull)                                                                                    \
	X(images)                                                                                  \
	X(put)                                                                                     \
	X(cp)                                                                                      \
	X(mv)                                                                                      \
	X(sync)                                                                                    \
	X(artifacts)                                                                               \
	X(checkpoints)                                                                             \
	X(batch)                                                                                   \
	X(stat)                                                                                    \
	X(du)                                                                                      \
	X(presign)                                                                                 \
	X(mb)                                                                                      \
	X(rb)                                                                                      \
	X(runners)                                                                                 \
	X(secret)                                                                                  \
	X(schema)                                                                                  \
	X(serve)                                                                                   \
	X(doctor)

#define DECLARE(verb) extern const struct command command_##verb;
VERBS(DECLARE)
#undef DECLARE

#endif
