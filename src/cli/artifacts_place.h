/*
 * Where the output of a run, or of the run that a tag was given to, is: in a store or on this machine. Tags
 * are files HOME/tags/NAME.json beside the copies that are on this machine.
 */
#ifndef CLI_ARTIFACTS_PLACE_H
#define CLI_ARTIFACTS_PLACE_H

#include "records/records.h"
#include "run/stores.h"
#include "workflow/model.h"

struct penstock_error;

struct artifacts_place {
	char *name;		   /* of the run or tag */
	char *dir;		   /* on this machine; NULL: in a store */
	char *prefix;		   /* in a store: "a/b/" */
	struct workflow *workflow; /* whose output has the store; NULL where `dir` is given */
	char id[RECORDS_ID_SIZE];
};

/*
 * `word` is a run, as records_find() takes it, or a tag behind ":". `finished`: its last attempt must
 * have succeeded.
 */
int artifacts_find(struct artifacts_place *out, const char *home, struct records *records,
	const char *word, bool finished, struct penstock_error *err);
void artifacts_place_release(struct artifacts_place *place);

/* HOME/tags/NAME + ending; PENSTOCK_E_INVALID where it is no name of a tag. */
int artifacts_tag_path(char **out, const char *home, const char *tag, const char *ending,
	struct penstock_error *err);

/* Replaces each input that is the output of another run by where that is. What is found lives as long as
 * `places`, whose `n` entries are as many as the workflow has inputs. */
int artifacts_resolve(struct workflow *workflow, const char *home, struct records *records,
	struct artifacts_place *places, struct penstock_error *err);

/* How the embedded store is joined; `home` is borrowed. In embedded.c. */
struct stores_embedded_ops run_embedded_ops(char *home);

#endif
