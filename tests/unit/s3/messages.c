#include "s3_test.h"

#include "s3/message/errors.h"
#include "s3/message/messages.h"
#include "s3/message/xml.h"

#define NS " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

/* Names that need escaping: markup, UTF-8, quotes, a carriage return, percent signs. */
static const char *const odd_names[] = {"plain", "a/b c", "<&>\"'", "\xc3\xbc\xe2\x82\xac",
	"100%25", "a+b", "line\r\nbreak\ttab", " spaces ", "?#[]@!$&'()*+,;="};

/* A written list is read back unchanged, with and without URL encoding. */
static void a_list_comes_back_as_it_was(void **state)
{
	(void)state;
	for (int version = 1; version <= 2; version++) {
		for (int url = 0; url < 2; url++) {
			_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
			struct s3_owner owner = {"id", "name"};
			struct s3_list_entry entries[ARRAY_SIZE(odd_names)];
			const char *prefixes[] = {"a/ /", "\xc3\xbc/"};
			struct s3_list in = {.version = version,
				.bucket = "bucket",
				.prefix = "p +",
				.delimiter = "/",
				.marker = version == 1 ? "m%" : NULL,
				.next_marker = version == 1 ? "n&" : NULL,
				.start_after = version == 2 ? "s&" : NULL,
				.continuation_token = version == 2 ? "c+%==" : NULL,
				.next_continuation_token = version == 2 ? "d+%==" : NULL,
				.url_encoded = url,
				.truncated = true,
				.max_keys = 1000,
				.entries = entries,
				.n_entries = ARRAY_SIZE(entries),
				.prefixes = prefixes,
				.n_prefixes = 2};
			struct s3_list out = {0};

			for (size_t i = 0; i < ARRAY_SIZE(odd_names); i++)
				entries[i] = (struct s3_list_entry){.key = odd_names[i],
					.etag = "\"abc-2\"",
					.size = UINT64_C(5) << 40,
					.modified_ns = INT64_C(1255369830123000000),
					.checksum_algorithm = "CRC64NVME",
					.owner = &owner};
			s3_list_write(&xml, &in);
			assert_false(buf_failed(&xml));
			assert_int_equal(s3_list_parse(xml.data, xml.len, &out, NULL), 0);
			assert_int_equal(out.version, version);
			assert_int_equal(out.url_encoded, url);
			assert_string_equal(out.bucket, "bucket");
			assert_string_equal(out.prefix, "p +");
			assert_string_equal(out.delimiter, "/");
			if (version == 1) {
				assert_string_equal(out.marker, "m%");
				assert_string_equal(out.next_marker, "n&");
			} else {
				assert_string_equal(out.start_after, "s&");
				assert_string_equal(out.continuation_token, "c+%==");
				assert_string_equal(out.next_continuation_token, "d+%==");
			}
			assert_true(out.truncated);
			assert_int_equal(out.n_entries, ARRAY_SIZE(odd_names));
			for (size_t i = 0; i < ARRAY_SIZE(odd_names); i++) {
				assert_string_equal(out.entries[i].key, odd_names[i]);
				assert_string_equal(out.entries[i].etag, "\"abc-2\"");
				assert_int_equal(out.entries[i].size, UINT64_C(5) << 40);
				assert_int_equal(
					out.entries[i].modified_ns, INT64_C(1255369830123000000));
				assert_string_equal(out.entries[i].storage_class, "STANDARD");
			}
			assert_int_equal(out.n_prefixes, 2);
			assert_string_equal(out.prefixes[0], "a/ /");
			assert_string_equal(out.prefixes[1], "\xc3\xbc/");
			s3_list_release(&out);
		}
	}
}

