#include "server/bucket/replicator.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/bucket/replication.h"
#include "server/bucket/configs.h"
#include "server/bucket/consumer.h"
#include "server/bucket/replica.h"
#include "server/bucket/targets.h"
#include "server/directory/identity.h"
#include "server/request/tags.h"
#include "store/header.h"
#include "store/store.h"
#include "transfer/objects.h"

#define KIND	   "replication/"
#define QUEUE_SIZE (sizeof(KIND) + TARGET_NAME_SIZE + 4)
#define LANES	   LIMIT_REPLICATION_LANES

/* Interval between two reports of a destination that lags behind. */
#define REPORT_MS 60000

/* One of the threads of a destination, with its queue of events. */
struct lane {
	struct consumer consumer; /* empties the queue */
	struct replicator *owner;
	struct link *link;
	char queue[QUEUE_SIZE]; /* name of the queue: the target of the events */
	/* Owned by the thread: */
	int64_t refused_id; /* the event that was refused last */
	int refusals; /* number of refusals of that event */
	bool gave_up; /* that event is counted in link->failed */
};

/* A destination. */
struct link {
	const struct target *target;
	char header[sizeof(REPLICATION_HEADER) +
		    TARGET_NAME_SIZE]; /* stored header with the state of a version */
	struct lane lanes[LANES];
	atomic_llong report_ms; /* when the lag is reported again; 0 if no lag was reported */
	atomic_ullong sent, failed;
};

struct replicator {
	struct store *store;
	struct configs *configs;
	struct targets targets;
	struct consumers consumers;
	struct link *links; /* one for each target */
};

static int parse(const char *text, size_t len, void *out, struct penstock_error *err)
{
	return s3_replication_parse(text, len, out, err);
}

static void release(void *parsed)
{
	s3_replication_release(parsed);
}

static const struct config_kind kind = {.name = REPLICATION_CONFIG,
	.size = sizeof(struct s3_replication),
	.parse = parse,
	.release = release};

bool replicator_has(const struct replicator *replicator, const char *name, const char *owner)
{
	int i = replicator ? targets_find(&replicator->targets, name) : -1;

	return i >= 0 && account_is_owner(replicator->targets.all[i].account, owner);
}

bool replicator_update(struct replicator *replicator, const char *bucket)
{
	return !replicator || configs_update(replicator->configs, bucket);
}

/* --- new versions ---------------------------------------------------------------------------- */

/* Returns the index of a lane. All versions of a key have the same lane, so that they are sent in
 * their order. */
