/* Deciding about another owner: on this machine by its process, elsewhere by watching its state. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"
#include "run/owner/lease_internal.h"
#include "transfer/objects.h"
#include "base/banned.h"

bool lease_owner_is_here(const struct lease *lease, const struct seen *seen)
{
	return seen->boot_id[0] && strcmp(seen->boot_id, lease->boot_id) == 0 &&
	       strcmp(seen->pid_ns, lease->pid_ns) == 0;
}

bool lease_owner_runs(const struct seen *seen)
{
	struct process_info info;

	return process_info((pid_t)seen->pid, &info) && info.state != 'Z' &&
	       info.start_ticks == (uint64_t)seen->start_ticks;
}

enum { WATCH_MS = 1000 };

int lease_watch_term(
	struct lease *lease, const char *key, struct seen *seen, struct penstock_error *err)
{
	int64_t until = clock_monotonic_ms() + seen->term_ms;
	char first[OBJECT_ETAG_SIZE];
	char text[256];

	snprintf(text, sizeof(text),
		"run %s was live on %s: watching for %d s to see if it still is",
		seen->run[0] ? seen->run : lease->options.run_id, seen->host,
		(int)(seen->term_ms / 1000));
	if (lease->options.waiting)
		lease->options.waiting(lease->options.cookie, text);
	snprintf(first, sizeof(first), "%s", seen->etag);
	for (int64_t left; (left = until - clock_monotonic_ms()) > 0;) {
		int r;

		if (lease->options.cancel && atomic_load(lease->options.cancel))
			return error_set(
				err, PENSTOCK_E_CANCELLED, "stopped while watching the owner");
		clock_sleep_ms(left < WATCH_MS ? left : WATCH_MS);
		r = lease_load(lease, key, seen, err);
		if (r < 0)
			return r;
		if (strcmp(first, seen->etag) != 0)
			return seen->etag[0] && lease_state_is_live(seen->state);
	}
	return 0;
}

int lease_can_take_over(
	struct lease *lease, const char *run, const struct seen *seen, struct penstock_error *err)
{
	struct object_conditions honoured = {0};
	const char *name = strrchr(lease->key, '/') + 1;
	_cleanup_free_ char *folder = strndup(lease->key, (size_t)(name - lease->key));
	int r;

	if (!folder)
		return error_memory(err);
	r = object_probe_conditions(
		object_at(lease->options.client, lease->options.bucket, folder), &honoured, err);
	if (r < 0)
		return r;
	/* A former owner that resumes must not complete an upload either. */
	if (!honoured.put || !honoured.complete)
		return error_set(err, PENSTOCK_E_EXISTS,
			"run %s was live on %s, and this store ignores conditional writes, so "
			"the owner of %s cannot be determined; if that machine is gone, %s",
			run, seen->host,
			strcmp(run, lease->options.run_id) == 0 ? "it" : "its output",
			strcmp(run, lease->options.run_id) == 0 ? "start another with --name"
								: "give this run another output");
	return 0;
}
