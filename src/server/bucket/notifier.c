#include "server/bucket/notifier.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/http/http.h"
#include "s3/bucket/notification.h"
#include "s3/date.h"
#include "s3/uri.h"
#include "server/bucket/configs.h"
#include "server/bucket/consumer.h"
#include "server/directory/identity.h"
#include "store/store.h"

#define ARN_BEGIN    "arn:penstock:sqs::"
#define ARN_END	     ":webhook"
#define NAME_MAX_    64
#define ACCOUNT_WORD "account="

/* Time for a webhook to reply. */
#define ATTEMPT_MS 10000
/* Interval between two reports of a webhook that lags behind. */
#define REPORT_MS 60000

struct webhook {
	struct consumer consumer; /* empties the webhook's queue of events */
	struct notifier *owner;
	char name[NAME_MAX_];
	char *url, *token; /* secrets; `token` may be NULL */
	char account[STORE_OWNER_SIZE]; /* the buckets of this account may notify the webhook */
	/* Owned by the thread: */
	int64_t report_ms; /* time of the next report, if the webhook still lags behind */
	int64_t refused_id; /* the event that was refused last */
	int refusals; /* number of refusals of that event */
	/* events that were dropped because the webhook refused them too often */
	atomic_ullong n_refused;
};

struct notifier {
	struct store *store;
	struct configs *configs;
	struct consumers consumers;
	struct webhook *hooks;
	size_t n;
	struct http_engine *engine; /* NULL if there is no webhook */
};

static int parse(const char *text, size_t len, void *out, struct penstock_error *err)
{
	return s3_notification_parse(text, len, out, err);
}

static void release(void *parsed)
{
	s3_notification_release(parsed);
}

static const struct config_kind kind = {.name = NOTIFICATION_CONFIG,
	.size = sizeof(struct s3_notification),
	.parse = parse,
	.release = release};

/* --- webhooks -------------------------------------------------------------------------------- */

static int bad_line(const char *path, unsigned line, const char *why, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot read '%s' line %u: %s; expected NAME URL [TOKEN] [account=NUMBER]", path,
		line, why);
}

/* Parses one line, in place. */
static int add_webhook(struct notifier *notify, const char *path, unsigned number, char *line,
	struct penstock_error *err)
{
	char *at = NULL, *name = strtok_r(line, " \t\r", &at), *url = strtok_r(NULL, " \t\r", &at);
	char *token = NULL, *word;
	const char *account = NULL;
	struct webhook *grown, *hook;

	if (!name || *name == '#')
		return 0;
	while ((word = url ? strtok_r(NULL, " \t\r", &at) : NULL) && !account) {
		if (str_starts(word, ACCOUNT_WORD))
			account = word + strlen(ACCOUNT_WORD);
		else if (!token)
			token = word;
		else
			break;
	}
	if (!url || word)
		return bad_line(path, number, "the line has too few or too many words", err);
	if (strlen(name) >= NAME_MAX_ ||
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
			strlen(name))
		return bad_line(path, number,
			"the name is too long, or has characters other than letters, digits, - and _",
			err);
	if (!str_starts(url, "http://") && !str_starts(url, "https://"))
		return bad_line(path, number, "the URL must begin with http:// or https://", err);
	if (account && !account_is_number(account))
		return bad_line(path, number, "the number of an account must have 12 digits", err);
	for (size_t i = 0; i < notify->n; i++)
		if (strcmp(notify->hooks[i].name, name) == 0)
			return bad_line(path, number, "the name is repeated", err);
	grown = array_grow(notify->hooks, notify->n, sizeof(*grown));
	if (!grown)
		return error_memory(err);
	notify->hooks = grown;
	hook = &grown[notify->n++];
	*hook = (struct webhook){.owner = notify, .url = strdup(url)};
	snprintf(hook->name, sizeof(hook->name), "%s", name);
	snprintf(hook->account, sizeof(hook->account), "%s", account ? account : ACCOUNT_FIRST);
	if (!hook->url || (token && (log_redact(token) < 0 || !(hook->token = strdup(token)))))
		return error_memory(err);
	return 0;
}

static int read_webhooks(struct notifier *notify, const char *root, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(root, "webhooks");
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(64 * KIB);
	char *at = NULL, *next;
	unsigned number = 0;
	int rc;

	if (!path)
		return error_memory(err);
	if (access(path, F_OK) < 0 && errno == ENOENT)
		return 0;
	rc = fs_read(path, &text, err);
	for (at = text.len ? text.data : NULL; rc == 0 && at; at = next) {
		next = strchr(at, '\n');
		if (next)
			*next++ = '\0';
		rc = add_webhook(notify, path, ++number, at, err);
	}
	for (size_t i = 0; rc == 0 && i < notify->n; i++)
		if (notify->hooks[i].token)
			rc = fs_check_private(path, err);
	return rc;
}

