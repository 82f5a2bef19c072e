#include <stdarg.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/machine/doctor.h"
#include "cli/print/util.h"
#include "base/banned.h"

static const char *const verdict_names[] = {"ok", "warn", "fail"};

void doctor_say(struct doctor *doctor, enum verdict verdict, const char *subject,
	const char *advice, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (verdict > doctor->worst)
		doctor->worst = verdict;
	if (doctor->array) {
		json_t *object = json_object();

		json_object_set_new(object, "status", json_text(verdict_names[verdict]));
		json_object_set_new(object, "subject", json_text(subject));
		json_object_set_new(object, "detail", json_text(buf_str(&text)));
		json_object_set_new(object, "advice", json_text(advice));
		json_array_append_new(doctor->array, object);
		return;
	}
	grid_add(&doctor->grid, verdict_names[verdict]);
	grid_add(&doctor->grid, subject);
	grid_addf(
		&doctor->grid, "%s%s%s", buf_str(&text), advice ? "; " : "", advice ? advice : "");
}
