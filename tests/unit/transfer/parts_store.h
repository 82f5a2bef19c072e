/*
 * An in-memory store with one object and multipart uploads. As in S3, it lists parts, copies ranges
 * under a condition, and compares the checksum of the whole object at the end. The store counts
 * requests, and sends wrong replies if a test requests them.
 *
 *	begin(&f, store_answer);
 *	store.no_copies = true;			// `store` is a variable of this file
 *	...
 *	store_reset();
 */
#ifndef TEST_PARTS_STORE_H
#define TEST_PARTS_STORE_H

#include "objects_fixture.h"

#include "base/cleanup.h"

#include <pthread.h>

#include "s3/range.h"

#define STORE_PARTS   64
#define STORE_UPLOADS 16

struct store_part {
	char *bytes;
	size_t len;
	char etag[35];
	char sum[CHECKSUM_TEXT_SIZE]; /* base64 of its CRC64NVME */
};

struct parts_store {
	struct store_part parts[STORE_UPLOADS][STORE_PARTS];
	bool alive[STORE_UPLOADS];
	unsigned uploads; /* uploads that were begun */
	char *object;
	size_t object_len;
	char object_etag[64];
	char object_sum[CHECKSUM_TEXT_SIZE];
	unsigned generation;
	/* Numbers of requests. */
	unsigned sent_parts, copied_parts, aborts, completes, lists, puts;
	uint64_t sent_bytes, copied_bytes;
	/* Faults of the store. */
	unsigned wrong_etag; /* number of the part that is listed with another ETag */
	bool no_copies; /* replies 501 to UploadPartCopy */
	bool ignores_if_match; /* for copies */
	bool copies_wrongly; /* one byte of each copied part is wrong */
	bool no_sums; /* ignores checksums */
	bool loses_upload; /* before it lists the parts */
	unsigned resent; /* an unknown request has stored this part again */
	bool lists_sums; /* lists checksums of parts */
	unsigned interrupt_at; /* sets `cancel` when this part arrives, and then waits */
	atomic_int *cancel;
};

static struct parts_store store;
static pthread_mutex_t store_lock = PTHREAD_MUTEX_INITIALIZER;

/* Empties the store, even while its server is running. */
static inline void store_reset(void)
{
	pthread_mutex_lock(&store_lock);
	for (unsigned u = 0; u < STORE_UPLOADS; u++)
		for (unsigned i = 0; i < STORE_PARTS; i++)
			free(store.parts[u][i].bytes);
	free(store.object);
	memset(&store, 0, sizeof(store));
	pthread_mutex_unlock(&store_lock);
}

static inline void crc_text(const void *bytes, size_t len, char out[CHECKSUM_TEXT_SIZE])
{
	uint8_t digest[CHECKSUM_MAX_SIZE];

	checksum_of(CHECKSUM_CRC64NVME, bytes, len, digest, NULL);
	checksum_format(CHECKSUM_CRC64NVME, digest, out);
}

static inline unsigned number_behind(const char *target, const char *name)
{
	const char *at = strstr(target, name);

	return at ? (unsigned)strtoul(at + strlen(name), NULL, 10) : 0;
}

static inline bool store_xml(int fd, const struct buf *body)
{
	return mini_reply(
		fd, "200 OK", "Content-Type: application/xml\r\n", buf_str(body), body->len);
}

static inline bool store_list_parts(unsigned u, int fd)
{
	struct buf xml = BUF_INIT(MIB);
	bool r;

	store.lists++;
	if (store.loses_upload || !store.alive[u])
		return answer_error(fd, "404 Not Found", "NoSuchUpload", "");
	buf_add_str(&xml, "<ListPartsResult><IsTruncated>false</IsTruncated>");
	for (unsigned i = 0; i < STORE_PARTS; i++) {
		const struct store_part *p = &store.parts[u][i];

		if (p->bytes)
			buf_printf(&xml,
				"<Part><PartNumber>%u</PartNumber><ETag>%s</ETag><Size>%zu</Size>"
				"<%s>%s</%s></Part>",
				i + 1,
				i + 1 == store.wrong_etag ? "\"0123456789abcdef0123456789abcdef\""
							  : p->etag,
				p->len, store.lists_sums ? "ChecksumCRC64NVME" : "X", p->sum,
				store.lists_sums ? "ChecksumCRC64NVME" : "X");
	}
	buf_add_str(&xml, "</ListPartsResult>");
	r = store_xml(fd, &xml);
	buf_release(&xml);
	return r;
}

