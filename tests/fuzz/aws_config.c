/* The shared config and credentials files of AWS. */
#include "fuzz.h"

#include "net/credentials/aws_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	static const char *const profiles[] = {"default", "a", ""};
	static const char *const keys[] = {"region", "aws_access_key_id", "s3.endpoint_url"};

	for (int credentials = 0; credentials < 2; credentials++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct aws_config config = {0};
		int rc = aws_config_parse(&config, "/h/.aws/config", text, credentials, &err);

		require_error(rc, &err);
		for (size_t p = 0; p < ARRAY_SIZE(profiles); p++) {
			for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
				aws_config_get(&config, profiles[p], keys[k]);
			aws_config_endpoint(&config, profiles[p], "s3");
			aws_config_has_profile(&config, profiles[p]);
		}
		for (size_t i = 0; i < config.n; i++)
			require(config.entries[i].section && config.entries[i].key &&
				config.entries[i].value);
		aws_config_release(&config);
	}
	return 0;
}
