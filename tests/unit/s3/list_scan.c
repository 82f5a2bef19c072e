/*
 * The fast reader of lists: it reads the lists of common stores, and gives the same result as the
 * XML parser.
 */
#include "s3/message/list_scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"

#define HEAD                                                                                       \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "                           \
	"xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define TAIL "</ListBucketResult>"
#define KEY  "<Contents><Key>a</Key></Contents>"

static enum list_scan scan(const char *xml)
{
	struct s3_list list = {0};
	enum list_scan result = list_scan(xml, strlen(xml), &list);

	s3_list_release(&list);
	return result;
}

static bool same(const char *a, const char *b)
{
	return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

/* Compares the fast reader with the XML parser, by means of an XML comment that makes the fast
 * reader decline the document. */
static void assert_same_as_parser(const char *xml)
{
	_cleanup_(buf_release) struct buf slow = BUF_INIT(LIMIT_XML_BODY);
	struct s3_list a = {0}, b = {0};

	buf_printf(&slow, "%s<!-- -->", xml);
	assert_int_equal(LIST_SCAN_NOT, scan(buf_str(&slow)));
	assert_int_equal(0, s3_list_parse(xml, strlen(xml), &a, NULL));
	assert_int_equal(0, s3_list_parse(slow.data, slow.len, &b, NULL));

	assert_int_equal(b.version, a.version);
	assert_int_equal(b.truncated, a.truncated);
	assert_int_equal(b.n_entries, a.n_entries);
	assert_int_equal(b.n_prefixes, a.n_prefixes);
	assert_true(same(a.next_continuation_token, b.next_continuation_token));
	for (size_t i = 0; i < a.n_entries; i++) {
		assert_true(same(a.entries[i].key, b.entries[i].key));
		assert_true(same(a.entries[i].etag, b.entries[i].etag));
		assert_true(same(a.entries[i].storage_class, b.entries[i].storage_class));
		assert_int_equal(b.entries[i].size, a.entries[i].size);
		assert_true(a.entries[i].modified_ns == b.entries[i].modified_ns);
	}
	for (size_t i = 0; i < a.n_prefixes; i++)
		assert_true(same(a.prefixes[i], b.prefixes[i]));
	s3_list_release(&a);
	s3_list_release(&b);
}

/* Lists as S3, MinIO, Ceph and this store write them. */
static void reads_what_stores_write(void **state)
{
	static const char *const documents[] = {HEAD TAIL, HEAD KEY KEY TAIL,
		HEAD
		"<Name>b</Name><Prefix></Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J==</NextContinuationToken><Contents><Key>a%20b%2Bc+d</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size><Owner><ID>75aa57</ID><DisplayName>me</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>photos%2F</Prefix></CommonPrefixes>" TAIL,
		HEAD
		"\n"
		"  <Name>b</Name>\n"
		"  <Contents>\n"
		"    <Key>x&amp;&lt;y&gt;&apos;</Key>\n"
		"<ETag>&#34;1-2&#34;</ETag><Size>0</Size><ChecksumAlgorithm>CRC32</ChecksumAlgorithm><RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress></RestoreStatus><StorageClass/><Type>Normal</Type></Contents>\n" TAIL
		"\n",
		/* In Google's lists, the generation is used as the ETag. */
		"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult "
		"xmlns=\"http://doc.s3.amazonaws.com/2006-03-01\">"
		"<Contents><Key>g</Key><Generation>1700000000000001</Generation><MetaGeneration>1</"
		"MetaGeneration><ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>1</"
		"Size></Contents>" TAIL,
		"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><Marker></Marker>"
		"<IsTruncated>false</IsTruncated>" KEY TAIL};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(documents); i++) {
		assert_int_equal(LIST_SCAN_DONE, scan(documents[i]));
		assert_same_as_parser(documents[i]);
	}
}