/* Lists of other stores have namespaces, another order, unknown elements, and '+' for a space. */
static void lists_of_other_stores_are_understood(void **state)
{
	static const char xml[] =
		"<?xml version='1.0'?><!-- c --><s3:ListBucketResult xmlns:s3='x' xmlns='y'>"
		"<Contents><Owner><ID>7</ID><Key>no</Key></Owner><Key>a+b%2Bc</Key>"
		"<Size> 12\n</Size><LastModified>whenever</LastModified><More><Key>x</Key></More>"
		"</Contents><Contents><Key><![CDATA[<]]>&#x26;</Key></Contents>"
		"<CommonPrefixes><Prefix>p%2f</Prefix></CommonPrefixes>"
		"<CommonPrefixes><Prefix>q</Prefix><Prefix>r</Prefix></CommonPrefixes>"
		"<IsTruncated>FALSE</IsTruncated><EncodingType>url</EncodingType>"
		"<KeyCount>2</KeyCount></s3:ListBucketResult>\n";
	struct s3_list list = {0};

	(void)state;
	assert_int_equal(s3_list_parse(xml, strlen(xml), &list, NULL), 0);
	assert_int_equal(list.version, 2);
	assert_int_equal(list.n_entries, 2);
	assert_string_equal(list.entries[0].key, "a b+c");
	assert_int_equal(list.entries[0].size, 12);
	assert_int_equal(list.entries[0].modified_ns, 0);
	assert_string_equal(list.entries[1].key, "<&");
	assert_int_equal(list.n_prefixes, 3);
	assert_string_equal(list.prefixes[0], "p/");
	assert_string_equal(list.prefixes[2], "r");
	assert_false(list.truncated);
	s3_list_release(&list);
}

