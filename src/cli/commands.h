/* The verbs, in the order of `penstock --help`. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/command.h"

#define VERBS(X)                                                                                   \
	X(run)                                                                                     \
	X(resume)                                                                                  \
	X(validate)                                                                                \
	X(ps)                                                                                      \
	X(top)                                                                                     \
	X(show)                                                                                    \
	X(logs)                                                                                    \
	X(metrics)                                                                                 \
	X(tensorboard)                                                                             \
	X(ui)                                                                                      \
	X(stop)                                                                                    \
	X(preempt)                                                                                 \
	X(exec)                                                                                    \
	X(watch)                                                                                   \
	X(flush)                                                                                   \
	X(tag)                                                                                     \
	X(rm)                                                                                      \
	X(prune)                                                                                   \
	X(restore)                                                                                 \
	X(checkpoints)                                                                             \
	X(artifacts)                                                                               \
	X(cp)                                                                                      \
	X(mv)                                                                                      \
	X(sync)                                                                                    \
	X(batch)                                                                                   \
	X(ls)                                                                                      \
	X(cat)                                                                                     \
	X(put)                                                                                     \
	X(stat)                                                                                    \
	X(du)                                                                                      \
	X(presign)                                                                                 \
	X(mb)                                                                                      \
	X(rb)                                                                                      \
	X(dataset)                                                                                 \
	X(pack)                                                                                    \
	X(serve)                                                                                   \
	X(store)                                                                                   \
	X(deploy)                                                                                  \
	X(pull)                                                                                    \
	X(images)                                                                                  \
	X(doctor)                                                                                  \
	X(runners)                                                                                 \
	X(secret)                                                                                  \
	X(schema)

#define DECLARE(verb) extern const struct command command_##verb;
VERBS(DECLARE)
#undef DECLARE

#endif