static inline void store_keep(struct store_part *p, const char *bytes, size_t len)
{
	free(p->bytes);
	p->bytes = malloc(len + 1);
	memcpy(p->bytes, bytes, len);
	p->len = len;
	md5_etag(bytes, len, p->etag);
	crc_text(bytes, len, p->sum);
}

static inline bool store_copy_part(
	const struct mini_request *r, unsigned u, unsigned number, int fd)
{
	struct store_part *p = &store.parts[u][number - 1];
	struct byte_range range;
	char match[64] = "", text[64] = "", body[512];

	if (store.no_copies)
		return answer_error(fd, "501 Not Implemented", "NotImplemented", "");
	mini_header(r, "x-amz-copy-source-if-match", match, sizeof(match));
	if (!store.object || (!store.ignores_if_match && strcmp(match, store.object_etag) != 0))
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	if (!mini_header(r, "x-amz-copy-source-range", text, sizeof(text)) ||
		!range_parse_copy_source(text, &range) || range.last >= store.object_len)
		return answer_error(fd, "400 Bad Request", "InvalidArgument", "");
	store_keep(p, store.object + range.first, (size_t)byte_range_length(&range));
	if (store.copies_wrongly) {
		p->bytes[p->len / 2] ^= 1;
		md5_etag(p->bytes, p->len, p->etag);
		crc_text(p->bytes, p->len, p->sum);
	}
	store.copied_parts++;
	store.copied_bytes += p->len;
	snprintf(body, sizeof(body),
		"<CopyPartResult><ETag>%s</ETag><LastModified>2026-11-21T09:05:00.000Z</LastModified></CopyPartResult>",
		p->etag);
	return mini_reply(fd, "200 OK", "", body, strlen(body));
}

static inline bool store_put_part(const struct mini_request *r, unsigned u, unsigned number, int fd)
{
	char header[64];

	if (mini_header(r, "x-amz-copy-source-range", header, sizeof(header)))
		return store_copy_part(r, u, number, fd);
	if (number == store.interrupt_at) {
		char more;

		atomic_store(store.cancel, 1);
		while (recv(fd, &more, 1, 0) > 0)
			;
		return false;
	}
	store.sent_parts++;
	store.sent_bytes += r->body_len;
	store_keep(&store.parts[u][number - 1], r->body, r->body_len);
	if (store.resent == number)
		snprintf(store.parts[u][number - 1].etag, sizeof(store.parts[u][0].etag),
			"\"of-the-other-request\"");
	return accept_body(r, fd, !store.no_sums, "");
}

/* Returns true if the request lists the current parts. */
static inline bool store_knows_parts(const struct mini_request *r, unsigned u)
{
	_cleanup_(buf_release) struct buf body = BUF_INIT(MIB);

	buf_add(&body, r->body, r->body_len);
	for (unsigned i = 0; i < STORE_PARTS; i++) {
		char bare[64] = "";

		if (!store.parts[u][i].bytes)
			continue;
		sscanf(store.parts[u][i].etag, "\"%60[^\"]", bare);
		if (!strstr(buf_str(&body), bare))
			return false;
	}
	return true;
}

static inline void store_object(const char *bytes, size_t len)
{
	free(store.object);
	store.object = malloc(len + 1);
	memcpy(store.object, bytes, len);
	store.object_len = len;
	snprintf(store.object_etag, sizeof(store.object_etag), "\"%032x-9\"", ++store.generation);
	crc_text(bytes, len, store.object_sum);
}