/* A reply that is not the expected document is an error, never an empty list. */
static void what_is_no_list_is_refused(void **state)
{
	static const struct {
		const char *xml;
		int rc;
	} rows[] = {
		{"", -PENSTOCK_E_PROTOCOL},
		{" ", -PENSTOCK_E_PROTOCOL},
		{"<html><body>login</body></html>", -PENSTOCK_E_PROTOCOL},
		{"<Error><Code>AccessDenied</Code></Error>", -PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult>", -PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult></ListBucketResult>x", -PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult><Contents></Contents></ListBucketResult>",
			-PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult><Contents><Key>k</Key><Size>-1</Size></Contents>"
		 "</ListBucketResult>",
			-PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult><Contents><Key>k</Key><Size>1e3</Size></Contents>"
		 "</ListBucketResult>",
			-PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult><IsTruncated>may\nbe</IsTruncated></ListBucketResult>",
			-PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%0</Key>"
		 "</Contents></ListBucketResult>",
			-PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%00</Key>"
		 "</Contents></ListBucketResult>",
			-PENSTOCK_E_PROTOCOL},
		{"<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult/>", -PENSTOCK_E_PROTOCOL},
		{"<!DOCTYPE a SYSTEM \"http://h/\"><ListBucketResult/>", -PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult>&undefined;</ListBucketResult>", -PENSTOCK_E_PROTOCOL},
		{"<ListBucketResult><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></ListBucketResult>",
			-PENSTOCK_E_PROTOCOL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct s3_list list = {0};

		assert_row(
			s3_list_parse(rows[i].xml, strlen(rows[i].xml), &list, &err) == rows[i].rc,
			rows[i].xml);
		assert_null(list.arena.blocks);
		assert_null(strchr(err.message, '\n'));
	}
}

/* A list with more than 1,000 entries is refused, to limit memory. */
static void a_list_is_bounded(void **state)
{
	(void)state;
	for (int n = LIMIT_S3_LIST_KEYS; n <= LIMIT_S3_LIST_KEYS + 1; n++) {
		_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
		struct s3_list list = {0};

		buf_add_str(&xml, "<ListBucketResult>");
		for (int i = 0; i < n; i++)
			buf_printf(&xml, "<Contents><Key>k%d</Key></Contents>", i);
		buf_add_str(&xml, "</ListBucketResult>");
		assert_int_equal(s3_list_parse(xml.data, xml.len, &list, NULL),
			n > LIMIT_S3_LIST_KEYS ? -PENSTOCK_E_PROTOCOL : 0);
		if (n == LIMIT_S3_LIST_KEYS)
			assert_string_equal(list.entries[n - 1].key, "k999");
		s3_list_release(&list);
	}
}

static void a_document_longer_than_the_limit_is_refused(void **state)
{
	_cleanup_free_ char *xml = calloc(1, LIMIT_XML_BODY + 1);
	struct s3_list list = {0};

	(void)state;
	memset(xml, ' ', LIMIT_XML_BODY + 1);
	assert_int_equal(s3_list_parse(xml, LIMIT_XML_BODY + 1, &list, NULL), -PENSTOCK_E_LIMIT);
}

static void uploads_and_parts_come_back_as_they_were(void **state)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct s3_upload upload = {
		.key = "a b", .upload_id = "id+/=", .initiated_ns = 1000000, .owner = {"o", NULL}};
	const char *prefixes[] = {"p/"};
	struct s3_uploads uploads = {.bucket = "b",
		.url_encoded = true,
		.truncated = true,
		.next_key_marker = "k m",
		.next_upload_id_marker = "u",
		.max_uploads = 7,
		.uploads = &upload,
		.n_uploads = 1,
		.prefixes = prefixes,
		.n_prefixes = 1};
	struct s3_uploads uploads_out = {0};
	struct s3_part part = {.number = 10000,
		.etag = "\"e\"",
		.size = 5,
		.modified_ns = 2000000,
		.checksums = {[CHECKSUM_CRC32C] = "4waSgw=="}};
	struct s3_parts parts = {.bucket = "b",
		.key = "k<",
		.upload_id = "u",
		.marker = 1,
		.next_marker = 10000,
		.max_parts = 1,
		.truncated = true,
		.checksum_algorithm = "CRC32C",
		.checksum_type = "COMPOSITE",
		.parts = &part,
		.n = 1,
		.owner = {"o", "n"}};
	struct s3_parts parts_out = {0};

	for (int k = CHECKSUM_CRC32C + 1; k < CHECKSUM_KIND_COUNT_; k++)
		part.checksums[k] = checksum_name((enum checksum_kind)k);
	(void)state;
	s3_uploads_write(&xml, &uploads);
	assert_int_equal(s3_uploads_parse(xml.data, xml.len, &uploads_out, NULL), 0);
	assert_int_equal(uploads_out.n_uploads, 1);
	assert_string_equal(uploads_out.uploads[0].key, "a b");
	assert_string_equal(uploads_out.uploads[0].upload_id, "id+/=");
	assert_int_equal(uploads_out.uploads[0].initiated_ns, 1000000);
	assert_string_equal(uploads_out.next_key_marker, "k m");
	assert_string_equal(uploads_out.prefixes[0], "p/");
	assert_true(uploads_out.truncated);
	s3_uploads_release(&uploads_out);

	buf_clear(&xml);
	s3_parts_write(&xml, &parts);
	assert_int_equal(s3_parts_parse(xml.data, xml.len, &parts_out, NULL), 0);
	assert_string_equal(parts_out.key, "k<");
	assert_int_equal(parts_out.next_marker, 10000);
	assert_string_equal(parts_out.checksum_type, "COMPOSITE");
	assert_int_equal(parts_out.n, 1);
	assert_int_equal(parts_out.parts[0].number, 10000);
	assert_int_equal(parts_out.parts[0].size, 5);
	assert_string_equal(parts_out.parts[0].checksums[CHECKSUM_CRC32C], "4waSgw==");
	assert_null(parts_out.parts[0].checksums[CHECKSUM_CRC32]);
	for (int k = CHECKSUM_CRC32C + 1; k < CHECKSUM_KIND_COUNT_; k++)
		assert_string_equal(
			parts_out.parts[0].checksums[k], checksum_name((enum checksum_kind)k));
	s3_parts_release(&parts_out);
}

/* A delete marker has no content, and names are encoded if the document says so. */
static void versions_and_markers_are_written_and_read(void **state)
{
	struct s3_versions out = {0};
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct s3_version entries[] = {
		{.key = "a b", .version_id = "2", .is_latest = true, .is_marker = true, .size = 7},
		{.key = "a b", .version_id = "1", .etag = "\"e\"", .size = 5}};
	const char *prefixes[] = {"p /"};
	struct s3_versions versions = {.bucket = "b",
		.prefix = "",
		.key_marker = "",
		.version_id_marker = "",
		.url_encoded = true,
		.truncated = true,
		.next_key_marker = "a b",
		.next_version_id_marker = "1",
		.max_keys = 3,
		.owner = {"o", NULL},
		.versions = entries,
		.n_versions = 2,
		.prefixes = prefixes,
		.n_prefixes = 1};

	(void)state;
	s3_versions_write(&xml, &versions);

	assert_non_null(strstr(xml.data, "<EncodingType>url</EncodingType><IsTruncated>true<"));
	assert_non_null(strstr(xml.data, "<NextKeyMarker>a%20b</NextKeyMarker>"
					 "<NextVersionIdMarker>1</NextVersionIdMarker>"));
	assert_non_null(strstr(xml.data,
		"<DeleteMarker><Key>a%20b</Key><VersionId>2</VersionId><IsLatest>true</IsLatest>"
		"<LastModified>1970-01-01T00:00:00.000Z</LastModified><Owner><ID>o</ID></Owner>"
		"</DeleteMarker>"));
	assert_non_null(strstr(xml.data,
		"<Version><Key>a%20b</Key><VersionId>1</VersionId><IsLatest>false</IsLatest>"
		"<LastModified>1970-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
		"<Size>5</Size><StorageClass>STANDARD</StorageClass>"));
	assert_non_null(
		strstr(xml.data, "<CommonPrefixes><Prefix>p%20/</Prefix></CommonPrefixes></ListV"));
	assert_int_equal(s3_versions_parse(xml.data, xml.len, &out, NULL), 0);
	assert_true(out.truncated);
	assert_string_equal(out.next_key_marker, "a b");
	assert_string_equal(out.next_version_id_marker, "1");
	assert_int_equal(out.n_versions, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_string_equal(out.versions[i].key, "a b");
		assert_string_equal(out.versions[i].version_id, entries[i].version_id);
		assert_int_equal(out.versions[i].is_marker, entries[i].is_marker);
		assert_int_equal(out.versions[i].is_latest, entries[i].is_latest);
	}
	assert_int_equal(out.versions[1].size, 5);
	assert_string_equal(out.versions[1].etag, "\"e\"");
	assert_int_equal(out.n_prefixes, 1);
	assert_string_equal(out.prefixes[0], "p /");
	s3_versions_release(&out);
}

static void the_versioning_of_a_foreign_store_is_read(void **state)
{
	static const char *const documents[][2] = {{"<VersioningConfiguration/>", NULL},
		{"<VersioningConfiguration><Status>Enabled</Status><ExcludedPrefixes>"
		 "<Prefix>tmp/</Prefix></ExcludedPrefixes></VersioningConfiguration>",
			"Enabled"},
		{"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>",
			"Suspended"}};
	struct s3_versioning out = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(documents); i++) {
		const char *xml = documents[i][0];

		assert_int_equal(0, s3_versioning_parse_reply(xml, strlen(xml), &out, NULL));
		if (documents[i][1])
			assert_string_equal(documents[i][1], out.status);
		else
			assert_null(out.status);
		s3_versioning_release(&out);
	}
	/* A request with unknown elements in the document is an error. */
	assert_true(s3_versioning_parse(documents[1][0], strlen(documents[1][0]), &out, NULL) < 0);
	assert_true(s3_versioning_parse_reply("<x/>", 4, &out, NULL) < 0);
}

