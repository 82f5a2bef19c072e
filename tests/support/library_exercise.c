/*
 * Uses all of <penstock/transfer.h> and <penstock/file.h>, as a program outside of this project
 * would:
 *	library_exercise s3://BUCKET [gs://BUCKET]
 * Exits with 0, or prints the line of the first result that differs from the header's description.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/file.h>
#include <penstock/transfer.h>
#include <penstock/version.h>

#include "library_exercise.h"

static char *big;
enum { BIG = 20 * 1024 * 1024 };

static atomic_llong moved;

static void on_progress(void *cookie, int64_t bytes)
{
	CHECK(cookie == &moved);
	atomic_fetch_add(&moved, bytes);
}

static void memory(struct penstock_transfer *t, const char *bucket)
{
	static const char *const metadata[] = {"epoch=3", "of=ü", NULL};
	struct penstock_call_options o = PENSTOCK_CALL_OPTIONS_INIT;
	struct penstock_object put = PENSTOCK_OBJECT_INIT, got = PENSTOCK_OBJECT_INIT;
	char *url = name(bucket, "a/one?%20"), *empty = name(bucket, "a/empty");
	void *data = NULL;
	size_t size = 0;

	o.metadata = metadata;
	CHECK(penstock_put_memory(t, url, "hello", 5, &o, &put, &err) == 0);
	CHECK(put.size == 5 && put.etag[0] == '"' && !put.key);
	CHECK(penstock_get_memory(t, url, &data, &size, NULL, &got, &err) == 0);
	CHECK(size == 5 && strcmp(data, "hello") == 0 && strcmp(got.etag, put.etag) == 0);
	CHECK(got.metadata && strcmp(got.metadata[0], "epoch=3") == 0 && got.modified_ns > 0);
	penstock_free(data);
	penstock_object_release(&got);
	CHECK(!got.etag && got.struct_size == sizeof(got));

	o = (struct penstock_call_options)PENSTOCK_CALL_OPTIONS_INIT;
	o.offset = 1;
	o.length = 3;
	CHECK(penstock_get_memory(t, url, &data, &size, &o, NULL, &err) == 0);
	CHECK(size == 3 && memcmp(data, "ell", 4) == 0);
	penstock_free(data);
	o = (struct penstock_call_options)PENSTOCK_CALL_OPTIONS_INIT;
	o.max_size = 4;
	FAILS(PENSTOCK_E_LIMIT, penstock_get_memory(t, url, &data, &size, &o, NULL, &err));

	CHECK(penstock_put_memory(t, empty, NULL, 0, NULL, NULL, &err) == 0);
	CHECK(penstock_get_memory(t, empty, &data, &size, NULL, NULL, &err) == 0);
	CHECK(size == 0 && data && *(char *)data == '\0');
	penstock_free(data);

	o = (struct penstock_call_options)PENSTOCK_CALL_OPTIONS_INIT;
	o.if_none_match = true;
	FAILS(PENSTOCK_E_PRECONDITION, penstock_put_memory(t, url, "x", 1, &o, NULL, &err));
	o.if_none_match = false;
	o.if_match = put.etag;
	CHECK(penstock_put_memory(t, url, "next", 4, &o, NULL, &err) == 0);
	FAILS(PENSTOCK_E_PRECONDITION, penstock_put_memory(t, url, "late", 4, &o, NULL, &err));
	FAILS(PENSTOCK_E_PRECONDITION, penstock_delete(t, url, &o, &err));
	CHECK(penstock_delete(t, url, NULL, &err) == 0);
	CHECK(penstock_delete(t, url, NULL, &err) == 0);
	FAILS(PENSTOCK_E_NOT_FOUND, penstock_head(t, url, NULL, &err));
	penstock_object_release(&put);
	free(url);
	free(empty);
}

struct stream {
	size_t at;
	size_t until;
};

static int take(void *cookie, const void *data, size_t size)
{
	struct stream *s = cookie;

	CHECK(s->at + size <= BIG && memcmp(big + s->at, data, size) == 0);
	s->at += size;
	return s->at >= s->until;
}

static void *feed(void *arg)
{
	const int *fd = arg;

	for (size_t at = 0; at < BIG;) {
		ssize_t n = write(*fd, big + at, BIG - at);

		CHECK(n > 0);
		at += (size_t)n;
	}
	close(*fd);
	return NULL;
}

static void streams(struct penstock_transfer *t, const char *bucket)
{
	struct penstock_call_options o = PENSTOCK_CALL_OPTIONS_INIT;
	struct penstock_object object = PENSTOCK_OBJECT_INIT;
	struct stream whole = {0, BIG + 1}, part = {0, 1};
	char *url = name(bucket, "a/big");
	pthread_t feeder;
	int ends[2];

	CHECK(pipe(ends) == 0);
	CHECK(pthread_create(&feeder, NULL, feed, &ends[1]) == 0);
	o.progress = on_progress;
	o.cookie = &moved;
	atomic_store(&moved, 0);
	CHECK(penstock_put_stream(t, url, ends[0], &o, &object, &err) == 0);
	pthread_join(feeder, NULL);
	close(ends[0]);
	CHECK(object.size == BIG && atomic_load(&moved) == BIG);
	CHECK(penstock_get_stream(t, url, take, &whole, NULL, NULL, &err) == 0);
	CHECK(whole.at == BIG);
	FAILS(PENSTOCK_E_CANCELLED, penstock_get_stream(t, url, take, &part, NULL, NULL, &err));
	penstock_object_release(&object);
	free(url);
}

static void files(struct penstock_transfer *t, const char *bucket)
{
	struct penstock_object object = PENSTOCK_OBJECT_INIT;
	char *url = name(bucket, "a/file"), *copy = name(bucket, "b/copy");
	FILE *file = fopen("library-big", "w");

	CHECK(file && fwrite(big, 1, BIG, file) == BIG && fclose(file) == 0);
	CHECK(penstock_put_file(t, url, "library-big", NULL, NULL, &err) == 0);
	CHECK(penstock_copy(t, url, copy, NULL, &object, &err) == 0 && object.size == BIG);
	CHECK(penstock_get_file(t, copy, "library-back", NULL, NULL, &err) == 0);
	CHECK(system("cmp library-big library-back") == 0);
	FAILS(PENSTOCK_E_NOT_FOUND, penstock_put_file(t, url, "no-such-file", NULL, NULL, &err));
	FAILS(PENSTOCK_E_INVALID, penstock_put_file(t, url, ".", NULL, NULL, &err));
	penstock_object_release(&object);
	free(url);
	free(copy);
}

static int on_entry(void *cookie, const struct penstock_object *object)
{
	char *seen = cookie;

	strcat(seen, object->key);
	strcat(seen, object->is_prefix ? "* " : " ");
	return strcmp(object->key, "a/file") == 0;
}

static void lists(struct penstock_transfer *t, const char *bucket)
{
	char seen[200] = "", stopped[200] = "", *root = name(bucket, ""),
	     *below = name(bucket, "a/");

	CHECK(penstock_list(t, root, "/", on_entry, seen, NULL, &err) == 0);
	CHECK(strcmp(seen, "a/* b/* ") == 0);
	CHECK(penstock_list(t, below, NULL, on_entry, stopped, NULL, &err) == 0);
	CHECK(strcmp(stopped, "a/big a/empty a/file ") == 0);
	free(root);
	free(below);
}

struct cancelled {
	struct penstock_cancel *cancel;
	int fd;
};

/* Sends the first bytes of the stream and then cancels the upload, which still waits for more
 * data. */
