/* The operations, which the table of route.c refers to, and functions that several of them use. */
#ifndef SERVER_OP_OP_H
#define SERVER_OP_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/sum/checksum.h"

#define REMOTE_SIZE 46 /* size of an IPv6 address as text */

struct access_subject;
struct buf;
struct request;
struct s3_list;
struct store_bucket;
struct store_list;
struct store_origin;
struct store_object;
struct store_list_query;

/* Gets the bucket of the request. Sets the reply and returns false if the bucket does not exist. */
bool op_get_bucket(struct request *req, struct store_bucket *out);
/* Sets the reply and returns false if the bucket, or the object that the request names, does not
 * exist. */
bool op_subject_exists(struct request *req);

/* A change to one of the store's own headers of the object or version that a request names. */
struct op_note {
	const char *name;
	const char *value; /* NULL removes the header */
	/* Sets the reply and returns false if this change of the object is not allowed. The
	 * callback is NULL if the change is always allowed. */
	bool (*allowed)(struct request *req, const struct store_object *object, const void *arg);
	const void *arg; /* passed to allowed() */
	/* Checks the access of the sender again after the object has changed. Sets the reply and
	 * returns false on failure. The callback is NULL to use access_check_request(). */
	bool (*may)(struct request *req, const struct op_note *note);
	const struct access_subject *subject; /* for may() */
	unsigned status; /* status of the reply */
};
/* Makes the change and replies. */
void op_annotate(struct request *req, const struct op_note *note);

/* Gives a rule of a bucket a name if the rule has none. Sets the reply and returns false on
 * failure. */
bool op_name_rule(struct request *req, const char **id);
/* Adds or replaces the configuration `name` of the request's bucket, or removes it if `xml` is
 * NULL; then calls op_update_rules(). `name` is one of the configurations that the server keeps
 * parsed in memory. Sets the reply and returns false on failure. */
bool op_set_rules(struct request *req, const char *name, const struct buf *xml);
/* Applies a change of the rules of the bucket, or the deletion of the bucket. Sets the reply and
 * returns false on failure. */
bool op_update_rules(struct request *req);
/* Returns true if the document of a request is not too long for rules. Otherwise sets the reply and
 * returns false. */
bool op_rules_fit(struct request *req);
/* Returns the origin of a request's changes, for their events. The result lives as long as the
 * request; NULL if no bucket has notifications. */
const struct store_origin *op_origin(struct request *req, const char *event);
/* Gets the version that a request replicates, or NULL. Sets the reply and returns false on
 * failure. */
bool op_replica_version(struct request *req, const char **version);
/* Appends the stored header of a replica, if the request makes a replica. Sets the reply and
 * returns false on failure. */
bool op_replica_add(struct request *req, struct buf *out);
/* Combines the state of replication in a stored header with `before`, the result for the headers
 * before this header, or NULL. Returns NULL if no header so far has a state. */
const char *op_replica_status(const char *before, const char *name, const char *value);
/* Formats the address of the sender. Returns NULL if the sender has no address. */
const char *op_remote(const struct request *req, char out[static REMOTE_SIZE]);
/* Returns the id of the owner of a bucket; the text lives as long as the server. */
const char *op_owner_id(struct request *req, const char *bucket);
/* Adds the finished request to the log of its bucket. */
void op_log_request(struct request *req);
/* One object of a request that deletes or reads many objects. */
struct op_log_item {
	const char *operation, *key;
	const char *version, *error; /* NULL if missing */
	int status; /* -1 if missing, like the next two members */
	int64_t sent, size; /* bytes in the reply, and of the object */
};
/* Adds the object to the log of the bucket. */
void op_log_item(struct request *req, const struct op_log_item *item);

/* The properties of an object on which its expiry depends. */
struct op_ended {
	uint64_t size;
	int64_t modified_ns;
	const char *headers;
	size_t headers_len;
};
/* Adds x-amz-expiration to the reply if a rule of the bucket makes the object expire. */
void op_reply_end(struct request *req, const struct op_ended *object);
/* Like op_reply_end(), for the object that req->put has made. */
void op_reply_put_end(struct request *req);
/* Adds x-amz-abort-date and x-amz-abort-rule-id if a rule of the bucket aborts the upload. */
void op_reply_upload_end(struct request *req, int64_t started_ns);

/* Returns the token of the next page: the last name of this page, in hexadecimal. Returns NULL if
 * out of memory; the reply is then 503. */