static void the_parts_of_an_object_are_read_from_its_attributes(void **state)
{
	static const char xml[] =
		"<?xml "
		"version=\"1.0\"?><GetObjectAttributesResponse><ETag>abc-2</ETag><ObjectParts><PartsCount>2</PartsCount><NextPartNumberMarker>1</NextPartNumberMarker><IsTruncated>true</IsTruncated><Part><PartNumber>1</PartNumber><Size>5</Size><ChecksumCRC32C>4waSgw==</ChecksumCRC32C></Part></ObjectParts></GetObjectAttributesResponse>";
	struct s3_parts parts = {0};

	(void)state;
	assert_int_equal(s3_object_parts_parse(xml, strlen(xml), &parts, NULL), 0);

	assert_string_equal(parts.etag, "abc-2");
	assert_true(parts.truncated);
	assert_int_equal(parts.next_marker, 1);
	assert_int_equal(parts.n, 1);
	assert_int_equal(parts.parts[0].size, 5);
	assert_string_equal(parts.parts[0].checksums[CHECKSUM_CRC32C], "4waSgw==");
	s3_parts_release(&parts);
}

#define P(n, e) "<Part><PartNumber>" n "</PartNumber><ETag>" e "</ETag></Part>"

static void a_complete_request_is_checked_before_it_is_believed(void **state)
{
	static const struct {
		const char *xml;
		enum s3_error problem;
		size_t n;
	} rows[] = {
		{"<CompleteMultipartUpload" NS ">" P("1", "&quot;a&quot;")
				P("3", "b") "</CompleteMultipartUpload>",
			S3_OK, 2},
		{"<CompleteMultipartUpload>" P("2", "a") P("1", "b") "</CompleteMultipartUpload>",
			S3_E_INVALID_PART_ORDER, 0},
		{"<CompleteMultipartUpload>" P("1", "a") P("1", "b") "</CompleteMultipartUpload>",
			S3_E_INVALID_PART_ORDER, 0},
		{"<CompleteMultipartUpload/>", S3_E_MALFORMED_XML, 0},
		{"<CompleteMultipartUpload>" P("0", "a") "</CompleteMultipartUpload>",
			S3_E_MALFORMED_XML, 0},
		{"<CompleteMultipartUpload>" P("10001", "a") "</CompleteMultipartUpload>",
			S3_E_MALFORMED_XML, 0},
		{"<CompleteMultipartUpload>" P("x", "a") "</CompleteMultipartUpload>",
			S3_E_MALFORMED_XML, 0},
		{"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part>"
		 "</CompleteMultipartUpload>",
			S3_E_MALFORMED_XML, 0},
		{"<CompleteMultipartUpload>" P(
			 "1", "a</ETag><OfTomorrow/><ETag>a") "</CompleteMultipartUpload>",
			S3_E_MALFORMED_XML, 0},
		{"<CompleteMultipartUpload>" P(
			 "1</PartNumber><PartNumber>2", "a") "</CompleteMultipartUpload>",
			S3_E_MALFORMED_XML, 0},
		{"<Delete/>", S3_E_MALFORMED_XML, 0},
		{"", S3_E_MALFORMED_XML, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct s3_complete c = {0};
		int rc = s3_complete_parse(rows[i].xml, strlen(rows[i].xml), &c, NULL);

		assert_row((rc == 0) == (rows[i].problem == S3_OK), rows[i].xml);
		assert_row(c.problem == rows[i].problem && c.n == rows[i].n, rows[i].xml);
		if (rc == 0) {
			_cleanup_(buf_release) struct buf xml = BUF_INIT(10000);
			struct s3_complete back = {0};

			assert_string_equal(c.parts[0].etag, "\"a\"");
			s3_complete_write(&xml, &c);
			assert_int_equal(s3_complete_parse(xml.data, xml.len, &back, NULL), 0);
			assert_int_equal(back.parts[1].number, 3);
			s3_complete_release(&back);
		}
		s3_complete_release(&c);
	}
}

static void a_multi_delete_comes_back_with_every_name(void **state)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct s3_delete_item items[ARRAY_SIZE(odd_names)] = {{0}};
	struct s3_delete in = {.quiet = true, .items = items, .n = ARRAY_SIZE(items)};
	struct s3_delete out = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		items[i].key = odd_names[i];
	items[0].version_id = "null";
	s3_delete_write(&xml, &in);
	assert_int_equal(s3_delete_parse(xml.data, xml.len, &out, NULL), 0);
	assert_true(out.quiet);
	assert_int_equal(out.n, ARRAY_SIZE(items));
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		assert_string_equal(out.items[i].key, odd_names[i]);
	assert_string_equal(out.items[0].version_id, "null");
	assert_null(out.items[1].version_id);
	s3_delete_release(&out);

	static const char *const bad[] = {"<Delete></Delete>", "<Delete><Object/></Delete>",
		"<Delete><Object><Key></Key></Object></Delete>",
		"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
		"<Delete><Object><Key/><Key>b</Key></Object></Delete>",
		"<Delete><Object><Key>a</Key><ETag>b</ETag><ETag>c</ETag></Object></Delete>",
		"<Delete><Quiet>1</Quiet></Delete>"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_row(s3_delete_parse(bad[i], strlen(bad[i]), &out, NULL) < 0, bad[i]);
		assert_int_equal(out.problem, S3_E_MALFORMED_XML);
		s3_delete_release(&out);
	}
}

