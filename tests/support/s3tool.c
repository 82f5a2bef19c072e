/*
 * The S3 client as a command, for tests. Each call runs one operation of transfer/objects.h or
 * tree.h and prints its result as one line of JSON on stdout, or its error on stderr; the exit
 * status is the code of the error. Credentials, region and endpoint have the usual sources.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "transfer/http_fetch.h"
#include "copy/copy.h"
#include "transfer/objects.h"

static struct http_engine *engine;
static struct object_client *s3;
static struct penstock_error err = PENSTOCK_ERROR_INIT;

static const char *option(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static uint64_t number(const char *name)
{
	const char *value = option(name);

	return value ? strtoull(value, NULL, 10) : 0;
}

static void print(json_t *json)
{
	json_dumpf(json, stdout, JSON_COMPACT | JSON_SORT_KEYS);
	putchar('\n');
	json_decref(json);
}

static json_t *info_json(const struct object_info *info)
{
	json_t *json = json_pack("{s:I, s:s, s:I}", "size", (json_int_t)info->size, "etag",
		info->etag, "modified", (json_int_t)(info->modified_ns / NS_PER_S));
	json_t *metadata = json_object();

	if (info->key)
		json_object_set_new(json, "key", json_string(info->key));
	if (info->is_prefix)
		json_object_set_new(json, "prefix", json_true());
	for (size_t i = 0; i < info->metadata.n; i++) {
		char *name = strdup(info->metadata.items[i]);
		char *equals = strchr(name, '=');

		*equals = '\0';
		json_object_set_new(metadata, name, json_string(equals + 1));
		free(name);
	}
	json_object_set_new(json, "metadata", metadata);
	return json;
}

static int print_info(int r, struct object_info *info)
{
	if (r == 0)
		print(info_json(info));
	object_info_release(info);
	return r;
}

static struct object_put_options put_options(struct strlist *metadata)
{
	if (option("METADATA"))
		strlist_add(metadata, option("METADATA"));
	return (struct object_put_options){.if_match = option("IF_MATCH"),
		.if_none_match = option("IF_NONE_MATCH") != NULL,
		.content_type = option("CONTENT_TYPE"),
		.metadata = metadata,
		.part_size = number("PART_SIZE"),
		.parallel = (unsigned)number("PARALLEL"),
		.resume_dir = option("RESUME_DIR")};
}

static int do_put(char **a)
{
	struct strlist metadata = {0};
	struct object_put_options options = put_options(&metadata);
	struct object_info info = {0};
	int fd = open(a[2], O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(&err, errno, "cannot open %s", a[2]);
	r = object_put_file(
		object_at(s3, a[0], a[1]), fd, (uint64_t)st.st_size, &options, &info, &err);
	close(fd);
	strlist_release(&metadata);
	return print_info(r, &info);
}

static int do_put_text(char **a)
{
	struct strlist metadata = {0};
	struct object_put_options options = put_options(&metadata);
	struct object_info info = {0};
	int r = object_put(object_at(s3, a[0], a[1]), a[2], strlen(a[2]), &options, &info, &err);

	strlist_release(&metadata);
	return print_info(r, &info);
}

/* Puts small objects in parallel; the pattern of the keys has two %d for the number. */
struct many {
	char **arguments;
	atomic_int next;
};

static void *put_many_main(void *arg)
{
	struct many *m = arg;
	int n = (int)strtol(m->arguments[2], NULL, 10);

	for (int i = atomic_fetch_add(&m->next, 1); i < n; i = atomic_fetch_add(&m->next, 1)) {
		char key[512];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(key, sizeof(key), m->arguments[1], i, i);
#pragma GCC diagnostic pop
		if (object_put(object_at(s3, m->arguments[0], key), "x", 1, NULL, NULL, NULL) < 0)
			exit(1);
	}
	return NULL;
}

