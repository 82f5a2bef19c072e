#include "run/rank/ranks.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "run/cluster/remote.h"
#include "base/banned.h"

const char ranks_mpi_wrapper[] =
	"r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-0}}}; "
	"export RANK=\"${RANK:-$r}\" LOCAL_RANK=\"${LOCAL_RANK:-$r}\"; "
	"if [ -n \"${PENSTOCK_TASK_GPUS+x}\" ] && [ -z \"${CUDA_VISIBLE_DEVICES+x}\" ]; then "
	"export CUDA_VISIBLE_DEVICES=; "
	"for g in $PENSTOCK_TASK_GPUS; do "
	"if [ \"$r\" = 0 ]; then CUDA_VISIBLE_DEVICES=$g; fi; r=$((r-1)); done; fi; "
	"exec \"$0\" -c \"$1\"";

/* GPUs of one task, "0,1". */
static void add_gpus(const struct ranks *ranks, size_t rank, struct buf *out)
{
	size_t each = ranks->n_gpus / ranks->n;

	for (size_t i = 0; i < each; i++)
		buf_printf(out, "%s%d", i ? "," : "", ranks->gpus[rank * each + i]);
}

static int add_ports(const struct ranks *ranks, struct strlist *env)
{
	for (size_t i = 0; i < ranks->n_ports; i++) {
		if (strlist_addf(env, "PORT_%zu=%d", i, ranks->ports[i]) < 0)
			return -1;
	}
	return 0;
}

static int add_common(const struct ranks *ranks, struct strlist *env)
{
	if (add_ports(ranks, env) < 0)
		return -1;
	if (ranks->n == 1)
		return 0;
	if (strlist_addf(env, "WORLD_SIZE=%zu", ranks->n) < 0 ||
		strlist_addf(env, "LOCAL_WORLD_SIZE=%zu", ranks->n) < 0 ||
		strlist_add(env, "NODE_RANK=0") < 0 ||
		strlist_add(env, "MASTER_ADDR=127.0.0.1") < 0)
		return -1;
	return strlist_addf(env, "MASTER_PORT=%d", ranks->master_port);
}

int ranks_environment(const struct ranks *ranks, size_t rank, struct strlist *env)
{
	_cleanup_(buf_release) struct buf gpus = BUF_INIT(LIMIT_LOG_LINE);

	if (add_common(ranks, env) < 0)
		return -1;
	if (ranks->n > 1 && (strlist_addf(env, "RANK=%zu", rank) < 0 ||
				    strlist_addf(env, "LOCAL_RANK=%zu", rank) < 0))
		return -1;
	if (!ranks->gpus)
		return 0;
	add_gpus(ranks, rank, &gpus);
	return strlist_addf(env, "CUDA_VISIBLE_DEVICES=%s", buf_str(&gpus));
}

int ranks_cluster_environment(const struct ranks *ranks, struct strlist *env)
{
	if (add_ports(ranks, env) < 0)
		return -1;
	if (ranks->n == 1)
		return 0;
	if (strlist_add(env, "RANK=" REMOTE_RANK) < 0 ||
		strlist_add(env, "LOCAL_RANK=" REMOTE_LOCAL_RANK) < 0 ||
		strlist_addf(env, "WORLD_SIZE=%zu", ranks->n) < 0 ||
		strlist_add(env, "LOCAL_WORLD_SIZE=" REMOTE_LOCAL_WORLD_SIZE) < 0 ||
		strlist_add(env, "NODE_RANK=" REMOTE_NODE_RANK) < 0 ||
		strlist_add(env, "MASTER_ADDR=" REMOTE_MASTER_ADDR) < 0)
		return -1;
	return strlist_addf(env, "MASTER_PORT=%d", ranks->master_port);
}

int ranks_launcher_environment(const struct ranks *ranks, struct strlist *env)
{
	_cleanup_(buf_release) struct buf gpus = BUF_INIT(LIMIT_STRING);

	if (add_common(ranks, env) < 0)
		return -1;
	if (!ranks->gpus)
		return 0;
	for (size_t r = 0; r < ranks->n; r++) {
		buf_add_str(&gpus, r ? " " : "");
		add_gpus(ranks, r, &gpus);
	}
	return strlist_addf(env, "PENSTOCK_TASK_GPUS=%s", buf_str(&gpus));
}