const char *op_token(struct request *req, const char *last);
/* Returns the name in a token. Sets the reply and returns NULL on failure. */
const char *op_token_decode(struct request *req, const char *token);

/* Reads prefix, delimiter, encoding and length of a list; `max_name` is the name of the parameter
 * with the length. Sets the reply and returns false on failure. */
bool op_list_begin(struct request *req, const char *max_name, struct s3_list *list,
	struct store_list_query *query);
/* Returns false if a name has characters that XML 1.0 lacks. A page with such a name is
 * percent-encoded even if the client asks for no encoding: the page names its encoding in
 * EncodingType, whereas a page without encoding would contain a different name. */
bool op_names_fit(const struct store_list *found);

void op_list_buckets(struct request *req);
void op_create_bucket(struct request *req);
void op_head_bucket(struct request *req);
void op_delete_bucket(struct request *req);
void op_bucket_location(struct request *req);
void op_bucket_versioning(struct request *req);
void op_put_bucket_versioning(struct request *req);
void op_bucket_cors(struct request *req);
void op_put_bucket_cors(struct request *req);
void op_delete_bucket_cors(struct request *req);
void op_bucket_lifecycle(struct request *req);
void op_put_bucket_lifecycle(struct request *req);
void op_delete_bucket_lifecycle(struct request *req);
void op_bucket_logging(struct request *req);
void op_put_bucket_logging(struct request *req);
void op_bucket_replication(struct request *req);
void op_put_bucket_replication(struct request *req);
void op_delete_bucket_replication(struct request *req);
void op_bucket_notification(struct request *req);
void op_put_bucket_notification(struct request *req);
void op_bucket_encryption(struct request *req);
void op_put_bucket_encryption(struct request *req);
void op_delete_bucket_encryption(struct request *req);
void op_list_objects(struct request *req);
void op_list_objects_v2(struct request *req);
void op_list_versions(struct request *req);
void op_list_uploads(struct request *req);
void op_delete_objects(struct request *req);
void op_bucket_acl(struct request *req);
void op_put_bucket_acl(struct request *req);
void op_object_acl(struct request *req);
void op_put_object_acl(struct request *req);
void op_bucket_policy(struct request *req);
void op_put_bucket_policy(struct request *req);
void op_delete_bucket_policy(struct request *req);
void op_bucket_policy_status(struct request *req);
void op_access_block(struct request *req);
void op_put_access_block(struct request *req);
void op_delete_access_block(struct request *req);
void op_ownership(struct request *req);
void op_put_ownership(struct request *req);
void op_delete_ownership(struct request *req);
void op_bucket_tagging(struct request *req);
void op_put_bucket_tagging(struct request *req);
void op_delete_bucket_tagging(struct request *req);

void op_get_object(struct request *req);
void op_object_attributes(struct request *req);
void op_object_lock(struct request *req);
void op_put_object_lock(struct request *req);
void op_retention(struct request *req);
void op_put_retention(struct request *req);
void op_legal_hold(struct request *req);
void op_put_legal_hold(struct request *req);
void op_tagging(struct request *req);
void op_put_tagging(struct request *req);
void op_delete_tagging(struct request *req);
/* Replies to many reads in one request (s3/message/read_many.h). */
void op_read_many(struct request *req);
void op_put_object_begin(struct request *req);
/* Stores the complete body; then `after` replies. */
void op_store_object(struct request *req, void (*after)(struct request *req));
/* Before the body is sent: refuses a request with If-None-Match: * if the object exists; other
 * conditions are checked when the change takes effect. Sets the reply and returns false after a
 * refusal. */
bool op_check_condition_early(struct request *req);
/* Handles a browser's form. */
void op_post_object_begin(struct request *req);
/* Releases the form of the request, if it has one. */
void op_post_release(struct request *req);
void op_copy_object(struct request *req);
void op_delete_object(struct request *req);

void op_create_upload(struct request *req);
void op_upload_part_begin(struct request *req);
/* Returns the kind of the checksum that a part gets, even if its sender names no checksum: the kind
 * that the upload has, or CRC64NVME if the upload has none. As with a PUT, a part with a customer
 * key gets no checksum unless the upload asks for one. */
enum checksum_kind op_part_checksum(const struct request *req);
void op_upload_part_copy(struct request *req);
void op_list_parts(struct request *req);
void op_complete_upload(struct request *req);
void op_abort_upload(struct request *req);

#endif
