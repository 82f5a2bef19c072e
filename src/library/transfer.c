/* Implements <penstock/transfer.h> on top of src/transfer. */
#include <penstock/transfer.h>
#include <penstock/version.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "library/library.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "transfer/bulk.h"
#include "transfer/file_reader.h"
#include "transfer/location.h"
#include "transfer/objects.h"

#define MEMORY_DEFAULT (64 * MIB)

/* ---- cancelling ---- */

struct penstock_cancel *penstock_cancel_new(void)
{
	return calloc(1, sizeof(struct penstock_cancel));
}

void penstock_cancel_set(struct penstock_cancel *cancel)
{
	atomic_store(&cancel->flag, 1);
}

void penstock_cancel_reset(struct penstock_cancel *cancel)
{
	atomic_store(&cancel->flag, 0);
}

void penstock_cancel_free(struct penstock_cancel *cancel)
{
	free(cancel);
}

static const atomic_int *flag_of(const struct penstock_cancel *cancel)
{
	return cancel ? &cancel->flag : NULL;
}

/* ---- the handle ---- */

static const char *keep(struct penstock_transfer *t, const char *text, int *r)
{
	if (!text || *r < 0)
		return NULL;
	*r = strlist_add(&t->texts, text);
	return *r < 0 ? NULL : t->texts.items[t->texts.n - 1];
}

static int copy_options(struct penstock_transfer *t, const struct penstock_transfer_options *o,
	struct penstock_error *err)
{
	int r = 0;

	t->places[0] = (struct store_place){
		.endpoint_url = keep(t, o->endpoint_url, &r),
		.region = keep(t, o->region, &r),
		.profile = keep(t, o->profile, &r),
		.access_key_id = keep(t, o->access_key_id, &r),
		.secret_access_key = keep(t, o->secret_access_key, &r),
		.session_token = keep(t, o->session_token, &r),
		.anonymous = o->anonymous,
	};
	t->places[1] = (struct store_place){
		.endpoint_url = keep(t, o->google_endpoint_url, &r),
		.google_key = keep(t, o->google_key_file, &r),
		.google = true,
		.anonymous = o->anonymous,
	};
	return r < 0 ? error_memory(err) : 0;
}

static void on_wait(void *cookie, const char *host, const char *why, int64_t waited_ms)
{
	(void)cookie;
	(void)waited_ms;
	log_warn("waiting for %s: %s, retrying", host, why);
}

static int transfer_new(struct penstock_transfer **out, const struct penstock_transfer_options *own,
	struct penstock_error *err)
{
	struct penstock_transfer *t;
	int r;

	library_log_begin();
	t = calloc(1, sizeof(*t));
	if (!t)
		return error_memory(err);
	pthread_mutex_init(&t->lock, NULL);
	t->max_connections = own->max_connections;
	r = copy_options(t, own, err);
	if (r == 0)
		r = http_engine_new(&t->engine,
			&(struct http_engine_options){.on_wait = on_wait,
				.cancel = flag_of(own->cancel),
				.max_connections = t->max_connections,
				.max_host_connections = t->max_connections},
			err);
	if (r < 0) {
		penstock_transfer_free(t);
		return r;
	}
	*out = t;
	return 0;
}

int library_transfer_again(struct penstock_transfer **out, const struct penstock_transfer *of,
	struct penstock_error *err)
{
	const struct store_place *s3 = &of->places[0], *google = &of->places[1];

	return transfer_new(out,
		&(struct penstock_transfer_options){.endpoint_url = s3->endpoint_url,
			.region = s3->region,
			.profile = s3->profile,
			.access_key_id = s3->access_key_id,
			.secret_access_key = s3->secret_access_key,
			.session_token = s3->session_token,
			.google_endpoint_url = google->endpoint_url,
			.google_key_file = google->google_key,
			.anonymous = s3->anonymous,
			.max_connections = of->max_connections},
		err);
}

