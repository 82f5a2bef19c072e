#include "server/bucket/access_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/quota.h"
#include "base/str.h"
#include "base/thread.h"
#include "s3/bucket/lifecycle.h"
#include "s3/bucket/logging.h"
#include "s3/sum/checksum.h"
#include "server/bucket/configs.h"
#include "store/header.h"
#include "store/store.h"

/* Bytes that are counted for each future log object in addition to its lines. */
#define PENDING_BYTES (4 * KIB)

/* The lines of one future log object. */
struct pending {
	struct pending *next;
	char bucket[64]; /* the logged bucket */
	/* share of the account that owned the bucket when the lines were added */
	struct quota_share *share;
	char *target, *prefix;
	bool partitioned, by_event;
	int64_t first_ns; /* time of the first line */
	struct buf lines;
};

struct access_log {
	struct store *store;
	struct configs *configs;
	char account[STORE_OWNER_SIZE];
	int64_t interval_ms;
	struct quota memory; /* bytes of all lines, including lines in delivery */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t woken;
	/* Under lock: */
	struct pending *pending;
	int64_t since_ms; /* when the first pending line arrived; 0 if no line is pending */
	size_t fresh; /* bytes that were added since the last delivery */
	size_t n_dropped; /* lines that were dropped since the last delivery */
	bool full; /* a delivery is due, because an object or the memory has enough lines */
	bool stopping;
};

static int parse(const char *text, size_t len, void *out, struct penstock_error *err)
{
	return s3_logging_parse(text, len, out, err);
}

static void release(void *parsed)
{
	s3_logging_release(parsed);
}

static const struct config_kind kind = {.name = LOGGING_CONFIG,
	.size = sizeof(struct s3_logging),
	.parse = parse,
	.release = release};

static void pending_free(struct pending *p)
{
	free(p->target);
	free(p->prefix);
	buf_release(&p->lines);
	free(p);
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Returns the account of a bucket. */
static const char *account_of(const struct access_log *log, const struct store_bucket *bucket)
{
	return bucket->owner[0] ? bucket->owner : log->account;
}

static bool fits(const struct pending *p, const char *bucket, const struct quota_share *share,
	const struct s3_logging *to, int64_t ns)
{
	return p->share == share && strcmp(p->bucket, bucket) == 0 &&
	       strcmp(p->target, to->target) == 0 && strcmp(p->prefix, to->prefix) == 0 &&
	       p->partitioned == !!to->partitioned && p->by_event == s3_logging_by_event(to) &&
	       (!p->by_event || p->first_ns / S3_DAY_NS == ns / S3_DAY_NS) &&
	       p->lines.len < LIMIT_SERVER_LOG_OBJECT;
}

static struct pending *pending_new(
	const char *bucket, struct quota_share *share, const struct s3_logging *to, int64_t ns)
{
	struct pending *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	buf_init(&p->lines, LIMIT_SERVER_LOG);
	snprintf(p->bucket, sizeof(p->bucket), "%s", bucket);
	p->share = share;
	p->target = strdup(to->target);
	p->prefix = strdup(to->prefix);
	p->partitioned = to->partitioned != NULL;
	p->by_event = s3_logging_by_event(to);
	p->first_ns = ns;
	if (p->target && p->prefix)
		return p;
	pending_free(p);
	return NULL;
}

static size_t size_of(const struct pending *p)
{
	return PENDING_BYTES + p->lines.len;
}

static void add_line(struct access_log *log, const struct store_bucket *source,
	const struct s3_logging *to, int64_t ns, const struct buf *line)
{
	struct pending *p, *new = NULL;
	struct quota_share *share;
	size_t bytes;
	bool taken;

	LOCK_SCOPE(&log->lock);
	share = quota_share(&log->memory, account_of(log, source));
	for (p = log->pending; p && !fits(p, source->name, share, to, ns);)
		p = p->next;
	bytes = line->len + (p ? 0 : PENDING_BYTES);
	taken = !buf_failed(line) && share && quota_take(share, bytes);
	if (!taken || (!p && !(p = new = pending_new(source->name, share, to, ns))) ||
		buf_add(&p->lines, line->data, line->len) < 0) {
		if (taken)
			quota_give_back(share, bytes);
		if (new)
			pending_free(new);
		log->n_dropped++;
		return;
	}
	if (new) {
		new->next = log->pending;
		log->pending = new;
	}
	log->fresh += bytes;
	log->full = log->full || p->lines.len >= LIMIT_SERVER_LOG_OBJECT ||
		    log->fresh >= LIMIT_SERVER_LOG_FRESH;
	if (!log->since_ms || log->full)
		pthread_cond_signal(&log->woken);
	if (!log->since_ms)
		log->since_ms = clock_monotonic_ms();
}

bool access_log_any(struct access_log *log)
{
	return log && configs_any(log->configs);
}

bool access_log_has(struct access_log *log, const char *bucket)
{
	if (!log || !configs_get(log->configs, bucket))
		return false;
	configs_done(log->configs);
	return true;
}

bool access_log_update(struct access_log *log, const char *bucket)
{
	return !log || configs_update(log->configs, bucket);
}

void access_log_add(struct access_log *log, const char *bucket, const struct s3_log_record *record)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_SERVER_LOG_OBJECT);
	const struct s3_logging *to = configs_get(log->configs, bucket);
	struct store_bucket source;

	if (!to)
		return;
	s3_log_write(&line, record);
	if (store_bucket_get(log->store, bucket, &source, NULL) == STORE_OK)
		add_line(log, &source, to, record->time_ns, &line);
	configs_done(log->configs);
}

