#include "run/step/host.h"

#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "run/rank/free_ports.h"
#include "run/task/executor.h"
#include "workflow/workflow.h"
#include "base/banned.h"

int step_host_find_ports(struct step_host *host, struct penstock_error *err)
{
	const struct attempt *attempt = host->attempt;
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);
	_cleanup_free_ char *path = run_path(attempt->home, attempt->id, RUN_FILE_PORTS);
	size_t n = (size_t)attempt->workflow->ports.value;
	int r;

	if (!path)
		return error_memory(err);
	unlink(path);
	if (!n)
		return 0;
	r = free_ports(host->ports, n, err);
	for (size_t i = 0; r == 0 && i < n; i++)
		buf_printf(&text, "%s%d", i ? " " : "", host->ports[i]);
	return r < 0 ? r : fs_write_atomic(path, buf_str(&text), text.len, 0600, err);
}

void step_host_end(struct step_host *host)
{
	executor_container_finish();
	run_group_end(&host->group);
	run_life_end(&host->life);
}