int penstock_transfer_new(struct penstock_transfer **out,
	const struct penstock_transfer_options *options, struct penstock_error *err)
{
	struct penstock_transfer_options own = {0};
	int r = library_adopt(&own, sizeof(own), options, "struct penstock_transfer_options", err);

	return r < 0 ? r : transfer_new(out, &own, err);
}

void penstock_transfer_free(struct penstock_transfer *t)
{
	if (!t)
		return;
	file_pool_free(t->files);
	for (size_t i = 0; i < ARRAY_SIZE(t->clients); i++)
		object_client_free(t->clients[i]);
	http_engine_free(t->engine);
	for (size_t i = 0; i < t->texts.n; i++) /* some are secrets */
		explicit_bzero(t->texts.items[i], strlen(t->texts.items[i]));
	strlist_release(&t->texts);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Gets the handle's client, or opens a client. If two threads open a client at the same time, the
 * first one is kept. */
int library_client(struct penstock_transfer *t, bool google, const atomic_int *cancel,
	struct object_client **out, struct penstock_error *err)
{
	struct store_place place = t->places[google];
	struct object_client *made;
	int r;

	pthread_mutex_lock(&t->lock);
	*out = t->clients[google];
	pthread_mutex_unlock(&t->lock);
	if (*out)
		return 0;
	place.cancel = cancel;
	/* Open the client without the lock: finding the credentials may take a while. */
	r = object_client_open(&made, t->engine, &place, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&t->lock);
	if (!t->clients[google]) {
		t->clients[google] = made;
		made = NULL;
	}
	*out = t->clients[google];
	pthread_mutex_unlock(&t->lock);
	object_client_free(made);
	return 0;
}

/* A parsed object URL, and its client. */
struct target {
	struct location location;
	struct object_ref at; /* points into `location` */
};

static void target_release(struct target *target)
{
	location_release(&target->location);
}

static int target_of(struct target *out, struct penstock_transfer *t, const char *url,
	bool needs_key, const struct penstock_cancel *cancel, struct penstock_error *err)
{
	struct location *location = &out->location;
	int r = location_parse(location, url, err);

	if (r < 0)
		return r;
	if (location->kind != LOCATION_OBJECT)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid object URL '%s': expected s3://BUCKET/KEY or gs://BUCKET/KEY",
			url);
	if (needs_key && !*location->key)
		return error_set(
			err, PENSTOCK_E_INVALID, "invalid URL '%s': the key is missing", url);
	out->at = object_at(NULL, location->bucket, location->key);
	return library_client(t, location->google, flag_of(cancel), &out->at.client, err);
}

/* Parses the URL, opens its client, and adopts the options of the call. */
static int call_begin(struct target *out, struct penstock_call_options *call,
	struct penstock_transfer *t, const char *url, bool needs_key,
	const struct penstock_call_options *given, struct penstock_error *err)
{
	int r;

	*call = (struct penstock_call_options){0};
	r = library_adopt(call, sizeof(*call), given, "struct penstock_call_options", err);
	return r < 0 ? r : target_of(out, t, url, needs_key, call->cancel, err);
}

/* ---- descriptions ---- */

void penstock_free(void *memory)
{
	free(memory);
}

static void release_members(struct penstock_object *object)
{
	free(object->key);
	free(object->etag);
	free(object->version);
	for (char **each = object->metadata; each && *each; each++)
		free(*each);
	free(object->metadata);
}

void penstock_object_release(struct penstock_object *object)
{
	struct penstock_object own = {0};
	size_t size;

	if (!object)
		return;
	size = object->struct_size;
	if (library_adopt(&own, sizeof(own), object, "", NULL) < 0)
		return;
	release_members(&own);
	memset(object, 0, size);
	object->struct_size = size;
}

