/* What a step's processes use, where no control group counts it: of its leaders and all who descend from them. */
#ifndef RUN_USAGE_H
#define RUN_USAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct usage {
	uint64_t cpu_ms; /* of those that live now */
	uint64_t rss;	 /* bytes; what several share is counted for each */
};

void usage_read(const pid_t *leaders, size_t n, struct usage *out);
/* Bytes with what is shared divided among those who share it; slow. What cannot be read counts nothing. */
uint64_t usage_pss(const pid_t *leaders, size_t n);

#endif
