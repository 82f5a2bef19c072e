#include "server/bucket/expiry.h"

#include <stdio.h>

#include "s3/bucket/lifecycle.h"
#include "server/bucket/configs.h"
#include "server/bucket/lifecycle.h"

static int parse(const char *text, size_t len, void *out, struct penstock_error *err)
{
	return s3_lifecycle_parse(text, len, out, err);
}

static void release(void *parsed)
{
	s3_lifecycle_release(parsed);
}

static const struct config_kind kind = {.name = LIFECYCLE_CONFIG,
	.size = sizeof(struct s3_lifecycle),
	.parse = parse,
	.release = release};

int expiry_new(struct configs **out, struct store *store, struct penstock_error *err)
{
	return configs_new(out, store, &kind, err);
}

/* Finds the time at which a rule ends an object, or an upload if `object` is NULL. */
static bool find_end(struct configs *configs, const char *bucket, const char *key,
	int64_t started_ns, const struct s3_lifecycle_object *object, struct expiry_note *out)
{
	const struct s3_lifecycle *rules = configs_get(configs, bucket);
	struct s3_lifecycle_end end;
	bool ends;

	if (!rules)
		return false;
	ends = object ? s3_lifecycle_object_end(rules, object, S3_DAY_NS, &end)
		      : s3_lifecycle_upload_end(rules, key, started_ns, S3_DAY_NS, &end);
	if (ends) {
		out->at_ns = end.at_ns;
		snprintf(out->id, sizeof(out->id), "%s", end.id ? end.id : "");
	}
	configs_done(configs);
	return ends;
}

bool expiry_of_object(struct configs *configs, const char *bucket,
	const struct s3_lifecycle_object *object, struct expiry_note *out)
{
	return find_end(configs, bucket, NULL, 0, object, out);
}

bool expiry_of_upload(struct configs *configs, const char *bucket, const char *key,
	int64_t started_ns, struct expiry_note *out)
{
	return find_end(configs, bucket, key, started_ns, NULL, out);
}
