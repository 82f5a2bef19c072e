#include "server/op/verifier.h"

#include "base/error.h"
#include "server/request/request.h"
#include "store/store.h"

bool verifier_applies(const struct store_object *object, uint64_t offset, uint64_t length)
{
	return offset == 0 && length == object->size && object->encryption == STORE_PLAIN;
}

/* Begins the checksum of the next span. */
static int begin_span(
	struct verifier *v, const struct store_object *object, struct penstock_error *err)
{
	checksum_release(&v->sum);
	if (!store_span_next(object, &v->span) || !v->span.kind)
		return 0;
	return checksum_init(&v->sum, v->span.kind, err);
}

int verifier_begin(struct verifier *v, struct store_object *object, struct penstock_error *err)
{
	int rc = begin_span(v, object, err);

	if (rc == 0)
		v->object = store_object_ref(object);
	return rc;
}

void verifier_end(struct verifier *v)
{
	checksum_release(&v->sum);
	store_object_unref(v->object);
}

/* Compares the checksum at the end of a span. */
static int compare(struct verifier *v, struct penstock_error *err)
{
	struct store_object *object = v->object;

	if (v->span.kind && !store_span_matches(&v->span, &v->sum)) {
		atomic_fetch_add(&v->server->damaged, 1);
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read 's3://%s/%s': its bytes do not match its checksum; 'penstock "
			"store scrub' finds all such objects",
			v->bucket, v->key);
	}
	if (v->summed < object->size)
		return begin_span(v, object, err);
	atomic_store_explicit(&object->verified, true, memory_order_relaxed);
	return 0;
}

int verifier_add(struct verifier *v, const char *data, size_t len, struct penstock_error *err)
{
	int rc = 0;

	while (rc == 0 && len > 0) {
		uint64_t left = v->span.offset + v->span.length - v->summed;
		size_t n = len < left ? len : (size_t)left;

		checksum_update(&v->sum, data, n);
		v->summed += n;
		data += n;
		len -= n;
		if (n == left)
			rc = compare(v, err);
	}
	return rc;
}
