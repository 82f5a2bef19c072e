/* The parts of the native dialect's reader, for one another. */
#ifndef WORKFLOW_NATIVE_H
#define WORKFLOW_NATIVE_H

#include "workflow/reader.h"

/* Letters, digits and `_`, without a digit in front. */
bool is_variable_name(const char *s);
/* Whether `key` can be the key of a variable; else reported at `at`. */
bool check_variable_name(struct reader *rd, const char *key, const struct workflow_place *at);
/* A list of `key` and `value` at `field` of the map. */
void read_variables(struct reader *rd, const struct node *map, const char *field,
	struct workflow_env_list *out);
/* A list of texts at `field`; one text alone is taken for a list of it, with a note. Numbers are
 * taken as they are written where `numbers` says so. */
bool read_texts(struct reader *rd, const struct node *map, const char *field, bool numbers,
	struct workflow_texts *out);
/* Reports a text that every user of the machine could see in the list of processes. */
bool refuse_secret_in_command(struct reader *rd, const struct node *node, const char *field);
/* A route of one address, "10.0.0.1/24"; with `plain` also an address without one. */
bool is_cidr(const char *text, bool plain);

/* "90s", "500ms", "1.5h", "2d" or bare seconds, as milliseconds. */
void read_duration(
	struct reader *rd, const struct node *map, const char *key, struct workflow_number *out);
void read_preemption(struct reader *rd, const struct node *job);
void read_retry(struct reader *rd, const struct node *job);

void read_resources_of(struct reader *rd, const struct node *map, struct workflow_resources *res);
void read_step_resources(struct reader *rd, const struct node *run, struct workflow_run *out);
/* A job without `resources` gets what its largest step needs. */
void derive_resources(struct reader *rd);

void read_run(struct reader *rd, const struct node *map, struct workflow_run *run);
/* `network`, `dns` and `customNetworkInterfaces` of a run; `virtualNetworks` of a workflow. */
void read_network(struct reader *rd, const struct node *map, struct workflow_run *run);
void read_virtual_networks(struct reader *rd, const struct node *job);
/* `steps`, `catch` and `finally`, at `key` of a map. */
void read_steps_of(
	struct reader *rd, const struct node *map, const char *key, struct workflow_steps *out);
void read_use(struct reader *rd, const struct node *node, struct workflow_step *step);
/* Every `dependsOn` names a handle that was launched before, in scope; none stands twice. */
void check_handles(struct reader *rd, const struct workflow_steps *steps);

#endif