static size_t lane_of(const struct store_new_version *version)
{
	uint32_t hash = 2166136261u;

	for (const char *p = version->bucket; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	for (const char *p = version->key; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	return hash % LANES;
}

static int add_event(struct store *store, struct link *link, const char *class,
	const struct store_new_version *version)
{
	struct lane *lane = &link->lanes[lane_of(version)];
	_cleanup_free_ char *text = str_printf("%llu %c %s %s %s %s",
		(unsigned long long)version->size,
		version->note	  ? 'n'
		: version->marker ? 'm'
				  : 'v',
		version->bucket, version->version, class ? class : "-", version->key);

	lane->consumer.added = true;
	return text ? store_event_add(store, lane->queue, version->size, text, strlen(text))
		    : STORE_EVENT_NO_MEMORY;
}

static int replicate(struct replicator *r, struct store *store,
	const struct s3_replication_rule *rule, const struct store_new_version *version)
{
	char header[sizeof(REPLICATION_HEADER) + TARGET_NAME_SIZE];
	int i = targets_find(&r->targets, rule->bucket);

	snprintf(header, sizeof(header), REPLICATION_HEADER "%s", rule->bucket);
	if (version->more)
		store_header_add(
			version->more, header, i < 0 ? REPLICATION_FAILED : REPLICATION_PENDING);
	return i < 0 ? 0 : add_event(store, &r->links[i], rule->class, version);
}

/* Returns true if the change has shortened a retention, which a destination refuses. */
static bool is_shorter(const struct store_new_version *version)
{
	const char *value = store_header_find(
		version->headers, version->headers_len, STORE_RETENTION_HEADER);

	return strcmp(version->note, STORE_RETENTION_HEADER) == 0 && value && version->before &&
	       store_retention_parse(value).until_ns <
		       store_retention_parse(version->before).until_ns;
}

/* Adds an event for each destination of a version whose tags or lock have changed. */
static int on_note(
	struct replicator *r, struct store *store, const struct store_new_version *version)
{
	const char *p = NULL, *name, *value;
	int rc = 0;

	if ((strcmp(version->note, TAGS_HEADER) != 0 &&
		    strcmp(version->note, STORE_RETENTION_HEADER) != 0 &&
		    strcmp(version->note, STORE_HOLD_HEADER) != 0) ||
		is_shorter(version))
		return 0;
	while (rc == 0 &&
		store_header_next(version->headers, version->headers_len, &p, &name, &value)) {
		int i = str_starts(name, REPLICATION_HEADER) &&
					strcmp(value, REPLICATION_FAILED) != 0
				? targets_find(&r->targets, name + strlen(REPLICATION_HEADER))
				: -1;

		if (i >= 0)
			rc = add_event(store, &r->links[i], version->note, version);
	}
	return rc;
}

/* Returns true if the version is encrypted with a customer's key. Such a version is not sent,
 * because the store does not keep the key. */
static bool has_customer_key(const struct store_new_version *version)
{
	const char *text = store_header_find(
		version->headers, version->headers_len, STORE_ENCRYPTION_HEADER);

	return store_encryption_of(text) == STORE_CUSTOMER_KEY;
}

/* Called in the transaction that adds or changes the version. */
static int on_version(void *cookie, struct store *store, const struct store_new_version *version)
{
	struct replicator *r = cookie;
	const struct s3_replication_version means = {.key = version->key,
		.tags = store_header_find(version->headers, version->headers_len, TAGS_HEADER),
		.marker = version->marker};
	const struct s3_replication *rules;
	int rc = 0;

	if (version->note)
		return on_note(r, store, version);
	rules = configs_get(r->configs, version->bucket);
	if (!rules)
		return 0;
	for (size_t i = 0; rc == 0 && i < rules->n && !has_customer_key(version); i++) {
		const struct s3_replication_rule *rule = &rules->rules[i];

		/* Decides once for each destination, not for each rule: all writers wait for this
		 * function. */
		if (!rule->first || strlen(rule->bucket) >= TARGET_NAME_SIZE)
			continue;
		rule = s3_replication_choose(rules, rule->bucket, &means);
		if (rule)
			rc = replicate(r, store, rule, version);
	}
	configs_done(r->configs);
	return rc;
}

static void on_added(void *cookie)
{
	struct replicator *r = cookie;

	consumers_wake(&r->consumers);
}

/* --- sending --------------------------------------------------------------------------------- */

/* A parsed event. */
struct item {
	struct replica_version version;
	struct store_event_end *end;
	struct store_annotation *note; /* room for the new state of the version */
};

/* Parses the text of an event, in place. */
static bool read_item(struct store_event *event, struct item *out)
{
	char *at = NULL, *size = strtok_r(event->text, " ", &at), *mark = strtok_r(NULL, " ", &at);
	char *bucket = strtok_r(NULL, " ", &at), *version = strtok_r(NULL, " ", &at);
	char *class = strtok_r(NULL, " ", &at);

	if (!size || !mark || !class || !at || !*at ||
		!str_to_u64(size, 0, INT64_MAX, &out->end->bytes))
		return false;
	out->version = (struct replica_version){.bucket = bucket,
		.key = at,
		.version = version,
		.class = *mark == 'v' && strcmp(class, "-") != 0 ? class : NULL,
		.note = *mark == 'n' ? class : NULL,
		.marker = *mark == 'm'};
	return true;
}

/* Returns true if a bucket has a configuration, which may be unreadable. */
static bool is_configured(struct store *store, const char *bucket)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(store, bucket, REPLICATION_CONFIG, &text, &err);

	return status != STORE_NO_SUCH_KEY && status != STORE_NO_SUCH_BUCKET;
}

/* Returns true if the bucket belongs to the account of the destination, or cannot be read. */
static bool may_use(const struct lane *lane, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_bucket bucket;

	return store_bucket_get(lane->owner->store, name, &bucket, &err) != STORE_OK ||
	       account_is_owner(lane->link->target->account, bucket.owner);
}

/* Returns false if no rule of the bucket names the destination any more, or if the operator has
 * given the destination to another account. */
static bool is_wanted(const struct lane *lane, const char *bucket)
{
	const struct s3_replication *rules = configs_get(lane->owner->configs, bucket);
	bool wanted = !rules && is_configured(lane->owner->store, bucket);

	for (size_t i = 0; rules && i < rules->n; i++)
		wanted = wanted || strcmp(rules->rules[i].bucket, lane->link->target->name) == 0;
	if (rules)
		configs_done(lane->owner->configs);
	return wanted && may_use(lane, bucket);
}

/* Sets the new state of a version; `state` is NULL if the version has no state any more. */
static void set_state(struct lane *lane, struct item *item, const char *state)
{
	*item->note = (struct store_annotation){.bucket = item->version.bucket,
		.key = item->version.key,
		.version = item->version.version,
		.name = lane->link->header,
		.value = state,
		.any = true};
	item->end->note = item->note;
}

/* Starts to count the refusals of an event. Records the first refusal in the state of the version,
 * which clients can see while the event is still in the queue. */
static void note_refusal(struct lane *lane, struct item *item)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (lane->refused_id == item->end->id)
		return;
	lane->refused_id = item->end->id;
	lane->refusals = 0;
	lane->gave_up = false;
	if (item->version.note) /* new tags or a lock were refused, not the version itself */
		return;
	set_state(lane, item, REPLICATION_REFUSED);
	store_annotate(lane->owner->store, item->end->note, &err);
}

