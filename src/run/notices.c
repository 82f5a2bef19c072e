#include "run/notice.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/http.h"
#include "base/banned.h"

enum {
	MAX_WATCHES = 2 * LIMIT_NOTICE_SOURCES + 4,
	/* Where the firmware says nothing, clouds are only asked once a run has proved not to be a short one. */
	UNSURE_AFTER_MS = 2000,
	PROBE_AGAIN_MS = 1000, /* at first; twice as long each time, up to */
	PROBE_RARELY_MS = 32000,
	STACK_BYTES = 256 * 1024,
};

struct watch_thread {
	struct notice_watch watch;
	pthread_t thread;
	bool started;
	bool present; /* owned by the thread, until it has ended */
	int64_t after_ms;
};

struct notices {
	struct notices_options options;
	struct watch_thread *threads;
	size_t n;
	atomic_int cancel;
	int quit_fd;
	pthread_mutex_t lock;
	struct http_engine *engine; /* under lock */
	char *addresses[3];	    /* owned */
};

/* ---- notices ---- */

void notice_set(struct notice *notice, const char *source, const char *reason)
{
	*notice = (struct notice){0};
	snprintf(notice->source, sizeof(notice->source), "%s", source);
	snprintf(notice->reason, sizeof(notice->reason), "%s", reason);
	str_make_utf8(notice->reason); /* it goes into documents */
	for (char *c = notice->reason; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = ' ';
	}
}

void notice_set_lead(struct notice *notice, int64_t lead_ms)
{
	notice->noticed_ms = clock_monotonic_ms();
	notice->deadline_ms = notice->noticed_ms + lead_ms;
	notice->hard = true;
}

/* ---- what sources use ---- */

struct http_engine *notice_engine(struct notice_watch *watch)
{
	struct notices *notices = watch->notices;

	LOCK_SCOPE(&notices->lock);
	if (!notices->engine &&
		http_engine_new(&notices->engine,
			&(struct http_engine_options){.cancel = &notices->cancel}, NULL) < 0)
		notices->engine = NULL;
	return notices->engine;
}

bool notice_sleep(const struct notice_watch *watch, int64_t ms)
{
	struct pollfd quit = {watch->notices->quit_fd, POLLIN, 0};
	int64_t until = clock_monotonic_ms() + ms;

	for (;;) {
		int64_t left = until - clock_monotonic_ms();

		if (atomic_load(&watch->notices->cancel))
			return false;
		if (left <= 0)
			return true;
		poll(&quit, 1, left < INT32_MAX ? (int)left : INT32_MAX);
	}
}

bool notice_next(const struct notice_watch *watch, int64_t *last, int64_t every_ms)
{
	int64_t now = clock_monotonic_ms();

	/* Of those that were missed one is made up for. */
	*last = *last && *last + every_ms > now - every_ms ? *last + every_ms : now + every_ms;
	return notice_sleep(watch, *last - now);
}

/* ---- the threads ---- */

static bool find(struct watch_thread *t)
{
	struct notice_watch *watch = &t->watch;
	int64_t again_ms = PROBE_AGAIN_MS;

	if (t->after_ms && !notice_sleep(watch, t->after_ms))
		return false;
	while (watch->ops->probe && !watch->ops->probe(watch)) {
		if (!watch->sure || !notice_sleep(watch, again_ms))
			return false;
		if (again_ms < PROBE_RARELY_MS)
			again_ms *= 2;
	}
	return !atomic_load(&watch->notices->cancel);
}

static void *watch_one(void *cookie)
{
	struct watch_thread *t = cookie;
	struct notices *notices = t->watch.notices;
	struct notice notice;

	if (!find(t))
		return NULL;
	t->present = true;
	log_debug("preemption notices of %s are watched", t->watch.ops->name);
	while (t->watch.ops->wait(&t->watch, &notice)) {
		notice.origin = 1 + (unsigned)(t - notices->threads);
		notices->options.on_notice(notices->options.cookie, &notice);
		notice = (struct notice){0};
	}
	return NULL;
}

