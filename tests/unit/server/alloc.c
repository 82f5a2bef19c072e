#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <openssl/hmac.h>
#include <cmocka.h>

#include "alloc_fail.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/date.h"
#include "s3/sign/sigv4.h"
#include "s3/sum/checksum.h"
#include "server/bucket/replicator.h"
#include "server/server.h"
#include "store/store.h"

/*
 * For each request, every allocation fails once. The client gets the reply, an error, or a closed
 * connection; the store has the old object or the new one; and the same request succeeds when it is
 * sent again.
 */
#define SECRET "secret"
#define LARGE  (STORE_INLINE_MAX + 5000)
#define PART   "--b\r\nContent-Disposition: form-data; name="

static char old_bytes[LARGE + 1], new_bytes[LARGE + 1];

struct fixture {
	char root[64];
	struct store *store;
	struct replicator *replicator;
	struct server *server;
	struct sockaddr_in at;
};

/* The destination does not exist, so the store pauses for a minute after one attempt. */
static int start_replicator(struct fixture *f)
{
	static const char text[] = "[{\"name\":\"copy\",\"endpoint\":\"http://127.0.0.1:1\","
				   "\"access_key_id\":\"a\",\"secret_access_key\":\"" SECRET "\"}]";
	_cleanup_free_ char *path = path_join(f->root, "targets");

	return path && fs_write_atomic(path, text, sizeof(text) - 1, 0600, NULL) == 0
		       ? replicator_start(&f->replicator, f->store, path, 60000, NULL)
		       : -1;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->root, sizeof(f->root), "/tmp/server-alloc-XXXXXX");
	if (!mkdtemp(f->root) ||
		store_open(&f->store, &(struct store_options){.root = f->root, .relaxed = true},
			NULL) < 0 ||
		store_bucket_create(f->store, "bkt", "", NULL) != STORE_OK ||
		store_bucket_create(f->store, "enc", "", NULL) != STORE_OK ||
		store_bucket_add(f->store,
			&(struct store_new_bucket){.name = "lck", .region = "", .lock = true},
			NULL) != STORE_OK ||
		start_replicator(f) < 0 ||
		server_start(&f->server,
			&(struct server_options){.store = f->store,
				.replicator = f->replicator,
				.address = "127.0.0.1",
				.access_key_id = "key",
				.secret_access_key = SECRET},
			NULL) < 0)
		return -1;
	f->at = (struct sockaddr_in){.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(
			(uint16_t)strtoul(strrchr(server_url(f->server), ':') + 1, NULL, 10))};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	server_stop(f->server, 10000);
	replicator_stop(f->replicator);
	store_close(f->store);
	fs_remove_tree(f->root, NULL);
	free(f);
	return 0;
}

/* --- one request --------------------------------------------------------------------------- */

struct message {
	const char *method, *path, *query;
	const char *name, *value; /* a header */
	const char *body;
	size_t body_len;
};

/* Writes the bytes of the message, with a presigned URL. */
static size_t write_message(const struct message *m, char *out, size_t size)
{
	struct sigv4_header headers[] = {
		{.name = "host", .value = "test"}, {.name = m->name, .value = m->value}};
	struct sigv4_request request = {.method = m->method,
		.path = m->path,
		.query = m->query,
		.headers = headers,
		.n_headers = m->name ? 2 : 1};
	struct sigv4_credentials keys = {.access_key = "key", .secret_key = SECRET};
	struct buf query = BUF_INIT(8192);
	struct sigv4 ws;
	int len;

	assert_int_equal(sigv4_init(&ws, NULL), 0);
	assert_int_equal(sigv4_presign(&ws, &request,
				 (struct sigv4_identity){&keys, "us-east-1", "s3", time(NULL)},
				 3600, &query, NULL),
		0);
	len = snprintf(out, size,
		"%s %s?%s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n%s%s%s%sContent-Length: "
		"%zu\r\n\r\n",
		m->method, m->path, buf_str(&query), m->name ? m->name : "", m->name ? ": " : "",
		m->name ? m->value : "", m->name ? "\r\n" : "", m->body_len);
	assert_true(len > 0 && (size_t)len + m->body_len < size);
	if (m->body_len)
		memcpy(out + len, m->body, m->body_len);
	buf_release(&query);
	sigv4_release(&ws);
	return (size_t)len + m->body_len;
}

/* Returns the status, or 0 if the connection was closed before the head was complete. The reply is
 * in `reply`. */
