#include "run/task/keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/credentials/credentials.h"
#include "s3/date.h"

#define PATH "/keys"
/* Time that a request waits for keys. SDKs stop waiting sooner and try again; while an earlier
 * request waits, the keys that are still valid are sent at once. */
#define WAIT_MS 30000
/* SDKs require an expiry. Keys without an expiry are fetched again after this time. */
#define ASK_AGAIN_NS (15 * 60 * NS_PER_S)
#define MAX_CLIENTS  64

struct key_listener {
	const struct key_server *server;
	struct MHD_Daemon *daemon;
	atomic_int stop;
};

struct key_server {
	struct credentials_provider *provider;
	char token[KEY_TOKEN_SIZE];
	char *uri;
	uint16_t port;
	struct key_listener *own;
	struct key_server *next;
};

/* ---- replies ---- */

static void free_reply(void *text)
{
	str_wipe(text);
}

/* Sends `text` as the reply and takes ownership of `text`. */
static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status, char *text)
{
	struct MHD_Response *response;
	enum MHD_Result sent;

	if (!text)
		return MHD_NO;
	response = MHD_create_response_from_buffer_with_free_callback_cls(
		strlen(text), text, free_reply, text);
	if (!response) {
		str_wipe(text);
		return MHD_NO;
	}
	MHD_add_response_header(response, "Content-Type", "application/json");
	sent = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return sent;
}

static enum MHD_Result refuse(
	struct MHD_Connection *connection, unsigned status, const char *code, const char *message)
{
	json_auto_t *root = json_pack("{s:s, s:s}", "code", code, "message", message);

	return send_text(connection, status, json_dumps(root, JSON_COMPACT));
}

static char *describe(const struct credentials *keys)
{
	int64_t end = keys->expires_at_ns ? keys->expires_at_ns : clock_wall_ns() + ASK_AGAIN_NS;
	char expiration[DATE_ISO_SIZE];
	json_auto_t *root = NULL;

	date_format_iso(end, expiration);
	root = json_pack("{s:s, s:s, s:s, s:s}", "AccessKeyId", keys->access_key_id,
		"SecretAccessKey", keys->secret_access_key, "Token",
		keys->session_token ? keys->session_token : "", "Expiration", expiration);
	return json_dumps(root, JSON_COMPACT);
}

static bool is_token(const struct key_server *server, const char *given)
{
	return given && strlen(given) == strlen(server->token) &&
	       CRYPTO_memcmp(given, server->token, strlen(given)) == 0;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *data, size_t *size, void **mine)
{
	const struct key_listener *listener = cls;
	const struct key_server *server = listener->server;
	_cleanup_(credentials_release) struct credentials keys = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)version;
	(void)data;
	(void)mine;
	*size = 0;
	if (strcmp(method, "GET") != 0 || strcmp(url, PATH) != 0)
		return refuse(connection, MHD_HTTP_NOT_FOUND, "NotFound", "GET " PATH);
	if (!is_token(server, MHD_lookup_connection_value(
				      connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION)))
		return refuse(connection, MHD_HTTP_UNAUTHORIZED, "Unauthorized",
			"the Authorization header is not the token of this run");
	if (credentials_get_within(server->provider,
		    &(struct credentials_patience){.cancel = &listener->stop,
			    .deadline_ms = clock_monotonic_ms() + WAIT_MS},
		    &keys, &err) < 0 ||
		!keys.access_key_id)
		return refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "ServiceUnavailable",
			err.message ? err.message : "no keys");
	return send_text(connection, MHD_HTTP_OK, describe(&keys));
}

/* ---- sockets ---- */

int key_socket(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(fd, MAX_CLIENTS) < 0) {
		int e = errno;

		close(fd);
		errno = e;
		return -1;
	}
	return fd;
}

int key_listener_new(struct key_listener **out, const struct key_server *server, int fd,
	struct penstock_error *err)
{
	struct key_listener *listener = calloc(1, sizeof(*listener));

	if (!listener) {
		close(fd);
		return error_memory(err);
	}
	listener->server = server;
	/* One thread for each connection, because a request may have to wait for keys. */
	listener->daemon = MHD_start_daemon(
		MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_THREAD_PER_CONNECTION, 0, NULL, NULL,
		on_request, listener, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)MAX_CLIENTS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(16 * KIB),
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(WAIT_MS / 1000), MHD_OPTION_END);
	if (!listener->daemon) {
		free(listener);
		return error_set(
			err, PENSTOCK_E_IO, "cannot start the endpoint of the steps' keys");
	}
	*out = listener;
	return 0;
}

void key_listener_free(struct key_listener *listener)
{
	if (!listener)
		return;
	atomic_store(&listener->stop, 1);
	MHD_stop_daemon(listener->daemon);
	free(listener);
}

/* ---- the server ---- */

static int open_own(struct key_server *server, struct penstock_error *err)
{
	struct sockaddr_in bound = {0};
	socklen_t len = sizeof(bound);
	int fd = key_socket(0);

	if (fd < 0 || getsockname(fd, (struct sockaddr *)&bound, &len) < 0) {
		int e = errno;

		if (fd >= 0)
			close(fd);
		return error_errno(err, e, "cannot listen on the loopback address");
	}
	server->port = ntohs(bound.sin_port);
	server->uri = str_printf("http://127.0.0.1:%u" PATH, (unsigned)server->port);
	if (!server->uri) {
		close(fd);
		return error_memory(err);
	}
	return key_listener_new(&server->own, server, fd, err);
}

int key_token_make(char out[static KEY_TOKEN_SIZE], struct penstock_error *err)
{
	uint8_t random[(KEY_TOKEN_SIZE - 1) / 2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_errno(err, errno, "cannot get random bytes");
	str_hex(random, sizeof(random), out);
	explicit_bzero(random, sizeof(random));
	return log_redact(out) < 0 ? error_memory(err) : 0;
}

void key_token_forget(char token[static KEY_TOKEN_SIZE])
{
	log_redact_forget(token);
	explicit_bzero(token, KEY_TOKEN_SIZE);
}

static int take_token(struct key_server *server, const char *token, struct penstock_error *err)
{
	if (!token)
		return key_token_make(server->token, err);
	if (strlen(token) != KEY_TOKEN_SIZE - 1)
		return error_set(err, PENSTOCK_E_INVALID, "invalid token for keys");
	memcpy(server->token, token, KEY_TOKEN_SIZE);
	return log_redact(server->token) < 0 ? error_memory(err) : 0;
}

int key_server_get(struct key_server **out, struct key_server **list,
	struct credentials_provider *provider, const char *token, struct penstock_error *err)
{
	struct key_server *server = *list;
	int r;

	while (server && server->provider != provider)
		server = server->next;
	if (!server) {
		server = calloc(1, sizeof(*server));
		if (!server)
			return error_memory(err);
		server->provider = provider;
		r = take_token(server, token, err);
		if (r == 0)
			r = open_own(server, err);
		if (r < 0) {
			key_servers_free(server);
			return r;
		}
		server->next = *list;
		*list = server;
	}
	*out = server;
	return 0;
}

void key_servers_free(struct key_server *list)
{
	while (list) {
		struct key_server *server = list;

		list = server->next;
		key_listener_free(server->own);
		free(server->uri);
		key_token_forget(server->token);
		free(server);
	}
}

const char *key_server_uri(const struct key_server *server)
{
	return server->uri;
}

const char *key_server_token(const struct key_server *server)
{
	return server->token;
}

uint16_t key_server_port(const struct key_server *server)
{
	return server->port;
}
