/*
 * Temporary keys: the requests of each source, the replies that it accepts, and its messages when
 * the service refuses the request.
 */
#include "net/credentials/sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <signal.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"

#define KEYS                                                                                       \
	"{\"Code\":\"Success\",\"AccessKeyId\":\"ASIA1\",\"SecretAccessKey\":\"s1\","              \
	"\"Token\":\"t1\",\"Expiration\":\"2099-01-02T03:04:05Z\"}"
#define STS_KEYS                                                                                   \
	"<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"                 \
	"<AssumeRoleResult><AssumedRoleUser><Arn>a</Arn></AssumedRoleUser><Credentials>"           \
	"<AccessKeyId>ASIA2</AccessKeyId><SecretAccessKey>s2</SecretAccessKey>"                    \
	"<SessionToken>t2</SessionToken><Expiration>2099-01-02T03:04:05Z</Expiration>"             \
	"</Credentials></AssumeRoleResult></AssumeRoleResponse>"

static char directory[] = "/tmp/penstock-sources-XXXXXX";

struct service {
	struct mini_http server;
	char url[MINI_URL_SIZE];
	char seen[4][16384]; /* "METHOD target\nheaders\nbody" of the first requests */
	const char *refuse; /* the status line of a refusal */
	const char *body;
	bool no_role;
};

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct service *s = m->cookie;
	const char *text = s->body;

	if (r->number <= 4)
		snprintf(s->seen[r->number - 1], sizeof(s->seen[0]), "%s %s\n%.3000s\n%.*s",
			r->method, r->target, r->headers,
			(int)(r->body_len < 4096 ? r->body_len : 4096), r->body ? r->body : "");
	if (s->refuse)
		return mini_reply(fd, s->refuse, "", text ? text : "", text ? strlen(text) : 0);
	if (strcmp(r->target, "/latest/api/token") == 0)
		text = "imds-session";
	else if (strcmp(r->target, "/latest/meta-data/iam/security-credentials/") == 0)
		text = "trainer\n";
	if (s->no_role && strcmp(r->method, "GET") == 0)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	return mini_reply(fd, "200 OK", "", text, strlen(text));
}

static void serve(struct service *s)
{
	mini_start(&s->server, answer, s);
	mini_url(&s->server, "", s->url);
}

