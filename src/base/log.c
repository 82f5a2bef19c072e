#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"

/* Shorter secrets are not searched for in encoded forms, because they would hide unrelated text. */
#define ENCODED_MIN 8

static struct {
	pthread_mutex_t lock;
	enum log_level level;
	bool colour;
	bool in_line; /* stderr is within a line of another writer */
	log_sink_fn sink;
	void *cookie;
	char **secrets;
	unsigned *uses; /* number of log_redact() calls for each secret */
	size_t n_secrets;
	bool withhold; /* a secret could not be added: out of memory */
	/* The bytes, and the pairs of bytes, that secrets begin with: most text contains none of
	 * them. */
	bool first[256];
	unsigned char pairs[65536 / 8];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_INFO};

static const char withheld[] = "(withheld: out of memory while hiding secrets in this text)";

static const char *const level_names[] = {"debug", "info", "warn", "error", "quiet"};

/*
 * Names of query parameters that sign or authorise a URL: the first list has endings of names, the
 * second has complete names. All are in lower case, and without the separators that vendors put
 * between the words: X-Amz-Signature, x-oss-signature, q-signature, private_token.
 */
static const char *const secret_endings[] = {"signature", "token", "credential", "credentials",
	"secret", "password", "passwd", "passphrase", "apikey", "accesskey", "secretkey", "authkey",
	"privatekey", "accountkey", "subscriptionkey", "authorization", "jwt"};
static const char *const secret_names[] = {"sig", "sign", "key", "auth", "pass", "pwd", "hmac",
	"qak", "rlkey", "hdnts", "hdnea", "hdntl"};
#define PARAMETER_NAME 64 /* bytes; a longer name is not compared */

#define NO_LEVEL (-1)

/* A thread's own level and stream. */
static _Thread_local int own_level = NO_LEVEL;
static _Thread_local FILE *own_stream;

enum log_level log_own_level(void)
{
	own_level = own_level == NO_LEVEL ? (int)__atomic_load_n(&state.level, __ATOMIC_RELAXED)
					  : own_level;
	return (enum log_level)own_level;
}

void log_no_own_level(void)
{
	own_level = NO_LEVEL;
}

FILE *log_stream(void)
{
	return own_stream ? own_stream : stderr;
}

void log_set_stream(FILE *stream)
{
	own_stream = stream;
}

void log_set_level(enum log_level level)
{
	if (own_level != NO_LEVEL) {
		own_level = (int)level;
		return;
	}
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
	if (own_level != NO_LEVEL)
		return (int)level >= own_level;
	return level >= __atomic_load_n(&state.level, __ATOMIC_RELAXED);
}

void log_set_sink(log_sink_fn sink, void *cookie)
{
	LOCK_SCOPE(&state.lock);
	state.sink = sink;
	state.cookie = cookie;
}

/* A secret that cannot be stored would be shown, so withhold every text. Returns -1. */
static int withhold_all(void)
{
	state.withhold = true;
	return -1;
}

static unsigned pair_of(const char *text)
{
	return (unsigned)(unsigned char)text[0] << 8 | (unsigned char)text[1];
}

static int add_locked(const char *text)
{
	unsigned pair = pair_of(text);
	char **grown;
	unsigned *uses;
	char *copy;

	for (size_t i = 0; i < state.n_secrets; i++) {
		if (strcmp(state.secrets[i], text) == 0) {
			state.uses[i]++;
			return 0;
		}
	}
	copy = strdup(text);
	grown = copy ? realloc(state.secrets, (state.n_secrets + 1) * sizeof(*grown)) : NULL;
	if (grown)
		state.secrets = grown;
	uses = grown ? realloc(state.uses, (state.n_secrets + 1) * sizeof(*uses)) : NULL;
	if (!uses) {
		free(copy);
		return withhold_all();
	}
	state.uses = uses;
	state.uses[state.n_secrets] = 1;
	state.secrets[state.n_secrets++] = copy;
	state.first[(unsigned char)text[0]] = true;
	state.pairs[pair / 8] |= (unsigned char)(1U << pair % 8);
	return 0;
}