static int describe(
	struct penstock_object *out, const struct object_info *info, struct penstock_error *err)
{
	struct penstock_object own = {
		.size = info->size, .modified_ns = info->modified_ns, .is_prefix = info->is_prefix};
	bool done = str_copy(&own.key, info->key) && str_copy(&own.etag, info->etag) &&
		    str_copy(&own.version, info->version_id);

	own.metadata = done ? calloc(info->metadata.n + 1, sizeof(*own.metadata)) : NULL;
	done = own.metadata != NULL;
	for (size_t i = 0; done && i < info->metadata.n; i++)
		done = str_copy(&own.metadata[i], info->metadata.items[i]);
	if (!done) {
		release_members(&own);
		return error_memory(err);
	}
	*out = own;
	return 0;
}

/* Ends a call that returned `r`: describes the object if the call succeeded and `object` is not
 * NULL, and releases `info`. */
static int finish(
	int r, struct object_info *info, struct penstock_object *object, struct penstock_error *err)
{
	struct penstock_object own = {0}, room = {0};

	if (r == 0 && object) {
		r = library_adopt(&room, sizeof(room), object, "struct penstock_object", err);
		if (r == 0)
			r = describe(&own, info, err);
		if (r == 0)
			library_give(object, &own, sizeof(own));
		/* Release the members that the caller's struct lacks. */
		if (r == 0 && object->struct_size < sizeof(own)) {
			memset(&own, 0, object->struct_size);
			release_members(&own);
		}
	}
	object_info_release(info);
	return r;
}

/* ---- putting ---- */

struct put {
	struct target target;
	struct penstock_call_options call;
	struct strlist metadata;
	struct object_put_options options;
};

static void put_release(struct put *put)
{
	target_release(&put->target);
	strlist_release(&put->metadata);
}

static int put_begin(struct put *put, struct penstock_transfer *t, const char *url,
	const struct penstock_call_options *given, struct penstock_error *err)
{
	int r = call_begin(&put->target, &put->call, t, url, true, given, err);

	for (const char *const *each = put->call.metadata; r == 0 && each && *each; each++) {
		if (!strchr(*each, '='))
			r = error_set(err, PENSTOCK_E_INVALID,
				"invalid metadata '%s': expected 'name=value'", *each);
		else if (strlist_add(&put->metadata, *each) < 0)
			r = error_memory(err);
	}
	put->options = (struct object_put_options){.if_match = put->call.if_match,
		.if_none_match = put->call.if_none_match,
		.content_type = put->call.content_type,
		.metadata = &put->metadata,
		.storage_class = put->call.storage_class,
		.part_size = put->call.part_size,
		.parallel = put->call.parallel,
		.progress = put->call.progress,
		.cookie = put->call.cookie,
		.cancel = flag_of(put->call.cancel)};
	return r;
}

int penstock_put_file(struct penstock_transfer *t, const char *url, const char *path,
	const struct penstock_call_options *options, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(put_release) struct put put = {0};
	_cleanup_close_ int fd = -1;
	struct object_info info = {0};
	struct stat st;
	int r = put_begin(&put, t, url, options, err);

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID,
			"'%s' is not a regular file; use penstock_put_stream() for a pipe", path);
	r = object_put_file(put.target.at, fd, (uint64_t)st.st_size, &put.options, &info, err);
	if (r < 0)
		error_prefix(err, "%s", path);
	return finish(r, &info, object, err);
}

int penstock_put_memory(struct penstock_transfer *t, const char *url, const void *data, size_t size,
	const struct penstock_call_options *options, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(put_release) struct put put = {0};
	struct object_info info = {0};
	int r = put_begin(&put, t, url, options, err);

	if (r == 0)
		r = object_put(put.target.at, data, size, &put.options, &info, err);
	return finish(r, &info, object, err);
}

int penstock_put_stream(struct penstock_transfer *t, const char *url, int fd,
	const struct penstock_call_options *options, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(put_release) struct put put = {0};
	struct object_info info = {0};
	int r = put_begin(&put, t, url, options, err);

	if (r == 0)
		r = object_put_stream(put.target.at, fd, &put.options, &info, err);
	return finish(r, &info, object, err);
}

