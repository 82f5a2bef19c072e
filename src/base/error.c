#define ERROR_IMPLEMENTATION
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

/* Replaces a message that cannot be allocated; never freed. */
static char out_of_memory[] = "out of memory";

/* Code of the last error for which the thread passed NULL as `err`; error_prefix() returns it. */
static _Thread_local enum penstock_code dropped = PENSTOCK_E_INTERNAL;

static const char *const names[PENSTOCK_CODE_COUNT_] = {
	[PENSTOCK_OK] = "success",
	[PENSTOCK_E_INVALID] = "invalid",
	[PENSTOCK_E_NOT_FOUND] = "not found",
	[PENSTOCK_E_PERMISSION] = "permission denied",
	[PENSTOCK_E_UNAVAILABLE] = "unavailable",
	[PENSTOCK_E_PRECONDITION] = "precondition failed",
	[PENSTOCK_E_EXISTS] = "exists",
	[PENSTOCK_E_IO] = "input/output",
	[PENSTOCK_E_NO_SPACE] = "no space",
	[PENSTOCK_E_CORRUPT] = "corrupt",
	[PENSTOCK_E_LIMIT] = "limit",
	[PENSTOCK_E_CHANGED] = "changed",
	[PENSTOCK_E_CANCELLED] = "cancelled",
	[PENSTOCK_E_TIMEOUT] = "timeout",
	[PENSTOCK_E_UNSUPPORTED] = "unsupported",
	[PENSTOCK_E_PROTOCOL] = "protocol",
	[PENSTOCK_E_MEMORY] = "out of memory",
	[PENSTOCK_E_INTERNAL] = "internal",
};

const char *penstock_code_name(enum penstock_code code)
{
	if ((unsigned)code >= PENSTOCK_CODE_COUNT_)
		return "unknown";
	return names[code];
}

void penstock_error_release(struct penstock_error *err)
{
	if (!err)
		return;
	if (err->message != out_of_memory)
		free(err->message);
	*err = (struct penstock_error)PENSTOCK_ERROR_INIT;
}

/* Turns a message into one line: the message may quote untrusted text, such as a library's message,
 * a name or a reply. */
static void make_one_line(char *message)
{
	size_t len = strlen(message);

	while (len > 0 && (message[len - 1] == '\n' || message[len - 1] == '\r'))
		message[--len] = '\0';
	for (char *p = message; *p; p++) {
		if (*p == '\n' || *p == '\r' || *p == '\t')
			*p = ' ';
		else if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	}
}

/* Redacts a message: replies of servers and names may repeat a secret, and messages go to
 * terminals, records and other users. */
static char *redact(char *message)
{
	struct buf out = BUF_INIT(strlen(message) * 2 + 64);

	log_redact_into(&out, message);
	free(message);
	if (!out.len && !buf_failed(&out))
		buf_add_str(&out, "");
	message = buf_take(&out);
	buf_release(&out);
	return message;
}

static void replace_message(struct penstock_error *err, char *message)
{
	if (message) {
		make_one_line(message);
		message = redact(message);
	}
	if (err->message != out_of_memory)
		free(err->message);
	err->message = message ? message : out_of_memory;
}

/* Joins three texts. Returns NULL if out of memory, or if `a` or `c` is NULL. */
static char *joined(const char *a, const char *b, const char *c)
{
	return a && c ? str_printf("%s%s%s", a, b, c) : NULL;
}

static int drop(enum penstock_code code)
{
	dropped = code;
	return -(int)code;
}

static int set(struct penstock_error *err, enum penstock_code code, char *message)
{
	replace_message(err, message);
	err->code = code;
	err->http_status = 0;
	err->repeats = 0;
	return -(int)code;
}

int error_set(struct penstock_error *err, enum penstock_code code, const char *fmt, ...)
{
	char *message;
	va_list ap;

	if (!err)
		return drop(code);
	va_start(ap, fmt);
	message = str_vprintf(fmt, ap);
	va_end(ap);
	return set(err, code, message);
}