/* The tables of first bytes keep their entries, because the tables only narrow the search. */
static int drop_locked(const char *text)
{
	for (size_t i = 0; i < state.n_secrets; i++) {
		if (strcmp(state.secrets[i], text) != 0)
			continue;
		if (--state.uses[i])
			return 0;
		str_wipe(state.secrets[i]);
		state.n_secrets--;
		state.secrets[i] = state.secrets[state.n_secrets];
		state.uses[i] = state.uses[state.n_secrets];
		return 0;
	}
	return 0;
}

/* Called with each form of a secret. */
typedef int (*form_fn)(const char *text);

/* Percent-encodes the secret, except for letters, digits and the characters in `kept`. */
static int with_url_encoded(const char *secret, const char *kept, bool lower, form_fn fn)
{
	static const char digits[] = "0123456789ABCDEF0123456789abcdef";
	char *text = calloc(3, strlen(secret) + 1);
	size_t len = 0;
	int r;

	if (!text)
		return withhold_all();
	for (const char *p = secret; *p; p++) {
		const char *hex = digits + (lower ? 16 : 0);
		unsigned char c = (unsigned char)*p;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			strchr(kept, c)) {
			text[len++] = *p;
		} else {
			text[len++] = '%';
			text[len++] = hex[c >> 4];
			text[len++] = hex[c & 15];
		}
	}
	r = fn(text);
	str_wipe(text);
	return r;
}

/* Encodes the part of the secret that is visible in base64 if `before` bytes (modulo 3) precede it:
 * the characters that depend on the secret alone. */
static int with_base64(const char *secret, size_t before, const char *digits, form_fn fn)
{
	size_t bits = (before + strlen(secret)) * 8;
	size_t from = (before * 8 + 5) / 6;
	char *text = calloc(1, bits / 6 + 1);
	size_t n = 0;
	int r = 0;

	if (!text)
		return withhold_all();
	for (size_t i = from; i < bits / 6; i++) {
		unsigned value = 0;

		for (size_t bit = i * 6; bit < i * 6 + 6; bit++) {
			unsigned char c = (unsigned char)secret[bit / 8 - before];

			value = value << 1 | (c >> (7 - bit % 8) & 1U);
		}
		text[n++] = digits[value];
	}
	if (n >= ENCODED_MIN)
		r = fn(text);
	str_wipe(text);
	return r;
}