/* Returns true if the destination replies, but has refused the version LIMIT_REPLICATION_REFUSALS
 * times: later versions must not wait for it forever. New tags or a lock that the destination
 * forbids are given up at once. */
static bool is_given_up(struct lane *lane, struct item *item, const struct penstock_error *err)
{
	const struct target *target = lane->link->target;
	bool forbidden = item->version.note && err->http_status == 403;
	int limit = forbidden ? 1 : LIMIT_REPLICATION_REFUSALS;

	note_refusal(lane, item);
	/* Refusals do not count while the destination lacks the bucket, which may be created
	 * later. */
	if (bucket_head(target->client, target->bucket, NULL) < 0 || ++lane->refusals < limit)
		return false;
	if (!item->version.note)
		set_state(lane, item, REPLICATION_FAILED);
	/* The version is counted once, even if the removal of its event fails. */
	if (lane->gave_up)
		return true;
	lane->gave_up = true;
	log_warn("replication to '%s': gave up %s '%s' of '%s/%s' after refusal %d: %s",
		target->name, item->version.note ? "a change of the version" : "the version",
		item->version.version, item->version.bucket, item->version.key, lane->refusals,
		err->message ? err->message : penstock_code_name(err->code));
	atomic_fetch_add(&lane->link->failed, 1);
	return true;
}

/* Sends a version, or gives it up. */
static enum consumer_result settle(struct consumer *c, struct store_event *event,
	struct store_event_end *end, struct store_annotation *note, struct penstock_error *err)
{
	struct lane *lane = (struct lane *)c;
	struct item item = {.end = end, .note = note};

	if (!read_item(event, &item)) {
		log_warn("replication to '%s': removed an unreadable event", c->name);
		return CONSUMER_SETTLED;
	}
	if (!is_wanted(lane, item.version.bucket)) {
		/* A version that the destination has keeps its state, and its later changes are
		 * sent if the rule returns. */
		if (!item.version.note)
			set_state(lane, &item, NULL);
		return CONSUMER_SETTLED;
	}
	switch (replica_send(c->all->store, lane->link->target, &item.version, err)) {
	case REPLICA_SENT:
		/* replica_send() also sets the error if the destination already has the version */
		penstock_error_release(err);
		if (!item.version.note)
			set_state(lane, &item, REPLICATION_COMPLETED);
		atomic_fetch_add(&lane->link->sent, 1);
		return CONSUMER_SETTLED;
	case REPLICA_GONE:
		return CONSUMER_SETTLED;
	case REPLICA_REFUSED:
		if (atomic_load(&c->all->cancel) || !is_given_up(lane, &item, err))
			return CONSUMER_WAIT;
		penstock_error_release(err);
		return CONSUMER_GAVE_UP;
	case REPLICA_UNSENT:
		break;
	}
	return CONSUMER_WAIT;
}

/* Reports the lag of a destination to which the oldest version of a lane could not be sent. */
static void paused(struct consumer *c, const struct penstock_error *err)
{
	const struct lane *lane = (const struct lane *)c;
	struct link *link = lane->link;
	int64_t now_ms = clock_monotonic_ms();
	long long report_ms = atomic_load(&link->report_ms);
	struct replicator_stat stat;

	if (now_ms < report_ms ||
		!atomic_compare_exchange_strong(&link->report_ms, &report_ms, now_ms + REPORT_MS))
		return;
	if (!replicator_stat(lane->owner, (size_t)(link - lane->owner->links), &stat))
		return;
	log_warn("replication to '%s': %zu versions wait, the oldest for %lld s: %s", stat.name,
		stat.waiting, (long long)(stat.lag_ns / NS_PER_S),
		err->message ? err->message : penstock_code_name(err->code));
}

static void resumed(struct consumer *c)
{
	if (c->retry_ms && atomic_exchange(&((struct lane *)c)->link->report_ms, 0))
		log_info("replication to '%s': the destination accepts versions again", c->name);
}

static const struct consumer_ops ops = {.thread = "replicate",
	.what = "replication to",
	.settle = settle,
	.paused = paused,
	.resumed = resumed};

/* --- statistics ------------------------------------------------------------------------------ */

