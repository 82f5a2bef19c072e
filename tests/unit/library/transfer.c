/* Calls of <penstock/transfer.h> that fail before they send a request. */
#include <penstock/transfer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* Only a complete object is written to a file, because a file with a range would look complete. */
static void a_range_of_an_object_is_not_written_to_a_file(void **state)
{
	char directory[] = "/tmp/penstock-library-XXXXXX", path[64];
	struct penstock_transfer_options options = PENSTOCK_TRANSFER_OPTIONS_INIT;
	struct penstock_call_options calls[] = {
		PENSTOCK_CALL_OPTIONS_INIT, PENSTOCK_CALL_OPTIONS_INIT};
	struct penstock_cancel *cancel = penstock_cancel_new();
	struct penstock_transfer *t = NULL;

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/file", directory);
	options.endpoint_url = "http://127.0.0.1:1";
	options.anonymous = true;
	assert_int_equal(0, penstock_transfer_new(&t, &options, NULL));
	penstock_cancel_set(cancel); /* prevents all requests */
	calls[0].offset = 1;
	calls[1].length = 1;

	for (int i = 0; i < 2; i++) {
		calls[i].cancel = cancel;
		assert_int_equal(-(int)PENSTOCK_E_INVALID,
			penstock_get_file(t, "s3://bucket/key", path, &calls[i], NULL, NULL));
		assert_int_equal(-1, access(path, F_OK));
	}

	penstock_transfer_free(t);
	penstock_cancel_free(cancel);
	assert_int_equal(0, rmdir(directory));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_range_of_an_object_is_not_written_to_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
