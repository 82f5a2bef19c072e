/* Identifies the cloud of this machine by its firmware. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/notices/notice.h"
#include "base/banned.h"

/* All Azure machines have it, and no other Hyper-V machine. */
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