/* Returns the webhook of an ARN, or NULL. */
static struct webhook *find_webhook(const struct notifier *notify, const char *arn)
{
	size_t begin = strlen(ARN_BEGIN), end = strlen(ARN_END), len = strlen(arn);

	if (len <= begin + end || !str_starts(arn, ARN_BEGIN) || !str_ends(arn, ARN_END))
		return NULL;
	for (size_t i = 0; i < notify->n; i++)
		if (strlen(notify->hooks[i].name) == len - begin - end &&
			memcmp(notify->hooks[i].name, arn + begin, len - begin - end) == 0)
			return &notify->hooks[i];
	return NULL;
}

bool notifier_has(const struct notifier *notify, const char *arn, const char *owner)
{
	const struct webhook *hook = notify ? find_webhook(notify, arn) : NULL;

	return hook && account_is_owner(hook->account, owner);
}

bool notifier_any(struct notifier *notify)
{
	return notify && configs_any(notify->configs);
}

bool notifier_update(struct notifier *notify, const char *bucket)
{
	return !notify || configs_update(notify->configs, bucket);
}

/* --- events ---------------------------------------------------------------------------------- */

/* Returns a key in the encoding of events, or NULL if out of memory. */
static json_t *encoded_key(const char *key)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * LIMIT_S3_KEY);
	_cleanup_(buf_release) struct buf plus = BUF_INIT(4 * LIMIT_S3_KEY);

	uri_encode(&text, key, strlen(key), true);
	for (const char *p = buf_str(&text); *p; p++)
		if (strncmp(p, "%20", 3) == 0) {
			buf_add_char(&plus, '+');
			p += 2;
		} else {
			buf_add_char(&plus, *p);
		}
	return buf_failed(&text) || buf_failed(&plus) ? NULL : json_string(buf_str(&plus));
}

static json_t *object_of(const struct store_change *change)
{
	char sequencer[17];
	json_t *object = json_object();

	snprintf(sequencer, sizeof(sequencer), "%016llX", (unsigned long long)change->modified_ns);
	json_object_set_new(object, "key", encoded_key(change->key));
	if (change->etag) {
		json_object_set_new(object, "size", json_integer((json_int_t)change->size));
		json_object_set_new(object, "eTag", json_string(change->etag));
	}
	if (change->version && *change->version)
		json_object_set_new(object, "versionId", json_string(change->version));
	json_object_set_new(object, "sequencer", json_string(sequencer));
	return object;
}

/* Returns the document of an event, to be freed, or NULL if out of memory. */
static char *document_of(const struct store_change *change, const char *rule)
{
	const struct store_origin *from = change->origin;
	_cleanup_free_ char *arn = str_printf("arn:aws:s3:::%s", change->bucket);
	char time[DATE_ISO_SIZE];
	json_auto_t *root = NULL;

	date_format_iso(clock_wall_ns(), time);
	root = json_pack("{s:[{s:s,s:s,s:s,s:s,s:s,s:{s:s},s:{s:s},s:{s:s,s:s},s:{s:s,s:s,"
			 "s:{s:s,s:{s:s},s:s},s:o}}]}",
		"Records", "eventVersion", "2.1", "eventSource", "aws:s3", "awsRegion", "us-east-1",
		"eventTime", time, "eventName", change->event, "userIdentity", "principalId",
		from->requester ? from->requester : "penstock", "requestParameters",
		"sourceIPAddress", from->remote ? from->remote : "", "responseElements",
		"x-amz-request-id", from->request_id ? from->request_id : "", "x-amz-id-2", "",
		"s3", "s3SchemaVersion", "1.0", "configurationId", rule, "bucket", "name",
		change->bucket, "ownerIdentity", "principalId",
		from->owner ? from->owner : "penstock", "arn", arn ? arn : "", "object",
		object_of(change));
	return root && arn ? json_dumps(root, JSON_COMPACT) : NULL;
}

/* Returns true if the bucket belongs to the account of the webhook, or cannot be read. */
static bool may_use(const struct webhook *hook, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_bucket bucket;

	return store_bucket_get(hook->owner->store, name, &bucket, &err) != STORE_OK ||
	       account_is_owner(hook->account, bucket.owner);
}