static int exchange(struct fixture *f, const char *bytes, size_t len, char *reply, size_t size)
{
	struct timeval patience = {.tv_sec = 60};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t got = 0;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&f->at, sizeof(f->at)) < 0)
		fail_msg("the server no longer listens");
	for (size_t sent = 0; sent < len; sent += (size_t)n) {
		n = send(fd, bytes + sent, len - sent, MSG_NOSIGNAL);
		if (n < 0)
			break; /* the server refused the request; read the reply for the reason */
	}
	while ((n = recv(fd, reply + got, size - 1 - got, 0)) > 0)
		got += (size_t)n;
	if (n < 0 && errno == EAGAIN)
		fail_msg("the connection did not end within a minute");
	close(fd);
	reply[got] = '\0';
	return strncmp(reply, "HTTP/1.1 ", 9) == 0 && strstr(reply, "\r\n\r\n")
		       ? (int)strtol(reply + 9, NULL, 10)
		       : 0;
}

static void hmac(const void *key, size_t key_len, const char *text, uint8_t out[32])
{
	unsigned len = 32;

	assert_non_null(HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text,
		strlen(text), out, &len));
}

/* Writes a browser's form that stores "n" 100 times as the key "form". */
static size_t write_form(char *out, size_t size)
{
	static const char condition[] = "[\"starts-with\",\"$%s\",\"\"]%s";
	static const char *const names[] = {"key", "x-amz-algorithm", "x-amz-credential",
		"x-amz-date", "x-amz-meta-a", "success_action_status", "x-amz-checksum-crc32"};
	struct buf json = BUF_INIT(4000), policy = BUF_INIT(4000), form = BUF_INIT(8000);
	uint32_t crc = htonl(crc32_update(0, new_bytes, 100));
	char date[DATE_BASIC_SIZE], day[9], scope[64], sum[CHECKSUM_TEXT_SIZE], hex[65];
	uint8_t key[32];

	date_format_basic(time(NULL), date);
	snprintf(day, sizeof(day), "%.8s", date);
	snprintf(scope, sizeof(scope), "key/%s/us-east-1/s3/aws4_request", day);
	buf_add_str(&json,
		"{\"expiration\":\"2100-01-01T00:00:00Z\",\"conditions\":[{\"bucket\":\"bkt\"},");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		buf_printf(&json, condition, names[i], i + 1 < ARRAY_SIZE(names) ? "," : "]}");
	assert_int_equal(base64_encode(&policy, json.data, json.len), 0);
	hmac("AWS4" SECRET, strlen("AWS4" SECRET), day, key);
	hmac(key, 32, "us-east-1", key);
	hmac(key, 32, "s3", key);
	hmac(key, 32, "aws4_request", key);
	hmac(key, 32, policy.data, key);
	str_hex(key, sizeof(key), hex);
	checksum_format(CHECKSUM_CRC32, (uint8_t *)&crc, sum);
	const char *const values[] = {
		"${filename}", "AWS4-HMAC-SHA256", scope, date, "b", "201", sum};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		buf_printf(&form, PART "\"%s\"\r\n\r\n%s\r\n", names[i], values[i]);
	buf_printf(&form, PART "policy\r\n\r\n%s\r\n", policy.data);
	buf_printf(&form, PART "x-amz-signature\r\n\r\n%s\r\n", hex);
	buf_printf(&form, PART "file; filename=form\r\n\r\n%.100s\r\n--b--\r\n", new_bytes);
	assert_true(!buf_failed(&form) && form.len < size);
	memcpy(out, form.data, form.len);
	size = form.len;
	buf_release(&json);
	buf_release(&policy);
	buf_release(&form);
	return size;
}

/* --- checks after each request --------------------------------------------------------------- */

static void put_directly(struct fixture *f, const char *key, const char *bytes, size_t len)
{
	struct store_put put = {.bucket = "bkt", .key = key, .etag = "old"};

	assert_int_equal(store_body_new(f->store, len, true, &put.body, NULL), 0);
	assert_int_equal(store_body_write(put.body, bytes, len, NULL), 0);
	assert_int_equal(store_body_sync(put.body, NULL), 0);
	assert_int_equal(store_put(f->store, &put, NULL), STORE_OK);
	store_body_free(put.body);
}

/* Checks that the object is complete. Returns 'o' for the old and 'n' for the new object, or '-' if
 * the object is missing. */
