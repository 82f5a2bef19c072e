/*
 * The keys of one output among all keys below its prefix. Leaves out penstock's own objects below
 * `.penstock/`, and the outputs of other runs: an output has a `.penstock/runs/` of its own.
 *
 *	struct output_keys keys = {0};
 *
 *	output_keys_take(&keys, ".penstock/runs/1/state.json");	// false
 *	output_keys_take(&keys, "model.pt");	// true
 *	output_keys_take(&keys, "sub/.penstock/runs/2/state.json");	// false
 *	output_keys_take(&keys, "sub/model.pt");	// false
 *
 * If the prefix is not an output itself, the outputs below it are taken. The keys must come in byte
 * order. Keys of another output that sort before its `.penstock/`, such as "sub/-x", are taken.
 */
#ifndef TRANSFER_OUTPUT_KEYS_H
#define TRANSFER_OUTPUT_KEYS_H

#include <stdbool.h>

#include "base/limits.h"

struct output_keys {
	bool is_output; /* the prefix has a `.penstock/runs/` */
	/* "a/b/": the last output of other runs; "" if there is none */
	char inner[LIMIT_S3_KEY + 1];
};

/* Returns true if the key, relative to the prefix, belongs to the output. */
bool output_keys_take(struct output_keys *keys, const char *key);
/* Returns true if this relative path or key belongs to penstock's own state of runs. */
bool output_key_is_state(const char *key);

#endif