/* ---- getting ---- */

struct get {
	struct target target;
	struct penstock_call_options call;
	struct object_get_options options;
};

static void get_release(struct get *get)
{
	target_release(&get->target);
}

static int get_begin(struct get *get, struct penstock_transfer *t, const char *url,
	const struct penstock_call_options *given, struct penstock_error *err)
{
	const struct penstock_call_options *call = &get->call;
	int r = call_begin(&get->target, &get->call, t, url, true, given, err);

	get->options = (struct object_get_options){.if_match = call->if_match,
		.offset = call->offset,
		.length = call->length,
		.parallel = call->parallel,
		.progress = call->progress,
		.cookie = call->cookie,
		.cancel = flag_of(call->cancel)};
	return r;
}

int penstock_get_file(struct penstock_transfer *t, const char *url, const char *path,
	const struct penstock_call_options *given, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(get_release) struct get get = {0};
	struct object_info info = {0};
	int r = get_begin(&get, t, url, given, err);

	if (r == 0 && (get.call.offset || get.call.length))
		r = error_set(err, PENSTOCK_E_INVALID,
			"%s: a file gets the whole object; use offset and length only with memory or "
			"streams",
			url);
	if (r == 0)
		r = object_get_file(get.target.at, path, &get.options, &info, err);
	return finish(r, &info, object, err);
}

int penstock_get_memory(struct penstock_transfer *t, const char *url, void **data, size_t *size,
	const struct penstock_call_options *given, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(get_release) struct get get = {0};
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(MEMORY_DEFAULT);
	struct object_info info = {0};
	int r = get_begin(&get, t, url, given, err);

	if (get.call.max_size)
		bytes.limit = get.call.max_size < SIZE_MAX ? (size_t)get.call.max_size
							   : SIZE_MAX - 1;
	if (r == 0)
		r = object_get(get.target.at, &get.options, &bytes, &info, err);
	/* If the object is empty, the buffer has no memory yet. */
	if (r == 0 && !bytes.data && buf_add_str(&bytes, "") < 0)
		r = error_memory(err);
	r = finish(r, &info, object, err);
	if (r < 0)
		return r;
	*size = bytes.len;
	*data = buf_take(&bytes);
	return 0;
}

struct writer {
	int (*write)(void *cookie, const void *data, size_t size);
	void *cookie;
};

static int hand_over(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	const struct writer *writer = cookie;

	return writer->write(writer->cookie, data, len)
		       ? error_set(err, PENSTOCK_E_CANCELLED, "the caller ended the transfer")
		       : 0;
}

int penstock_get_stream(struct penstock_transfer *t, const char *url,
	int (*write)(void *cookie, const void *data, size_t size), void *cookie,
	const struct penstock_call_options *given, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(get_release) struct get get = {0};
	struct writer writer = {write, cookie};
	struct object_info info = {0};
	int r = get_begin(&get, t, url, given, err);

	if (r == 0)
		r = object_get_stream(get.target.at, &get.options, hand_over, &writer, &info, err);
	return finish(r, &info, object, err);
}

/* ---- requests without contents ---- */

int penstock_head(struct penstock_transfer *t, const char *url, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(target_release) struct target target = {0};
	struct object_info info = {0};
	int r = target_of(&target, t, url, true, NULL, err);

	if (r == 0)
		r = object_head(target.at, &info, err);
	return finish(r, &info, object, err);
}

int penstock_delete(struct penstock_transfer *t, const char *url,
	const struct penstock_call_options *given, struct penstock_error *err)
{
	_cleanup_(target_release) struct target target = {0};
	struct penstock_call_options call;
	int r = call_begin(&target, &call, t, url, true, given, err);

	return r < 0 ? r : object_delete(target.at, call.if_match, err);
}