bool replicator_stat(struct replicator *r, size_t i, struct replicator_stat *out)
{
	struct link *link;

	if (!r || i >= r->targets.n)
		return false;
	link = &r->links[i];
	*out = (struct replicator_stat){.name = link->target->name,
		.sent = atomic_load(&link->sent),
		.failed = atomic_load(&link->failed)};
	for (size_t k = 0; k < LANES; k++) {
		const char *queue = link->lanes[k].queue;
		struct store_event_count count = store_event_count(r->store, queue);
		int64_t lag_ns = count.waiting ? store_event_lag_ns(r->store, queue) : 0;

		out->waiting += count.waiting;
		out->bytes += count.bytes;
		if (lag_ns > out->lag_ns)
			out->lag_ns = lag_ns;
	}
	return true;
}

/* --- start and end --------------------------------------------------------------------------- */

static int make_links(struct replicator *r, struct penstock_error *err)
{
	r->links = calloc(r->targets.n + 1, sizeof(*r->links));
	if (!r->links)
		return error_memory(err);
	for (size_t i = 0; i < r->targets.n; i++) {
		struct link *link = &r->links[i];

		link->target = &r->targets.all[i];
		snprintf(link->header, sizeof(link->header), REPLICATION_HEADER "%s",
			link->target->name);
		for (size_t k = 0; k < LANES; k++) {
			struct lane *lane = &link->lanes[k];

			*lane = (struct lane){.owner = r, .link = link};
			snprintf(lane->queue, sizeof(lane->queue), KIND "%s:%zu",
				link->target->name, k);
		}
	}
	return 0;
}

/* Adds the queues of all lanes. Keeps the events for destinations that the operator has removed,
 * because the removal may be a mistake. */
static int add_queues(struct replicator *r, struct penstock_error *err)
{
	_cleanup_free_ const char **names = calloc(r->targets.n * LANES + 1, sizeof(*names));
	size_t strays = 0;

	if (!names)
		return error_memory(err);
	for (size_t i = 0; i < r->targets.n * LANES; i++)
		names[i] = r->links[i / LANES].lanes[i % LANES].queue;
	if (store_event_targets(r->store,
		    &(struct store_targets){.kind = KIND,
			    .names = names,
			    .n = r->targets.n * LANES,
			    .keep_strays = true},
		    &strays, err) != STORE_OK)
		return -(int)err->code;
	if (strays)
		log_warn("replication: %zu versions wait for destinations that the file of "
			 "--replication does not name; add these destinations to the file",
			strays);
	return 0;
}

/* Reports rules whose destinations the operator has removed. */
static int report_strays(struct replicator *r, struct penstock_error *err)
{
	struct store_config *list = NULL;
	size_t n = 0;

	if (store_config_list(r->store, REPLICATION_CONFIG, &list, &n, err) != STORE_OK)
		return -(int)err->code;
	for (size_t i = 0; i < n; i++) {
		const struct s3_replication *rules = configs_get(r->configs, list[i].bucket);

		for (size_t k = 0; rules && k < rules->n; k++)
			if (targets_find(&r->targets, rules->rules[k].bucket) < 0)
				log_warn(
					"replication: bucket '%s' has a rule for '%.63s', which "
					"the file of --replication does not name; its new versions "
					"get the status FAILED",
					list[i].bucket, rules->rules[k].bucket);
		if (rules)
			configs_done(r->configs);
	}
	store_config_list_free(list, n);
	return 0;
}

static int start_threads(struct replicator *r, struct penstock_error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < r->targets.n * LANES; i++) {
		struct lane *lane = &r->links[i / LANES].lanes[i % LANES];

		rc = consumer_start(
			&lane->consumer, &r->consumers, lane->link->target->name, lane->queue, err);
	}
	return rc;
}

int replicator_start(struct replicator **out, struct store *store, const char *targets,
	int64_t retry_ms, struct penstock_error *err)
{
	struct replicator *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return error_memory(err);
	r->store = store;
	consumers_init(&r->consumers, &ops, store, retry_ms);
	rc = targets_read(&r->targets, targets, &r->consumers.cancel, err);
	if (rc == 0)
		rc = make_links(r, err);
	if (rc == 0)
		rc = add_queues(r, err);
	if (rc == 0)
		rc = configs_new(&r->configs, store, &kind, err);
	if (rc == 0)
		rc = report_strays(r, err);
	if (rc == 0) {
		/* Set the observer before the threads start: store_observe() must precede all
		 * changes, and the threads make changes. */
		store_observe(
			store, &(struct store_observer){
				       .version = on_version, .added = on_added, .cookie = r});
		rc = start_threads(r, err);
	}
	if (rc < 0) {
		replicator_stop(r);
		return rc;
	}
	*out = r;
	return 0;
}

void replicator_stop(struct replicator *r)
{
	if (!r)
		return;
	consumers_stop(&r->consumers);
	targets_release(&r->targets);
	configs_free(r->configs);
	free(r->links);
	free(r);
}