static void *call_off(void *arg)
{
	const struct cancelled *c = arg;

	CHECK(write(c->fd, "some", 4) == 4);
	penstock_cancel_set(c->cancel);
	return NULL;
}

static void cancelling(struct penstock_transfer *t, const char *bucket)
{
	struct penstock_call_options o = PENSTOCK_CALL_OPTIONS_INIT;
	struct cancelled c = {penstock_cancel_new(), -1};
	char *url = name(bucket, "a/called-off");
	pthread_t thread;
	int ends[2];

	CHECK(c.cancel && pipe(ends) == 0);
	c.fd = ends[1];
	o.cancel = c.cancel;
	CHECK(pthread_create(&thread, NULL, call_off, &c) == 0);
	FAILS(PENSTOCK_E_CANCELLED, penstock_put_stream(t, url, ends[0], &o, NULL, &err));
	pthread_join(thread, NULL);
	FAILS(PENSTOCK_E_CANCELLED, penstock_put_memory(t, url, "x", 1, &o, NULL, &err));
	penstock_cancel_reset(c.cancel);
	FAILS(PENSTOCK_E_NOT_FOUND, penstock_head(t, url, NULL, &err));
	CHECK(penstock_put_memory(t, url, "x", 1, &o, NULL, &err) == 0);
	CHECK(penstock_delete(t, url, NULL, &err) == 0);
	close(ends[0]);
	close(ends[1]);
	penstock_cancel_free(c.cancel);
	free(url);
}

