/* An in-memory store that can list its bucket, a client of the store, and an empty directory. */
#ifndef TEST_COPY_STORE_H
#define TEST_COPY_STORE_H

#include "../transfer/tiny_store.h"

static const char *modified = "2025-11-21T09:05:00.000Z"; /* the time of all objects */

struct copy_store {
	struct tiny_store store;
	struct fixture f; /* a fixture without a server */
	struct object_client *s3;
	char dir[32];
};

static int by_key(const void *a, const void *b)
{
	const struct tiny_object *x = *(struct tiny_object *const *)a;
	const struct tiny_object *y = *(struct tiny_object *const *)b;

	return strcmp(x->key, y->key);
}

/* Replies with all objects of "bucket" that have the prefix, as one page. */
static bool list_bucket(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	static const char bucket[] = "/bucket/";
	char prefix[64] = "", xml[8192] = "<ListBucketResult><IsTruncated>false</IsTruncated>";
	const char *given = strstr(r->target, "prefix=");
	size_t n = 0;

	if (!is(r, "GET", "list-type=2"))
		return false;
	if (given)
		sscanf(given + strlen("prefix="), "%63[^&]", prefix);
	for (char *at; (at = strstr(prefix, "%2F"));) {
		*at = '/';
		memmove(at + 1, at + 3, strlen(at + 3) + 1);
	}
	for (size_t i = 0; i < store->n; i++) {
		if (store->objects[i])
			store->objects[n++] = store->objects[i];
	}
	store->n = n;
	qsort(store->objects, store->n, sizeof(store->objects[0]), by_key);
	for (size_t i = 0; i < store->n; i++) {
		const struct tiny_object *o = store->objects[i];

		if (str_starts(o->key + strlen(bucket), prefix))
			snprintf(xml + strlen(xml), sizeof(xml) - strlen(xml),
				"<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>%s"
				"</ETag><Size>%zu</Size></Contents>",
				o->key + strlen(bucket), modified, o->etag, o->len);
	}
	strcat(xml, "</ListBucketResult>");
	*keep = mini_reply(fd, "200 OK", "Content-Type: application/xml\r\n", xml, strlen(xml));
	return true;
}

static void copy_store_begin(struct copy_store *s)
{
	char url[MINI_URL_SIZE];

	memset(s, 0, sizeof(*s));
	begin(&s->f, NULL);
	tiny_start(&s->store);
	s->store.trouble = list_bucket;
	mini_url(&s->store.server, "", url);
	assert_int_equal(0, object_client_open(&s->s3, s->f.engine,
				    &(struct store_place){.endpoint_url = url,
					    .region = "us-east-1",
					    .access_key_id = "AKIDEXAMPLE",
					    .secret_access_key = "very/secret"},
				    &s->f.err));
	snprintf(s->dir, sizeof(s->dir), "/tmp/copy-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
}

static void copy_store_end(struct copy_store *s)
{
	object_client_free(s->s3);
	tiny_stop(&s->store);
	end(&s->f);
	assert_int_equal(0, fs_remove_tree(s->dir, NULL));
}

#endif
