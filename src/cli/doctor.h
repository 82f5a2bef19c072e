/* The parts of `penstock doctor`; each looks at one side of the machine and says what it found. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <jansson.h>

#include "cli/show_util.h"

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct doctor {
	struct grid grid;
	json_t *array; /* NULL: the grid */
	enum verdict worst;
};

/* `advice` says what to do; NULL: nothing. */
void doctor_say(struct doctor *doctor, enum verdict verdict, const char *subject,
	const char *advice, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

void doctor_kernel(struct doctor *doctor);
void doctor_machine(struct doctor *doctor);
void doctor_places(struct doctor *doctor);
void doctor_libraries(struct doctor *doctor);
/* With --bucket it asks for that bucket; else nothing is sent. */
void doctor_store(struct doctor *doctor, const struct cli *cli);

#endif