static int clean(void **state)
{
	static const char *const names[] = {"AWS_EC2_METADATA_SERVICE_ENDPOINT",
		"AWS_EC2_METADATA_DISABLED", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS",
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
		"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	/* No server listens at this proxy; requests to the metadata services must not go through
	 * it. */
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("HOME", directory, 1);
	return 0;
}

static char *file(const char *name, const char *text)
{
	char *path = path_join(directory, name);

	assert_int_equal(0, fs_write_atomic(path, text, strlen(text), 0600, NULL));
	return path;
}

static void assert_gives(struct credentials_provider *provider, const char *id, const char *token)
{
	struct credentials c = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (credentials_get(provider, &c, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(id, c.access_key_id);
	assert_string_equal(token, c.session_token);
	assert_int_equal(4071006245 * NS_PER_S, c.expires_at_ns);
	credentials_release(&c);
}

static void assert_fails(
	struct credentials_provider *provider, enum penstock_code code, const char *says)
{
	struct credentials c = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(-(int)code, credentials_get(provider, &c, &err));
	assert_non_null(err.message);
	if (!strstr(err.message, says))
		fail_msg("the message \"%s\" does not contain \"%s\"", err.message, says);
	penstock_error_release(&err);
}

static void assert_saw(const struct service *s, unsigned request, const char *text)
{
	if (!strstr(s->seen[request], text))
		fail_msg("request %u has no \"%s\":\n%s", request, text, s->seen[request]);
}

static void an_instance_is_asked_for_its_role_with_a_session_token(void **state)
{
	struct service s = {.body = KEYS};
	struct credentials_provider *provider = NULL;

	(void)state;
	serve(&s);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.url, 1);
	assert_int_equal(0, credential_source_instance(&provider, NULL));

	assert_gives(provider, "ASIA1", "t1");
	assert_gives(provider, "ASIA1", "t1");

	assert_int_equal(3, s.server.requests); /* the same for any number of callers */
	assert_saw(&s, 0, "PUT /latest/api/token\n");
	assert_saw(&s, 0, "X-aws-ec2-metadata-token-ttl-seconds: ");
	assert_saw(&s, 2, "GET /latest/meta-data/iam/security-credentials/trainer\n");
	assert_saw(&s, 2, "X-aws-ec2-metadata-token: imds-session");
	credentials_provider_free(provider);
	mini_stop(&s.server);
}

static void an_instance_without_a_role_says_so(void **state)
{
	struct service s = {.body = KEYS, .no_role = true};
	struct credentials_provider *provider = NULL;

	(void)state;
	serve(&s);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.url, 1);
	assert_int_equal(0, credential_source_instance(&provider, NULL));

	assert_fails(provider, PENSTOCK_E_NOT_FOUND, "");

	credentials_provider_free(provider);
	mini_stop(&s.server);
}

static void a_container_sends_its_token_and_reads_a_rotated_one_anew(void **state)
{
	struct service s = {.body = KEYS};
	struct credentials_provider *provider = NULL;
	struct buf line = BUF_INIT(100);
	char uri[MINI_URL_SIZE + 16];
	char *path;

	(void)state;
	serve(&s);
	snprintf(uri, sizeof(uri), "%s/creds?id=1", s.url);
	path = file("token", "first-token\n");
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "not-this", 1);
	assert_int_equal(0, credential_source_container(&provider, NULL));

	assert_gives(provider, "ASIA1", "t1");
	free(file("token", "second-token"));
	credentials_invalidate(provider);
	assert_gives(provider, "ASIA1", "t1");

	assert_saw(&s, 0, "GET /creds?id=1\n");
	assert_saw(&s, 0, "Authorization: first-token\r\n");
	assert_saw(&s, 1, "Authorization: second-token\r\n");
	log_redact_into(&line, "sent second-token");
	assert_string_equal("sent ***", buf_str(&line));
	buf_release(&line);
	credentials_provider_free(provider);
	free(path);
	mini_stop(&s.server);
}

static void a_container_may_not_be_sent_elsewhere_in_plain_text(void **state)
{
	static const char *const bad[] = {"http://example.com/x", "http://10.0.0.1/x",
		"ftp://127.0.0.1/", "http://127.0.0.1@example.com/", "http://[fd00:ec2::254]/x",
		"http://1270.0.0.1/x", "http://localhost.example.com/"};
	static const char *const good[] = {"https://example.com/x", "http://localhost:1/",
		"http://127.9.9.9/", "http://169.254.170.23/v1/credentials",
		"http://[fd00:ec2::23]/v1/credentials"};
	struct credentials_provider *provider = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", bad[i], 1);
		assert_int_equal(-PENSTOCK_E_INVALID, credential_source_container(&provider, NULL));
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", good[i], 1);
		assert_int_equal(0, credential_source_container(&provider, NULL));
		credentials_provider_free(provider);
	}
}

static void a_role_is_assumed_with_signed_keys(void **state)
{
	struct service s = {.body = STS_KEYS};
	struct credentials_provider *source = NULL, *provider = NULL;

	(void)state;
	unsetenv("http_proxy");
	serve(&s);
	assert_int_equal(
		0, credentials_provider_new_static(&source, "LONG", "long/secret", NULL, NULL));
	assert_int_equal(0, credential_source_role(&provider,
				    &(struct sts_role){.sts_url = s.url,
					    .region = "eu-north-1",
					    .role_arn = "arn:aws:iam::1:role/train er",
					    .external_id = "a&b",
					    .duration_s = 1800},
				    source, NULL));

	assert_gives(provider, "ASIA2", "t2");

	assert_saw(&s, 0, "POST /\n");
	assert_saw(&s, 0, "Credential=LONG/");
	assert_saw(&s, 0, "/eu-north-1/sts/aws4_request");
	assert_saw(&s, 0, "SignedHeaders=content-type;host;x-amz-date,");
	assert_saw(&s, 0,
		"Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%"
		"2Ftrain%20er&RoleSessionName=penstock-");
	assert_saw(&s, 0, "&ExternalId=a%26b&DurationSeconds=1800");
	credentials_provider_free(provider);
	mini_stop(&s.server);
}