static void add(struct notices *notices, const struct notice_source_ops *ops, const char *value,
	const char *base, bool sure, int64_t after_ms)
{
	if (notices->n == MAX_WATCHES)
		return;
	notices->threads[notices->n++] = (struct watch_thread){
		.watch =
			{
				.ops = ops,
				.notices = notices,
				.value = value,
				.base = base,
				.sure = sure,
				.cancel = &notices->cancel,
			},
		.after_ms = after_ms,
	};
}

/* ---- which sources there are ---- */

enum { GCP, AWS, AZURE };

/* The address that was given for a metadata service: the environment's, else the workflow's or the configuration's. */
static const char *given_address(const struct notices *notices, int cloud)
{
	const struct workflow_preemption *p = notices->options.preemption;
	const struct workflow_text *texts[] = {&p->gcp, &p->aws, &p->azure};
	static const char *const names[] = {
		"PENSTOCK_METADATA_GCP", "PENSTOCK_METADATA_AWS", "PENSTOCK_METADATA_AZURE"};
	const char *own[] = {NULL, str_env("AWS_EC2_METADATA_SERVICE_ENDPOINT"), NULL};

	if (str_env(names[cloud]))
		return str_env(names[cloud]);
	return texts[cloud]->value ? texts[cloud]->value : own[cloud];
}

static const char *address(struct notices *notices, int cloud)
{
	const char *given = given_address(notices, cloud);
	char *copy = strdup(given ? given : "http://169.254.169.254");
	size_t len = copy ? strlen(copy) : 0;

	while (len && copy[len - 1] == '/')
		copy[--len] = '\0';
	notices->addresses[cloud] = copy;
	return copy;
}

static bool is_true(const char *name)
{
	const char *value = str_env(name);

	return value && strcasecmp(value, "true") == 0;
}

static void add_cloud(struct notices *notices, int cloud, bool sure, int64_t after_ms)
{
	const char *base;

	/* By its name and by `auto`: one is enough. */
	if (notices->addresses[cloud])
		return;
	base = address(notices, cloud);
	if (!base)
		return;
	if (cloud == GCP) {
		add(notices, &notice_gcp_preempted, NULL, base, sure, after_ms);
		add(notices, &notice_gcp_maintenance, NULL, base, sure, after_ms);
	} else {
		add(notices, cloud == AWS ? &notice_aws : &notice_azure, NULL, base, sure,
			after_ms);
	}
}

/* An address that was given says that the service is there; else the firmware does. */
static void add_auto(struct notices *notices)
{
	static const enum notice_cloud clouds[] = {
		NOTICE_CLOUD_GCP, NOTICE_CLOUD_AWS, NOTICE_CLOUD_AZURE};
	enum notice_cloud machine = notice_machine("/sys/class/dmi/id");
	const bool off[] = {is_true("NO_GCE_CHECK"), is_true("AWS_EC2_METADATA_DISABLED"), false};
	bool given = given_address(notices, GCP) || given_address(notices, AWS) ||
		     given_address(notices, AZURE);

	for (int i = 0; i < 3; i++) {
		if (given_address(notices, i))
			add_cloud(notices, i, true, 0);
		else if (off[i] || given)
			continue;
		else if (machine == clouds[i])
			add_cloud(notices, i, true, 0);
		else if (machine == NOTICE_CLOUD_UNKNOWN)
			add_cloud(notices, i, false, UNSURE_AFTER_MS);
	}
}

/* $PENSTOCK_PREEMPTION_SOURCES: names with commas between them, where the workflow and the configuration say none. */
static void add_named(struct notices *notices, const char *names)
{
	static const char *const clouds[] = {"gcp", "aws", "azure"};

	bool automatic = false;

	for (; *names; names += strcspn(names, ","), names += *names == ',') {
		size_t len = strcspn(names, ",");

		automatic |= len == 4 && strncmp(names, "auto", len) == 0;
		for (int i = 0; i < 3; i++) {
			if (strlen(clouds[i]) == len && strncmp(names, clouds[i], len) == 0)
				add_cloud(notices, i, true, 0);
		}
	}
	if (automatic)
		add_auto(notices);
}

