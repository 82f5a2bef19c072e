/*
 * `penstock doctor`: reports findings; declares the checks that are in other files.
 *
 *	doctor_say(doctor, VERDICT_WARN, "clock", "start an NTP client", "is %d s late", late);
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

/* Reports a finding. `advice` is what to do; NULL if there is nothing to do. */
void doctor_say(struct doctor *doctor, enum verdict verdict, const char *subject,
	const char *advice, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Checks parts of the machine that only some runs need: containers, Slurm, GPUs. */
void doctor_containers(struct doctor *doctor, const char *home);
void doctor_slurm(struct doctor *doctor);
void doctor_gpus(struct doctor *doctor, int gpus);

#endif