/* Adds an event for each rule that the change matches. Called in the transaction of the change. */
static int on_change(void *cookie, struct store *store, const struct store_change *change)
{
	struct notifier *notify = cookie;
	const struct s3_notification *rules = configs_get(notify->configs, change->bucket);
	int rc = 0;

	if (!rules)
		return 0;
	for (size_t i = 0; i < rules->n && rc == 0; i++) {
		const struct s3_notification_rule *rule = &rules->rules[i];
		struct webhook *hook;
		char *text;

		if (!s3_notification_means(rule, change->event, change->key))
			continue;
		hook = find_webhook(notify, rule->queue);
		/* The operator may have removed the webhook, or given it to another account. */
		if (!hook || !may_use(hook, change->bucket))
			continue;
		hook->consumer.added = true;
		text = document_of(change, rule->id ? rule->id : "");
		rc = text ? store_event_add(store, hook->name, 0, text, strlen(text))
			  : STORE_EVENT_NO_MEMORY;
		free(text);
	}
	configs_done(notify->configs);
	return rc;
}

static void on_added(void *cookie)
{
	struct notifier *notify = cookie;

	consumers_wake(&notify->consumers);
}

int notifier_test(struct notifier *notify, const char *arn, const char *bucket,
	const char *request_id, struct penstock_error *err)
{
	struct webhook *hook = find_webhook(notify, arn);
	_cleanup_free_ char *text = NULL;
	char time[DATE_ISO_SIZE];
	json_auto_t *root = NULL;

	date_format_iso(clock_wall_ns(), time);
	root = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "Service", "Amazon S3", "Event",
		"s3:TestEvent", "Time", time, "Bucket", bucket, "RequestId", request_id, "HostId",
		"");
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	if (!text || !hook)
		return error_memory(err);
	if (store_event_put(notify->store, hook->name, text, err) != STORE_OK)
		return -(int)err->code;
	consumer_wake(&hook->consumer);
	return 0;
}

/* --- delivery -------------------------------------------------------------------------------- */

static int post(
	const struct webhook *hook, const struct store_event *event, struct penstock_error *err)
{
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_free_ char *bearer = hook->token ? str_printf("Bearer %s", hook->token) : NULL;
	struct http_request request = {
		.method = "POST",
		.url = hook->url,
		.source = {.kind = HTTP_SOURCE_MEMORY, .data = event->text, .length = event->len},
		.deadline_ms = clock_monotonic_ms() + ATTEMPT_MS,
		.max_attempts = 1,
		.cancel = &hook->owner->consumers.cancel,
		.what = "the webhook",
	};
	int rc = 0;

	if ((hook->token && !bearer) ||
		http_request_header(&request, "Content-Type", "application/json") < 0 ||
		(bearer && http_request_header(&request, "Authorization", bearer) < 0))
		rc = error_memory(err);
	if (rc == 0)
		rc = http_perform(hook->owner->engine, &request, &reply, err);
	strlist_release(&request.headers);
	return rc;
}

/* Reports the lag of a webhook that failed. The address may contain a secret, so it is not
 * shown. */
static void paused(struct consumer *c, const struct penstock_error *err)
{
	struct webhook *hook = (struct webhook *)c;
	struct store *store = hook->owner->store;
	int64_t now_ms = clock_monotonic_ms();
	char status[sizeof("HTTP status 999")];

	if (now_ms < hook->report_ms)
		return;
	hook->report_ms = now_ms + REPORT_MS;
	snprintf(status, sizeof(status), "HTTP status %03u", (unsigned)err->http_status % 1000);
	log_warn("webhook '%s': %zu events wait, the oldest for %lld s (%s)", hook->name,
		store_event_count(store, hook->name).waiting,
		(long long)(store_event_lag_ns(store, hook->name) / NS_PER_S),
		err->http_status ? status : penstock_code_name(err->code));
}

static void resumed(struct consumer *c)
{
	struct webhook *hook = (struct webhook *)c;

	if (c->pause_ms)
		log_info("webhook '%s' accepts events again", hook->name);
	hook->report_ms = 0;
}

/* Returns true if the webhook has refused the event LIMIT_NOTIFY_REFUSALS times. A redirection,
 * which is not followed, counts as a refusal; 408 and 429 do not. */
static bool is_given_up(
	struct webhook *hook, const struct store_event *event, const struct penstock_error *err)
{
	int status = err->http_status;

	if (hook->refused_id != event->id)
		hook->refusals = 0;
	hook->refused_id = event->id;
	if (status < 300 || status > 499 || status == 408 || status == 429 ||
		++hook->refusals < LIMIT_NOTIFY_REFUSALS)
		return false;
	/* The event is counted once, even if the removal of the event fails. */
	if (hook->refusals > LIMIT_NOTIFY_REFUSALS)
		return true;
	log_warn("webhook '%s': dropped an event that the webhook refused %d times, with status %d",
		hook->name, hook->refusals, status);
	atomic_fetch_add(&hook->n_refused, 1);
	return true;
}