static void a_refusal_of_sts_is_told(void **state)
{
	struct service s = {.refuse = "403 Forbidden",
		.body = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
			"<Message>not authorized to perform: sts:AssumeRole</Message></Error>"
			"</ErrorResponse>"};
	struct credentials_provider *source = NULL, *provider = NULL;

	(void)state;
	unsetenv("http_proxy");
	serve(&s);
	assert_int_equal(0, credentials_provider_new_static(&source, "LONG", "secret", NULL, NULL));
	assert_int_equal(
		0, credential_source_role(&provider,
			   &(struct sts_role){.sts_url = s.url, .region = "r", .role_arn = "arn"},
			   source, NULL));

	assert_fails(provider, PENSTOCK_E_PERMISSION,
		"(AccessDenied: not authorized to perform: sts:AssumeRole)");

	credentials_provider_free(provider);
	mini_stop(&s.server);
}

static void a_web_identity_is_not_signed_and_its_token_is_kept_out_of_logs(void **state)
{
	struct service s = {.body = STS_KEYS};
	struct credentials_provider *provider = NULL;
	struct buf line = BUF_INIT(1000);
	char *path = file("jwt", "eyJ.identity.sig\n");

	(void)state;
	unsetenv("http_proxy");
	serve(&s);
	assert_int_equal(0, credential_source_web_identity(&provider,
				    &(struct sts_role){.sts_url = s.url,
					    .role_arn = "arn",
					    .session_name = "me",
					    .token_file = path},
				    NULL));

	assert_gives(provider, "ASIA2", "t2");

	assert_saw(&s, 0,
		"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn&RoleSessionName="
		"me&WebIdentityToken=eyJ.identity.sig");
	assert_null(strstr(s.seen[0], "Authorization"));
	log_redact_into(&line, "sent eyJ.identity.sig");
	assert_string_equal("sent ***", buf_str(&line));
	buf_release(&line);
	free(path);
	credentials_provider_free(provider);
	mini_stop(&s.server);
}

/* A run of several weeks reads a new token every few hours. The newest tokens stay masked. */
static void check_rotation(struct credentials_provider *provider, const char *source)
{
	struct buf line = BUF_INIT(1000), shown = BUF_INIT(1000);
	size_t before = log_redact_count();

	for (int i = 0; i < 30; i++) {
		struct credentials c = {0};
		char token[64];

		snprintf(token, sizeof(token), "token-of-%s-number-%06d", source, i);
		free(file("rotated", token));
		assert_int_equal(0, credentials_get(provider, &c, NULL));
		credentials_release(&c);
		credentials_invalidate(provider);
		if (i >= 28)
			buf_printf(&line, "%s ", token);
	}
	assert_in_range(log_redact_count(), before, before + 8 * 10 /* forms of a text */);
	log_redact_into(&shown, buf_str(&line));
	assert_string_equal("*** *** ", buf_str(&shown));
	buf_release(&line);
	buf_release(&shown);
}

