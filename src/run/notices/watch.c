/* Helpers of the sources: making notices, the shared engine, waiting. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "net/http/http.h"
#include "run/notices/notice.h"

void notice_set(struct notice *notice, const char *source, const char *reason)
{
	*notice = (struct notice){0};
	snprintf(notice->source, sizeof(notice->source), "%s", source);
	snprintf(notice->reason, sizeof(notice->reason), "%s", reason);
	str_make_utf8(notice->reason); /* the reason is written to JSON documents */
	for (char *c = notice->reason; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = ' ';
	}
}

void notice_set_lead(struct notice *notice, int64_t lead_ms)
{
	notice->noticed_ms = clock_monotonic_ms();
	notice->deadline_ms = notice->noticed_ms + lead_ms;
	notice->hard = true;
}

struct http_engine *notice_engine(struct notice_watch *watch)
{
	struct notice_shared *shared = watch->shared;

	LOCK_SCOPE(&shared->lock);
	if (!shared->engine &&
		http_engine_new(&shared->engine,
			&(struct http_engine_options){.cancel = &shared->cancel}, NULL) < 0)
		shared->engine = NULL;
	return shared->engine;
}

bool notice_sleep(const struct notice_watch *watch, int64_t ms)
{
	struct pollfd quit = {watch->shared->quit_fd, POLLIN, 0};
	int64_t until = clock_monotonic_ms() + ms;

	for (;;) {
		int64_t left = until - clock_monotonic_ms();

		if (atomic_load(&watch->shared->cancel))
			return false;
		if (left <= 0)
			return true;
		poll(&quit, 1, left < INT32_MAX ? (int)left : INT32_MAX);
	}
}

bool notice_next(const struct notice_watch *watch, int64_t *last, int64_t every_ms)
{
	int64_t now = clock_monotonic_ms();

	/* If more than one query was missed, start again from now. */
	*last = *last && *last + every_ms > now - every_ms ? *last + every_ms : now + every_ms;
	return notice_sleep(watch, *last - now);
}

/* ---- the cloud of this machine ---- */

/* All Azure machines have this tag; no other Hyper-V machine has the tag. */
#define AZURE_ASSET_TAG "7783-7084-3265-9085-8269-3286-77"

/* Returns true if a field contains `text`. */
static bool says(const char *dir, const char *field, const char *text)
{
	_cleanup_free_ char *path = path_join(dir, field);
	_cleanup_(buf_release) struct buf value = BUF_INIT(4 * KIB);

	return path && fs_read(path, &value, NULL) == 0 && strstr(buf_str(&value), text);
}

enum notice_cloud notice_machine(const char *dir)
{
	if (access(dir, F_OK) < 0)
		return NOTICE_CLOUD_UNKNOWN;
	if (says(dir, "product_name", "Google") || says(dir, "sys_vendor", "Google"))
		return NOTICE_CLOUD_GCP;
	if (says(dir, "sys_vendor", "Amazon EC2") || says(dir, "bios_vendor", "Amazon EC2") ||
		says(dir, "bios_version", "amazon"))
		return NOTICE_CLOUD_AWS;
	if (says(dir, "chassis_asset_tag", AZURE_ASSET_TAG))
		return NOTICE_CLOUD_AZURE;
	return NOTICE_CLOUD_NONE;
}
