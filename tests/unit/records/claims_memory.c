/* Claims in which each allocation fails once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include <penstock/error.h>

#include "alloc_fail.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/claims.h"

static int ignore(void *cookie, const struct claim_holder *holder)
{
	(void)cookie;
	(void)holder;
	return 0;
}

static void a_list_that_is_out_of_memory_has_its_code(void **state)
{
	static const struct machine_capacity machine = {
		.cpus = 1, .n_cpus = 1, .memory = 1024 * MIB};
	const struct claim_request request = {.run_id = "a", .tasks = 1, .cpus_per_task = 1};
	char dir[] = "/tmp/penstock-claims-test-XXXXXX";
	struct claim *claim = NULL;
	size_t failures = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	setenv("PENSTOCK_CLAIMS_DIR", dir, 1);
	assert_int_equal(claim_acquire(&claim, &machine, &request, NULL, NULL), 0);

	for (size_t n = 1;; n++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		int r;

		alloc_fail_arm(n);
		r = claims_list(ignore, NULL, &err);
		if (!alloc_fail_disarm())
			break;
		assert_true(r == 0 || r == -(int)PENSTOCK_E_MEMORY);
		failures += r < 0;
	}
	assert_true(failures > 0);

	claim_release(claim);
	assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_that_is_out_of_memory_has_its_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
