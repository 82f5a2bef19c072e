/*
 * Finds the output of a run, or the copy that a tag names: in a store or on this machine. Tags are
 * files HOME/tags/NAME.json next to the local copies.
 */
#ifndef CLI_HISTORY_ARTIFACTS_PLACE_H
#define CLI_HISTORY_ARTIFACTS_PLACE_H

#include "records/records.h"
#include "run/stage/stores.h"
#include "transfer/objects.h"
#include "workflow/model.h"

struct penstock_error;

struct artifacts_place {
	char *name; /* name of the run or tag */
	bool live; /* the run has not ended */
	char *dir; /* directory on this machine; NULL if the output is in a store */
	char *prefix; /* prefix in a store: "a/b/" */
	/* the workflow whose output names the store; NULL for a tag on this machine */
	struct workflow *workflow;
	char id[RECORDS_ID_SIZE];
	struct stores stores;
	struct run_store *store; /* set by artifacts_open() */
};

/* Finds the place of `word`: a run, as for records_find(), or ":TAG". With `finished`, the run's
 * last attempt must have succeeded or be live. */
int artifacts_find(struct artifacts_place *out, const char *home, struct records *records,
	const char *word, bool finished, struct penstock_error *err);
/* Opens the store that has the output of `place->workflow`. */
int artifacts_open(struct artifacts_place *place, const char *home, struct penstock_error *err);
void artifacts_place_release(struct artifacts_place *place);

/* Sets `*out` to HOME/tags/TAG + `ending`; free() it. Fails with PENSTOCK_E_INVALID if the name of
 * the tag is invalid. */
int artifacts_tag_path(char **out, const char *home, const char *tag, const char *ending,
	struct penstock_error *err);

/* Returns a reference to the object `key` in the store of the opened place. */
static inline struct object_ref artifacts_object(
	const struct artifacts_place *place, const char *key)
{
	return object_at(place->store->client, place->store->bucket, key);
}
/* Removes all objects whose keys begin with the key of `at`. */
int artifacts_remove(struct object_ref at, const atomic_int *cancel, struct penstock_error *err);

/* Replaces each input that is the output of another run with the place of that output. The workflow
 * borrows texts of `places`, which has one entry per input. `after` gets the ids of those runs that
 * have not ended yet. */
int artifacts_resolve(struct workflow *workflow, const char *home, struct records *records,
	struct artifacts_place *places, struct strlist *after, struct penstock_error *err);

#endif
