/*
 * An in-memory store for tests with many objects: PUT, GET, HEAD, DELETE, copies and deletions of
 * several objects, with MD5 ETags and the checksums of the requests. `trouble` is called first, and
 * may reply instead of the store.
 */
#ifndef TEST_TINY_STORE_H
#define TEST_TINY_STORE_H

#include "objects_fixture.h"

#include "base/cleanup.h"

#define TINY_OBJECTS 4096

struct tiny_object {
	char key[4096]; /* as in the URL: "/BUCKET/KEY" */
	char *body;
	size_t len;
	char etag[35];
	char sum[CHECKSUM_TEXT_SIZE];
	char type[64], mtime[64], mode[64];
	bool hit; /* set by `trouble` */
};

struct tiny_store {
	struct mini_http server;
	pthread_mutex_t lock; /* recursive; held by the server's threads during a request */
	struct tiny_object *objects[TINY_OBJECTS];
	size_t n;
	atomic_uint puts, gets, heads, deletes, copies, removed;
	atomic_uint now, peak; /* concurrent requests: current and highest number */
	/* Returns true if it replied. `*keep` is true if the connection remains open. */
	bool (*trouble)(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep);
	atomic_uint times; /* for `trouble` */
	void *cookie;
};

static inline struct tiny_object *tiny_find(struct tiny_store *s, const char *key)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->objects[i] && strcmp(s->objects[i]->key, key) == 0)
			return s->objects[i];
	}
	return NULL;
}

static inline void tiny_remove(struct tiny_store *s, const char *key)
{
	LOCK_SCOPE(&s->lock);

	for (size_t i = 0; i < s->n; i++) {
		if (s->objects[i] && strcmp(s->objects[i]->key, key) == 0) {
			free(s->objects[i]->body);
			free(s->objects[i]);
			s->objects[i] = NULL;
			s->removed++;
		}
	}
}

static inline struct tiny_object *tiny_make(
	struct tiny_store *s, const char *key, const void *body, size_t len)
{
	LOCK_SCOPE(&s->lock);

	struct tiny_object *o = tiny_find(s, key);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char *copy;

	if (!o) {
		assert_true(s->n < TINY_OBJECTS);
		o = s->objects[s->n++] = calloc(1, sizeof(*o));
		snprintf(o->key, sizeof(o->key), "%s", key);
	}
	copy = malloc(len + 1);
	memcpy(copy, len ? body : "", len);
	free(o->body); /* `body` may point into the old body */
	o->body = copy;
	o->len = len;
	md5_etag(copy, len, o->etag);
	checksum_of(CHECKSUM_CRC64NVME, copy, len, digest, NULL);
	checksum_format(CHECKSUM_CRC64NVME, digest, o->sum);
	return o;
}

static inline bool tiny_missing(int fd)
{
	return answer_error(fd, "404 Not Found", "NoSuchKey", "");
}

static inline bool tiny_put(struct tiny_store *s, const struct mini_request *r, int fd)
{
	struct tiny_object *o;
	char from[4096], given[64], headers[512];

	if (mini_header(r, "x-amz-copy-source", from, sizeof(from))) {
		char xml[256];

		s->copies++;
		o = tiny_find(s, from);
		if (!o)
			return tiny_missing(fd);
		o = tiny_make(s, r->target, o->body, o->len);
		snprintf(xml, sizeof(xml),
			"<CopyObjectResult><ETag>%s</ETag><LastModified>2026-11-21T09:05:00.000Z"
			"</LastModified></CopyObjectResult>",
			o->etag);
		return mini_reply(
			fd, "200 OK", "Content-Type: application/xml\r\n", xml, strlen(xml));
	}
	s->puts++;
	if (mini_header(r, "if-none-match", given, sizeof(given)) && tiny_find(s, r->target))
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	o = tiny_find(s, r->target);
	if (mini_header(r, "if-match", given, sizeof(given)) && (!o || strcmp(given, o->etag) != 0))
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	o = tiny_make(s, r->target, r->body, r->body_len);
	if (mini_header(r, "x-amz-checksum-crc64nvme", given, sizeof(given)) &&
		strcmp(given, o->sum) != 0)
		return answer_error(fd, "400 Bad Request", "BadDigest", "");
	mini_header(r, "content-type", o->type, sizeof(o->type));
	mini_header(r, "x-amz-meta-mtime", o->mtime, sizeof(o->mtime));
	mini_header(r, "x-amz-meta-mode", o->mode, sizeof(o->mode));
	snprintf(headers, sizeof(headers), "ETag: %s\r\nx-amz-checksum-crc64nvme: %s\r\n", o->etag,
		o->sum);
	return mini_reply(fd, "200 OK", headers, "", 0);
}

