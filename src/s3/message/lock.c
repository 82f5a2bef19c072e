#include "s3/message/lock.h"

#include "s3/message/table.h"
#include "s3/message/xml.h"

static const struct field object_lock_fields[] = {
	D("/ObjectLockEnabled", TEXT, s3_object_lock, enabled),
	D("/Rule", TEXT, s3_object_lock, rule),
	D("/Rule/DefaultRetention", TEXT, s3_object_lock, retention),
	D("/Rule/DefaultRetention/Mode", TEXT, s3_object_lock, mode),
	D("/Rule/DefaultRetention/Days", TEXT, s3_object_lock, days),
	D("/Rule/DefaultRetention/Years", TEXT, s3_object_lock, years),
	F("/Rule/DefaultRetention/DefaultEventHold", REFUSED), END};
static const struct table object_lock_table = {.what = "the ObjectLockConfiguration",
	.strict = true,
	.roots = {"ObjectLockConfiguration"},
	.fields = object_lock_fields,
	.size = sizeof(struct s3_object_lock)};

DOCUMENT(object_lock)

void s3_object_lock_write(struct buf *out, const struct s3_object_lock *lock)
{
	xml_declaration(out);
	xml_open_root(out, "ObjectLockConfiguration");
	xml_element(out, "ObjectLockEnabled", lock->enabled);
	if (lock->mode) {
		xml_open(out, "Rule");
		xml_open(out, "DefaultRetention");
		xml_element(out, "Mode", lock->mode);
		xml_element(out, "Days", lock->days);
		xml_element(out, "Years", lock->years);
		xml_close(out, "DefaultRetention");
		xml_close(out, "Rule");
	}
	xml_close(out, "ObjectLockConfiguration");
}

static const struct field retention_fields[] = {D("/Mode", TEXT, s3_retention, mode),
	D("/RetainUntilDate", TEXT, s3_retention, until), F("/EventHold", REFUSED),
	F("/EventHoldDuration", REFUSED), END};
static const struct table retention_table = {.what = "the Retention document",
	.strict = true,
	.roots = {"Retention"},
	.fields = retention_fields,
	.size = sizeof(struct s3_retention)};

DOCUMENT(retention)

void s3_retention_write(struct buf *out, const struct s3_retention *retention)
{
	xml_declaration(out);
	xml_open_root(out, "Retention");
	xml_element(out, "Mode", retention->mode);
	xml_element(out, "RetainUntilDate", retention->until);
	xml_close(out, "Retention");
}

static const struct field legal_hold_fields[] = {
	D("/Status", TEXT, s3_legal_hold, status), F("/EventHold", REFUSED), END};
static const struct table legal_hold_table = {.what = "the LegalHold document",
	.strict = true,
	.roots = {"LegalHold"},
	.fields = legal_hold_fields,
	.size = sizeof(struct s3_legal_hold)};

DOCUMENT(legal_hold)

void s3_legal_hold_write(struct buf *out, const struct s3_legal_hold *hold)
{
	xml_declaration(out);
	xml_open_root(out, "LegalHold");
	xml_element(out, "Status", hold->status);
	xml_close(out, "LegalHold");
}
