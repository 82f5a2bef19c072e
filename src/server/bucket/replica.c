#include "server/bucket/replica.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/date.h"
#include "s3/message/lock.h"
#include "s3/message/tags.h"
#include "server/bucket/replicator.h"
#include "server/bucket/targets.h"
#include "server/request/tags.h"
#include "store/header.h"
#include "store/store.h"
#include "transfer/objects.h"

/* --- headers --------------------------------------------------------------------------------- */

/* Returns false for a retention that has ended: it protects nothing, and would be refused. */
static bool is_active(const struct store_retention *retention)
{
	return retention->mode != STORE_NOT_LOCKED && retention->until_ns > clock_wall_ns();
}

static const char *mode_name(const struct store_retention *retention)
{
	return retention->mode == STORE_GOVERNANCE ? "GOVERNANCE" : "COMPLIANCE";
}

/* Translates one of the store's own headers into headers for the destination. */
static int add_own(struct strlist *out, const char *name, const char *value)
{
	struct store_retention retention;
	char until[DATE_ISO_SIZE];

	if (strcmp(name, TAGS_HEADER) == 0)
		return strlist_addf(out, "x-amz-tagging=%s", value);
	if (strcmp(name, STORE_HOLD_HEADER) == 0 && strcmp(value, STORE_HOLD_ON) == 0)
		return strlist_addf(out, "x-amz-object-lock-legal-hold=%s", value);
	if (strcmp(name, STORE_ENCRYPTION_HEADER) == 0)
		return strlist_addf(out, "x-amz-server-side-encryption=AES256");
	if (strcmp(name, STORE_RETENTION_HEADER) != 0)
		return 0;
	retention = store_retention_parse(value);
	if (!is_active(&retention))
		return 0;
	date_format_iso(retention.until_ns, until);
	if (strlist_addf(out, "x-amz-object-lock-mode=%s", mode_name(&retention)) < 0)
		return -1;
	return strlist_addf(out, "x-amz-object-lock-retain-until-date=%s", until);
}

static int add_headers(struct strlist *out, const struct store_object *object,
	const struct replica_version *version)
{
	const char *p = NULL, *name, *value;
	int rc = strlist_addf(out, REPLICA_HEADER "=%s", version->version);

	if (rc == 0 && version->class)
		rc = strlist_addf(out, "x-amz-storage-class=%s", version->class);
	while (rc == 0 &&
		store_header_next(object->headers, object->headers_len, &p, &name, &value)) {
		if (*name == ':')
			rc = add_own(out, name, value);
		else if (!version->class || strcmp(name, "x-amz-storage-class") != 0)
			rc = strlist_addf(out, "%s=%s", name, value);
	}
	return rc;
}

/* --- the bytes ------------------------------------------------------------------------------- */

struct source {
	struct store_reader *reader;
	atomic_bool failed;
};

static ssize_t source_read(
	void *cookie, uint64_t offset, void *data, size_t size, struct penstock_error *err)
{
	struct source *source = cookie;
	ssize_t n = store_reader_read(source->reader, offset, data, size, err);

	if (n == 0)
		n = error_set(err, PENSTOCK_E_CORRUPT,
			"the object has fewer bytes than its recorded size");
	if (n < 0)
		atomic_store(&source->failed, true);
	return n;
}

static struct object_exact_part *parts_of(const struct store_object *object)
{
	struct object_exact_part *parts = calloc(object->n_parts + 1, sizeof(*parts));

	for (size_t i = 0; parts && i < object->n_parts; i++)
		parts[i] = (struct object_exact_part){.number = object->parts[i].number,
			.size = object->parts[i].size,
			.etag = object->parts[i].etag,
			.checksum = object->parts[i].checksum};
	return parts;
}

static bool combine_sums(const struct store_object *object)
{
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	uint8_t whole[CHECKSUM_MAX_SIZE], digest[CHECKSUM_MAX_SIZE], next[CHECKSUM_MAX_SIZE];

	if (!object->n_parts || strcmp(object->checksum.type, "COMPOSITE") == 0)
		return true;
	if (!checksum_is_crc(kind) || !checksum_parse(kind, object->checksum.value, whole))
		return false;
	for (size_t i = 0; i < object->n_parts; i++) {
		if (!checksum_parse(kind, object->parts[i].checksum, i ? next : digest))
			return false;
		if (i)
			checksum_combine(kind, digest, next, object->parts[i].size);
	}
	return memcmp(whole, digest, checksum_size(kind)) == 0;
}

bool replica_has_sums(struct store_object *object)
{
	int known = atomic_load_explicit(&object->part_sums, memory_order_relaxed);

	if (!known) {
		known = combine_sums(object) ? 1 : -1;
		atomic_store_explicit(&object->part_sums, known, memory_order_relaxed);
	}
	return known > 0;
}

static int send_object(const struct target *to, const struct replica_version *version,
	struct store_object *object, bool *unreadable, struct penstock_error *err)
{
	struct source source = {0};
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	_cleanup_free_ struct object_exact_part *parts = parts_of(object);
	_cleanup_(strlist_release) struct strlist headers = {0};
	int rc = parts && add_headers(&headers, object, version) == 0
			 ? store_reader_new(object, &source.reader, err)
			 : error_memory(err);

