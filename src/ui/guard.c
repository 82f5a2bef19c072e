#include "ui/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "ui/answer.h"

static int make_secret(char out[static UI_SECRET_SIZE], struct penstock_error *err)
{
	unsigned char random[UI_SECRET_SIZE / 2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_errno(err, errno, "cannot get random bytes");
	str_hex(random, sizeof(random), out);
	return 0;
}

int guard_init(struct ui *ui, struct penstock_error *err)
{
	char name[UI_SECRET_SIZE];
	int r = make_secret(ui->token, err);

	if (r == 0)
		r = make_secret(ui->session, err);
	if (r == 0)
		r = make_secret(name, err);
	if (r < 0)
		return r;
	snprintf(ui->cookie, sizeof(ui->cookie), "penstock_%.8s", name);
	return 0;
}

#define HOST_SIZE 256 /* a name of DNS has at most 253 characters */

/* Copies the host of "host:port" or "[::1]:port". Returns false if the text is malformed. */
static bool host_of(const char *text, char out[static HOST_SIZE])
{
	bool bracket = *text == '[';
	size_t len = bracket ? strcspn(++text, "]") : strcspn(text, ":");

	if (len == 0 || len >= HOST_SIZE || (bracket && text[len] != ']'))
		return false;
	memcpy(out, text, len);
	out[len] = '\0';
	return true;
}

static bool is_our_host(const struct ui *ui, const char *text)
{
	char name[HOST_SIZE], own[HOST_SIZE];
	struct in6_addr address;

	if (!text || !host_of(text, name))
		return false;
	if (inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1 ||
		strcasecmp(name, "localhost") == 0)
		return true;
	if (gethostname(own, sizeof(own)) == 0 && strcasecmp(name, own) == 0)
		return true;
	for (size_t i = 0; i < ui->hosts.n; i++) {
		if (strcasecmp(name, ui->hosts.items[i]) == 0)
			return true;
	}
	return false;
}

/* Browsers send both headers when a script makes a request; other programs may send neither. */
static bool is_our_page(const struct exchange *x)
{
	const char *site = sent_header(x, "Sec-Fetch-Site"), *origin = sent_header(x, "Origin");
	const char *host = origin ? strstr(origin, "://") : NULL;

	if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
		return false;
	return !origin || (host && strcasecmp(host + 3, sent_header(x, "Host")) == 0);
}

static bool has_cookie(const struct exchange *x)
{
	const char *value = MHD_lookup_connection_value(
		x->connection, MHD_COOKIE_KIND, x->ui->cookie);

	return value && str_equal_secret(value, x->ui->session);
}

unsigned guard_check(struct exchange *x, const char **reason)
{
	bool reads = strcmp(x->method, "GET") == 0 || strcmp(x->method, "HEAD") == 0;

	if (!is_our_host(x->ui, sent_header(x, "Host"))) {
		*reason = "unknown host name; start 'penstock ui' with this name as --host";
		return MHD_HTTP_MISDIRECTED_REQUEST;
	}
	if (reads && !str_starts(x->path, "/api/"))
		return 0;
	if (!is_our_page(x)) {
		*reason = "the request comes from another page";
		return MHD_HTTP_FORBIDDEN;
	}
	if (!has_cookie(x)) {
		*reason = "the cookie is missing; open the link that 'penstock ui' has printed";
		return MHD_HTTP_UNAUTHORIZED;
	}
	if (!reads && !sent_header(x, "X-Penstock")) {
		*reason = "the header X-Penstock is missing";
		return MHD_HTTP_FORBIDDEN;
	}
	if (!reads && x->ui->read_only) {
		*reason = "this page is read-only";
		return MHD_HTTP_FORBIDDEN;
	}
	return 0;
}

enum MHD_Result guard_login(struct exchange *x, const char *token)
{
	struct MHD_Response *response;
	char cookie[UI_SECRET_SIZE + 96];

	if (!str_equal_secret(token, x->ui->token))
		return answer_error(x, MHD_HTTP_FORBIDDEN,
			"the token does not belong to this 'penstock ui'; open the link that "
			"this command has printed");
	response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	if (!response)
		return MHD_NO;
	snprintf(cookie, sizeof(cookie), "%s=%s; Path=/; HttpOnly; SameSite=Strict", x->ui->cookie,
		x->ui->session);
	MHD_add_response_header(response, "Set-Cookie", cookie);
	MHD_add_response_header(response, "Location", "/");
	return answer(x, MHD_HTTP_SEE_OTHER, response);
}