static void tokens_that_are_rotated_do_not_all_stay_hidden(void **state)
{
	struct service container = {.body = KEYS}, sts = {.body = STS_KEYS};
	struct credentials_provider *provider = NULL;
	char *path = file("rotated", "first");

	(void)state;
	unsetenv("http_proxy");
	serve(&container);
	serve(&sts);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.url, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
	assert_int_equal(0, credential_source_container(&provider, NULL));
	check_rotation(provider, "container");
	credentials_provider_free(provider);
	assert_int_equal(
		0, credential_source_web_identity(&provider,
			   &(struct sts_role){
				   .sts_url = sts.url, .role_arn = "arn", .token_file = path},
			   NULL));
	check_rotation(provider, "sts");
	credentials_provider_free(provider);
	free(path);
	mini_stop(&container.server);
	mini_stop(&sts.server);
}

static void a_process_prints_keys(void **state)
{
	struct credentials_provider *provider = NULL;

	(void)state;
	assert_int_equal(
		0, credential_source_process(&provider,
			   "echo '{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"ps\","
			   "\"SessionToken\":\"pt\",\"Expiration\":\"2099-01-02T03:04:05Z\"}'",
			   NULL));
	assert_gives(provider, "P", "pt");
	credentials_provider_free(provider);

	assert_int_equal(0, credential_source_process(&provider, "echo '{}'; exit 3", NULL));
	assert_fails(provider, PENSTOCK_E_PERMISSION, "3");
	credentials_provider_free(provider);

	assert_int_equal(0, credential_source_process(&provider, "echo nonsense", NULL));
	assert_fails(provider, PENSTOCK_E_PROTOCOL, "JSON");
	credentials_provider_free(provider);

	assert_int_equal(0, credential_source_process(&provider, "cat /dev/zero", NULL));
	assert_fails(provider, PENSTOCK_E_LIMIT, "");
	credentials_provider_free(provider);
}

/* The program may start a background process that keeps the output open for days. */
static void a_process_may_leave_another_behind(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);
	_cleanup_free_ char *path = path_join(directory, "agent"), *command = NULL;
	struct credentials_provider *provider = NULL;

	(void)state;
	assert_true(asprintf(&command, "sleep 1000 & echo $! >%s; echo '%s'", path, KEYS) > 0);
	assert_int_equal(0, credential_source_process(&provider, command, NULL));
	assert_gives(provider, "ASIA1", "t1");
	credentials_provider_free(provider);

	assert_int_equal(0, fs_read(path, &text, NULL));
	assert_int_equal(0, kill((pid_t)strtol(buf_str(&text), NULL, 10), SIGKILL));
}

/* --- the chain ------------------------------------------------------------------------------- */

static void assert_resolves(const char *source, const char *id, const char *token)
{
	struct s3_settings settings = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (s3_settings_resolve(&settings, &(struct store_place){0}, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(source, settings.source);
	assert_gives(settings.credentials, id, token);
	s3_settings_release(&settings);
}

static void assert_refused(enum penstock_code code, const char *says)
{
	struct s3_settings settings = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(
		-(int)code, s3_settings_resolve(&settings, &(struct store_place){0}, &err));
	assert_non_null(err.message);
	if (!strstr(err.message, says))
		fail_msg("the message \"%s\" does not contain \"%s\"", err.message, says);
	penstock_error_release(&err);
}

static void the_instance_is_the_last_resort(void **state)
{
	struct service s = {.body = KEYS};
	char uri[MINI_URL_SIZE + 16];

	(void)state;
	serve(&s);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.url, 1);
	assert_resolves("instance", "ASIA1", "t1");

	snprintf(uri, sizeof(uri), "%s/creds", s.url);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri, 1);
	assert_resolves("container", "ASIA1", "t1");
	unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");

	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	assert_refused(PENSTOCK_E_PERMISSION, "S3");
	unsetenv("AWS_EC2_METADATA_DISABLED");
	s.no_role = true;
	assert_refused(PENSTOCK_E_PERMISSION, "S3");
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
	assert_refused(PENSTOCK_E_PERMISSION, "S3");
	assert_refused(PENSTOCK_E_PERMISSION, "PUT http://127.0.0.1:1/latest/api/token");
	mini_stop(&s.server);
}