static char version_of(struct fixture *f, const char *key)
{
	static char data[LARGE + 1];
	struct store_object *object = NULL;
	struct store_reader *reader = NULL;
	char version;

	if (store_object_get(f->store, "bkt", key, &object, NULL) == STORE_NO_SUCH_KEY)
		return '-';
	assert_non_null(object);
	assert_int_equal(store_reader_new(object, &reader, NULL), 0);
	assert_int_equal(store_reader_read(reader, 0, data, sizeof(data), NULL), object->size);
	version = data[0];
	assert_true(memcmp(data, version == 'o' ? old_bytes : new_bytes, object->size) == 0);
	store_reader_free(reader);
	store_object_unref(object);
	return version;
}

static void reset(struct fixture *f)
{
	struct store_delete copy = {.key = "copy"};

	put_directly(f, "small", old_bytes, 100);
	put_directly(f, "large", old_bytes, LARGE);
	assert_int_equal(store_delete(f->store, "bkt", 0, &copy, 1, NULL), STORE_OK);
	store_bucket_delete(f->store, "another", 0, NULL);
}

static void check(struct fixture *f, const struct message *m, int status)
{
	char small = version_of(f, "small"), large = version_of(f, "large");
	char copy = version_of(f, "copy");
	bool done = status >= 200 && status < 300;

	if (done && strcmp(m->method, "PUT") == 0 && strcmp(m->path, "/bkt/small") == 0)
		assert_int_equal(small, 'n');
	if (done && strcmp(m->method, "PUT") == 0 && strcmp(m->path, "/bkt/large") == 0)
		assert_int_equal(large, 'n');
	if (done && strcmp(m->method, "PUT") == 0 && strcmp(m->path, "/bkt/copy") == 0)
		assert_int_equal(copy, 'o');
	if (done && strcmp(m->method, "DELETE") == 0)
		assert_int_equal(small, '-');
	if (strcmp(m->method, "GET") == 0)
		assert_true(small == 'o' && large == 'o' && copy == '-');
}

/* A 200 reply to the GET of "large" announces the complete length, so that a client detects missing
 * bytes. */
static void check_reply(const struct message *m, int status, const char *reply)
{
	const char *length = strstr(reply, "Content-Length: ");
	const char *body = strstr(reply, "\r\n\r\n");

	if (status != 200 || strcmp(m->method, "GET") != 0 || strcmp(m->path, "/bkt/large") != 0)
		return;
	assert_non_null(length);
	assert_int_equal(strtoul(length + 16, NULL, 10), LARGE);
	/* The body may be shorter than its announced length, but must not have wrong bytes. */
	for (const char *p = body + 4; *p; p++)
		assert_int_equal(*p, 'o');
}

static void fail_each_allocation(struct fixture *f, const struct message *m)
{
	static char bytes[LARGE + 4096], reply[LARGE + 4096];
	size_t len = write_message(m, bytes, sizeof(bytes)), refused = 0;

	for (size_t n = 1;; n++) {
		int status;
		bool fired;

		reset(f);
		alloc_fail_arm(n);
		status = exchange(f, bytes, len, reply, sizeof(reply));
		while (server_active(f->server)) /* closing the connection may allocate */
			usleep(100);
		fired = alloc_fail_disarm();

		if (status && status != 500 && status != 503 && (status < 200 || status > 299))
			fail_msg("%s %s: allocation %zu: %.500s", m->method, m->path, n, reply);
		check(f, m, status);
		check_reply(m, status, reply);
		refused += status < 200 || status > 299;
		if (!fired) {
			assert_true(status >= 200 && status <= 299);
			printf("%s %s: %zu allocations, %zu of them needed\n", m->method, m->path,
				n - 1, refused);
			break;
		}
		reset(f);
		status = exchange(f, bytes, len, reply, sizeof(reply));
		if (status < 200 || status > 299)
			fail_msg(
				"%s %s after allocation %zu: %.500s", m->method, m->path, n, reply);
	}
	assert_true(refused > 0);
}