/* Secrets occur in URLs, and in headers such as those of basic authentication. */
static int with_encoded(const char *secret, form_fn fn)
{
	static const char *const digits[] = {
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"};
	int r = with_url_encoded(secret, "-._~", false, fn);

	if (r == 0)
		r = with_url_encoded(secret, "-._~", true, fn);
	if (r == 0)
		r = with_url_encoded(secret, "-._~/", false, fn);
	for (size_t i = 0; r == 0 && i < 6; i++)
		r = with_base64(secret, i % 3, digits[i / 3], fn);
	return r;
}

static int with_forms(const char *secret, form_fn fn)
{
	int r;

	if (!secret || strlen(secret) < 4)
		return 0;
	LOCK_SCOPE(&state.lock);
	r = fn(secret);
	if (r == 0 && strlen(secret) >= ENCODED_MIN)
		r = with_encoded(secret, fn);
	return r;
}

int log_redact(const char *secret)
{
	return with_forms(secret, add_locked);
}

void log_redact_forget(const char *secret)
{
	with_forms(secret, drop_locked);
}

size_t log_redact_count(void)
{
	LOCK_SCOPE(&state.lock);
	return state.n_secrets;
}

int log_redact_part(const char *secret, size_t len)
{
	char *copy;
	int r;

	if (len < 4)
		return 0;
	copy = strndup(secret, len);
	if (!copy) {
		LOCK_SCOPE(&state.lock);
		return withhold_all();
	}
	r = log_redact(copy);
	str_wipe(copy);
	return r;
}

bool log_redact_failed(void)
{
	LOCK_SCOPE(&state.lock);
	return state.withhold;
}

/* Hides the text in all later lines, both as given and percent-decoded. */
static int redact_percent_encoded(const char *text, size_t len)
{
	char *plain = strndup(text, len);
	char *to = plain;
	int r = log_redact_part(text, len);

	if (!plain) {
		LOCK_SCOPE(&state.lock);
		return withhold_all();
	}
	for (const char *p = plain; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (*p == '%' && p[1] && p[2] && str_unhex((char[]){p[1], p[2], '\0'}, &c, 1) == 0)
			p += 2;
		*to++ = (char)c;
	}
	*to = '\0';
	if (r == 0)
		r = log_redact(plain);
	explicit_bzero(plain, len);
	free(plain);
	return r;
}

int log_redact_user(const char *url)
{
	const char *user = url ? strstr(url, "://") : NULL;
	const char *at;
	size_t len;
	size_t name;
	int r;

	if (!user)
		return 0;
	user += 3;
	at = memrchr(user, '@', strcspn(user, "/?#"));
	if (!at)
		return 0;
	len = (size_t)(at - user);
	name = strcspn(user, ":@");
	/* Also hides the password together with the user name: basic authentication encodes
	 * both. */
	r = redact_percent_encoded(user, len);
	if (r == 0 && name < len)
		r = redact_percent_encoded(user + name + 1, len - name - 1);
	return r;
}

void log_redact_clear(void)
{
	LOCK_SCOPE(&state.lock);
	for (size_t i = 0; i < state.n_secrets; i++)
		free(state.secrets[i]);
	free(state.secrets);
	free(state.uses);
	state.secrets = NULL;
	state.uses = NULL;
	state.n_secrets = 0;
	state.withhold = false;
	memset(state.first, 0, sizeof(state.first));
	memset(state.pairs, 0, sizeof(state.pairs));
}

/* Returns true if a secret may begin with these two bytes. */
static bool may_begin(const char *text)
{
	unsigned pair = pair_of(text);

	return state.pairs[pair / 8] >> pair % 8 & 1;
}

/* Returns the length of the longest secret that begins at `text`, or 0 if there is none. */
static size_t secret_length_at(const char *text)
{
	size_t longest = 0;

	for (size_t i = 0; i < state.n_secrets && may_begin(text); i++) {
		size_t len = strlen(state.secrets[i]);

		if (len > longest && strncmp(text, state.secrets[i], len) == 0)
			longest = len;
	}
	return longest;
}

bool log_secret_parameter(const char *name, size_t len)
{
	char plain[PARAMETER_NAME + 1];
	size_t n = 0;

	if (len > PARAMETER_NAME)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (name[i] >= 'A' && name[i] <= 'Z')
			plain[n++] = (char)(name[i] - 'A' + 'a');
		else if (name[i] != '-' && name[i] != '_' && name[i] != '.')
			plain[n++] = name[i];
	}
	plain[n] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(secret_names); i++) {
		if (strcmp(plain, secret_names[i]) == 0)
			return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(secret_endings); i++) {
		if (str_ends(plain, secret_endings[i]))
			return true;
	}
	return false;
}