static void roles_of_profiles_take_the_keys_of_other_profiles(void **state)
{
	struct service s = {.body = STS_KEYS};
	char *path = file("config",
		"[profile base]\naws_access_key_id = BASE\naws_secret_access_key = bs\n"
		"[profile role]\nrole_arn = arn:role\nsource_profile = base\nregion = us-west-1\n"
		"[profile own]\nrole_arn = arn:own\nsource_profile = own\n"
		"aws_access_key_id = OWN\naws_secret_access_key = os\n"
		"[profile env]\nrole_arn = arn:env\ncredential_source = Environment\n"
		"[profile loop]\nrole_arn = arn:a\nsource_profile = pool\n"
		"[profile pool]\nrole_arn = arn:b\nsource_profile = loop\n"
		"[profile none]\nrole_arn = arn:c\n"
		"[profile lost]\nrole_arn = arn:c\nsource_profile = nowhere\n"
		"[profile mfa]\nrole_arn = arn:c\nsource_profile = base\nmfa_serial = x\n"
		"[profile sso]\nsso_start_url = https://example.com\n"
		"[profile cmd]\ncredential_process = echo "
		"'{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"s\","
		"\"SessionToken\":\"pt\",\"Expiration\":\"2099-01-02T03:04:05Z\"}'\n");

	(void)state;
	unsetenv("http_proxy");
	serve(&s);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	setenv("AWS_CONFIG_FILE", path, 1);
	setenv("AWS_ENDPOINT_URL_STS", s.url, 1);

	setenv("AWS_PROFILE", "role", 1);
	assert_resolves("role", "ASIA2", "t2");
	assert_saw(&s, 0, "Credential=BASE/");
	assert_saw(&s, 0, "/us-west-1/sts/");
	setenv("AWS_PROFILE", "own", 1);
	assert_resolves("role", "ASIA2", "t2");
	assert_saw(&s, 1, "Credential=OWN/");
	setenv("AWS_PROFILE", "cmd", 1);
	assert_resolves("credential_process", "P", "pt");

	setenv("AWS_PROFILE", "env", 1);
	assert_refused(PENSTOCK_E_PERMISSION, "Environment");
	setenv("AWS_PROFILE", "loop", 1);
	assert_refused(PENSTOCK_E_INVALID, "source_profile");
	setenv("AWS_PROFILE", "none", 1);
	assert_refused(PENSTOCK_E_INVALID, "credential_source");
	setenv("AWS_PROFILE", "lost", 1);
	assert_refused(PENSTOCK_E_INVALID, "nowhere");
	setenv("AWS_PROFILE", "mfa", 1);
	assert_refused(PENSTOCK_E_UNSUPPORTED, "mfa_serial");
	setenv("AWS_PROFILE", "sso", 1);
	assert_refused(PENSTOCK_E_UNSUPPORTED, "SSO");
	free(path);
	mini_stop(&s.server);
}

static void documents_that_are_no_keys_are_refused(void **state)
{
	static const char *const json[] = {"", "[]", "{}", "{\"AccessKeyId\":\"a\"}",
		"{\"AccessKeyId\":1,\"SecretAccessKey\":\"b\"}",
		"{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Expiration\":\"soon\"}",
		"{\"Version\":2,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\"}",
		"{\"Code\":\"AssumeRoleUnauthorizedAccess\",\"Message\":\"no\"}"};
	static const char *const xml[] = {"", "<a/>", "<a><Credentials/></a>",
		"<a><Credentials><AccessKeyId>x</AccessKeyId></Credentials></a>",
		("<a><Credentials><AccessKeyId>x</AccessKeyId><SecretAccessKey>y</SecretAccessKey>"
		 "<Expiration>never</Expiration></Credentials></a>")};
	struct credentials c = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(json) / sizeof(json[0]); i++)
		assert_true(credentials_from_json(json[i], strlen(json[i]), &c, NULL) < 0);
	for (size_t i = 0; i < sizeof(xml) / sizeof(xml[0]); i++)
		assert_true(credentials_from_sts(xml[i], strlen(xml[i]), &c, NULL) < 0);
	assert_null(c.access_key_id);
}

