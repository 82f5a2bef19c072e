/* The checks of libraries and object storage by `penstock doctor`. */
#include <archive.h>
#include <curl/curl.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "cli/machine/doctor.h"
#include "cli/objects/remote.h"
#include "base/banned.h"

static void check_libraries(struct doctor *doctor)
{
	const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);
	bool tls = (curl->features & CURL_VERSION_SSL) != 0;

	doctor_say(doctor, tls ? VERDICT_OK : VERDICT_FAIL, "libcurl",
		tls ? NULL : "install a libcurl that is built with TLS", "%s with %s",
		curl->version, curl->ssl_version ? curl->ssl_version : "no TLS");
	doctor_say(doctor, VERDICT_OK, "libraries", NULL,
		"penstock %s, %s, SQLite %s, %s, libmicrohttpd %s", PENSTOCK_VERSION,
		OpenSSL_version(OPENSSL_VERSION), sqlite3_libversion(), archive_version_string(),
		MHD_get_version());
}

static int stop_at_once(void *cookie, const struct object_info *info)
{
	(void)cookie;
	(void)info;
	return 1;
}

void doctor_store(struct doctor *doctor, const struct cli *cli)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(remote_release) struct remote remote = {0};
	_cleanup_free_ char *bucket = NULL;
	const char *bucket_url = cli_value(cli, "bucket");
	const struct s3_settings *s;

	check_libraries(doctor);
	if (remote_open(&remote, cli, &err) < 0) {
		doctor_say(doctor, bucket_url ? VERDICT_FAIL : VERDICT_WARN, "credentials",
			"without them only the embedded store works, and workflows with keys of "
			"their own",
			"%s", err.message);
		return;
	}
	s = object_client_settings(remote.client);
	doctor_say(doctor, VERDICT_OK, "credentials", NULL, "from %s, for %s in %s", s->source,
		s->endpoint_url, s->region);
	if (!bucket_url)
		return;
	bucket = strdup(str_starts(bucket_url, "s3://") ? bucket_url + 5 : bucket_url);
	if (!bucket)
		abort();
	bucket[strcspn(bucket, "/")] = '\0';
	if (object_list(object_at(remote.client, bucket, ""), NULL, stop_at_once, NULL,
		    remote.cancel, &err) < 0)
		doctor_say(doctor, VERDICT_FAIL, "bucket",
			err.code == PENSTOCK_E_NOT_FOUND || err.code == PENSTOCK_E_PERMISSION
				? NULL /* the message has the advice */
				: "check the name, the endpoint, the keys and the clock",
			"%s", err.message);
	else
		doctor_say(doctor, VERDICT_OK, "bucket", NULL, "%s can be listed", bucket);
}
