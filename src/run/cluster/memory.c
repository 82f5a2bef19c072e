#include "run/cluster/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* Reads both numbers of "StepId=12.0 exceeded memory limit (8388608 > 4194304), being killed". */
static void read_numbers(struct slurm_memory *memory, const char *text)
{
	uint64_t used, limit;
	const char *at = strstr(text, "memory limit (");

	if (at && sscanf(at, "memory limit (%" SCNu64 " > %" SCNu64 ")", &used, &limit) == 2 &&
		!strstr(text, "virtual memory")) {
		memory->used = used;
		memory->limit = limit;
	}
}

static void read_line(struct slurm_memory *memory)
{
	static const char *const words[] = {" exceeded memory limit (",
		" exceeded virtual memory limit (", " oom-kill event", " oom_kill event",
		": Out Of Memory"};
	/* The text begins with "slurmstepd: error: ", or with "slurmstepd-n1: error: " if one
	 * machine has several nodes. */
	const char *text = strstr(memory->line, "slurmstepd");

	text = strstr(text ? text : memory->line, text ? ": error: " : "srun: error: ");
	for (size_t i = 0; text && i < ARRAY_SIZE(words); i++) {
		if (!strstr(text, words[i]))
			continue;
		memory->over = true;
		read_numbers(memory, text);
	}
}

void slurm_memory_read(struct slurm_memory *memory, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '\n') {
			memory->line[memory->len] = '\0';
			read_line(memory);
			memory->len = 0;
		} else if (memory->len < sizeof(memory->line) - 1) {
			memory->line[memory->len++] = data[i] ? data[i] : ' ';
		}
	}
}
