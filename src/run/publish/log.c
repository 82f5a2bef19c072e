#include "run/publish/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "transfer/objects.h"

enum { COST_FACTOR = 20 };

struct log_upload {
	struct log_upload_target to;
	pthread_t thread;
	atomic_int cancel; /* set to end the thread */

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stopping; /* under lock */

	/* Owned by the thread, then by log_upload_finish(). */
	uint64_t sent; /* bytes of the file that the object holds */
	bool any_sent;
};

static int send_log(struct log_upload *upload, const atomic_int *cancel, struct penstock_error *err)
{
	struct object_put_options options = {
		.content_type = "text/plain; charset=utf-8",
		.ungated = upload->to.ungated,
		.cancel = cancel,
	};
	_cleanup_close_ int fd = open(upload->to.path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 && errno == ENOENT)
		/* The attempt was killed before its log existed, or no sample was taken. */
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", upload->to.path);
	if (upload->any_sent && (uint64_t)st.st_size == upload->sent)
		return 0;
	/* The file is only appended to: its first st_size bytes no longer change. */
	r = object_put_file(object_at(upload->to.client, upload->to.bucket, upload->to.key), fd,
		(uint64_t)st.st_size, &options, NULL, err);
	if (r < 0)
		return r;
	upload->sent = (uint64_t)st.st_size;
	upload->any_sent = true;
	return 0;
}

/* Waits for `ms`. Returns false if the thread must end. */
static bool wait_interval(struct log_upload *upload, int64_t ms)
{
	int64_t until = clock_monotonic_ms() + ms;

	LOCK_SCOPE(&upload->lock);
	while (!upload->stopping && clock_monotonic_ms() < until)
		clock_cond_wait_until_ms(&upload->wake, &upload->lock, until);
	return !upload->stopping;
}

static void *upload_thread(void *cookie)
{
	struct log_upload *upload = cookie;
	int64_t interval = upload->to.interval_ms;

	while (wait_interval(upload, interval)) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		int64_t began = clock_monotonic_ms();
		int64_t cost;

		if (send_log(upload, &upload->cancel, &err) < 0 && upload->to.warns &&
			err.code != PENSTOCK_E_CANCELLED) {
			upload->to.warns = false;
			log_warn("cannot upload the log: %s; will retry", err.message);
		}
		cost = clock_monotonic_ms() - began;
		interval = cost * COST_FACTOR > upload->to.interval_ms ? cost * COST_FACTOR
								       : upload->to.interval_ms;
	}
	return NULL;
}

static void log_upload_free(struct log_upload *upload)
{
	pthread_mutex_destroy(&upload->lock);
	pthread_cond_destroy(&upload->wake);
	free(upload->to.key);
	free(upload->to.path);
	free(upload);
}

int log_upload_start(
	struct log_upload **out, const struct log_upload_target *target, struct penstock_error *err)
{
	struct log_upload *upload = calloc(1, sizeof(*upload));
	int r;

	if (!upload || !target->key || !target->path) {
		free(upload);
		free(target->key);
		free(target->path);
		return error_memory(err);
	}
	upload->to = *target;
	pthread_mutex_init(&upload->lock, NULL);
	clock_cond_init(&upload->wake);
	r = thread_start(&upload->thread, "log", upload_thread, upload, err);
	if (r < 0) {
		log_upload_free(upload);
		return r;
	}
	*out = upload;
	return 0;
}

int log_upload_finish(
	struct log_upload *upload, const atomic_int *cancel, struct penstock_error *err)
{
	int r;

	if (!upload)
		return 0;
	pthread_mutex_lock(&upload->lock);
	upload->stopping = true;
	pthread_cond_signal(&upload->wake);
	pthread_mutex_unlock(&upload->lock);
	atomic_store(&upload->cancel, 1);
	pthread_join(upload->thread, NULL);
	r = send_log(upload, cancel, err);
	log_upload_free(upload);
	return r;
}
