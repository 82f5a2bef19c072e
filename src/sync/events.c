/* Reports events to the caller, and wakes the owner thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "sync/internal.h"
#include "base/str.h"

void sync_emit(struct sync *s, enum sync_event event, const char *path, uint64_t bytes,
	const char *fmt, ...)
{
	struct event_line *line;
	va_list ap;

	if (!s->o.on_event)
		return;
	line = calloc(1, sizeof(*line));
	if (!line)
		return; /* out of memory: the event is lost */
	line->event = event;
	line->bytes = bytes;
	line->path = path ? strdup(path) : NULL;
	va_start(ap, fmt);
	line->detail = str_vprintf(fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&s->event_lock);
	DL_APPEND(s->events, line);
	pthread_mutex_unlock(&s->event_lock);
}

void sync_deliver(struct sync *s)
{
	struct event_line *line;

	if (!s->o.on_event)
		return;
	pthread_mutex_lock(&s->event_lock);
	while (!s->delivering && (line = s->events)) {
		DL_DELETE(s->events, line);
		s->delivering = true;
		pthread_mutex_unlock(&s->event_lock);
		s->o.on_event(s->o.cookie, line->event, line->path, line->bytes,
			line->detail ? line->detail : "");
		free(line->path);
		free(line->detail);
		free(line);
		pthread_mutex_lock(&s->event_lock);
		s->delivering = false;
	}
	pthread_mutex_unlock(&s->event_lock);
}

void sync_wake_owner(struct sync *s)
{
	uint64_t one = 1;

	while (write(s->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}