static inline bool tiny_get(struct tiny_store *s, const struct mini_request *r, int fd)
{
	const struct tiny_object *o = tiny_find(s, r->target);
	bool head = strcmp(r->method, "HEAD") == 0;
	char given[64];

	if (head)
		s->heads++;
	else
		s->gets++;
	if (!o && head)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (!o)
		return tiny_missing(fd);
	if (mini_header(r, "if-match", given, sizeof(given)) && strcmp(given, o->etag) != 0)
		return mini_reply(fd, "412 Precondition Failed", "", "", 0);
	return mini_printf(fd,
		       "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nETag: %s\r\n"
		       "x-amz-checksum-crc64nvme: %s\r\nContent-Type: %s\r\n"
		       "Last-Modified: Sat, 21 Nov 2026 09:05:00 GMT\r\n%s%s%s%s%s%s\r\n",
		       o->len, o->etag, o->sum, *o->type ? o->type : "application/octet-stream",
		       *o->mtime ? "x-amz-meta-mtime: " : "", o->mtime, *o->mtime ? "\r\n" : "",
		       *o->mode ? "x-amz-meta-mode: " : "", o->mode, *o->mode ? "\r\n" : "") &&
	       (head || mini_write(fd, o->body, o->len));
}

static inline bool tiny_delete(struct tiny_store *s, const struct mini_request *r, int fd)
{
	char path[8192];
	char *query;

	s->deletes++;
	if (strcmp(r->method, "DELETE") == 0) {
		tiny_remove(s, r->target);
		return mini_reply(fd, "204 No Content", "", "", 0);
	}
	r->body[r->body_len] = '\0';
	for (const char *at = r->body; (at = strstr(at, "<Key>")); at++) {
		size_t n = strcspn(at + 5, "<");

		snprintf(path, sizeof(path), "%s", r->target);
		query = strchr(path, '?');
		snprintf(query, sizeof(path) - (size_t)(query - path), "/%.*s", (int)n, at + 5);
		tiny_remove(s, path);
	}
	return mini_reply(fd, "200 OK", "", "<DeleteResult></DeleteResult>", 29);
}

static inline bool tiny_answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct tiny_store *s = m->cookie;
	bool keep = true;
	unsigned now = atomic_fetch_add(&s->now, 1) + 1;
	unsigned peak = atomic_load(&s->peak);

	while (now > peak && !atomic_compare_exchange_weak(&s->peak, &peak, now))
		;
	if (!s->trouble || !s->trouble(s, r, fd, &keep)) {
		LOCK_SCOPE(&s->lock);

		if (strcmp(r->method, "PUT") == 0)
			keep = tiny_put(s, r, fd);
		else if (strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0)
			keep = tiny_get(s, r, fd);
		else
			keep = tiny_delete(s, r, fd);
	}
	atomic_fetch_sub(&s->now, 1);
	return keep;
}

static inline void tiny_start(struct tiny_store *s)
{
	pthread_mutexattr_t kind;

	memset(s, 0, sizeof(*s));
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&s->lock, &kind);
	pthread_mutexattr_destroy(&kind);
	mini_start(&s->server, tiny_answer, s);
}

static inline void tiny_stop(struct tiny_store *s)
{
	mini_stop(&s->server);
	for (size_t i = 0; i < s->n; i++) {
		if (s->objects[i])
			free(s->objects[i]->body);
		free(s->objects[i]);
	}
	pthread_mutex_destroy(&s->lock);
}

static inline size_t tiny_count(struct tiny_store *s)
{
	size_t n = 0;

	LOCK_SCOPE(&s->lock);
	for (size_t i = 0; i < s->n; i++)
		n += s->objects[i] != NULL;
	return n;
}

#endif
