/*
 * The lines are method, path, query, headers as "name:value", and an empty line; the body follows.
 * The first byte selects the signature. The target sends the request to its own store, which must
 * reply to every request, and never with an internal error.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "s3/sum/checksum.h"
#include "s3/sign/sigv4.h"
#include "server/server.h"
#include "store/store.h"

#define HEADERS	   16
#define REPLY_SIZE ((size_t)256 * 1024)
#define RUNS_EACH  400 /* requests between two fresh stores */

static const struct sigv4_credentials keys = {"AKFUZZ", "the secret of the fuzzer", NULL};

static char root[] = "/dev/shm/penstock-fuzz-XXXXXX";
static struct store *store;
static struct server *server;
static struct sigv4 ws;
static unsigned runs;

static void stop(void)
{
	server_stop(server, 0);
	server = NULL;
	store_close(store);
	store = NULL;
	fs_remove_tree(root, NULL);
}

/* Each connection has an address of its own: all ports of one address would soon be in
 * TIME_WAIT. */
static int connect_to_server(void)
{
	static uint16_t host;
	struct sockaddr_in from = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 0x10000U + host++)};
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	require(fd >= 0);
	require(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int)) == 0);
	require(bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0);
	address.sin_port = htons((uint16_t)strtoul(strrchr(server_url(server), ':') + 1, NULL, 10));
	require(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

static void be_patient(int fd, int ms)
{
	struct timeval patience = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

/*
 * Sends the request and reads the whole reply. Returns the status, or 0 if there is no reply. The
 * server must reply to a `complete` request. After any other request the connection is shut down,
 * so that the server does not wait for the rest.
 */
static int exchange(const struct buf *request, bool complete)
{
	_cleanup_close_ int fd = connect_to_server();
	_cleanup_free_ char *reply = malloc(REPLY_SIZE + 1);
	size_t n = 0;
	int status = 0;

	require(reply);
	if (send(fd, request->data, request->len, MSG_NOSIGNAL) < 0)
		return 0;
	if (!complete)
		shutdown(fd, SHUT_WR);
	be_patient(fd, complete ? 15000 : 30);
	while (n < REPLY_SIZE) {
		ssize_t got = recv(fd, reply + n, REPLY_SIZE - n, 0);

		if (got < 0 && errno == EINTR) /* a call with a time limit is not restarted */
			continue;
		require(!complete || got >= 0 || errno == ECONNRESET); /* else the server hangs */
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	reply[n] = '\0';
	if (n > 0 && complete)
		require(sscanf(reply, "HTTP/1.%*c %d", &status) == 1);
	return status;
}

/* Appends the request line and the headers that every request has. The bits of `how` select
 * optional headers and the signature. */
static int add_head(struct buf *out, unsigned how, const struct sigv4_request *req, size_t body_len)
{
	_cleanup_(buf_release) struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct sigv4_header headers[HEADERS + 4];
	struct sigv4_request all = *req;
	static char date[DATE_BASIC_SIZE], length[24];
	size_t n = req->n_headers;

	if (n)
		memcpy(headers, req->headers, n * sizeof(*headers));
	date_format_basic(time(NULL), date);
	snprintf(length, sizeof(length), "%zu", body_len);
	headers[n++] = (struct sigv4_header){"Host", "h"};
	headers[n++] = (struct sigv4_header){"x-amz-date", date};
	if (how & 1)
		headers[n++] = (struct sigv4_header){"x-amz-content-sha256", req->payload_hash};
	if (how & 2)
		headers[n++] = (struct sigv4_header){"Content-Length", length};
	all.headers = headers;
	all.n_headers = n;
	if (!(how & 4) &&
		sigv4_sign(&ws, &all, (struct sigv4_identity){&keys, "us-east-1", "s3", time(NULL)},
			&auth, NULL, NULL) < 0)
		return -1;
	buf_printf(out, "%s %s%s%s HTTP/1.1\r\nConnection: close\r\n", req->method, req->path,
		req->query && *req->query ? "?" : "", req->query ? req->query : "");
	if (auth.len)
		buf_printf(out, "Authorization: %s\r\n", buf_str(&auth));
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "%s: %s\r\n", headers[i].name, headers[i].value);
	buf_add_str(out, "\r\n");
	return buf_failed(out) ? -1 : 0;
}

/* Makes the signal of libFuzzer's timer restart the system calls that it interrupts, including
 * those on connections. */
static void restart_calls(int signal)
{
	struct sigaction action;

	require(sigaction(signal, NULL, &action) == 0);
	action.sa_flags |= SA_RESTART;
	require(sigaction(signal, &action, NULL) == 0);
}

static void create(const char *method, const char *path, const char *body)
{
	_cleanup_(buf_release) struct buf request = BUF_INIT(10000);
	const struct sigv4_request req = {
		.method = method, .path = path, .payload_hash = SIGV4_UNSIGNED_PAYLOAD};

	require(add_head(&request, 3, &req, strlen(body)) == 0);
	buf_add_str(&request, body);
	require(exchange(&request, true) == 200);
}

static void start(void)
{
	const struct store_options store_options = {.root = root, .relaxed = true};
	struct server_options options = {.address = "127.0.0.1",
		.access_key_id = keys.access_key,
		.secret_access_key = keys.secret_key};

	if (!ws.md) {
		log_set_level(LOG_QUIET);
		restart_calls(SIGALRM);
		require(sigv4_init(&ws, NULL) == 0);
		require(mkdtemp(root));
		atexit(stop);
	}
	require(fs_mkdirs(root, 0700, NULL) == 0);
	require(store_open(&store, &store_options, NULL) == 0);
	options.store = store;
	require(server_start(&server, &options, NULL) == 0);
	create("PUT", "/buc", "");
	create("PUT", "/buc/k", "0123456789");
	create("PUT", "/buc/d/k%20l", "x");
}

static bool is_plain(const char *s, char least)
{
	for (; *s; s++) {
		if (*s < least || *s == 0x7f)
			return false;
	}
	return true;
}

/* Returns true if the request is well-formed, and no header contradicts the length of its body. */
static bool is_complete(const struct sigv4_request *req, unsigned how)
{
	static const char *const framing[] = {
		"connection", "content-length", "expect", "transfer-encoding", "upgrade"};

	if (!(how & 2) || !*req->method || req->path[0] != '/' || !is_plain(req->method, '!') ||
		!is_plain(req->path, '!') || !is_plain(req->query, '!'))
		return false;
	for (size_t i = 0; i < req->n_headers; i++) {
		const struct sigv4_header *h = &req->headers[i];

		if (!*h->name || !is_plain(h->name, '!') || !is_plain(h->value, ' '))
			return false;
		for (size_t k = 0; k < ARRAY_SIZE(framing); k++) {
			if (strcasecmp(h->name, framing[k]) == 0)
				return false;
		}
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const hashes[] = {SIGV4_UNSIGNED_PAYLOAD,
		SIGV4_STREAMING_UNSIGNED_TRAILER, SIGV4_STREAMING, SIGV4_STREAMING_TRAILER};
	_cleanup_(buf_release) struct buf request = BUF_INIT(64 * KIB);
	struct sigv4_header headers[HEADERS];
	struct sigv4_request req = {.headers = headers};

	if (size < 1)
		return 0;
	if (runs++ % RUNS_EACH == 0) {
		if (server)
			stop();
		start();
	}
	_cleanup_free_ char *text = fuzz_text(data + 1, size - 1);
	char *at = text;

	req.method = fuzz_line(&at);
	req.path = fuzz_line(&at);
	req.query = fuzz_line(&at);
	req.payload_hash = hashes[data[0] >> 4 & 3];
	if (!req.query)
		return 0;
	for (char *line; (line = fuzz_line(&at)) && *line;) {
		char *colon = strchr(line, ':');

		if (!colon || req.n_headers == HEADERS)
			continue;
		*colon = '\0';
		headers[req.n_headers++] = (struct sigv4_header){line, colon + 1};
	}
	const char *body = at ? at : text + size - 1;
	size_t body_len = (size_t)(text + size - 1 - body);

	/* If the first byte is 0, the request has a payload hash, a length and a signature. */
	unsigned how = (data[0] & 7) ^ 3;

	if (add_head(&request, how, &req, body_len) < 0)
		return 0;
	if (buf_add(&request, body, body_len) < 0)
		return 0;
	int status = exchange(&request, is_complete(&req, how));

	require(status != 500);
	return 0;
}
