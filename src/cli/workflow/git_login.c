#include "cli/workflow/git_login.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"

#define TEXT_OF(number) #number
#define NUMBER(number)	TEXT_OF(number)
#define HANDED_FILE	"/proc/self/fd/" NUMBER(PROCESS_HANDED_FD)

/* A credential helper that prints the file with the login. The helper reads git's request to the
 * end; otherwise git would be killed by SIGPIPE. */
#define HELPER "!f() { cat > /dev/null; if test \"$1\" = get; then cat " HANDED_FILE "; fi; }; f"

void git_login_release(struct git_login *login)
{
	if (login->password)
		explicit_bzero(login->password, strlen(login->password));
	free(login->place);
	free(login->user);
	free(login->password);
	*login = (struct git_login){0};
}

/* Decodes percent encoding. Returns NULL if out of memory, or if the result has a control
 * character, which the lines of git's protocol cannot have. */
static char *decode(const char *text, size_t len)
{
	char *out = calloc(1, len + 1);
	size_t n = 0;

	for (size_t i = 0; out && i < len; i++) {
		char c = text[i];

		if (c == '%' && i + 2 < len && isxdigit((unsigned char)text[i + 1]) &&
			isxdigit((unsigned char)text[i + 2])) {
			char digits[3] = {text[i + 1], text[i + 2], '\0'};

			c = (char)strtoul(digits, NULL, 16);
			i += 2;
		}
		if (iscntrl((unsigned char)c)) {
			free(out);
			return NULL;
		}
		out[n++] = c;
	}
	return out;
}

int git_login_take(struct git_login *out, char *url, struct penstock_error *err)
{
	char *begin = strstr(url, "://");
	size_t len = begin ? strcspn(begin + 3, "/?#") : 0;
	char *at = len ? memrchr(begin + 3, '@', len) : NULL;
	bool http = str_starts(url, "https://") || str_starts(url, "http://");
	char *colon;

	if (!at)
		return 0;
	begin += 3;
	colon = memchr(begin, ':', (size_t)(at - begin));
	if (!http) {
		if (!colon)
			return 0;
		log_redact_user(url);
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot log in: only https:// addresses can have a password; use a key for SSH");
	}
	out->user = decode(begin, (size_t)((colon ? colon : at) - begin));
	out->password = colon ? decode(colon + 1, (size_t)(at - colon - 1)) : NULL;
	if (!out->user || (colon && !out->password))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot log in: the user or the password has invalid characters");
	log_redact(out->password);
	memmove(begin, at + 1, strlen(at + 1) + 1);
	out->place = strndup(url, (size_t)(begin - url) + strcspn(begin, "/?#"));
	if (!out->place)
		return error_memory(err);
	/* Allow only characters that need no escapes: the place becomes part of an option of
	 * git. */
	if (out->place[strspn(out->place, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					  "0123456789.-_:/[]")])
		return error_set(err, PENSTOCK_E_INVALID, "invalid host '%s'", begin);
	return 0;
}

/* ---- handing the login to git ---- */

void git_login_way_release(struct git_login_way *way)
{
	strlist_release(&way->options);
	if (way->fd > 0)
		close(way->fd);
	way->fd = 0;
}

int git_login_way(struct git_login_way *out, const struct git_login *login,
	enum git_login_ways which, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	int r = 0;

	if (!login->place)
		return 0;
	if (which == GIT_LOGIN_FIRST) { /* the reply to git's request */
		buf_printf(&text, "username=%s\npassword=%s\n", login->user,
			login->password ? login->password : "");
		/* An empty value of credential.helper clears the list of helpers, so that no other
		 * helper stores the password. */
		if (strlist_add(&out->options, "-c") < 0 ||
			strlist_add(&out->options, "credential.helper=") < 0 ||
			strlist_add(&out->options, "-c") < 0 ||
			strlist_addf(
				&out->options, "credential.%s.helper=%s", login->place, HELPER) < 0)
			r = error_memory(err);
	} else { /* a configuration that gives the user to git's helpers */
		buf_printf(&text, "[credential \"%s\"]\n\tusername = \"", login->place);
		for (const char *c = login->user; *c; c++)
			buf_printf(&text, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
		buf_add_str(&text, "\"\n");
		if (strlist_add(&out->options, "-c") < 0 ||
			strlist_add(&out->options, "include.path=" HANDED_FILE) < 0)
			r = error_memory(err);
	}
	if (r == 0 && buf_failed(&text))
		return buf_error(&text, "the user and password of the address", err);
	out->fd = r < 0 ? 0 : memfd_create("login", MFD_CLOEXEC);
	if (r == 0 && (out->fd < 0 || fs_write_all(out->fd, text.data, text.len) < 0))
		r = error_errno(err, errno, "cannot create a file in memory");
	explicit_bzero(text.data, text.len);
	return r;
}
