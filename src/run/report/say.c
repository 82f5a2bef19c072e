#include "run/report/say.h"

#include <stdarg.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "run/report/output.h"

void run_event(const struct run_voice *voice, enum run_event_kind kind, const char *text,
	uint64_t done, uint64_t total)
{
	const struct run_observer *observer = voice->observer;
	const struct run_event event = {kind, text, done, total};

	if (observer && observer->event)
		observer->event(observer->cookie, &event);
	if (voice->output && (kind == RUN_EVENT_MESSAGE || kind == RUN_EVENT_WARNING))
		output_note(voice->output, "penstock: %s", text);
}

void run_say(const struct run_voice *voice, enum run_event_kind kind, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	run_event(voice, kind, buf_str(&text), 0, 0);
}

void run_voice_message(void *voice, const char *text)
{
	run_event(voice, RUN_EVENT_MESSAGE, text, 0, 0);
}

void run_voice_warning(void *voice, const char *text)
{
	run_event(voice, RUN_EVENT_WARNING, text, 0, 0);
}

void run_voice_stage(void *voice, const char *name, uint64_t done, uint64_t total)
{
	run_event(voice, RUN_EVENT_STAGE, name, done, total);
}
