/* What `penstock doctor` looks at of libraries and of object storage. */
#include <archive.h>
#include <curl/curl.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "cli/doctor.h"
#include "net/credentials.h"
#include "net/http.h"
#include "transfer/objects.h"
#include "base/banned.h"

void doctor_libraries(struct doctor *doctor)
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

static int ask_bucket(
	const struct s3_settings *settings, const char *bucket, struct penstock_error *err)
{
	struct http_engine *engine = NULL;
	struct object_client *client = NULL;
	int r = http_engine_new(&engine, &(struct http_engine_options){0}, err);

	if (r < 0)
		return r;
	r = object_client_new(&client,
		&(struct object_client_options){.engine = engine,
			.endpoint_url = settings->endpoint_url,
			.region = settings->region,
			.credentials = settings->credentials},
		err);
	if (r == 0)
		r = object_list(client, bucket, "", NULL, stop_at_once, NULL, NULL, err);
	object_client_free(client);
	http_engine_free(engine);
	return r;
}

void doctor_store(struct doctor *doctor, const char *bucket_url)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(s3_settings_release) struct s3_settings settings = {0};
	_cleanup_free_ char *bucket = NULL;

	if (s3_settings_resolve(&settings, &(struct s3_given){0}, &err) < 0) {
		doctor_say(doctor, bucket_url ? VERDICT_FAIL : VERDICT_WARN, "credentials",
			"without them only the embedded store and workflows with their own keys "
			"work",
			"%s", err.message);
		return;
	}
	doctor_say(doctor, VERDICT_OK, "credentials", NULL, "from %s, for %s in %s",
		settings.source, settings.endpoint_url, settings.region);
	if (!bucket_url)
		return;
	bucket = strdup(str_starts(bucket_url, "s3://") ? bucket_url + 5 : bucket_url);
	if (!bucket)
		abort();
	bucket[strcspn(bucket, "/")] = '\0';
	if (ask_bucket(&settings, bucket, &err) < 0)
		doctor_say(doctor, VERDICT_FAIL, "bucket",
			err.code == PENSTOCK_E_NOT_FOUND || err.code == PENSTOCK_E_PERMISSION
				? NULL /* the message says what to do */
				: "check the name, the endpoint, the keys and the clock",
			"%s", err.message);
	else
		doctor_say(doctor, VERDICT_OK, "bucket", NULL, "%s can be listed", bucket);
}
