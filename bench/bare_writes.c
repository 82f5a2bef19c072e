/*
 * The minimum cost of durable writes, for bench/store_put.py: threads write files and sync them,
 * without HTTP, a checksum or an index.
 *
 *	bench-bare-writes DIRECTORY THREADS BYTES SECONDS
 *
 * Each thread writes and syncs new files. After 32 files a thread replaces its oldest file. Prints
 * files per second.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "bare_file.h"

static const char *directory;
static char *body;
static size_t size;
static double until;
static atomic_ulong files;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *write_files(void *arg)
{
	unsigned thread = (unsigned)(long)arg;

	for (unsigned at = 0; now() < until; at++) {
		bare_file_write(directory, thread, at, body, size);
		atomic_fetch_add(&files, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc == 5 ? atol(argv[2]) : 0;
	pthread_t ids[256];
	double begin = now(), seconds;

	if (threads < 1 || threads > 256) {
		fprintf(stderr, "usage: bench-bare-writes DIRECTORY THREADS BYTES SECONDS\n");
		return 64;
	}
	directory = argv[1];
	size = strtoul(argv[3], NULL, 10);
	body = malloc(size + 1);
	if (!body || getrandom(body, size < 256 ? size : 256, 0) < 0)
		fail("body");
	until = begin + atof(argv[4]);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, write_files, (void *)i) != 0)
			fail("pthread_create");
	for (long i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	seconds = now() - begin;
	printf("%.1f\n", (double)atomic_load(&files) / seconds);
	return 0;
}
