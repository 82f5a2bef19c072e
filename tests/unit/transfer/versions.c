/* Versions of objects: lists in several pages, and requests that name a version. */
#include "objects_fixture.h"

#include "base/cleanup.h"

#define LARGE	(12 * 1024 * 1024)
#define PART	(5 * MIB)
#define ETAG	"\"0123456789abcdef0123456789abcdef\""
#define NAMED	"versionId=v%201"
#define COPIED	"/b/k?versionId=v%201"
#define LATEST	"<IsLatest>true</IsLatest>"
#define EARLIER "<IsLatest>false</IsLatest>"
#define VERSION(key, id, rest)                                                                     \
	"<Version><Key>" key "</Key><VersionId>" id "</VersionId>" rest                            \
	"<ETag>&quot;e&quot;</ETag><Size>5</Size></Version>"
#define MARKER(key, id, rest)                                                                      \
	"<DeleteMarker><Key>" key "</Key><VersionId>" id "</VersionId>" rest "</DeleteMarker>"
#define PREFIXED(key) "<CommonPrefixes><Prefix>" key "</Prefix></CommonPrefixes>"

/* Targets of the requests, in their order. */
static char asked[16][4096];

static void note(const struct mini_request *r)
{
	if (r->number <= ARRAY_SIZE(asked))
		snprintf(asked[r->number - 1], sizeof(asked[0]), "%s", r->target);
}

/* ---- stores ---- */

/* If f->text is set, the store always replies with the first page. */
static bool lists_two_pages(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char first[] =
		"<ListVersionsResult><IsTruncated>true</IsTruncated>"
		"<NextKeyMarker>b</NextKeyMarker><NextVersionIdMarker>8</NextVersionIdMarker>" VERSION(
			"a", "3", LATEST) VERSION("a", "2", EARLIER) MARKER("b", "9", LATEST)
			VERSION("b", "8", EARLIER) PREFIXED("a/") "</ListVersionsResult>";
	static const char rest[] = "<ListVersionsResult><IsTruncated>false</IsTruncated>" VERSION(
		"b", "7", EARLIER) VERSION("c", "1", LATEST) PREFIXED("d/") "</ListVersionsResult>";
	const struct fixture *f = m->cookie;
	const char *page = f->text || !strstr(r->target, "key-marker=b") ? first : rest;

	note(r);
	return mini_reply(fd, "200 OK", "", page, strlen(page));
}

/* A store with one version of 12 MiB. f->puts is the number of copies that name the version. */
static bool has_a_version(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char initiated[] = "<InitiateMultipartUploadResult><UploadId>id</UploadId>"
					"</InitiateMultipartUploadResult>";
	static const char completed[] =
		"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
	static const char copied[] = "<CopyObjectResult><ETag>x</ETag></CopyObjectResult>";
	static const char part[] = "<CopyPartResult><ETag>x</ETag></CopyPartResult>";
	struct fixture *f = m->cookie;
	char source[256];

	note(r);
	if (mini_header(r, "x-amz-copy-source", source, sizeof(source)) &&
		strcmp(source, COPIED) == 0)
		f->puts++;
	if (is(r, "PUT", "partNumber="))
		return mini_reply(fd, "200 OK", "", part, strlen(part));
	if (strcmp(r->method, "PUT") == 0)
		return mini_reply(fd, "200 OK", "", copied, strlen(copied));
	if (is(r, "POST", "?uploads"))
		return mini_reply(fd, "200 OK", "", initiated, strlen(initiated));
	if (strcmp(r->method, "POST") == 0)
		return mini_reply(fd, "200 OK", "", completed, strlen(completed));
	if (is(r, "GET", "tagging"))
		return mini_reply(fd, "200 OK", "", "<Tagging><TagSet/></Tagging>", 28);
	if (strcmp(r->method, "DELETE") == 0)
		return mini_reply(fd, "204 No Content", "", "", 0);
	return mini_printf(
		fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: " ETAG "\r\n\r\n", LARGE);
}

static bool has_a_delete_marker(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	return strcmp(r->method, "DELETE") == 0
		       ? answer_error(fd, "403 Forbidden", "AccessDenied", "")
		       : mini_reply(fd, "405 Method Not Allowed", "", "", 0);
}

static bool has_versioning(struct mini_http *m, const struct mini_request *r, int fd)
{
	const struct fixture *f = m->cookie;

	note(r);
	return mini_reply(fd, "200 OK", "", f->text, strlen(f->text));
}

/* ---- the list ---- */

struct listed {
	char text[256]; /* "a@3 b@9- c/ ": a version of a, a marker of b, a prefix */
	size_t stop; /* number of entries after which the list stops */
	size_t n;
};

static int on_version(void *cookie, const struct object_version *v)
{
	struct listed *listed = cookie;
	size_t len = strlen(listed->text);

	snprintf(listed->text + len, sizeof(listed->text) - len, "%s%s%s%s ", v->key,
		v->is_prefix ? "" : "@", v->is_prefix ? "" : v->id, v->marker ? "-" : "");
	return ++listed->n == listed->stop;
}

static void assert_listed(
	struct fixture *f, const struct object_versions_options *options, const char *expected)
{
	struct listed listed = {.text = ""};

	f->server.requests = 0;
	assert_int_equal(0, object_list_versions(object_at(f->s3, "b", "p"), options, on_version,
				    &listed, &f->err));
	assert_string_equal(expected, listed.text);
}

static void versions_and_prefixes_are_listed_in_the_order_of_their_names(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, lists_two_pages);
	assert_listed(&f, &(struct object_versions_options){.delimiter = "/"},
		"a@3 a@2 a/ b@9- b@8 b@7 c@1 d/ ");

	assert_non_null(strstr(asked[0], "&prefix=p&delimiter=%2F"));
	assert_non_null(strstr(asked[1], "&key-marker=b&version-id-marker=8"));
	end(&f);
}