static void the_result_of_a_multi_delete_tells_both_kinds(void **state)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct s3_delete_outcome outcomes[] = {
		{.key = "a&b"}, {.key = "c", .code = "AccessDenied", .message = "no"}};
	struct s3_delete_result in = {.outcomes = outcomes, .n = 2}, out = {0};

	(void)state;
	s3_delete_result_write(&xml, &in);
	assert_int_equal(s3_delete_result_parse(xml.data, xml.len, &out, NULL), 0);
	assert_int_equal(out.n, 2);
	assert_string_equal(out.outcomes[0].key, "a&b");
	assert_null(out.outcomes[0].code);
	assert_string_equal(out.outcomes[1].code, "AccessDenied");
	s3_delete_result_release(&out);

	/* An error of the whole request has no key. */
	static const char whole[] = "<DeleteResult><Error><Key></Key><Code>SlowDown</Code></Error>"
				    "</DeleteResult>";

	assert_int_equal(s3_delete_result_parse(whole, strlen(whole), &out, NULL), 0);
	assert_string_equal(out.outcomes[0].key, "");
	assert_string_equal(out.outcomes[0].code, "SlowDown");
	s3_delete_result_release(&out);
}

/* Each small reply is read back unchanged, and so is the error document that may replace it in a
 * reply with status 200. */
