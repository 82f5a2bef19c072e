/* Replies that clients got, and a check that a store agrees with them. */
#ifndef POWER_EXPECT_H
#define POWER_EXPECT_H

#include <stdbool.h>
#include <stddef.h>

#include "model.h"

struct expected;

/* The file that replay.c describes. Ends the process where it cannot be used. */
struct expected *expected_load(const char *path, const struct model *m);
/* Opens the store at `root` as after a power loss at this position of the log; prints what is
 * wrong. The store is changed. */
bool expected_check(
	struct expected *e, const char *root, size_t position, bool relaxed, unsigned seed);
/* Objects, keys and uploads looked at so far. */
size_t expected_checks(const struct expected *e);

#endif
