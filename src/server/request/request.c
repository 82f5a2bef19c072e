#include "server/request/request.h"

#include <ctype.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/message/read_many.h"
#include "s3/uri.h"
#include "server/directory/identity.h"
#include "server/request/connections.h"
#include "server/request/reply.h"
#include "server/request/workers.h"

/* --- accessors ------------------------------------------------------------------------------ */

char *request_strdup(struct request *req, const char *s)
{
	char *copy = arena_copy(&req->arena, s, strlen(s));

	req->no_memory = req->no_memory || !copy;
	return copy;
}

const char *request_quote(struct request *req, const char *etag)
{
	size_t size = strlen(etag) + sizeof("\"\"");
	char *quoted = arena_alloc(&req->arena, size);

	req->no_memory = req->no_memory || !quoted;
	if (quoted)
		snprintf(quoted, size, "\"%s\"", etag);
	return quoted;
}

const char *request_header(const struct request *req, const char *name)
{
	for (size_t i = 0; i < req->n_headers; i++)
		if (strcasecmp(req->headers[i].name, name) == 0)
			return req->headers[i].value;
	return NULL;
}

bool request_has_query(const struct request *req, const char *name)
{
	return uri_query_get(req->query, name, NULL) > 0;
}

const char *request_query(struct request *req, const char *name)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_HTTP_HEADERS);

	if (uri_query_get(req->query, name, &value) <= 0) {
		req->no_memory = req->no_memory || buf_failed(&value);
		return NULL;
	}
	return request_strdup(req, buf_str(&value));
}

/* All subresources of S3, and penstock's own, by precedence. A request with a subresource is never
 * handled like a request without a subresource. */
static const char *const subresources[] = {"uploadId", "uploads", "attributes", "acl", "tagging",
	"policy", "policyStatus", "cors", "lifecycle", "website", "notification", "replication",
	"requestPayment", "logging", "encryption", "accelerate", "analytics", "inventory",
	"metrics", "ownershipControls", "publicAccessBlock", "object-lock", "intelligent-tiering",
	"legal-hold", "retention", "torrent", "restore", "select", "session", "append",
	"renameObject", "annotation", "abac", "metadataTable", "metadataConfiguration",
	"metadataInventoryTable", "metadataJournalTable", "metadataAnnotationTable", "location",
	"versioning", "versions", "delete", "list-type", "partNumber", READ_MANY_QUERY};

const char *request_subresource(const struct request *req)
{
	for (size_t i = 0; req->query && i < ARRAY_SIZE(subresources); i++)
		if (request_has_query(req, subresources[i]))
			return subresources[i];
	return NULL;
}

/* Returns true if the parameter may have an empty value. Signed URLs may have any header of S3 in
 * their query. */
static bool is_known_parameter(struct span name)
{
	for (size_t i = 0; i < ARRAY_SIZE(subresources); i++)
		if (span_is(name, subresources[i]))
			return true;
	return span_is(name, "versionId") || strncasecmp(name.p, "x-amz-", 6) == 0 ||
	       strncmp(name.p, "response-", 9) == 0;
}

bool request_query_is_known(struct request *req)
{
	struct span name, value;

	for (const char *at = req->query; uri_query_next(&at, &name, &value);)
		if (!value.n && !is_known_parameter(name))
			return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
				"This store does not implement %s with ?%.*s", req->method,
				(int)name.n, name.p);
	return true;
}

bool request_query_number(
	struct request *req, const char *name, uint64_t min, uint64_t max, uint64_t *value)
{
	const char *text = request_query(req, name);

	if (!text || str_to_u64(text, min, max, value))
		return true;
	return reply_errorf(req, S3_E_INVALID_ARGUMENT, "%s must be a number from %llu to %llu",
		name, (unsigned long long)min, (unsigned long long)max);
}

/* --- the sender ------------------------------------------------------------------------------ */

static struct connection *connection_of(const struct request *req)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		req->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

bool request_is_leaving(const struct request *req)
{
	return connections_is_leaving(connection_of(req));
}

void request_has_begun(struct request *req)
{
	connections_renew(req->server->connections, connection_of(req));
}

/* Returns true if the signature is in a URL or a form, which the sender may have received from
 * someone else. */
static bool is_passed_on(const struct request *req)
{
	return req->form || req->auth.presigned || request_has_query(req, "AWSAccessKeyId");
}

void request_sender_is_known(struct request *req)
{
	/* The account is constant except for its counters. */
	struct account_info *account = (void *)(uintptr_t)req->identity->owner;

	req->known = true;
	if (!is_passed_on(req))
		connections_known(
			req->server->connections, connection_of(req), &account->connections);
}

/* libmicrohttpd returns a constant of GnuTLS: 5 is GNUTLS_TLS1_3. The headers of GnuTLS are not
 * needed for anything else. */
const char *request_tls_version(const struct request *req)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		req->connection, MHD_CONNECTION_INFO_PROTOCOL);

	return !info ? NULL : info->protocol == 5 ? "TLSv1.3" : "TLSv1.2";
}