static void small_replies_come_back_as_they_were(void **state)
{
	(void)state;
	for (int k = 0; k < S3_REPLY_KIND_COUNT_; k++) {
		_cleanup_(buf_release) struct buf xml = BUF_INIT(10000);
		struct s3_reply in = {.kind = (enum s3_reply_kind)k,
			.bucket = "b",
			.key = "k&",
			.upload_id = "u",
			.etag = "\"e\"",
			.location = "http://h/b/k",
			.checksums = {[CHECKSUM_CRC64NVME] = "v"},
			.checksum_type = "FULL_OBJECT",
			.modified_ns = 5000000,
			.code = "SlowDown",
			.message = "later",
			.resource = "/b/k",
			.request_id = "r",
			.region = "eu"};
		struct s3_reply out = {0};

		s3_reply_write(&xml, &in);
		assert_int_equal(s3_reply_parse(xml.data, xml.len, &out, NULL), 0);
		assert_int_equal(out.kind, k);
		switch (out.kind) {
		case S3_REPLY_INITIATE:
			assert_string_equal(out.upload_id, "u");
			break;
		case S3_REPLY_COMPLETE:
			assert_string_equal(out.key, "k&");
			assert_string_equal(out.etag, "\"e\"");
			assert_string_equal(out.checksums[CHECKSUM_CRC64NVME], "v");
			break;
		case S3_REPLY_COPY_OBJECT:
		case S3_REPLY_COPY_PART:
			assert_string_equal(out.etag, "\"e\"");
			assert_int_equal(out.modified_ns, 5000000);
			break;
		case S3_REPLY_LOCATION:
			assert_string_equal(out.location, "http://h/b/k");
			break;
		default:
			assert_string_equal(out.code, "SlowDown");
			assert_string_equal(out.message, "later");
			assert_string_equal(out.bucket, "b");
		}
		s3_reply_release(&out);
	}
	struct s3_reply out = {0};

	assert_true(s3_reply_parse("<html/>", 7, &out, NULL) < 0);
	assert_true(s3_reply_parse("<InitiateMultipartUploadResult/>", 32, &out, NULL) < 0);
	assert_int_equal(s3_reply_parse("<LocationConstraint/>", 21, &out, NULL), 0);
	assert_string_equal(out.location, "");
	s3_reply_release(&out);
}