/* --- delivery -------------------------------------------------------------------------------- */

static int make_key(struct access_log *log, const struct pending *p, struct buf *key)
{
	const struct s3_logging to = {.prefix = p->prefix,
		.partitioned = p->partitioned ? "" : NULL,
		.source = p->by_event ? "EventTime" : "DeliveryTime"};
	struct store_bucket source = {.region = ""};
	unsigned char random[8];
	char unique[2 * sizeof(random) + 1];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -1;
	str_hex(random, sizeof(random), unique);
	store_bucket_get(log->store, p->bucket, &source, NULL);
	s3_log_key(key, &to,
		&(struct s3_log_source){
			.account = p->share->owner, .region = source.region, .bucket = p->bucket},
		p->by_event ? p->first_ns : clock_wall_ns(), unique);
	return buf_failed(key) ? -1 : 0;
}

static int make_body(struct store *store, const struct buf *lines, bool encrypted,
	struct store_body **body, char etag[static STORE_ETAG_SIZE], struct penstock_error *err)
{
	struct checksum md5 = {0};
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int rc = checksum_init(&md5, CHECKSUM_MD5, err);

	if (rc < 0)
		return rc;
	checksum_update(&md5, lines->data, lines->len);
	checksum_final(&md5, digest);
	checksum_release(&md5);
	str_hex(digest, 16, etag);
	rc = store_body_new(store, lines->len, true, body, err);
	if (rc == 0 && encrypted)
		rc = store_body_encrypt(*body, NULL, err);
	if (rc == 0)
		rc = store_body_write(*body, lines->data, lines->len, err);
	return rc == 0 ? store_body_sync(*body, err) : rc;
}

/* Creates the stored headers of a log object. Sets *encrypted if the target bucket has a default
 * encryption. Returns STORE_NO_SUCH_BUCKET if the bucket no longer belongs to the account of the
 * lines. */
static enum store_status make_headers(struct access_log *log, const struct pending *p,
	struct buf *headers, bool *encrypted, struct penstock_error *err)
{
	static const char type[] = "content-type\0text/plain";
	char text[STORE_ENCRYPTION_SIZE];
	struct store_bucket target = {.owner = ""};
	enum store_encryption mode;
	enum store_status status = store_default_encryption(log->store, p->target, &mode, err);

	if (status == STORE_OK)
		status = store_bucket_get(log->store, p->target, &target, err);
	if (status == STORE_OK && strcmp(account_of(log, &target), p->share->owner) != 0)
		status = STORE_NO_SUCH_BUCKET;
	*encrypted = status == STORE_OK && mode != STORE_PLAIN;
	if (*encrypted && store_encryption_format(NULL, text, err) < 0)
		return STORE_FAILED;
	buf_add(headers, type, sizeof(type));
	if (*encrypted)
		store_header_add(headers, STORE_ENCRYPTION_HEADER, text);
	if (status == STORE_OK && target.owner[0])
		store_header_add(headers, STORE_OWNER_HEADER, target.owner);
	return status == STORE_OK && buf_failed(headers) ? STORE_FAILED : status;
}