	if (rc < 0)
		return rc;
	rc = object_put_exact(object_at(to->client, to->bucket, version->key),
		&(struct object_exact){.size = object->size,
			.etag = object->etag,
			.headers = &headers,
			.kind = replica_has_sums(object) ? kind : CHECKSUM_NONE,
			.checksum = object->checksum.value,
			.composite = strcmp(object->checksum.type, "COMPOSITE") == 0,
			.parts = parts,
			.n_parts = object->n_parts,
			.read = source_read,
			.cookie = &source},
		err);
	store_reader_free(source.reader);
	*unreadable = atomic_load(&source.failed);
	return rc;
}

static int send_marker(
	const struct target *to, const struct replica_version *version, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist headers = {0};

	if (strlist_addf(&headers, REPLICA_HEADER "=%s", version->version) < 0)
		return error_memory(err);
	return object_delete_exact(object_at(to->client, to->bucket, version->key), &headers, err);
}

/* --- tags and locks that have changed -------------------------------------------------------- */

static int write_tags(struct buf *out, const char *value, struct penstock_error *err)
{
	struct s3_tagging tags = {0};
	int rc = s3_tagging_parse_query(value, &tags, err);

	if (rc == 0)
		s3_tagging_write(out, &tags);
	s3_tagging_release(&tags);
	return rc;
}

static void write_retention(struct buf *out, const struct store_retention *retention)
{
	char until[DATE_ISO_SIZE];

	date_format_iso(retention->until_ns, until);
	s3_retention_write(
		out, &(struct s3_retention){.mode = mode_name(retention), .until = until});
}

/* Returns true if a request to the destination can address the version; *name is then the name to
 * use, or NULL for the current version. A store other than penstock gives each version a new name,
 * so only the current version of such a store can be addressed. */
static bool is_addressable(struct store *store, const struct target *to,
	const struct replica_version *version, const char **name)
{
	_cleanup_(store_object_unrefp) struct store_object *current = NULL;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	*name = version->version;
	if (object_client_is_penstock(to->client))
		return true;
	*name = NULL;
	return store_object_get(store, version->bucket, version->key, &current, &err) == STORE_OK &&
	       strcmp(current->version, version->version) == 0;
}

static int send_note(struct store *store, const struct target *to,
	const struct replica_version *version, const struct store_object *object,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	const char *value = store_object_header(object, version->note), *name, *sub = "tagging";
	const struct store_retention retention = store_object_retention(object);
	struct object_ref at = object_at(to->client, to->bucket, version->key);
	int rc = 0;

	/* The first reply of the destination shows if the destination is a penstock store. */
	if (!object_client_is_penstock(to->client))
		rc = bucket_head(to->client, to->bucket, err);
	if (rc < 0 || !is_addressable(store, to, version, &name))
		return rc;
	if (strcmp(version->note, TAGS_HEADER) == 0) {
		rc = value ? write_tags(&xml, value, err) : 0;
	} else if (value && strcmp(version->note, STORE_HOLD_HEADER) == 0) {
		sub = "legal-hold";
		s3_legal_hold_write(&xml, &(struct s3_legal_hold){.status = value});
	} else if (is_active(&retention)) {
		sub = "retention";
		write_retention(&xml, &retention);
	} else {
		/* a retention that has ended or was removed here stays at the destination */
		return 0;
	}
	if (rc < 0 || buf_failed(&xml))
		return rc < 0 ? rc : error_memory(err);
	at.version = name;
	return object_put_document(at, sub, value ? &xml : NULL, err);
}

/* Returns true if the replication of the version itself was given up. New tags or a new lock of the
 * version must not be sent: the destination lacks the version, and would change its current version
 * of the key, which may be a different version. */
static bool was_given_up(const struct store_object *object, const struct target *target)
{
	char header[sizeof(REPLICATION_HEADER) + TARGET_NAME_SIZE];
	const char *state;

	snprintf(header, sizeof(header), REPLICATION_HEADER "%s", target->name);
	state = store_object_header(object, header);
	return state && strcmp(state, REPLICATION_FAILED) == 0;
}

/* --- the outcome ----------------------------------------------------------------------------- */

enum replica_outcome replica_send(struct store *store, const struct target *target,
	const struct replica_version *version, struct penstock_error *err)
{
	_cleanup_(store_object_unrefp) struct store_object *object = NULL;
	enum store_status status = store_version_get(
		store, version->bucket, version->key, version->version, &object, err);
	bool unreadable = false;
	int rc, http;

	if (status == STORE_FAILED || status == STORE_NO_SPACE)
		return REPLICA_UNSENT;
	if (status != STORE_OK || object->marker != version->marker ||
		(version->note && was_given_up(object, target)))
		return REPLICA_GONE;
	if (version->note)
		rc = send_note(store, target, version, object, err);
	else if (version->marker)
		rc = send_marker(target, version, err);
	else
		rc = send_object(target, version, object, &unreadable, err);
	http = rc < 0 ? err->http_status : 0;
	/* 412: the destination is a penstock store that already has the version, because the reply
	 * to an earlier attempt was lost. If it has another version of that name, the reply is
	 * 409. */
	if (rc == 0 || http == 412)
		return REPLICA_SENT;
	if (!http && rc == -(int)PENSTOCK_E_INVALID)
		return REPLICA_REFUSED; /* no request can be made for this version */
	return unreadable || http == 501 ||
			       (http >= 400 && http <= 499 && http != 408 && http != 429)
		       ? REPLICA_REFUSED
		       : REPLICA_UNSENT;
}