static void buckets_and_their_configuration_come_back(void **state)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(10000);
	struct s3_bucket bucket = {"b-1", "eu-central-1", 1000000};
	static const char kind[] =
		"<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>";
	static const char tag[] =
		"<CreateBucketConfiguration><Tags><Tag><Key>a</Key><Value>b</Value>"
		"</Tag></Tags></CreateBucketConfiguration>";
	struct s3_create_bucket config = {0};
	struct s3_buckets in = {.owner = {"id", "me"}, .buckets = &bucket, .n = 1}, out = {0};

	(void)state;
	s3_buckets_write(&xml, &in);
	assert_int_equal(s3_buckets_parse(xml.data, xml.len, &out, NULL), 0);
	assert_int_equal(out.n, 1);
	assert_string_equal(out.buckets[0].name, "b-1");
	assert_string_equal(out.owner.id, "id");
	s3_buckets_release(&out);

	buf_clear(&xml);
	s3_create_bucket_write(&xml, "eu-central-1");
	assert_int_equal(s3_create_bucket_parse(xml.data, xml.len, &config, NULL), 0);
	assert_string_equal(config.location, "eu-central-1");
	assert_int_equal(config.n_tags, 0);
	s3_create_bucket_release(&config);
	assert_int_equal(s3_create_bucket_parse("", 0, &config, NULL), 0);
	assert_int_equal(s3_create_bucket_parse(" \n", 2, &config, NULL), 0);
	assert_null(config.location);
	assert_true(s3_create_bucket_parse("rubbish", 7, &config, NULL) < 0);
	assert_int_equal(s3_create_bucket_parse(kind, sizeof(kind) - 1, &config, NULL),
		-PENSTOCK_E_UNSUPPORTED);
	assert_int_equal(s3_create_bucket_parse(tag, sizeof(tag) - 1, &config, NULL), 0);
	assert_int_equal(config.n_tags, 1);
	assert_string_equal(config.tags[0].value, "b");
	s3_create_bucket_release(&config);
}

/* Bytes that XML cannot contain are replaced, so that the document stays valid. */
static void what_xml_cannot_carry_is_replaced(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"a\x01"
		 "b",
			"a&#xFFFD;b"},
		{"\xff", "&#xFFFD;"},
		{"\xc3", "&#xFFFD;"},
		{"\xef\xbf\xbf", "&#xFFFD;&#xFFFD;&#xFFFD;"},
		{"\xef\xbf\xbd", "\xef\xbf\xbd"},
		{"\r\n", "&#xD;\n"},
		{"a<b>&\"", "a&lt;b&gt;&amp;&quot;"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_(buf_release) struct buf b = BUF_INIT(100);

		xml_text(&b, rows[i].in, strlen(rows[i].in));
		assert_string_equal(buf_str(&b), rows[i].out);
	}
}

