/* Replies that clients got, and a check that a store agrees with them. */
#ifndef POWER_EXPECT_H
#define POWER_EXPECT_H

#include <stdbool.h>
#include <stddef.h>

#include "model.h"

struct expected;

/* The file that replay.c describes. Ends the process where it cannot be used. */
struct expected *expected_load(const char *path, const struct model *m);
struct power_loss {
	size_t position; /* in the log */
	unsigned seed; /* for the later writes */
	bool relaxed; /* acknowledged changes may be undone */
	bool upkeep; /* check and scrub the store, too */
};
/* Opens the store at `root` as after a power loss; prints what is wrong. The store is changed. */
bool expected_check(struct expected *e, const char *root, const struct power_loss *loss);
/* Objects, keys and uploads looked at so far. */
size_t expected_checks(const struct expected *e);

#endif
