/* Replies of the sources of temporary keys: the JSON of metadata services and programs, the XML of
 * STS. */
#include "fuzz.h"

#include "net/credentials/sources.h"
#include "net/credentials/credentials.h"

static void check(int r, struct credentials *keys, struct penstock_error *err)
{
	require_error(r, err);
	require(r < 0 || (*keys->access_key_id && *keys->secret_access_key));
	penstock_error_release(err);
	credentials_release(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct credentials keys = {0};
	int r;

	r = credentials_from_json((const char *)data, size, &keys, &err);
	check(r, &keys, &err);
	r = credentials_from_sts((const char *)data, size, &keys, &err);
	check(r, &keys, &err);
	return 0;
}