static void redact_locked(struct buf *out, const char *text)
{
	if (state.withhold) {
		buf_add_str(out, withheld);
		return;
	}
	for (const char *p = text; *p;) {
		size_t len = secret_length_at(p);
		bool boundary = p == text || p[-1] == '?' || p[-1] == '&';
		size_t name = boundary && !len ? strcspn(p, "=?& \t\"'<>") : 0;

		if (len) {
			buf_add_str(out, "***");
			p += len;
		} else if (name && p[name] == '=' && log_secret_parameter(p, name)) {
			buf_add(out, p, name + 1);
			buf_add_str(out, "***");
			p += name + 1;
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

/* The result of comparing the secrets with data[0..len). MAYBE_MATCH: the data that follows
 * decides. */
enum match { NO_MATCH, MATCH, MAYBE_MATCH };

static enum match match_secret(const char *data, size_t len, size_t *matched)
{
	enum match found = NO_MATCH;
	bool maybe = false;

	for (size_t i = 0; i < state.n_secrets; i++) {
		size_t secret_len = strlen(state.secrets[i]);

		if (secret_len <= len && memcmp(data, state.secrets[i], secret_len) == 0) {
			if (found != MATCH || secret_len > *matched)
				*matched = secret_len;
			found = MATCH;
		} else if (secret_len > len && memcmp(data, state.secrets[i], len) == 0) {
			maybe = true; /* the longer secret decides, even over a shorter match */
		}
	}
	return maybe ? MAYBE_MATCH : found;
}

size_t log_redact_stream(struct buf *out, const char *data, size_t len, bool last)
{
	size_t copied = 0;

	LOCK_SCOPE(&state.lock);
	if (state.withhold) {
		buf_printf(out, "%s\n", withheld);
		return len;
	}
	for (size_t i = 0; i < len;) {
		size_t matched = 0;
		enum match match;

		if (i + 1 < len ? !may_begin(data + i) : !state.first[(unsigned char)data[i]]) {
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

void log_set_colour(bool on)
{
	__atomic_store_n(&state.colour, on, __ATOMIC_RELAXED);
}

static bool has_colour(void)
{
	return !own_stream && __atomic_load_n(&state.colour, __ATOMIC_RELAXED);
}

const char *log_colour(enum log_level level)
{
	if (!has_colour())
		return "";
	return level == LOG_ERROR ? "\033[1;31m" : level == LOG_WARN ? "\033[1;33m" : "\033[1m";
}

const char *log_colour_end(void)
{
	return has_colour() ? "\033[0m" : "";
}

void log_text_ended(char last)
{
	__atomic_store_n(&state.in_line, last != '\n', __ATOMIC_RELAXED);
}

void log_begin_line(void)
{
	if (__atomic_exchange_n(&state.in_line, false, __ATOMIC_RELAXED))
		putc('\n', stderr);
}

static void write_line(enum log_level level, const char *line)
{
	char now[CLOCK_RFC3339_SIZE];

	if (state.sink) {
		state.sink(state.cookie, level, line);
		return;
	}
	if (!own_stream)
		log_begin_line();
	if (log_enabled(LOG_DEBUG)) {
		clock_format_rfc3339(clock_wall_ns(), now);
		fprintf(log_stream(), "%s %s penstock: %s\n", now, level_names[level], line);
	} else {
		fprintf(log_stream(), "%spenstock:%s %s\n", log_colour(level), log_colour_end(),
			line);
	}
}

/* Replaces control characters except tabs, and indents further lines: names of files and objects
 * are untrusted, and must not move the cursor or forge a line. */
static void add_shown(struct buf *out, const char *text)
{
	while (*text) {
		size_t n = str_control(text);

		if (*text == '\n')
			buf_add_str(out, "\n  ");
		else
			buf_add_char(out, n && *text != '\t' ? '?' : *text);
		text += n ? n : 1;
	}
}

void log_at(enum log_level level, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf raw = BUF_INIT(LIMIT_LOG_LINE);
	_cleanup_(buf_release) struct buf line = BUF_INIT(2 * LIMIT_LOG_LINE);
	_cleanup_(buf_release) struct buf shown = BUF_INIT(6 * LIMIT_LOG_LINE);
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	buf_vprintf(&raw, fmt, ap);
	va_end(ap);
	if (raw.failure == BUF_OVER_LIMIT) {
		buf_clear(&raw);
		buf_printf(&raw, "(a message of more than %zu bytes, beginning '%.60s')",
			(size_t)LIMIT_LOG_LINE, fmt);
	}
	LOCK_SCOPE(&state.lock);
	redact_locked(&line, buf_str(&raw));
	add_shown(&shown, buf_str(&line));
	write_line(level, buf_str(&shown));
}