static void *put_many(void *arg)
{
	struct penstock_transfer *t = ((void **)arg)[0];
	const char *bucket = ((void **)arg)[1];
	char key[64];

	for (int i = 0; i < 20; i++) {
		struct penstock_error own = PENSTOCK_ERROR_INIT;
		char *url;

		snprintf(key, sizeof(key), "threads/%lx-%d", (unsigned long)pthread_self(), i);
		url = name(bucket, key);
		if (penstock_put_memory(t, url, key, strlen(key), NULL, NULL, &own) < 0 ||
			penstock_delete(t, url, NULL, &own) < 0) {
			fprintf(stderr, "%s\n", own.message);
			exit(1);
		}
		free(url);
	}
	return NULL;
}

static void threads(struct penstock_transfer *t, const char *bucket)
{
	void *arguments[] = {t, (void *)bucket};
	pthread_t all[8];

	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&all[i], NULL, put_many, arguments) == 0);
	for (int i = 0; i < 8; i++)
		pthread_join(all[i], NULL);
}

/* A program that was compiled with another version passes a shorter or longer struct; a wrong
 * program does not initialise the struct. */
static void ages(struct penstock_transfer *t, const char *bucket)
{
	struct {
		struct penstock_call_options known;
		long unknown;
	} newer = {PENSTOCK_CALL_OPTIONS_INIT, 0};
	struct {
		size_t struct_size;
		char *key;
		uint64_t size;
	} older = {sizeof(older), NULL, 0};
	struct penstock_call_options none = {0};
	char *url = name(bucket, "a/age");

	newer.known.struct_size = sizeof(newer);
	CHECK(penstock_put_memory(t, url, "age", 3, &newer.known, NULL, &err) == 0);
	newer.unknown = 1;
	FAILS(PENSTOCK_E_UNSUPPORTED,
		penstock_put_memory(t, url, "age", 3, &newer.known, NULL, &err));
	FAILS(PENSTOCK_E_INVALID, penstock_put_memory(t, url, "age", 3, &none, NULL, &err));
	CHECK(penstock_head(t, url, (struct penstock_object *)(void *)&older, &err) == 0);
	CHECK(older.size == 3 && older.struct_size == sizeof(older));
	penstock_object_release((struct penstock_object *)(void *)&older);
	CHECK(penstock_delete(t, url, NULL, &err) == 0);
	FAILS(PENSTOCK_E_INVALID, penstock_head(t, "ftp://a/b", NULL, &err));
	FAILS(PENSTOCK_E_INVALID, penstock_head(t, bucket, NULL, &err));
	CHECK(strcmp(penstock_version(), PENSTOCK_VERSION) == 0);
	free(url);
}

