/* The replies that clients received, and a check that a store agrees with them. */
#ifndef POWER_EXPECT_H
#define POWER_EXPECT_H

#include <stdbool.h>
#include <stddef.h>

#include "model.h"

struct expected;

/* Loads the file of expectations, which replay.c describes. Ends the process with a message if the
 * file cannot be used. */
struct expected *expected_load(const char *path, const struct model *m);
struct power_loss {
	size_t position; /* in the log */
	unsigned seed; /* for the writes after the power loss */
	bool relaxed; /* acknowledged changes may be lost */
	bool upkeep; /* check and scrub the store, too */
};
/* Opens the store at `root` as after a power loss, and checks it. Prints the first problem and
 * returns false if there is one. Changes the store. */
bool expected_check(struct expected *e, const char *root, const struct power_loss *loss);
/* Returns the number of objects, keys and uploads that were checked so far. */
size_t expected_checks(const struct expected *e);

#endif
