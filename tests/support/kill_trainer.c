/*
 * A deterministic training program that runs for a few milliseconds, for tests that kill it. The
 * program detects a torn checkpoint, and lists the files that it has closed in a ledger.
 *
 *	kill-trainer CONTROL STEPS [rename] [pace=MS] [big=MIB]
 *
 * Writes below $DEEPSQUARE_OUTPUT: `ckpt` (rewritten in place, or by a rename, in every step),
 * `data-K` of step K, `end` of the last one; `mine/ATTEMPT-K`, which only this attempt writes;
 * `train.log`, which stays open; `big` of that many MiB, closed at the end. Exits with 9 if the
 * restored checkpoint is torn.
 *
 * Each line of CONTROL/ledger names a file, and is written after the file was closed. While
 * CONTROL/hold-ATTEMPT-K exists, the attempt pauses after step K; while `hold-ATTEMPT-end` exists,
 * it pauses before the exit. Before each pause the program prints "at step K" or "at end".
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BODY = 24000, RECORD = 64, TORN = 9 };

static const char *control, *output, *attempt;
static int ledger_fd, log_fd;

static void fail(const char *what)
{
	fprintf(stderr, "kill-trainer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void rest(int ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* The random generator SplitMix64. */
static uint64_t next(uint64_t state)
{
	state += 0x9e3779b97f4a7c15;
	state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
	state = (state ^ state >> 27) * 0x94d049bb133111eb;
	return state ^ state >> 31;
}

static void path_of(char out[static 4096], const char *folder, const char *name)
{
	if (snprintf(out, 4096, "%s/%s", folder, name) >= 4096)
		fail(name);
}

static void write_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			fail("write");
		at += n;
		len -= (size_t)n;
	}
}

static void note_closed(const char *name)
{
	char line[256];
	int n = snprintf(line, sizeof(line), "%s\n", name);

	write_all(ledger_fd, line, (size_t)n);
}

/* Writes the file in two halves, so that a kill can leave the first half alone. */
static void write_file(const char *name, const char *as, const void *data, size_t len)
{
	char path[4096], final[4096];
	int fd;

	path_of(path, output, as ? as : name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		fail(path);
	write_all(fd, data, len / 2);
	write_all(fd, (const char *)data + len / 2, len - len / 2);
	if (close(fd) < 0)
		fail(path);
	if (as) {
		path_of(final, output, name);
		if (rename(path, final) < 0)
			fail(final);
	}
	note_closed(name);
}

/* Fills a checkpoint. All of its bytes depend only on the step and the state, so that load() can
 * verify them. */
static void compose(char body[static BODY], int step, uint64_t state)
{
	uint64_t word = state;

	for (size_t i = 0; i < BODY / 8; i++, word = next(word))
		memcpy(body + 8 * i, &word, 8);
	memset(body, ' ', RECORD);
	body[snprintf(
		body, RECORD, "step %d state %016" PRIx64 " of %d bytes", step, state, BODY)] = ' ';
	body[RECORD - 1] = '\n';
	memcpy(body + BODY - RECORD, body, RECORD);
}

static void load(int *step, uint64_t *state)
{
	static char found[BODY + 1], whole[BODY];
	char path[4096];
	ssize_t n;
	int fd;

	path_of(path, output, "ckpt");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, found, sizeof(found));
	close(fd);
	if (n == BODY && sscanf(found, "step %d state %" SCNx64, step, state) == 2) {
		compose(whole, *step, *state);
		if (memcmp(whole, found, BODY) == 0) {
			printf("resumed at step %d\n", *step);
			return;
		}
	}
	printf("torn checkpoint: %zd bytes\n", n);
	exit(TORN);
}

/* Writes the missing files of earlier steps again: penstock may have removed a file that was closed
 * at the moment of the kill. */
static void look_back(int step)
{
	static char body[BODY];
	uint64_t state = 1;

	for (int k = 1; k <= step; k++) {
		char name[64], path[4096];

		state = next(state);
		snprintf(name, sizeof(name), "data-%d", k);
		path_of(path, output, name);
		if (access(path, F_OK) == 0)
			continue;
		compose(body, k, state);
		write_file(name, NULL, body, BODY);
		printf("made %s again\n", name);
	}
}

static void hold(const char *moment)
{
	char name[64], path[4096];

	printf("at %s%s\n", strcmp(moment, "end") == 0 ? "" : "step ", moment);
	fflush(stdout);
	snprintf(name, sizeof(name), "hold-%s-%s", attempt, moment);
	path_of(path, control, name);
	while (access(path, F_OK) == 0)
		rest(2);
}

static void write_big(int mib, uint64_t state)
{
	char path[4096];
	off_t size = (off_t)mib << 20;
	int fd;

	path_of(path, output, "big");
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || pwrite(fd, &state, 8, 0) != 8 || pwrite(fd, &state, 8, size - 8) != 8 ||
		close(fd) < 0)
		fail(path);
	note_closed("big");
}

static void one_step(int step, uint64_t state, bool renames)
{
	static char body[BODY];
	char name[64], line[64];
	int n;

	compose(body, step, state);
	snprintf(name, sizeof(name), "data-%d", step);
	write_file(name, NULL, body, BODY);
	write_file("ckpt", renames ? "ckpt.new" : NULL, body, BODY);
	snprintf(name, sizeof(name), "mine/%s-%d", attempt, step);
	n = snprintf(line, sizeof(line), "attempt %s step %d\n", attempt, step);
	write_file(name, NULL, line, (size_t)n);
	write_all(log_fd, line, (size_t)n);
}

static void prepare(void)
{
	char path[4096];

	path_of(path, control, "ledger");
	ledger_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	path_of(path, output, "train.log");
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	path_of(path, output, "mine");
	if (ledger_fd < 0 || log_fd < 0 || (mkdir(path, 0755) < 0 && errno != EEXIST))
		fail(path);
}

int main(int argc, char **argv)
{
	bool renames = false;
	int steps, pace = 0, big = 0, step = 0;
	uint64_t state = 1;
	char text[64];

	output = getenv("DEEPSQUARE_OUTPUT");
	attempt = getenv("PENSTOCK_ATTEMPT");
	if (argc < 3 || !output || !attempt)
		return 2;
	control = argv[1];
	steps = (int)strtol(argv[2], NULL, 10);
	for (int i = 3; i < argc; i++) {
		renames |= strcmp(argv[i], "rename") == 0;
		if (strncmp(argv[i], "pace=", 5) == 0)
			pace = (int)strtol(argv[i] + 5, NULL, 10);
		if (strncmp(argv[i], "big=", 4) == 0)
			big = (int)strtol(argv[i] + 4, NULL, 10);
	}
	prepare();
	load(&step, &state);
	look_back(step);
	while (step < steps) {
		step++;
		state = next(state);
		rest(pace);
		one_step(step, state, renames);
		snprintf(text, sizeof(text), "%d", step);
		hold(text);
	}
	if (big)
		write_big(big, state);
	snprintf(text, sizeof(text), "state %016" PRIx64 " after %d steps\n", state, steps);
	write_file("end", NULL, text, strlen(text));
	hold("end");
	return 0;
}
