/*
 * The usage of an attempt: a table of comma-separated values next to its log.
 *
 *	time_ms,name,cpu,memory,received,sent,gpu,gpu_memory
 *	1795824890996,train,1.874,2150125568,1048576,2048,0.97,17179869184
 *
 *	struct usage_file file = {0};
 *
 *	at_ms = now + usage_file_interval_ms(&file, now);
 *	...
 *	usage_file_add(&file, path, &(struct usage_sample){.time_ms = now, .name = "a", .cpu = 1});
 *	usage_file_close(&file);
 *
 * Samples get rarer with the age of the attempt, so that a step has at most about 1,400 more lines
 * whenever the age has grown tenfold: 5,000 in a week. Samples also get rarer if there are many
 * steps or processes: all samples together take at most 1/500 of a processor. An attempt whose disk
 * is full has fewer samples.
 */
#ifndef RUN_REPORT_USAGE_FILE_H
#define RUN_REPORT_USAGE_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct usage_file {
	bool opened;
	int fd; /* valid if `opened`; -1 if the file could not be opened */
	int64_t began_ms; /* monotonic; 0 before the first call */
	int64_t spent_ns; /* processor time of all samples */
};

struct usage_sample {
	int64_t time_ms; /* wall clock */
	const char *name; /* name of the step */
	double cpu; /* processors in use since the previous sample */
	uint64_t memory; /* bytes */
	double received, sent; /* bytes per second, of the machine */
	bool has_gpus;
	double gpu; /* GPUs in use */
	uint64_t gpu_memory; /* bytes */
};

/* Returns the time until the next sample of a step. */
int64_t usage_file_interval_ms(struct usage_file *file, int64_t monotonic_ms);
/* Returns the processor time of this thread: the difference between two calls is added to
 * `spent_ns`. */
int64_t usage_file_clock_ns(void);
/* Appends a line. The first call opens the usage file that belongs to the log. */
void usage_file_add(struct usage_file *file, const char *log, const struct usage_sample *sample);
void usage_file_close(struct usage_file *file);

#endif
