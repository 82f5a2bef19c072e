#include "run/process/usage.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/process/process.h"

static void add_process(pid_t pid, struct usage *out)
{
	char path[32];
	char text[1024];
	_cleanup_fclose_ FILE *f = NULL;
	const char *behind;
	unsigned long user;
	unsigned long system;
	long pages;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	text[n] = '\0';
	behind = strrchr(text, ')'); /* the name in parentheses may contain anything */
	/* proc(5): state and ten more, utime, stime, eight more, rss. */
	if (!behind || sscanf(behind + 1,
			       " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %*s %*s %*s "
			       "%*s %*s %*s %*s %*s %ld",
			       &user, &system, &pages) != 3)
		return;
	out->cpu_ms += (uint64_t)(user + system) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
	out->rss += pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static bool add_one(void *cookie, const struct process_info *info)
{
	add_process(info->pid, cookie);
	return true;
}

void usage_read(const pid_t *leaders, size_t n, struct usage *out)
{
	*out = (struct usage){0};
	for (size_t i = 0; i < n; i++) {
		add_process(leaders[i], out);
		process_descendants(leaders[i], add_one, out);
	}
}

static bool add_pss(void *cookie, const struct process_info *info)
{
	uint64_t *sum = cookie;
	char path[48];
	char line[256];
	_cleanup_fclose_ FILE *f = NULL;
	uint64_t kib;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)info->pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Pss: %" SCNu64 " kB", &kib) == 1)
			*sum += kib * KIB;
	}
	return true;
}

uint64_t usage_pss(const pid_t *leaders, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		const struct process_info leader = {.pid = leaders[i]};

		add_pss(&sum, &leader);
		process_descendants(leaders[i], add_pss, &sum);
	}
	return sum;
}

void usage_network_read(struct usage_network *out)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/net/dev", "re");
	char line[512];

	*out = (struct usage_network){0};
	while (f && fgets(line, sizeof(line), f)) {
		const char *colon = strchr(line, ':'), *name = line + strspn(line, " ");
		uint64_t received, sent;

		/* proc(5): received bytes, seven other fields, sent bytes. */
		if (!colon || strncmp(name, "lo:", 3) == 0 ||
			sscanf(colon + 1, "%" SCNu64 " %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
				&received, &sent) != 2)
			continue;
		out->received += received;
		out->sent += sent;
	}
}