/* --- the signer ------------------------------------------------------------------------------ */

struct sigv4 *server_signer(struct server *server)
{
	struct sigv4 *signer = pthread_getspecific(server->signer);

	if (signer)
		return signer;
	signer = calloc(1, sizeof(*signer));
	if (!signer)
		return NULL;
	if (sigv4_init(signer, NULL) < 0 || pthread_setspecific(server->signer, signer) != 0) {
		sigv4_release(signer);
		free(signer);
		return NULL;
	}
	return signer;
}

/* --- waiting --------------------------------------------------------------------------------- */

/* server_stop() sets `stopping` and then reads `waiting`. This function increments `waiting` and
 * then reads `stopping`, so that at least one of the two sees the change of the other. */
bool request_suspend(struct request *req, request_fn after)
{
	atomic_fetch_add(&req->server->waiting, 1);
	if (atomic_load(&req->server->stopping)) {
		atomic_fetch_sub(&req->server->waiting, 1);
		return reply_error(req, S3_E_SERVICE_UNAVAILABLE);
	}
	req->phase = REQUEST_WAITING;
	req->after = after;
	connections_pause(req->server->connections, connection_of(req));
	MHD_suspend_connection(req->connection);
	return true;
}

void request_wake(struct request *req)
{
	struct server *server = req->server;

	connections_renew(server->connections, connection_of(req));
	MHD_resume_connection(req->connection);
	atomic_fetch_sub(&server->waiting, 1);
}

bool request_is_abandoned(const struct request *req)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		req->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct pollfd fd = {.fd = info ? info->connect_fd : -1, .events = POLLRDHUP};

	return atomic_load(&req->server->stopping) || poll(&fd, 1, 0) > 0;
}

bool request_refuse_late(struct request *req)
{
	if (!atomic_load(&req->server->stopping))
		return false;
	req->after = NULL;
	reply_error(req, S3_E_SERVICE_UNAVAILABLE);
	request_wake(req);
	return true;
}

static void run_work(struct request *req)
{
	bool was_long = req->is_long;

	/* A long request, which has begun its work, ends by itself. */
	if (!was_long && request_refuse_late(req))
		return;
	req->work(req);
	if (req->is_long && !was_long)
		workers_submit(req->server->workers, run_work, req);
	else
		request_wake(req);
}

static void finish_by_worker(struct request *req)
{
	if (request_suspend(req, NULL))
		workers_submit(req->server->workers, run_work, req);
}

void request_finish_by_worker(struct request *req, request_fn fn)
{
	req->work = fn;
	req->finish = finish_by_worker;
}

bool request_is_browser(const struct request *req)
{
	const char *accept = request_header(req, "accept");

	return accept && strstr(accept, "text/html") &&
	       (req->head || strcmp(req->method, MHD_HTTP_METHOD_GET) == 0);
}

/* --- virtual hosts --------------------------------------------------------------------------- */

/* Returns the number of characters before ".DOMAIN" in a host, 0 if the host is the domain itself,
 * or -1 if the host is neither. */
static int before_domain(const char *host, size_t len, const char *domain, size_t size)
{
	if (len == size && strncasecmp(host, domain, size) == 0)
		return 0;
	if (len > size + 1 && host[len - size - 1] == '.' &&
		strncasecmp(host + len - size, domain, size) == 0)
		return (int)(len - size - 1);
	return -1;
}

/* Returns the length of the bucket in a host, or 0. The longest matching domain counts. */
static size_t bucket_in(const char *host, const char *domains)
{
	size_t len = strcspn(host, ":"), best = 0;
	int found = 0;

	while (*domains) {
		size_t size = strcspn(domains, ",");
		int n = size ? before_domain(host, len, domains, size) : -1;

		if (n >= 0 && size > best) {
			best = size;
			found = n;
		}
		domains += size + (domains[size] == ',');
	}
	return (size_t)found;
}

bool request_find_resource(struct request *req)
{
	const char *domain = req->server->domain;
	const char *host = domain ? request_header(req, "host") : NULL;
	size_t n = host ? bucket_in(host, domain) : 0;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_HTTP_HEADERS);

	if (!n || req->path[0] != '/')
		return true;
	buf_add_char(&text, '/');
	for (size_t i = 0; i < n; i++)
		buf_add_char(&text, (char)tolower((unsigned char)host[i]));
	/* Refuses a name with a '/', which would start the key, with a '%', which would be decoded,
	 * or with other characters that a bucket cannot have. */
	if (strspn(buf_str(&text) + 1, "abcdefghijklmnopqrstuvwxyz0123456789.-") != n)
		return reply_errorf(
			req, S3_E_INVALID_BUCKET_NAME, "The host does not name a bucket");
	buf_add_str(&text, req->path);
	req->resource = request_strdup(req, buf_str(&text));
	return (req->resource && !buf_failed(&text)) || reply_error(req, S3_E_SLOW_DOWN);
}
