/*
 * The parts of `penstock doctor`; each checks one aspect of the machine and reports its findings.
 */
#ifndef CLI_MACHINE_DOCTOR_H
#define CLI_MACHINE_DOCTOR_H

#include <jansson.h>

#include "cli/print/util.h"

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct doctor {
	struct grid grid;
	json_t *array; /* NULL for the grid */
	enum verdict worst;
};

/* Reports a finding. `advice` says what to do; NULL if there is nothing to do. */
void doctor_say(struct doctor *doctor, enum verdict verdict, const char *subject,
	const char *advice, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Checks the kernel, the resources and the directories. */
void doctor_machine(struct doctor *doctor);
/* Checks libraries and credentials; sends requests only with --bucket, for that bucket. */
void doctor_store(struct doctor *doctor, const struct cli *cli);

#endif
