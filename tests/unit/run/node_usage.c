/* Samples of the usage on the nodes of a cluster, and their sum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "run/cluster/node_usage.h"

static char dir[] = "/tmp/penstock-node-usage-XXXXXX";

static void sample_now(struct node_usage *u)
{
	u->next_ms = 0;
	assert_in_range(node_usage_sample(u, dir), 1, 60000);
}

static void the_first_task_of_a_node_samples_it(void **state)
{
	struct node_usage usage = NODE_USAGE_INIT, other = NODE_USAGE_INIT;
	struct usage_sample sum = {0};

	(void)state;
	setenv("SLURM_NODEID", "0", 1);
	setenv("SLURM_LOCALID", "1", 1);
	assert_int_equal(node_usage_sample(&other, dir), -1);
	setenv("SLURM_LOCALID", "0", 1);
	assert_in_range(node_usage_sample(&usage, dir), 1, 60000);
	assert_false(node_usage_sum(dir, 2, &sum)); /* not due yet */
	sample_now(&usage);
	assert_true(node_usage_sum(dir, 2, &sum));
	assert_true(sum.memory > 0);
	assert_false(sum.has_gpus);
	node_usage_end(&usage);
	node_usage_end(&other);
	assert_false(node_usage_sum(dir, 2, &sum));
}

static void write_line(const char *name, const char *text, size_t len)
{
	_cleanup_free_ char *path = path_join(dir, name);

	assert_int_equal(fs_write_atomic(path, text, len, 0600, NULL), 0);
}

static void nodes_are_added_up(void **state)
{
	struct usage_sample sum = {0};
	char line[160];

	(void)state;
	for (int node = 0; node < 3; node++) {
		_cleanup_free_ char *name = str_printf("use.%d", node);

		snprintf(line, sizeof(line), "%-120s\n",
			node == 1 ? "0.25 50 10 20 1.50 7000" : "1.500 1000 1 2 -1.00 0");
		/* The line of the last node is not complete yet. */
		write_line(name, line, node == 2 ? 12 : 121);
	}
	assert_true(node_usage_sum(dir, 3, &sum));
	assert_true(sum.cpu == 1.75 && sum.received == 11 && sum.sent == 22);
	assert_int_equal(sum.memory, 1050);
	assert_true(sum.has_gpus && sum.gpu == 1.5);
	assert_int_equal(sum.gpu_memory, 7000);
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_task_of_a_node_samples_it),
		cmocka_unit_test(nodes_are_added_up),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