/* If a key has a million versions, the rest of them is skipped by the key's name. */
static void only_the_newest_version_of_each_key_is_listed_and_read(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, lists_two_pages);
	assert_listed(&f, &(struct object_versions_options){.newest = true}, "a@3 a/ b@9- c@1 d/ ");

	assert_non_null(strstr(asked[1], "key-marker=b"));
	assert_null(strstr(asked[1], "version-id-marker"));
	assert_null(strstr(asked[0], "delimiter"));
	end(&f);
}

/* A store may begin with the marker's key itself. */
static void a_list_begins_after_a_key_or_a_version(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, lists_two_pages);
	assert_listed(&f, &(struct object_versions_options){.newest = true, .after = "a/"},
		"b@9- c@1 d/ ");
	assert_non_null(strstr(asked[0], "key-marker=a%2F"));

	assert_listed(&f, &(struct object_versions_options){.after = "a", .after_version = "4 5"},
		"a@3 a@2 a/ b@9- b@8 b@7 c@1 d/ ");
	assert_non_null(strstr(asked[0], "key-marker=a&version-id-marker=4%205"));
	end(&f);
}

static void a_list_of_versions_stops_and_does_not_go_in_circles(void **state)
{
	struct listed listed = {.stop = 3};
	struct fixture f;

	(void)state;
	begin(&f, lists_two_pages);
	assert_int_equal(
		0, object_list_versions(object_at(f.s3, "b", NULL),
			   &(struct object_versions_options){0}, on_version, &listed, &f.err));
	assert_string_equal("a@3 a@2 a/ ", listed.text);
	assert_int_equal(1, f.server.requests);

	listed.stop = 0;
	f.text = "always the same";
	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
		object_list_versions(object_at(f.s3, "b", NULL),
			&(struct object_versions_options){0}, on_version, &listed, &f.err));
	assert_int_equal(3, f.server.requests);

	/* A store that begins with the key of the marker, and thus never continues. */
	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
		object_list_versions(object_at(f.s3, "b", NULL),
			&(struct object_versions_options){.newest = true}, on_version, &listed,
			&f.err));
	assert_null(strstr(asked[4], "version-id-marker"));
	assert_non_null(strstr(asked[5], "key-marker=b&version-id-marker=8"));
	assert_int_equal(6, f.server.requests);
	end(&f);
}

/* ---- one version ---- */

static void requests_name_the_version(void **state)
{
	_cleanup_(strlist_release) struct strlist tags = {0};
	struct fixture f;
	struct object_ref at;

	(void)state;
	begin(&f, has_a_version);
	at = object_at(f.s3, "b", "k");
	at.version = "v 1";
	assert_int_equal(0, object_head(at, &f.info, &f.err));
	assert_int_equal(0, object_tags(at, &tags, &f.err));
	assert_int_equal(0, object_delete(at, NULL, &f.err));

	assert_int_equal(LARGE, f.info.size);
	assert_string_equal("/b/k?" NAMED, asked[0]);
	assert_string_equal("/b/k?" NAMED "&tagging", asked[1]);
	assert_string_equal("/b/k?" NAMED, asked[2]);
	end(&f);
}

