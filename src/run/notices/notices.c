#include "run/notices/notice.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/http/http.h"

enum {
	MAX_WATCHES = 2 * LIMIT_NOTICE_SOURCES + 4,
	/* If the firmware gives no hint, clouds are probed only once a run has lasted a while. */
	UNSURE_AFTER_MS = 2000,
	PROBE_AGAIN_MS = 1000, /* first pause between probes; doubles, up to PROBE_RARELY_MS */
	PROBE_RARELY_MS = 32000,
};

struct watch_thread {
	struct notice_watch watch;
	struct notices *notices;
	pthread_t thread;
	bool started;
	bool present; /* owned by the thread, until it has ended */
	int64_t after_ms;
};

struct notices {
	struct notices_options options;
	struct watch_thread *threads;
	size_t n;
	struct notice_shared shared;
	char *addresses[3]; /* owned */
};

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
	return !atomic_load(&watch->shared->cancel);
}

static void *watch_one(void *cookie)
{
	struct watch_thread *t = cookie;
	struct notices *notices = t->notices;
	struct notice notice;

	if (!find(t))
		return NULL;
	t->present = true;
	log_debug("watching for preemption notices of %s", t->watch.ops->name);
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
				.shared = &notices->shared,
				.value = value,
				.base = base,
				.sure = sure,
				.cancel = &notices->shared.cancel,
			},
		.notices = notices,
		.after_ms = after_ms,
	};
}

/* ---- selection of sources ---- */

enum { GCP, AWS, AZURE };

/* Returns the configured address of a metadata service: from $PENSTOCK_METADATA_*, else the
 * workflow or the configuration, else (AWS) $AWS_EC2_METADATA_SERVICE_ENDPOINT. NULL if there is
 * none. */
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

static void add_cloud(struct notices *notices, int cloud, bool sure, int64_t after_ms)
{
	const char *given = given_address(notices, cloud);
	char *base;
	size_t len;

	/* Watch a cloud only once, even if it is requested by name and by `auto`. */
	if (notices->addresses[cloud])
		return;
	base = notices->addresses[cloud] = strdup(given ? given : "http://169.254.169.254");
	if (!base)
		return;
	for (len = strlen(base); len && base[len - 1] == '/';)
		base[--len] = '\0';
	if (cloud == GCP) {
		add(notices, &notice_gcp_preempted, NULL, base, sure, after_ms);
		add(notices, &notice_gcp_maintenance, NULL, base, sure, after_ms);
	} else {
		add(notices, cloud == AWS ? &notice_aws : &notice_azure, NULL, base, sure,
			after_ms);
	}
}

/* Adds the services that `auto` watches: those with a configured address or, if no address is
 * configured, those that the firmware allows. */
static void add_auto(struct notices *notices)
{
	static const enum notice_cloud clouds[] = {
		NOTICE_CLOUD_GCP, NOTICE_CLOUD_AWS, NOTICE_CLOUD_AZURE};
	enum notice_cloud machine = notice_machine("/sys/class/dmi/id");
	const bool off[] = {str_env_is_true("NO_GCE_CHECK"),
		str_env_is_true("AWS_EC2_METADATA_DISABLED"), false};
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

static void choose(struct notices *notices)
{
	const struct workflow_preemption *p = notices->options.preemption;
	bool automatic = !p->sources_given;

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
	/* Handle `auto` last: a source that is also requested by name must be added as `sure`. */
	if (automatic)
		add_auto(notices);
}

/* ---- start and end ---- */

int notices_start(
	struct notices **out, const struct notices_options *options, struct penstock_error *err)
{
	struct notices *notices = calloc(1, sizeof(*notices));
	int r;

	if (!notices)
		return error_memory(err);
	notices->options = *options;
	pthread_mutex_init(&notices->shared.lock, NULL);
	notices->shared.quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	notices->threads = calloc(MAX_WATCHES, sizeof(*notices->threads));
	r = !notices->threads		  ? error_memory(err)
	    : notices->shared.quit_fd < 0 ? error_errno(err, errno, "cannot watch for notices")
					  : 0;
	if (r == 0)
		choose(notices);
	for (size_t i = 0; i < notices->n && r == 0; i++) {
		struct watch_thread *t = &notices->threads[i];

		r = thread_start(&t->thread, "notice", watch_one, t, err);
		t->started = r == 0;
	}
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

	atomic_store(&notices->shared.cancel, 1);
	if (notices->shared.quit_fd >= 0 && write(notices->shared.quit_fd, &one, sizeof(one)) < 0)
		log_debug("the eventfd of notices is full");
	pthread_mutex_lock(&notices->shared.lock);
	if (notices->shared.engine)
		http_wake(notices->shared.engine);
	pthread_mutex_unlock(&notices->shared.lock);
	for (size_t i = 0; i < notices->n; i++) {
		if (notices->threads[i].started)
			pthread_join(notices->threads[i].thread, NULL);
		notices->threads[i].started = false;
	}
}

/* Ends the threads, then calls `done`, because the state of a source belongs to its thread. */
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
	atomic_store(&notices->shared.cancel, 0);
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
	http_engine_free(notices->shared.engine);
	for (size_t i = 0; i < ARRAY_SIZE(notices->addresses); i++)
		free(notices->addresses[i]);
	if (notices->shared.quit_fd >= 0)
		close(notices->shared.quit_fd);
	pthread_mutex_destroy(&notices->shared.lock);
	free(notices->threads);
	free(notices);
}
