/* Google's key files, and the replies of its token services. */
#include "fuzz.h"

#include "base/log.h"
#include "net/credentials/credentials.h"
#include "net/credentials/google.h"

static bool is_line(const char *text)
{
	for (; text && *text; text++) {
		if ((unsigned char)*text < ' ')
			return false;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct google_key *key = NULL;
	struct credentials token = {0};
	int r = google_key_parse(&key, (const char *)data, size, &err);

	require_error(r, &err);
	require(r < 0 ? !key
		      : (key->kind == GOOGLE_SERVICE_ACCOUNT ? key->rsa && *key->client_email
							     : *key->refresh_token != '\0'));
	/* The texts of a key go into headers and forms. */
	require(r < 0 || (is_line(key->client_email) && is_line(key->project_id) &&
				 is_line(key->token_uri) && is_line(key->client_secret)));
	penstock_error_release(&err);
	google_key_free(key);
	log_redact_clear();

	r = google_token_parse((const char *)data, size, 0, &token, &err);
	require_error(r, &err);
	require(r < 0 || (*token.bearer && is_line(token.bearer) && token.expires_at_ns > 0));
	penstock_error_release(&err);
	credentials_release(&token);
	return 0;
}