static void a_request_without_memory_is_refused_and_leaves_nothing_half(void **state)
{
	static const char names[] = "<Delete><Object><Key>copy</Key></Object></Delete>";
	static const char grants[] =
		"<AccessControlPolicy><Owner><ID>70656e73746f636b"
		"000000000000000000000000000000000000000000000000</ID></Owner>"
		"<AccessControlList><Grant><Grantee><ID>70656e73746f636b"
		"000000000000000000000000000000000000000000000000</ID></Grantee>"
		"<Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>";
	static const char tags[] =
		"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
	static const char lock[] =
		"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>"
		"<DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>"
		"</ObjectLockConfiguration>";
	static const char retention[] =
		"<Retention><Mode>COMPLIANCE</Mode>"
		"<RetainUntilDate>2200-01-01T00:00:00Z</RetainUntilDate></Retention>";
	static const char rules[] =
		"<CORSConfiguration><CORSRule><AllowedOrigin>http://*</AllowedOrigin>"
		"<AllowedMethod>GET</AllowedMethod><ExposeHeader>ETag</ExposeHeader>"
		"</CORSRule></CORSConfiguration>";
	static const char policy[] =
		"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Deny\","
		"\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\"Resource\":"
		"\"arn:aws:s3:::lck/*\",\"Condition\":{\"StringEquals\":{"
		"\"s3:ExistingObjectTag/a\":\"none\",\"aws:SourceIp\":\"${aws:Referer}\"}}}}";
	static const char ends[] =
		"<LifecycleConfiguration><Rule><Status>Enabled</Status><Filter><And><Prefix/><Tag>"
		"<Key>a</Key><Value>b</Value></Tag></And></Filter><Expiration><Days>1</Days>"
		"</Expiration></Rule><Rule><ID>n</ID><Status>Enabled</Status><Filter/><Expiration>"
		"<Days>9</Days></Expiration><AbortIncompleteMultipartUpload><DaysAfterInitiation>1"
		"</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>"
		"</LifecycleConfiguration>";
	static const char logging[] =
		"<BucketLoggingStatus><LoggingEnabled><TargetBucket>bkt</TargetBucket>"
		"<TargetPrefix>l/</TargetPrefix></LoggingEnabled></BucketLoggingStatus>";
	static const char encryption[] =
		"<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>"
		"<SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule>"
		"</ServerSideEncryptionConfiguration>";
	static const char replication[] =
		"<ReplicationConfiguration><Role>arn:r</Role><Rule><Priority>1</Priority><Filter>"
		"<Tag><Key>a</Key><Value>b</Value></Tag></Filter><Status>Enabled</Status>"
		"<DeleteMarkerReplication><Status>Disabled</Status></DeleteMarkerReplication>"
		"<Destination><Bucket>arn:aws:s3:::copy</Bucket></Destination></Rule>"
		"<Rule><Priority>2</Priority><Filter><Prefix></Prefix></Filter><Status>Enabled</Status>"
		"<DeleteMarkerReplication><Status>Enabled</Status></DeleteMarkerReplication>"
		"<Destination><Bucket>arn:aws:s3:::copy</Bucket></Destination></Rule>"
		"</ReplicationConfiguration>";
	static const char reads[] = "0 * - copy\n5 20 - copy\n";
	static char form[8000];
	struct fixture *f = *state;
	char id[STORE_UPLOAD_ID_SIZE], part[64];
	struct message messages[] = {
		{.method = "POST",
			.path = "/bkt",
			.name = "content-type",
			.value = "multipart/form-data; boundary=b",
			.body = form},
		{.method = "PUT",
			.path = "/bkt",
			.query = "cors=",
			.body = rules,
			.body_len = sizeof(rules) - 1},
		{.method = "GET", .path = "/bkt/small", .name = "origin", .value = "http://a"},
		{.method = "PUT",
			.path = "/bkt",
			.query = "lifecycle=",
			.body = ends,
			.body_len = sizeof(ends) - 1},
		{.method = "GET", .path = "/bkt", .query = "lifecycle="},
		{.method = "PUT",
			.path = "/bkt",
			.query = "logging=",
			.body = logging,
			.body_len = sizeof(logging) - 1},
		{.method = "GET", .path = "/bkt", .query = "logging="},
		{.method = "PUT", .path = "/bkt/small", .body = new_bytes, .body_len = 100},
		{.method = "PUT",
			.path = "/bkt/small",
			.name = "x-amz-server-side-encryption",
			.value = "AES256",
			.body = new_bytes,
			.body_len = 100},
		{.method = "PUT",
			.path = "/bkt/large",
			.name = "x-amz-server-side-encryption",
			.value = "AES256",
			.body = new_bytes,
			.body_len = LARGE},
		{.method = "PUT",
			.path = "/enc",
			.query = "encryption=",
			.body = encryption,
			.body_len = sizeof(encryption) - 1},
		{.method = "GET", .path = "/enc", .query = "encryption="},
		{.method = "PUT",
			.path = "/enc/copy",
			.name = "x-amz-copy-source",
			.value = "bkt/large"},
		{.method = "GET", .path = "/enc/copy"},
		{.method = "POST",
			.path = "/enc",
			.query = "penstock-read=",
			.body = reads,
			.body_len = sizeof(reads) - 1},
		{.method = "PUT", .path = "/bkt/large", .body = new_bytes, .body_len = LARGE},
		{.method = "PUT",
			.path = "/bkt/copy",
			.name = "x-amz-copy-source",
			.value = "bkt/large"},
		{.method = "GET", .path = "/bkt/large"},
		{.method = "GET", .path = "/bkt/small", .name = "range", .value = "bytes=5-20"},
		{.method = "GET", .path = "/bkt", .query = "list-type=2"},
		{.method = "GET", .path = "/"},
		{.method = "DELETE", .path = "/bkt/small"},
		{.method = "POST",
			.path = "/bkt",
			.query = "delete=",
			.body = names,
			.body_len = sizeof(names) - 1},
		{.method = "PUT", .path = "/bkt/other", .name = "x-amz-tagging", .value = "a=b&c"},
		{.method = "PUT",
			.path = "/bkt/other",
			.query = "tagging=",
			.body = tags,
			.body_len = sizeof(tags) - 1},
		{.method = "GET", .path = "/bkt/other", .query = "tagging="},
		{.method = "PUT",
			.path = "/bkt/other",
			.name = "x-amz-grant-read",
			.value = "uri=http://acs.amazonaws.com/groups/global/AllUsers"},
		{.method = "PUT",
			.path = "/bkt/other",
			.query = "acl=",
			.body = grants,
			.body_len = sizeof(grants) - 1},
		{.method = "GET", .path = "/bkt/other", .query = "acl="},
		{.method = "PUT",
			.path = "/bkt",
			.query = "acl=",
			.name = "x-amz-acl",
			.value = "public-read"},
		{.method = "GET", .path = "/bkt", .query = "acl="},
		{.method = "PUT",
			.path = "/bkt",
			.query = "tagging=",
			.body = tags,
			.body_len = sizeof(tags) - 1},
		{.method = "PUT",
			.path = "/lck/other",
			.name = "x-amz-checksum-crc32",
			.value = "AAAAAA=="},
		{.method = "PUT",
			.path = "/lck/other",
			.query = "retention=",
			.body = retention,
			.body_len = sizeof(retention) - 1},
		{.method = "GET", .path = "/lck/other", .query = "retention="},
		{.method = "POST",
			.path = "/lck/parts",
			.query = "uploads=",
			.name = "x-amz-object-lock-legal-hold",
			.value = "ON"},
		{.method = "PUT",
			.path = "/lck",
			.query = "object-lock=",
			.body = lock,
			.body_len = sizeof(lock) - 1},
		{.method = "PUT",
			.path = "/lck",
			.query = "replication=",
			.body = replication,
			.body_len = sizeof(replication) - 1},
		{.method = "GET", .path = "/lck", .query = "replication="},
		{.method = "PUT", .path = "/lck/other"},
		{.method = "PUT",
			.path = "/lck",
			.query = "policy=",
			.body = policy,
			.body_len = sizeof(policy) - 1},
		{.method = "GET", .path = "/lck/other"},
		{.method = "GET", .path = "/lck", .query = "policyStatus="},
		{.method = "POST", .path = "/bkt/parts", .query = "uploads="},
		{.method = "PUT",
			.path = "/bkt/parts",
			.query = part,
			.body = new_bytes,
			.body_len = LARGE},
	};

	memset(old_bytes, 'o', LARGE);
	memset(new_bytes, 'n', LARGE);
	log_set_level(LOG_QUIET);
	assert_int_equal(store_upload_create(
				 f->store, "bkt", 0, "parts", &(struct store_upload){0}, id, NULL),
		STORE_OK);
	messages[0].body_len = write_form(form, sizeof(form));
	snprintf(part, sizeof(part), "partNumber=1&uploadId=%s", id);
	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
		fail_each_allocation(f, &messages[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_request_without_memory_is_refused_and_leaves_nothing_half, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