static void choose(struct notices *notices)
{
	const struct workflow_preemption *p = notices->options.preemption;
	const char *names = getenv("PENSTOCK_PREEMPTION_SOURCES");
	bool automatic = false;

	if (!p->sources_given) {
		add_named(notices, names ? names : "auto");
		return;
	}
	for (size_t i = 0; i < p->n_sources; i++) {
		const struct workflow_notice_source *source = &p->sources[i];

		switch (source->kind) {
		case WORKFLOW_NOTICE_AUTO:
			automatic = true;
			break;
		case WORKFLOW_NOTICE_GCP:
			add_cloud(notices, GCP, true, 0);
			break;
		case WORKFLOW_NOTICE_AWS:
			add_cloud(notices, AWS, true, 0);
			break;
		case WORKFLOW_NOTICE_AZURE:
			add_cloud(notices, AZURE, true, 0);
			break;
		case WORKFLOW_NOTICE_FILE:
			add(notices, &notice_file, source->value.value, NULL, true, 0);
			break;
		case WORKFLOW_NOTICE_COMMAND:
			add(notices, &notice_command, source->value.value, NULL, true, 0);
			break;
		}
	}
	/* Last: what was asked for by name is looked for again and again. */
	if (automatic)
		add_auto(notices);
}

/* ---- the whole ---- */

static int start_threads(struct notices *notices, struct penstock_error *err)
{
	pthread_attr_t attr;
	int e = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	for (size_t i = 0; i < notices->n && !e; i++) {
		struct watch_thread *t = &notices->threads[i];

		e = pthread_create(&t->thread, &attr, watch_one, t);
		t->started = !e;
	}
	pthread_attr_destroy(&attr);
	return e ? error_errno(err, e, "cannot start a thread") : 0;
}

int notices_start(
	struct notices **out, const struct notices_options *options, struct penstock_error *err)
{
	struct notices *notices = calloc(1, sizeof(*notices));
	int r;

	if (!notices)
		return error_memory(err);
	notices->options = *options;
	pthread_mutex_init(&notices->lock, NULL);
	notices->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	notices->threads = calloc(MAX_WATCHES, sizeof(*notices->threads));
	if (notices->quit_fd < 0 || !notices->threads) {
		r = notices->threads ? error_errno(err, errno, "cannot watch for notices")
				     : error_memory(err);
		notices_stop(notices);
		return r;
	}
	choose(notices);
	r = start_threads(notices, err);
	if (r < 0) {
		notices_stop(notices);
		return r;
	}
	*out = notices;
	return 0;
}

static void end_threads(struct notices *notices)
{
	uint64_t one = 1;

	atomic_store(&notices->cancel, 1);
	if (notices->quit_fd >= 0 && write(notices->quit_fd, &one, sizeof(one)) < 0)
		log_debug("the eventfd of notices is full");
	pthread_mutex_lock(&notices->lock);
	if (notices->engine)
		http_wake(notices->engine);
	pthread_mutex_unlock(&notices->lock);
	for (size_t i = 0; i < notices->n; i++) {
		if (notices->threads[i].started)
			pthread_join(notices->threads[i].thread, NULL);
		notices->threads[i].started = false;
	}
}

/* The threads first, for what they know is theirs. */
void notices_done(struct notices *notices, bool alone)
{
	bool any = false;

	if (!notices || !alone)
		return;
	for (size_t i = 0; i < notices->n; i++)
		any |= notices->threads[i].watch.ops->done != NULL;
	if (!any)
		return;
	end_threads(notices);
	atomic_store(&notices->cancel, 0);
	for (size_t i = 0; i < notices->n; i++) {
		struct watch_thread *t = &notices->threads[i];

		if (t->present && t->watch.ops->done)
			t->watch.ops->done(&t->watch);
	}
}

void notices_stop(struct notices *notices)
{
	if (!notices)
		return;
	end_threads(notices);
	for (size_t i = 0; i < notices->n; i++) {
		struct notice_watch *watch = &notices->threads[i].watch;

		if (watch->ops->release && watch->state)
			watch->ops->release(watch);
	}
	http_engine_free(notices->engine);
	for (size_t i = 0; i < ARRAY_SIZE(notices->addresses); i++)
		free(notices->addresses[i]);
	if (notices->quit_fd >= 0)
		close(notices->quit_fd);
	pthread_mutex_destroy(&notices->lock);
	free(notices->threads);
	free(notices);
}
