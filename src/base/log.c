#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/banned.h"

static struct {
	pthread_mutex_t lock;
	enum log_level level;
	log_sink_fn sink;
	void *cookie;
	char **secrets;
	size_t n_secrets;
	bool blind; /* a secret is not among them, for want of memory */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_INFO};

static const char withheld[] = "(withheld: memory is too short to hide secrets in this text)";

static const char *const level_names[] = {"debug", "info", "warn", "error", "quiet"};

/* Query parameters whose value signs or authorises a URL. */
static const char *const secret_parameters[] = {"X-Amz-Signature=", "X-Amz-Security-Token=",
	"X-Amz-Credential=", "X-Goog-Signature=", "Signature=", "sig=", "access_token="};

void log_set_level(enum log_level level)
{
	__atomic_store_n(&state.level, level, __ATOMIC_RELAXED);
}

int log_set_level_name(const char *name)
{
	if (!name)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			log_set_level((enum log_level)i);
			return 0;
		}
	}
	return -1;
}

bool log_enabled(enum log_level level)
{
	return level >= __atomic_load_n(&state.level, __ATOMIC_RELAXED);
}

void log_set_sink(log_sink_fn sink, void *cookie)
{
	LOCK_SCOPE(&state.lock);
	state.sink = sink;
	state.cookie = cookie;
}

int log_redact(const char *secret)
{
	return secret ? log_redact_part(secret, strlen(secret)) : 0;
}

int log_redact_part(const char *secret, size_t len)
{
	char **grown;
	char *copy;

	if (len < 4)
		return 0;
	LOCK_SCOPE(&state.lock);
	for (size_t i = 0; i < state.n_secrets; i++) {
		if (strncmp(state.secrets[i], secret, len) == 0 && !state.secrets[i][len])
			return 0;
	}
	copy = strndup(secret, len);
	grown = copy ? realloc(state.secrets, (state.n_secrets + 1) * sizeof(*grown)) : NULL;
	if (!grown) {
		free(copy);
		state.blind = true;
		return -1;
	}
	state.secrets = grown;
	state.secrets[state.n_secrets++] = copy;
	return 0;
}

bool log_redact_failed(void)
{
	LOCK_SCOPE(&state.lock);
	return state.blind;
}

void log_redact_clear(void)
{
	LOCK_SCOPE(&state.lock);
	for (size_t i = 0; i < state.n_secrets; i++)
		free(state.secrets[i]);
	free(state.secrets);
	state.secrets = NULL;
	state.n_secrets = 0;
	state.blind = false;
}

/* The length of a secret that begins at `text`, or 0. */
static size_t secret_length_at(const char *text)
{
	size_t longest = 0;

	for (size_t i = 0; i < state.n_secrets; i++) {
		size_t len = strlen(state.secrets[i]);

		if (len > longest && strncmp(text, state.secrets[i], len) == 0)
			longest = len;
	}
	return longest;
}

/* The length of "X-Amz-Signature=" and its like at `text`, or 0. */
static size_t parameter_length_at(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(secret_parameters); i++) {
		size_t len = strlen(secret_parameters[i]);

		if (strncasecmp(text, secret_parameters[i], len) == 0)
			return len;
	}
	return 0;
}

static void redact_locked(struct buf *out, const char *text)
{
	if (state.blind) {
		buf_add_str(out, withheld);
		return;
	}
	for (const char *p = text; *p;) {
		size_t len = secret_length_at(p);
		bool boundary = p == text || p[-1] == '?' || p[-1] == '&';

		if (len) {
			buf_add_str(out, "***");
			p += len;
		} else if (boundary && (len = parameter_length_at(p)) > 0) {
			buf_add(out, p, len);
			buf_add_str(out, "***");
			p += len;
			p += strcspn(p, "& \t\"'<>");
		} else {
			buf_add_char(out, *p++);
		}
	}
}

void log_redact_into(struct buf *out, const char *text)
{
	LOCK_SCOPE(&state.lock);
	redact_locked(out, text);
}

/* How a secret stands to the bytes at data[0..len): not there, there, or perhaps when more arrives. */
enum match { NO_MATCH, MATCH, MAYBE_MATCH };

static enum match match_secret(const char *data, size_t len, size_t *matched)
{
	enum match found = NO_MATCH;

	for (size_t i = 0; i < state.n_secrets; i++) {
		size_t secret_len = strlen(state.secrets[i]);

		if (secret_len <= len && memcmp(data, state.secrets[i], secret_len) == 0) {
			if (found != MATCH || secret_len > *matched)
				*matched = secret_len;
			found = MATCH;
		} else if (secret_len > len && memcmp(data, state.secrets[i], len) == 0) {
			return MAYBE_MATCH; /* the longer secret decides, also over a shorter match */
		}
	}
	return found;
}

size_t log_redact_stream(struct buf *out, const char *data, size_t len, bool last)
{
	bool first[256] = {false};
	size_t copied = 0;

	LOCK_SCOPE(&state.lock);
	if (state.blind) {
		buf_printf(out, "%s\n", withheld);
		return len;
	}
	for (size_t i = 0; i < state.n_secrets; i++)
		first[(unsigned char)state.secrets[i][0]] = true;
	for (size_t i = 0; i < len;) {
		size_t matched = 0;
		enum match match;

		if (!first[(unsigned char)data[i]]) {
			i++;
			continue;
		}
		match = match_secret(data + i, len - i, &matched);
		if (match == MAYBE_MATCH && !last) {
			buf_add(out, data + copied, i - copied);
			return i;
		}
		if (matched == 0) {
			i++;
			continue;
		}
		buf_add(out, data + copied, i - copied);
		buf_add_str(out, "***");
		i += matched;
		copied = i;
	}
	buf_add(out, data + copied, len - copied);
	return len;
}

static void write_line(enum log_level level, const char *line)
{
	char now[CLOCK_RFC3339_SIZE];

	if (state.sink) {
		state.sink(state.cookie, level, line);
		return;
	}
	if (state.level == LOG_DEBUG) {
		clock_format_rfc3339(clock_wall_ns(), now);
		fprintf(stderr, "%s %s penstock: %s\n", now, level_names[level], line);
	} else {
		fprintf(stderr, "penstock: %s\n", line);
	}
}

void log_at(enum log_level level, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf raw = BUF_INIT(LIMIT_LOG_LINE);
	_cleanup_(buf_release) struct buf line = BUF_INIT(2 * LIMIT_LOG_LINE);
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	buf_vprintf(&raw, fmt, ap);
	va_end(ap);
	if (raw.failure == BUF_OVER_LIMIT) {
		buf_clear(&raw);
		buf_printf(&raw, "(a message of more than %zu bytes, beginning \"%.60s\")",
			(size_t)LIMIT_LOG_LINE, fmt);
	}
	LOCK_SCOPE(&state.lock);
	redact_locked(&line, buf_str(&raw));
	write_line(level, buf_str(&line));
}
