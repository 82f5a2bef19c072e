#include "transfer/boot_id.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/banned.h"

void boot_id_read(char out[static BOOT_ID_SIZE])
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(BOOT_ID_SIZE - 1);

	if (fs_read("/proc/sys/kernel/random/boot_id", &text, NULL) < 0)
		buf_clear(&text);
	snprintf(out, BOOT_ID_SIZE, "%s", text.len ? buf_str(&text) : "none");
	out[strcspn(out, "\n")] = '\0';
}