static void a_version_is_copied_in_one_request_or_in_parts(void **state)
{
	struct fixture f;
	struct object_ref from, to;

	(void)state;
	begin(&f, has_a_version);
	from = to = object_at(f.s3, "b", "k");
	from.version = "v 1";
	assert_int_equal(0, object_copy(from, to, NULL, NULL, &f.err));
	assert_string_equal("/b/k?" NAMED, asked[0]);
	assert_string_equal("/b/k", asked[1]);
	assert_int_equal(1, f.puts);

	assert_int_equal(0, object_copy(from, to, &(struct object_copy_options){.part_size = PART},
				    NULL, &f.err));
	assert_int_equal(1 + 3, f.puts);
	end(&f);
}

static void a_delete_marker_has_no_contents_and_a_lock_is_reported(void **state)
{
	struct fixture f;
	struct object_ref at;

	(void)state;
	begin(&f, has_a_delete_marker);
	at = object_at(f.s3, "b", "k");
	at.version = "v";
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, object_head(at, NULL, &f.err));
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, object_copy(at, at, NULL, NULL, &f.err));
	assert_int_equal(-(int)PENSTOCK_E_PERMISSION, object_delete(at, NULL, &f.err));
	assert_non_null(strstr(f.err.message, "AccessDenied: said so"));
	end(&f);
}

/* ---- buckets, Google ---- */

static void the_versioning_of_a_bucket_is_read(void **state)
{
	static const struct {
		const char *document;
		enum bucket_versioning is;
	} cases[] = {{"<VersioningConfiguration/>", BUCKET_UNVERSIONED},
		{"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
			BUCKET_VERSIONED},
		{"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>",
			BUCKET_SUSPENDED}};
	enum bucket_versioning is;
	struct fixture f;

	(void)state;
	begin(&f, has_versioning);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		f.text = cases[i].document;
		assert_int_equal(0, bucket_versioning(f.s3, "b", &is, &f.err));
		assert_int_equal(cases[i].is, is);
	}
	assert_string_equal("/b?versioning", asked[0]);
	end(&f);
}

static void google_gets_no_request_for_a_version(void **state)
{
	struct object_client *google = NULL;
	struct listed listed = {.text = ""};
	enum bucket_versioning is;
	struct object_ref at;
	struct fixture f;
	char url[MINI_URL_SIZE];

	(void)state;
	begin(&f, has_versioning);
	mini_url(&f.server, "", url);
	assert_int_equal(0, object_client_open(&google, f.engine,
				    &(struct store_place){.endpoint_url = url,
					    .google = true,
					    .access_key_id = "AKIDEXAMPLE",
					    .secret_access_key = "very/secret"},
				    &f.err));
	at = object_at(google, "b", "k");
	at.version = "1";
	assert_int_equal(-(int)PENSTOCK_E_UNSUPPORTED, object_head(at, NULL, &f.err));
	assert_int_equal(-(int)PENSTOCK_E_UNSUPPORTED, object_delete(at, NULL, &f.err));
	assert_int_equal(-(int)PENSTOCK_E_UNSUPPORTED, bucket_versioning(google, "b", &is, &f.err));
	assert_int_equal(-(int)PENSTOCK_E_UNSUPPORTED,
		object_list_versions(
			at, &(struct object_versions_options){0}, on_version, &listed, &f.err));
	assert_int_equal(0, f.server.requests);
	object_client_free(google);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions_and_prefixes_are_listed_in_the_order_of_their_names),
		cmocka_unit_test(only_the_newest_version_of_each_key_is_listed_and_read),
		cmocka_unit_test(a_list_begins_after_a_key_or_a_version),
		cmocka_unit_test(a_list_of_versions_stops_and_does_not_go_in_circles),
		cmocka_unit_test(requests_name_the_version),
		cmocka_unit_test(a_version_is_copied_in_one_request_or_in_parts),
		cmocka_unit_test(a_delete_marker_has_no_contents_and_a_lock_is_reported),
		cmocka_unit_test(the_versioning_of_a_bucket_is_read),
		cmocka_unit_test(google_gets_no_request_for_a_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