static bool stop_at_once(void *cookie)
{
	return ++*(int *)cookie > 0;
}

static void reading(struct penstock_transfer *t, const char *bucket)
{
	struct penstock_file_options o = PENSTOCK_FILE_OPTIONS_INIT;
	struct penstock_file *file = NULL, *same = NULL;
	char *url = name(bucket, "a/read"), *data = malloc(BIG), *version;
	struct penstock_file_range ranges[] = {{5, 100, data}, {BIG - 7, 7, data + 100}};
	size_t got = 0;
	int stops = 0;

	CHECK(penstock_put_memory(t, url, big, BIG, NULL, NULL, &err) == 0);
	CHECK(penstock_file_open(&file, t, url, NULL, &err) == 0);
	CHECK(penstock_file_size(file) == BIG);
	version = strdup(penstock_file_version(file));
	for (size_t at = 0; at < BIG; at += got) {
		CHECK(penstock_file_read(file, at, data + at, 700001, &got, &err) == 0);
		CHECK(got == (BIG - at < 700001 ? BIG - at : 700001));
	}
	CHECK(memcmp(data, big, BIG) == 0);
	CHECK(penstock_file_read(file, BIG, data, 1, &got, &err) == 0 && got == 0);
	CHECK(penstock_file_read_ranges(file, ranges, 2, &err) == 0);
	CHECK(memcmp(data, big + 5, 100) == 0 && memcmp(data + 100, big + BIG - 7, 7) == 0);
	ranges[1].length = 8;
	FAILS(PENSTOCK_E_INVALID, penstock_file_read_ranges(file, ranges, 2, &err));
	o.version = version;
	o.known = true;
	o.size = BIG;
	o.no_ahead = true;
	o.stop = stop_at_once;
	o.cookie = &stops;
	CHECK(penstock_file_open(&same, t, url, &o, &err) == 0 && stops == 0);
	CHECK(penstock_put_memory(t, url, "new", 3, NULL, NULL, &err) == 0);
	FAILS(PENSTOCK_E_CHANGED, penstock_file_read(same, BIG / 2, data, 100, &got, &err));
	o.known = false;
	FAILS(PENSTOCK_E_CHANGED, penstock_file_open(&file, t, url, &o, &err));
	penstock_file_close(file);
	penstock_file_close(same);
	penstock_file_close(NULL);
	CHECK(penstock_delete(t, url, NULL, &err) == 0);
	FAILS(PENSTOCK_E_NOT_FOUND, penstock_file_open(&file, t, url, NULL, &err));
	free(version);
	free(data);
	free(url);
}

static void all(struct penstock_transfer *t, const char *bucket)
{
	CHECK(penstock_make_bucket(t, bucket, &err) == 0);
	CHECK(penstock_make_bucket(t, bucket, &err) == 0);
	memory(t, bucket);
	streams(t, bucket);
	files(t, bucket);
	reading(t, bucket);
	lists(t, bucket);
	cancelling(t, bucket);
	threads(t, bucket);
	ages(t, bucket);
}

int main(int argc, char **argv)
{
	struct penstock_transfer_options options = PENSTOCK_TRANSFER_OPTIONS_INIT;
	struct penstock_transfer *t = NULL;

	big = malloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		big[i] = (char)(i * 2654435761u >> 16);
	options.max_connections = 16;
	CHECK(penstock_transfer_new(&t, &options, &err) == 0);
	for (int i = 1; i < argc; i++)
		all(t, argv[i]);
	if (argc > 2) {
		char *from = name(argv[1], "a/big"), *to = name(argv[2], "from-the-other");
		struct penstock_object object = PENSTOCK_OBJECT_INIT;

		CHECK(penstock_copy(t, from, to, NULL, &object, &err) == 0 && object.size == BIG);
		penstock_object_release(&object);
		free(from);
		free(to);
	}
	penstock_transfer_free(t);
	penstock_transfer_free(NULL);
	free(big);
	return 0;
}