static int do_put_many(char **a)
{
	struct many m = {.arguments = a};
	pthread_t threads[16];

	for (int i = 0; i < 16; i++)
		pthread_create(&threads[i], NULL, put_many_main, &m);
	for (int i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static int do_get(char **a)
{
	struct object_info info = {0};
	struct object_get_options options = {.if_match = option("IF_MATCH"),
		.offset = number("OFFSET"),
		.length = number("LENGTH"),
		.parallel = (unsigned)number("PARALLEL"),
		.resume = option("RESUME") != NULL};

	return print_info(
		object_get_file(object_at(s3, a[0], a[1]), a[2], &options, &info, &err), &info);
}

static int do_cat(char **a)
{
	struct buf out = BUF_INIT(256 * MIB);
	struct object_get_options options = {.if_match = option("IF_MATCH"),
		.offset = number("OFFSET"),
		.length = number("LENGTH")};
	int r = object_get(object_at(s3, a[0], a[1]), &options, &out, NULL, &err);

	if (r == 0 && out.len)
		fwrite(out.data, 1, out.len, stdout);
	buf_release(&out);
	return r;
}

static int do_head(char **a)
{
	struct object_info info = {0};

	return print_info(object_head(object_at(s3, a[0], a[1]), &info, &err), &info);
}

static int print_listed(void *cookie, const struct object_info *info)
{
	(void)cookie;
	print(info_json(info));
	return 0;
}

static int do_list(char **a)
{
	return object_list(
		object_at(s3, a[0], a[1]), option("DELIMITER"), print_listed, NULL, NULL, &err);
}

static int print_upload(void *cookie, const char *key, const char *id, int64_t initiated_ns)
{
	(void)cookie;
	print(json_pack("{s:s, s:s, s:I}", "key", key, "id", id, "initiated",
		(json_int_t)(initiated_ns / NS_PER_S)));
	return 0;
}

static int do_list_uploads(char **a)
{
	return object_list_uploads(object_at(s3, a[0], a[1]), print_upload, NULL, &err);
}

static int do_delete(char **a)
{
	return object_delete(object_at(s3, a[0], a[1]), option("IF_MATCH"), &err);
}

static int add_listed(void *cookie, const struct object_info *info)
{
	return strlist_add(cookie, info->key);
}

static int do_delete_prefix(char **a)
{
	struct strlist keys = {0};
	int r = object_list(object_at(s3, a[0], a[1]), NULL, add_listed, &keys, NULL, &err);

	if (r == 0)
		r = object_delete_many(
			&(struct object_deletion){s3, a[0], &keys, NULL, NULL, NULL}, NULL, &err);
	if (r == 0)
		print(json_pack("{s:I}", "deleted", (json_int_t)keys.n));
	strlist_release(&keys);
	return r;
}

static int do_copy(char **a)
{
	struct object_info info = {0};
	struct object_copy_options options = {.if_match = option("IF_MATCH"),
		.if_none_match = option("IF_NONE_MATCH") != NULL,
		.part_size = number("PART_SIZE")};

	return print_info(object_copy(object_at(s3, a[0], a[1]), object_at(s3, a[2], a[3]),
				  &options, &info, &err),
		&info);
}

static int do_presign(char **a)
{
	struct buf url = BUF_INIT(64 * KIB);
	int r = object_presign(object_at(s3, a[1], a[2]), a[0], 600, &url, &err);

	if (r == 0)
		puts(buf_str(&url));
	buf_release(&url);
	return r;
}

static int do_bucket_create(char **a)
{
	return bucket_create(s3, a[0], &err);
}

static int do_bucket_head(char **a)
{
	return bucket_head(s3, a[0], &err);
}

static int do_probe(char **a)
{
	struct object_conditions honoured = {0};
	int r = object_probe_conditions(object_at(s3, a[0], a[1]), &honoured, &err);

	if (r == 0)
		print(json_pack("{s:b, s:b, s:b}", "put", honoured.put, "complete",
			honoured.complete, "remove", honoured.remove));
	return r;
}

static unsigned fetched, kept;

static void count_fetched(void *cookie, const struct copy_item *item)
{
	(void)cookie;
	(void)item;
	fetched++;
}

static void count_kept(void *cookie, const struct copy_item *item)
{
	(void)cookie;
	(void)item;
	kept++;
}

static int do_tree(char **a)
{
	struct copy_prefix prefix = {
		.bucket = a[0], .prefix = a[1], .dir = a[2], .without_runs = true};
	struct copy copy;
	int r = copy_begin(&copy,
		&(struct copy_options){.engine = engine,
			.from = s3,
			.keep_same = true,
			.stop_at_first_error = true,
			.parallel = (unsigned)number("PARALLEL"),
			.report = {.done = count_fetched, .same = count_kept}},
		&err);

	if (r == 0)
		r = copy_prefix(&copy, &prefix, &err);
	if (r == 0)
		r = copy_finish(&copy, &err);
	copy_end(&copy);
	if (r == 0)
		print(json_pack("{s:I, s:I, s:I, s:I, s:I}", "objects", (json_int_t)prefix.objects,
			"bytes", (json_int_t)prefix.bytes, "fetched", (json_int_t)fetched,
			"skipped", (json_int_t)kept, "directories",
			(json_int_t)prefix.directories));
	return r;
}

static int do_fetch(char **a)
{
	struct http_fetch_result result = {0};
	int r = http_fetch(engine, a[0],
		&(struct http_fetch_options){.directory = a[1],
			.sha256 = option("SHA256"),
			.parallel = (unsigned)number("PARALLEL"),
			.chunk_size = number("CHUNK")},
		&result, &err);

	if (r == 0)
		print(json_pack("{s:s, s:I, s:I, s:b, s:b}", "path", result.path, "size",
			(json_int_t)result.size, "fetched", (json_int_t)result.fetched, "ranges",
			result.ranges, "resumed", result.resumed));
	http_fetch_result_release(&result);
	return r;
}

static const struct {
	const char *name;
	int arguments;
	int (*run)(char **arguments);
	bool plain; /* needs no S3 */
} verbs[] = {
	{"put", 3, do_put, false},
	{"put-text", 3, do_put_text, false},
	{"put-many", 3, do_put_many, false},
	{"get", 3, do_get, false},
	{"cat", 2, do_cat, false},
	{"head", 2, do_head, false},
	{"list", 2, do_list, false},
	{"list-uploads", 2, do_list_uploads, false},
	{"delete", 2, do_delete, false},
	{"delete-prefix", 2, do_delete_prefix, false},
	{"copy", 4, do_copy, false},
	{"presign", 3, do_presign, false},
	{"bucket-create", 1, do_bucket_create, false},
	{"bucket-head", 1, do_bucket_head, false},
	{"probe", 2, do_probe, false},
	{"tree", 3, do_tree, false},
	{"fetch", 2, do_fetch, true},
};

static int run_verb(size_t i, char **arguments)
{
	int r = http_engine_new(&engine, NULL, &err);

	if (r == 0 && !verbs[i].plain)
		r = object_client_open(&s3, engine,
			&(struct store_place){.anonymous = option("ANONYMOUS") != NULL}, &err);
	if (r == 0)
		r = verbs[i].run(arguments);
	if (option("COUNTERS")) {
		struct http_counters c;

		http_engine_counters(engine, &c);
		fprintf(stderr,
			"requests %" PRIu64 " attempts %" PRIu64 " connections %" PRIu64
			" sent %" PRIu64 " received %" PRIu64 "\n",
			c.requests, c.attempts, c.connections, c.bytes_sent, c.bytes_received);
	}
	object_client_free(s3);
	http_engine_free(engine);
	return r;
}

int main(int argc, char **argv)
{
	log_set_level_name(getenv("PENSTOCK_LOG"));
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		int r;

		if (argc < 2 || strcmp(argv[1], verbs[i].name) != 0 ||
			argc != verbs[i].arguments + 2)
			continue;
		r = run_verb(i, argv + 2);
		if (r < 0)
			fprintf(stderr, "%s\n", err.message ? err.message : "out of memory");
		penstock_error_release(&err);
		log_redact_clear();
		return -r;
	}
	fprintf(stderr, "usage: s3tool VERB ARGUMENTS\n");
	return 64;
}