/* Helper programs print a date beyond the range of 64-bit nanoseconds for keys that never
 * expire. */
static void keys_that_end_beyond_what_a_clock_can_count_never_end(void **state)
{
	static const char *const dates[] = {"9999-12-31T23:59:59Z", "99991231T235959Z",
		"2262-04-11T23:47:16Z", "2300-01-01T00:00:00.5+01:00"};

	(void)state;
	for (size_t i = 0; i < sizeof(dates) / sizeof(dates[0]); i++) {
		struct credentials c = {0};
		char text[512];

		snprintf(text, sizeof(text),
			"{\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\","
			"\"Expiration\":\"%s\"}",
			dates[i]);
		assert_int_equal(0, credentials_from_json(text, strlen(text), &c, NULL));
		assert_int_equal(INT64_MAX, c.expires_at_ns);
		credentials_release(&c);
		snprintf(text, sizeof(text),
			"<a><Credentials><AccessKeyId>x</AccessKeyId><SecretAccessKey>y</SecretAccessKey><Expiration>%s</Expiration></Credentials></a>",
			dates[i]);
		assert_int_equal(0, credentials_from_sts(text, strlen(text), &c, NULL));
		assert_int_equal(INT64_MAX, c.expires_at_ns);
		credentials_release(&c);
	}
}

/* The program runs once for all requests, because keys without an expiry are never renewed. */
static void a_process_may_print_keys_that_never_end(void **state)
{
	struct credentials_provider *provider = NULL;
	struct credentials c = {0};
	char *path = file("runs", ""), command[512];
	struct buf runs = BUF_INIT(100);

	(void)state;
	snprintf(command, sizeof(command),
		"echo run >>%s; echo "
		"'{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"s\","
		"\"Expiration\":\"9999-12-31T23:59:59Z\"}'",
		path);
	assert_int_equal(0, credential_source_process(&provider, command, NULL));

	for (int i = 0; i < 3; i++) {
		assert_int_equal(0, credentials_get(provider, &c, NULL));
		assert_string_equal("P", c.access_key_id);
		credentials_release(&c);
	}

	assert_int_equal(0, fs_read(path, &runs, NULL));
	assert_string_equal("run\n", buf_str(&runs));
	buf_release(&runs);
	free(path);
	credentials_provider_free(provider);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			an_instance_is_asked_for_its_role_with_a_session_token, clean),
		cmocka_unit_test_setup(an_instance_without_a_role_says_so, clean),
		cmocka_unit_test_setup(
			a_container_sends_its_token_and_reads_a_rotated_one_anew, clean),
		cmocka_unit_test_setup(a_container_may_not_be_sent_elsewhere_in_plain_text, clean),
		cmocka_unit_test_setup(a_role_is_assumed_with_signed_keys, clean),
		cmocka_unit_test_setup(a_refusal_of_sts_is_told, clean),
		cmocka_unit_test_setup(
			a_web_identity_is_not_signed_and_its_token_is_kept_out_of_logs, clean),
		cmocka_unit_test_setup(tokens_that_are_rotated_do_not_all_stay_hidden, clean),
		cmocka_unit_test_setup(a_process_prints_keys, clean),
		cmocka_unit_test_setup(a_process_may_leave_another_behind, clean),
		cmocka_unit_test_setup(the_instance_is_the_last_resort, clean),
		cmocka_unit_test_setup(roles_of_profiles_take_the_keys_of_other_profiles, clean),
		cmocka_unit_test(documents_that_are_no_keys_are_refused),
		cmocka_unit_test(keys_that_end_beyond_what_a_clock_can_count_never_end),
		cmocka_unit_test_setup(a_process_may_print_keys_that_never_end, clean),
	};
	int r;

	if (!mkdtemp(directory))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	fs_remove_tree(directory, NULL);
	log_redact_clear();
	return r;
}