static inline bool store_complete(const struct mini_request *r, unsigned u, int fd)
{
	struct buf whole = BUF_INIT(GIB), xml = BUF_INIT(4 * KIB);
	char sum[CHECKSUM_TEXT_SIZE] = "", match[CHECKSUM_TEXT_SIZE] = "";
	bool ok;

	store.completes++;
	if (!store.alive[u])
		return answer_error(fd, "404 Not Found", "NoSuchUpload", "");
	if (mini_header(r, "if-match", match, sizeof(match)) &&
		strcmp(match, store.object_etag) != 0)
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	if (!store_knows_parts(r, u))
		return answer_error(fd, "400 Bad Request", "InvalidPart", "");
	for (unsigned i = 0; i < STORE_PARTS; i++)
		if (store.parts[u][i].bytes)
			buf_add(&whole, store.parts[u][i].bytes, store.parts[u][i].len);
	crc_text(whole.data, whole.len, match);
	if (!store.no_sums && mini_header(r, "x-amz-checksum-crc64nvme", sum, sizeof(sum)) &&
		strcmp(sum, match) != 0) {
		buf_release(&whole);
		return answer_error(fd, "400 Bad Request", "BadDigest", "");
	}
	store_object(whole.data, whole.len);
	buf_release(&whole);
	store.alive[u] = false;
	buf_printf(&xml,
		"<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>",
		store.object_etag);
	ok = store_xml(fd, &xml);
	buf_release(&xml);
	return ok;
}

static inline bool store_begin(int fd)
{
	struct buf xml = BUF_INIT(4 * KIB);
	bool r;

	assert_true(store.uploads < STORE_UPLOADS);
	store.alive[store.uploads] = true;
	buf_printf(&xml,
		"<InitiateMultipartUploadResult><UploadId>upload-%u</UploadId>"
		"</InitiateMultipartUploadResult>",
		store.uploads++);
	r = store_xml(fd, &xml);
	buf_release(&xml);
	return r;
}

static inline bool store_look(const struct mini_request *r, int fd)
{
	char sum[128];

	(void)r;
	if (!store.object)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	snprintf(sum, sizeof(sum), "x-amz-checksum-crc64nvme: %s\r\n", store.object_sum);
	return mini_printf(fd, "HTTP/1.1 200 OK\r\nETag: %s\r\n%sContent-Length: %zu\r\n\r\n",
		store.object_etag, store.no_sums ? "" : sum, store.object_len);
}

static inline bool store_put_object(const struct mini_request *r, int fd)
{
	char headers[256], match[64];

	if (mini_header(r, "if-match", match, sizeof(match)) &&
		strcmp(match, store.object_etag) != 0)
		return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
	store.puts++;
	store.sent_bytes += r->body_len;
	store_object(r->body, r->body_len);
	snprintf(headers, sizeof(headers), "ETag: %s\r\nx-amz-checksum-crc64nvme: %s\r\n",
		store.object_etag, store.object_sum);
	return mini_reply(fd, "200 OK", headers, "", 0);
}

static inline bool store_answer_locked(const struct mini_request *r, int fd)
{
	unsigned u = number_behind(r->target, "uploadId=upload-");
	bool of_upload = strstr(r->target, "uploadId=") != NULL;

	if (strcmp(r->method, "POST") == 0 && !of_upload)
		return store_begin(fd);
	if (strcmp(r->method, "PUT") == 0 && of_upload)
		return store_put_part(r, u, number_behind(r->target, "partNumber="), fd);
	if (strcmp(r->method, "POST") == 0)
		return store_complete(r, u, fd);
	if (strcmp(r->method, "GET") == 0 && of_upload)
		return store_list_parts(u, fd);
	if (strcmp(r->method, "DELETE") == 0 && of_upload) {
		store.aborts++;
		store.alive[u] = false;
		return mini_reply(fd, "204 No Content", "", "", 0);
	}
	if (strcmp(r->method, "PUT") == 0)
		return store_put_object(r, fd);
	return store_look(r, fd);
}

static inline bool store_answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	bool keep;

	(void)m;
	pthread_mutex_lock(&store_lock);
	keep = store_answer_locked(r, fd);
	pthread_mutex_unlock(&store_lock);
	return keep;
}

static inline unsigned store_alive(void)
{
	unsigned n = 0;

	for (unsigned u = 0; u < STORE_UPLOADS; u++)
		n += store.alive[u];
	return n;
}

#endif