int penstock_make_bucket(struct penstock_transfer *t, const char *url, struct penstock_error *err)
{
	_cleanup_(target_release) struct target target = {0};
	int r = target_of(&target, t, url, false, NULL, err);

	if (r == 0 && *target.location.key)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot create bucket '%s': the URL has a key", url);
	return r < 0 ? r : bucket_create(target.at.client, target.at.bucket, err);
}

/* ---- copying ---- */

/* Copies an object through this machine, as the only item of a bulk transfer. */
static int copy_through(struct penstock_transfer *t, const struct target *from,
	const struct target *to, const struct penstock_call_options *call,
	struct penstock_error *err)
{
	struct object_put_options put = {.if_none_match = call->if_none_match};
	struct object_info known = {0};
	struct bulk *bulk = NULL;
	int r = object_head(from->at, &known, err);

	if (r == 0 && call->if_match && strcmp(call->if_match, known.etag) != 0)
		r = error_set(err, PENSTOCK_E_PRECONDITION,
			"cannot copy '%s': it is not the expected object (its ETag differs)",
			from->location.text);
	if (r == 0)
		r = bulk_new(&bulk, t->engine,
			&(struct bulk_options){.cancel = flag_of(call->cancel),
				.parallel = call->parallel,
				.put = &put,
				.progress = call->progress,
				.cookie = call->cookie},
			err);
	if (r == 0)
		r = bulk_push(bulk,
			&(struct bulk_item){
				.kind = BULK_COPY, .from = from->at, .to = to->at, .known = &known},
			err);
	if (r == 0)
		r = bulk_finish(bulk, NULL, err);
	bulk_free(bulk);
	object_info_release(&known);
	return r;
}

int penstock_copy(struct penstock_transfer *t, const char *from_url, const char *to_url,
	const struct penstock_call_options *given, struct penstock_object *object,
	struct penstock_error *err)
{
	_cleanup_(target_release) struct target from = {0}, to = {0};
	struct penstock_call_options call;
	struct object_info info = {0};
	int r = call_begin(&from, &call, t, from_url, true, given, err);

	if (r == 0)
		r = target_of(&to, t, to_url, true, call.cancel, err);
	if (r == 0 && from.at.client == to.at.client)
		r = object_copy(from.at, to.at,
			&(struct object_copy_options){.if_match = call.if_match,
				.if_none_match = call.if_none_match,
				.progress = call.progress,
				.cookie = call.cookie,
				.cancel = flag_of(call.cancel)},
			&info, err);
	else if (r == 0)
		r = copy_through(t, &from, &to, &call, err);
	if (r == 0 && object && from.at.client != to.at.client)
		r = object_head(to.at, &info, err);
	return finish(r, &info, object, err);
}

/* ---- lists ---- */

struct lister {
	int (*each)(void *cookie, const struct penstock_object *object);
	void *cookie;
};

static int on_listed(void *cookie, const struct object_info *info)
{
	const struct lister *lister = cookie;
	/* The strings are not copied: they are valid only during the call. */
	const struct penstock_object object = {.struct_size = sizeof(object),
		.key = info->key,
		.size = info->size,
		.etag = (char *)info->etag,
		.modified_ns = info->modified_ns,
		.is_prefix = info->is_prefix};

	return lister->each(lister->cookie, &object) != 0;
}

int penstock_list(struct penstock_transfer *t, const char *url, const char *delimiter,
	int (*each)(void *cookie, const struct penstock_object *object), void *cookie,
	const struct penstock_call_options *given, struct penstock_error *err)
{
	_cleanup_(target_release) struct target target = {0};
	struct lister lister = {each, cookie};
	struct penstock_call_options call;
	int r = call_begin(&target, &call, t, url, false, given, err);

	return r < 0 ? r
		     : object_list(
			       target.at, delimiter, on_listed, &lister, flag_of(call.cancel), err);
}