/* Stores the lines as an object in the target bucket. */
static enum store_status put_lines(
	struct access_log *log, const struct pending *p, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_HTTP_HEADERS);
	char etag[STORE_ETAG_SIZE];
	struct store_put put = {.bucket = p->target, .etag = etag};
	bool encrypted;
	enum store_status status = make_headers(log, p, &headers, &encrypted, err);

	if (status != STORE_OK)
		return status;
	status = STORE_FAILED;
	if (make_key(log, p, &key) == 0 &&
		make_body(log->store, &p->lines, encrypted, &put.body, etag, err) == 0) {
		put.key = buf_str(&key);
		put.headers = headers.data;
		put.headers_len = headers.len;
		status = store_put(log->store, &put, err);
	}
	store_body_free(put.body);
	return status;
}

/* Delivers the lines of one object. Returns false if the delivery has failed and a later attempt
 * may succeed. */
static bool deliver(struct access_log *log, const struct pending *p)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = put_lines(log, p, &err);

	if (status == STORE_OK)
		return true;
	log_warn("cannot deliver the access log of the bucket '%s' to '%s': %s", p->bucket,
		p->target,
		status == STORE_NO_SUCH_BUCKET ? "the account has no such bucket"
		: err.message		       ? err.message
					       : "out of memory");
	return status == STORE_NO_SUCH_BUCKET;
}

/* Delivers all pending lines. Lines stay pending if a later attempt may succeed. */
static void deliver_all(struct access_log *log)
{
	struct pending *list, *kept = NULL, *next;
	size_t n_dropped;

	pthread_mutex_lock(&log->lock);
	list = log->pending;
	log->pending = NULL;
	n_dropped = log->n_dropped;
	log->n_dropped = 0;
	log->since_ms = 0;
	log->fresh = 0;
	log->full = false;
	pthread_mutex_unlock(&log->lock);
	if (n_dropped)
		log_warn("access logs: dropped %zu lines, because too many lines of their accounts "
			 "wait for delivery",
			n_dropped);
	for (; list; list = next) {
		next = list->next;
		if (!deliver(log, list)) {
			list->next = kept;
			kept = list;
			continue;
		}
		quota_give_back(list->share, size_of(list));
		pending_free(list);
	}
	pthread_mutex_lock(&log->lock);
	while (kept) {
		next = kept->next;
		kept->next = log->pending;
		log->pending = kept;
		kept = next;
		if (!log->since_ms)
			log->since_ms = clock_monotonic_ms();
	}
	pthread_mutex_unlock(&log->lock);
}

/* Waits until a delivery is due. Returns false if the log is stopping. */
static bool wait_for_lines(struct access_log *log)
{
	LOCK_SCOPE(&log->lock);
	while (!log->stopping && !log->full) {
		int64_t left = log->since_ms + log->interval_ms - clock_monotonic_ms();

		if (!log->since_ms)
			pthread_cond_wait(&log->woken, &log->lock);
		else if (left <= 0)
			break;
		else
			clock_cond_wait_ms(&log->woken, &log->lock, left);
	}
	return !log->stopping;
}

static void *access_log_main(void *arg)
{
	struct access_log *log = arg;

	while (wait_for_lines(log))
		deliver_all(log);
	deliver_all(log);
	return NULL;
}

static void access_log_free(struct access_log *log)
{
	struct pending *next;

	for (struct pending *p = log->pending; p; p = next) {
		next = p->next;
		pending_free(p);
	}
	quota_release(&log->memory);
	configs_free(log->configs);
	pthread_cond_destroy(&log->woken);
	pthread_mutex_destroy(&log->lock);
	free(log);
}

int access_log_start(struct access_log **out, struct store *store, const char *account,
	int64_t interval_ms, struct penstock_error *err)
{
	struct access_log *log = calloc(1, sizeof(*log));
	int rc;

	if (!log)
		return error_memory(err);
	log->store = store;
	log->interval_ms = interval_ms;
	snprintf(log->account, sizeof(log->account), "%s", account);
	quota_init(&log->memory, LIMIT_SERVER_LOG);
	pthread_mutex_init(&log->lock, NULL);
	clock_cond_init(&log->woken);
	rc = configs_new(&log->configs, store, &kind, err);
	if (rc == 0)
		rc = thread_start(&log->thread, "access-log", access_log_main, log, err);
	if (rc < 0)
		access_log_free(log);
	else
		*out = log;
	return rc;
}

void access_log_stop(struct access_log *log)
{
	if (!log)
		return;
	pthread_mutex_lock(&log->lock);
	log->stopping = true;
	pthread_cond_signal(&log->woken);
	pthread_mutex_unlock(&log->lock);
	pthread_join(log->thread, NULL);
	access_log_free(log);
}
