/* What others are told of a run while it lives: its webhook, and the ports of its steps. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "run/free_ports.h"
#include "run/notify.h"
#include "run/run_internal.h"
#include "base/banned.h"

void run_tell(const struct run *run, enum workflow_notify_event event)
{
	notify_tell(run->notify, event,
		&(struct notify_news){
			.run_id = run->id,
			.name = run->workflow->name.value,
			.attempt = run->attempt,
			.state = run_state_name(run->end.decided ? run->end.state : RUN_RUNNING),
			.run_class = run->end.decided && run->end.class ? run_class_name(
										  run->end.class)
									: NULL,
			.exit_code = run->end.exit_code,
			.message = run->end.message,
			.ended = run->end.decided,
		});
}

/* The steps' free ports stay the same as long as the run lives. */
int run_find_ports(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);
	_cleanup_free_ char *path = path_join(run->layout.dir, "ports");
	size_t n = (size_t)run->workflow->ports.value;
	int r;

	if (!path)
		return error_memory(err);
	unlink(path);
	if (!n)
		return 0;
	r = free_ports(run->ports, n, err);
	for (size_t i = 0; r == 0 && i < n; i++)
		buf_printf(&text, "%s%d", i ? " " : "", run->ports[i]);
	return r < 0 ? r : fs_write_atomic(path, buf_str(&text), text.len, 0600, err);
}