/* Any document that is not in the simple form, valid or not, is left to the parser. */
static void leaves_the_rest_to_the_parser(void **state)
{
	static const char *const documents[] = {"", "<", "x", HEAD, HEAD "<Contents>",
		HEAD KEY "</ListBucketResul>", HEAD KEY TAIL "x", HEAD KEY TAIL TAIL,
		HEAD "<Contents><Key>a</Kex></Contents>" TAIL,
		HEAD "<Contents><Key>a</Contents></Key>" TAIL,
		HEAD "<Contents x=\"1\"><Key>a</Key></Contents>" TAIL, HEAD "<!-- c -->" TAIL,
		HEAD "<![CDATA[x]]>" TAIL, HEAD "<?pi?>" TAIL,
		HEAD "<Contents><Key>a]b</Key></Contents>" TAIL,
		HEAD "<Contents><Key>\xc3\xa4</Key></Contents>" TAIL,
		HEAD "<Contents><Key>a\rb</Key></Contents>" TAIL,
		HEAD "<Contents><Key>a&#10;b</Key></Contents>" TAIL,
		HEAD "<Contents><Key>a&nbsp;b</Key></Contents>" TAIL,
		HEAD "<Contents><Key>a&b</Key></Contents>" TAIL,
		HEAD "<Contents><Key>a<b/>c</Key></Contents>" TAIL,
		HEAD "<Contents>text<Key>a</Key></Contents>" TAIL,
		HEAD "<Contents><Size> 5 </Size></Contents>" TAIL,
		HEAD "<Contents><Size>-1</Size></Contents>" TAIL,
		HEAD "<Contents><LastModified>soon</LastModified></Contents>" TAIL,
		HEAD "<Contents/>" TAIL, HEAD "<CommonPrefixes/>" TAIL,
		HEAD "<CommonPrefixes><Prefix>a</Prefix><Prefix>b</Prefix></CommonPrefixes>" TAIL,
		HEAD "<IsTruncated>perhaps</IsTruncated>" TAIL, HEAD "<s3:Name>b</s3:Name>" TAIL,
		"<Error><Code>NoSuchBucket</Code></Error>",
		"<ListBucketResult xmlns=\"a\" b=\"c\">" TAIL,
		"<ListBucketResult xmlns=\"a&b\">" TAIL, "<!DOCTYPE a><ListBucketResult>" TAIL};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(documents); i++)
		assert_int_equal(LIST_SCAN_NOT, scan(documents[i]));
}

/* A list that is truncated at any byte is left to the parser, and no byte after its end is read. */
static void every_cut_is_left_to_the_parser(void **state)
{
	static const char whole[] = HEAD
		"<Name>b</Name><Contents><Key>a&amp;b</Key><Size>1</Size><Owner><ID>1</ID></Owner>"
		"</Contents><CommonPrefixes><Prefix>p</Prefix></CommonPrefixes>" TAIL;

	(void)state;
	for (size_t len = 0; len < sizeof(whole) - 1; len++) {
		struct s3_list list = {0};
		char *cut = malloc(len + 1); /* exact size, for the sanitizers */

		memcpy(cut, whole, len);
		assert_int_equal(LIST_SCAN_NOT, list_scan(cut, len, &list));
		s3_list_release(&list);
		free(cut);
	}
	assert_int_equal(LIST_SCAN_DONE, scan(whole));
}

/* A page has at most a thousand entries; the fast reader declines a longer one. */
static void a_page_has_a_thousand_entries(void **state)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);

	(void)state;
	buf_add_str(&xml, HEAD);
	for (unsigned i = 0; i < LIMIT_S3_LIST_KEYS; i++)
		buf_add_str(&xml, KEY);
	buf_add_str(&xml, TAIL);
	assert_int_equal(LIST_SCAN_DONE, scan(buf_str(&xml)));
	buf_truncate(&xml, xml.len - strlen(TAIL));
	buf_add_str(&xml, KEY TAIL);
	assert_int_equal(LIST_SCAN_NOT, scan(buf_str(&xml)));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reads_what_stores_write),
	cmocka_unit_test(leaves_the_rest_to_the_parser),
	cmocka_unit_test(every_cut_is_left_to_the_parser),
	cmocka_unit_test(a_page_has_a_thousand_entries),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