/* Returns the last "; " of `text`, where the hint begins; the end of `text` if there is none. */
static char *hint_of(char *text)
{
	char *hint = text + strlen(text);

	for (char *at = text; (at = strstr(at, "; ")); at++)
		hint = at;
	return hint;
}

int error_errno(struct penstock_error *err, int errnum, const char *fmt, ...)
{
	enum penstock_code code = error_code_of_errno(errnum);
	_cleanup_free_ char *text = NULL;
	char reason[128], *hint;
	va_list ap;

	if (!err)
		return drop(code);
	va_start(ap, fmt);
	text = str_vprintf(fmt, ap);
	va_end(ap);
	if (!text)
		return set(err, code, NULL);
	/* Search the format, not the text: a value in the text may have a "; ", too. */
	hint = strstr(fmt, "; ") ? hint_of(text) : text + strlen(text);
	return set(err, code,
		str_printf("%.*s: %s%s", (int)(hint - text), text,
			strerror_r(errnum, reason, sizeof(reason)), hint));
}

int error_prefix(struct penstock_error *err, const char *fmt, ...)
{
	_cleanup_free_ char *head = NULL;
	char *message;
	va_list ap;

	if (!err)
		return -(int)dropped;
	va_start(ap, fmt);
	head = str_vprintf(fmt, ap);
	va_end(ap);
	message = joined(head, ": ", err->message ? err->message : "");
	if (message)
		replace_message(err, message);
	return -(int)err->code;
}

void error_suffix(struct penstock_error *err, const char *fmt, ...)
{
	_cleanup_free_ char *tail = NULL;
	char *message;
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	tail = str_vprintf(fmt, ap);
	va_end(ap);
	message = joined(err->message ? err->message : "", "", tail);
	if (message)
		replace_message(err, message);
}

int error_memory(struct penstock_error *err)
{
	return err ? set(err, PENSTOCK_E_MEMORY, NULL) : drop(PENSTOCK_E_MEMORY);
}

int error_move(struct penstock_error *dst, struct penstock_error *src)
{
	int code = -(int)src->code;

	if (dst == src)
		return code;
	if (dst) {
		penstock_error_release(dst);
		*dst = *src;
		*src = (struct penstock_error)PENSTOCK_ERROR_INIT;
	} else {
		if (src->code)
			drop(src->code);
		penstock_error_release(src);
	}
	return code;
}

bool error_expected(int r, enum penstock_code code, struct penstock_error *err)
{
	if (r != -(int)code)
		return false;
	penstock_error_release(err);
	return true;
}

enum penstock_code error_code_of_errno(int errnum)
{
	switch (errnum) {
	case ENOENT:
	case ENOTDIR:
	case ESRCH:
		return PENSTOCK_E_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return PENSTOCK_E_PERMISSION;
	case EEXIST:
	case ENOTEMPTY:
		return PENSTOCK_E_EXISTS;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return PENSTOCK_E_NO_SPACE;
	case ENOMEM:
		return PENSTOCK_E_MEMORY;
	case EMFILE:
	case ENFILE:
		return PENSTOCK_E_LIMIT;
	case ETIMEDOUT:
		return PENSTOCK_E_TIMEOUT;
	case ECANCELED:
		return PENSTOCK_E_CANCELLED;
	case ECONNREFUSED:
	case ECONNRESET:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return PENSTOCK_E_UNAVAILABLE;
	case ENOSYS:
	case EOPNOTSUPP:
		return PENSTOCK_E_UNSUPPORTED;
	case EINVAL:
	case ENAMETOOLONG:
	case ELOOP:
		return PENSTOCK_E_INVALID;
	default:
		return PENSTOCK_E_IO;
	}
}

bool error_is_retryable(const struct penstock_error *err)
{
	return err->code == PENSTOCK_E_UNAVAILABLE || err->code == PENSTOCK_E_TIMEOUT ||
	       err->code == PENSTOCK_E_PROTOCOL || err->code == PENSTOCK_E_CORRUPT;
}