/* Every error has a code, a message, a plausible status and an error class. */
static void the_error_table_is_consistent(void **state)
{
	(void)state;
	for (int e = S3_OK + 1; e < S3_ERROR_COUNT_; e++) {
		const struct s3_error_info *info = s3_error_info((enum s3_error)e);

		assert_non_null(info->code);
		assert_true(*info->code && *info->message);
		assert_true(info->status >= 301 && info->status <= 507);
		assert_int_not_equal(info->means, PENSTOCK_OK);
		/* Several entries may have the same name, such as AccessDenied; they have the same
		 * status. */
		assert_int_equal(s3_error_info(s3_error_find(info->code))->status, info->status);
	}
	assert_int_equal(s3_error_find("SlowDown"), S3_E_SLOW_DOWN);
	assert_int_equal(s3_error_find("XMinioStorageFull"), S3_E_STORAGE_FULL);
	assert_int_equal(s3_error_find("Whatever"), S3_OK);
	assert_true(s3_error_info(S3_E_SLOW_DOWN)->retryable);
	assert_true(s3_error_info(S3_E_REQUEST_TIMEOUT)->retryable);
	assert_true(s3_error_info(S3_E_INTERNAL_ERROR)->retryable);
	assert_false(s3_error_info(S3_E_ACCESS_DENIED)->retryable);
	assert_int_equal(s3_error_of_status(200), S3_OK);
	assert_int_equal(s3_error_of_status(404), S3_E_NO_SUCH_KEY);
	assert_int_equal(s3_error_of_status(418), S3_E_INVALID_REQUEST);
	assert_int_equal(s3_error_of_status(599), S3_E_INTERNAL_ERROR);
	assert_int_equal(s3_code_of_status(200), PENSTOCK_E_PROTOCOL);
	assert_int_equal(s3_code_of_status(0), PENSTOCK_E_PROTOCOL);
	assert_int_equal(s3_code_of_status(403), PENSTOCK_E_PERMISSION);
	assert_int_equal(s3_code_of_status(410), PENSTOCK_E_NOT_FOUND);
	assert_int_equal(s3_code_of_status(412), PENSTOCK_E_PRECONDITION);
	assert_int_equal(s3_code_of_status(503), PENSTOCK_E_UNAVAILABLE);
	assert_true(s3_status_is_retryable(503));
	assert_false(s3_status_is_retryable(501));
	assert_string_equal(s3_error_info((enum s3_error)9999)->code, "InternalError");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_comes_back_as_it_was),
		cmocka_unit_test(lists_of_other_stores_are_understood),
		cmocka_unit_test(what_is_no_list_is_refused),
		cmocka_unit_test(a_list_is_bounded),
		cmocka_unit_test(a_document_longer_than_the_limit_is_refused),
		cmocka_unit_test(uploads_and_parts_come_back_as_they_were),
		cmocka_unit_test(versions_and_markers_are_written_and_read),
		cmocka_unit_test(the_versioning_of_a_foreign_store_is_read),
		cmocka_unit_test(the_parts_of_an_object_are_read_from_its_attributes),
		cmocka_unit_test(a_complete_request_is_checked_before_it_is_believed),
		cmocka_unit_test(a_multi_delete_comes_back_with_every_name),
		cmocka_unit_test(the_result_of_a_multi_delete_tells_both_kinds),
		cmocka_unit_test(small_replies_come_back_as_they_were),
		cmocka_unit_test(buckets_and_their_configuration_come_back),
		cmocka_unit_test(what_xml_cannot_carry_is_replaced),
		cmocka_unit_test(the_error_table_is_consistent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
