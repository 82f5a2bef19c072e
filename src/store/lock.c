/* Object Lock: versions that may not be deleted. */
#include "store/internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "store/header.h"

#define NS_PER_DAY (86400 * NS_PER_S)
/* days of a year in a default retention */
#define DAYS_PER_YEAR 365

static const char letters[] = {
	[STORE_NOT_LOCKED] = '-', [STORE_GOVERNANCE] = 'G', [STORE_COMPLIANCE] = 'C'};

/* Returns the mode of a letter; an unknown letter counts as the strictest mode. */
static enum store_lock_mode mode_of(char letter)
{
	return letter == letters[STORE_NOT_LOCKED]   ? STORE_NOT_LOCKED
	       : letter == letters[STORE_GOVERNANCE] ? STORE_GOVERNANCE
						     : STORE_COMPLIANCE;
}

/* --- retentions ------------------------------------------------------------------------------ */

void store_retention_format(
	const struct store_retention *retention, char out[static STORE_RETENTION_SIZE])
{
	int64_t until_ns = retention->until_ns, rest = until_ns % NS_PER_MS;

	/* Replies have milliseconds. The time is rounded up, so that a retention that a client
	 * repeats is not shorter. */
	if (rest > 0 && until_ns <= INT64_MAX - NS_PER_MS)
		until_ns += NS_PER_MS - rest;
	snprintf(out, STORE_RETENTION_SIZE, "%c %" PRId64, letters[retention->mode], until_ns);
}

struct store_retention store_retention_parse(const char *text)
{
	struct store_retention r = {.mode = mode_of(*text), .until_ns = INT64_MAX};

	if (*text && text[1] && !str_to_i64(text + 2, INT64_MIN, INT64_MAX, &r.until_ns))
		r.until_ns = INT64_MAX;
	return r;
}

struct store_retention store_object_retention(const struct store_object *object)
{
	const char *text = store_object_header(object, STORE_RETENTION_HEADER);

	return text ? store_retention_parse(text) : (struct store_retention){0};
}

static bool is_active(const struct store_retention *r, int64_t now_ns)
{
	return r->mode != STORE_NOT_LOCKED && r->until_ns > now_ns;
}

bool store_retention_may_become(const struct store_retention *old,
	const struct store_retention *new, int64_t now_ns, bool bypass)
{
	if (!is_active(old, now_ns) || (old->mode == STORE_GOVERNANCE && bypass))
		return true;
	return new->mode == old->mode &&new->until_ns >= old->until_ns;
}

/* --- the lock of a bucket --------------------------------------------------------------------- */

static void format_lock(const struct store_lock *lock, char out[static LOCK_CONFIG_SIZE])
{
	snprintf(out, LOCK_CONFIG_SIZE, "%c%u %u", letters[lock->mode], lock->days, lock->years);
}

struct store_lock lock_parse(const char *text)
{
	const char *space = strchrnul(text, ' ');

	return (struct store_lock){.mode = mode_of(*text),
		.days = *text ? (unsigned)strtoul(text + 1, NULL, 10) : 0,
		.years = (unsigned)strtoul(space, NULL, 10)};
}

int lock_of_bucket(struct store *store, int64_t bucket, bool *has, struct store_lock *out)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LOCK_CONFIG_SIZE);
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_CONFIG_OF, "it", bucket, LOCK_CONFIG);
	int rc = db_step(store->writer, st);

	*has = rc == SQLITE_ROW;
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	rc = db_column_add(st, 0, &text);
	*out = lock_parse(buf_str(&text));
	return rc;
}

int lock_set(struct store *store, int64_t bucket, const struct store_lock *lock)
{
	char text[LOCK_CONFIG_SIZE];

	format_lock(lock, text);
	return db_exec(
		store->writer, SQL_CONFIG_SET, "itb", bucket, LOCK_CONFIG, text, strlen(text));
}

/* --- versions -------------------------------------------------------------------------------- */

int lock_new_version(struct store *store, int64_t bucket, int64_t created_ns, struct buf *headers)
{
	struct store_retention r;
	struct store_lock lock;
	char text[STORE_RETENTION_SIZE];
	bool has;
	int rc;

	if (store_header_find(headers->data, headers->len, STORE_RETENTION_HEADER))
		return 0;
	rc = lock_of_bucket(store, bucket, &has, &lock);
	if (rc || !has || lock.mode == STORE_NOT_LOCKED)
		return rc;
	r.mode = lock.mode;
	if (__builtin_mul_overflow(
		    lock.days + DAYS_PER_YEAR * (int64_t)lock.years, NS_PER_DAY, &r.until_ns) ||
		__builtin_add_overflow(r.until_ns, created_ns, &r.until_ns))
		r.until_ns = INT64_MAX;
	store_retention_format(&r, text);
	store_header_add(headers, STORE_RETENTION_HEADER, text);
	return buf_failed(headers) ? SQLITE_NOMEM : 0;
}

static bool protects(const char *headers, size_t len, int64_t now_ns, bool bypass)
{
	const char *hold = store_header_find(headers, len, STORE_HOLD_HEADER);
	const char *text = store_header_find(headers, len, STORE_RETENTION_HEADER);
	struct store_retention r = {0};

	if (hold && strcmp(hold, STORE_HOLD_ON) == 0)
		return true;
	if (text)
		r = store_retention_parse(text);
	return is_active(&r, now_ns) && !(r.mode == STORE_GOVERNANCE && bypass);
}

int lock_protects(struct store *store, int64_t bucket, const struct store_delete *item,
	const struct old_object *old, bool *locked)
{
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_STORE_LAYOUT);
	int rc = version_headers(store, bucket, item->key, old, &headers);

	*locked = rc == 0 &&
		  protects(buf_str(&headers), headers.len, clock_wall_ns(), item->bypass);
	return rc;
}