/* Delivers an event, or gives it up. */
static enum consumer_result settle(struct consumer *c, struct store_event *event,
	struct store_event_end *end, struct store_annotation *note, struct penstock_error *err)
{
	struct webhook *hook = (struct webhook *)c;

	(void)end;
	(void)note;
	if (post(hook, event, err) == 0)
		return CONSUMER_SETTLED;
	if (atomic_load(&c->all->cancel) || !is_given_up(hook, event, err))
		return CONSUMER_WAIT;
	penstock_error_release(err);
	return CONSUMER_GAVE_UP;
}

static const struct consumer_ops ops = {.thread = "notify",
	.what = "webhook",
	.settle = settle,
	.paused = paused,
	.resumed = resumed};

/* --- statistics ------------------------------------------------------------------------------ */

bool notifier_stat(struct notifier *notify, size_t i, struct notifier_stat *out)
{
	struct store_event_count count;
	struct webhook *hook;

	if (!notify || i >= notify->n)
		return false;
	hook = &notify->hooks[i];
	count = store_event_count(notify->store, hook->name);
	*out = (struct notifier_stat){.name = hook->name,
		.waiting = count.waiting,
		.lag_ns = store_event_lag_ns(notify->store, hook->name),
		.dropped = count.dropped,
		.refused = atomic_load(&hook->n_refused)};
	return true;
}

/* --- start and end --------------------------------------------------------------------------- */

/* Drops events for webhooks that the operator has removed: these events would use up room that
 * other events need. */
static int drop_strays(struct notifier *notify, struct penstock_error *err)
{
	_cleanup_free_ const char **names = calloc(notify->n + 1, sizeof(*names));
	size_t dropped = 0;

	if (!names)
		return error_memory(err);
	for (size_t i = 0; i < notify->n; i++)
		names[i] = notify->hooks[i].name;
	if (store_event_targets(notify->store,
		    &(struct store_targets){.kind = "",
			    .names = names,
			    .n = notify->n,
			    .limit = LIMIT_NOTIFY_EVENTS / (notify->n ? notify->n : 1)},
		    &dropped, err) != STORE_OK)
		return -(int)err->code;
	if (dropped)
		log_warn("notifications: dropped %zu events of webhooks that are no longer in the "
			 "file 'webhooks'",
			dropped);
	return 0;
}

static int start_threads(struct notifier *notify, struct penstock_error *err)
{
	int rc = 0;

	/* Set the observer before the threads start: store_observe() must precede all changes, and
	 * the threads make changes. */
	store_observe(notify->store,
		&(struct store_observer){.change = on_change, .added = on_added, .cookie = notify});
	for (size_t i = 0; rc == 0 && i < notify->n; i++)
		rc = consumer_start(&notify->hooks[i].consumer, &notify->consumers,
			notify->hooks[i].name, notify->hooks[i].name, err);
	return rc;
}

int notifier_start(struct notifier **out, struct store *store, const char *root, int64_t retry_ms,
	struct penstock_error *err)
{
	struct notifier *notify = calloc(1, sizeof(*notify));
	int rc;

	if (!notify)
		return error_memory(err);
	notify->store = store;
	consumers_init(&notify->consumers, &ops, store, retry_ms);
	rc = read_webhooks(notify, root, err);
	if (rc == 0)
		rc = drop_strays(notify, err);
	if (rc == 0)
		rc = configs_new(&notify->configs, store, &kind, err);
	if (rc == 0 && notify->n)
		rc = http_engine_new(&notify->engine,
			&(struct http_engine_options){.max_connections = (unsigned)notify->n,
				.connect_timeout_ms = ATTEMPT_MS,
				.stall_timeout_ms = ATTEMPT_MS},
			err);
	if (rc == 0 && notify->n)
		rc = start_threads(notify, err);
	if (rc < 0) {
		notifier_stop(notify);
		return rc;
	}
	*out = notify;
	return 0;
}

void notifier_stop(struct notifier *notify)
{
	if (!notify)
		return;
	consumers_stop(&notify->consumers);
	http_engine_free(notify->engine);
	configs_free(notify->configs);
	for (size_t i = 0; i < notify->n; i++) {
		str_wipe(notify->hooks[i].url);
		str_wipe(notify->hooks[i].token);
	}
	free(notify->hooks);
	free(notify);
}
