#include "s3_test.h"

#include <time.h>

#include "base/clock.h"
#include "s3/date.h"

/* The three formats of RFC 9110 give the same time; similar texts are refused. */
static void http_dates_are_read_strictly(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds; /* -1 if invalid */
	} rows[] = {
		{"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
		{"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
		{"Sun Nov  6 08:49:37 1994", 784111777},
		{"Wed Nov 16 08:49:37 1994", 784975777},
		{"Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{"Tue, 29 Feb 2000 23:59:59 GMT", 951868799},
		{"Sat, 31 Dec 2016 23:59:60 GMT", 1483228800},
		{"Friday, 01-Jan-69 00:00:00 GMT", INT64_C(3124224000)},
		{"Thursday, 01-Jan-70 00:00:00 GMT", 0},
		{"", -1},
		{"Sun", -1},
		{"Sun,", -1},
		{"Sunday", -1},
		{"Sun, 06 Nov 1994 08:49:37", -1},
		{"Sun, 06 Nov 1994 08:49:37 UTC", -1},
		{"Sun, 06 Nov 1994 08:49:37 GMT ", -1},
		{"Sun, 6 Nov 1994 08:49:37 GMT", -1},
		{"Sun, 06 nov 1994 08:49:37 GMT", -1},
		{"Sun, 31 Apr 1994 08:49:37 GMT", -1},
		{"Mon, 29 Feb 1900 08:49:37 GMT", -1},
		{"Sun, 06 Nov 1994 24:00:00 GMT", -1},
		{"Sun, 06 Nov 1994 08:60:37 GMT", -1},
		{"Sun, 00 Nov 1994 08:49:37 GMT", -1},
		{"Sun Nov 06 08:49:37 19945", -1},
		{"1994-11-06T08:49:37Z", -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int64_t seconds = -1;

		assert_row(date_parse_http(rows[i].text, &seconds) == (rows[i].seconds >= 0),
			rows[i].text);
		assert_row(seconds == rows[i].seconds, rows[i].text);
	}
}

/* Clients sign requests with a date that has a time zone, unlike the dates of HTTP. */
static void mail_dates_have_a_zone(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds; /* -1 if invalid */
	} rows[] = {
		{"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
		{"Sun, 06 Nov 1994 08:49:37 -0000", 784111777},
		{"Sun, 06 Nov 1994 08:49:37 +0000", 784111777},
		{"Sun, 06 Nov 1994 10:49:37 +0200", 784111777},
		{"Sun, 06 Nov 1994 03:19:37 -0530", 784111777},
		{"Sun, 06 Nov 1994 08:49:37", -1},
		{"Sun, 06 Nov 1994 08:49:37 ", -1},
		{"Sun, 06 Nov 1994 08:49:37 CET", -1},
		{"Sun, 06 Nov 1994 08:49:37 +02:00", -1},
		{"Sun, 06 Nov 1994 08:49:37 +2400", -1},
		{"Sun, 06 Nov 1994 08:49:37 +0060", -1},
		{"Sun, 06 Nov 1994 08:49:37 +00000", -1},
		{"Sun, 32 Nov 1994 08:49:37 +0000", -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int64_t seconds = -1;

		assert_row(date_parse_mail(rows[i].text, &seconds) == (rows[i].seconds >= 0),
			rows[i].text);
		assert_row(seconds == rows[i].seconds, rows[i].text);
	}
}

/* The dates of XML documents, with any fraction and time zone, and the dates of signatures. */
static void iso_dates_are_read_strictly(void **state)
{
	static const struct {
		const char *text;
		int64_t ns; /* -1 if invalid */
	} rows[] = {
		{"2009-10-12T17:50:30.000Z", INT64_C(1255369830) * NS_PER_S},
		{"2009-10-12T17:50:30Z", INT64_C(1255369830) * NS_PER_S},
		{"2009-10-12T17:50:30.5Z", INT64_C(1255369830) * NS_PER_S + 500000000},
		{"2009-10-12T17:50:30.123456789Z", INT64_C(1255369830123456789)},
		{"2009-10-12T17:50:30.1234567891111Z", INT64_C(1255369830123456789)},
		{"2009-10-12T19:50:30+02:00", INT64_C(1255369830) * NS_PER_S},
		{"2009-10-12T12:20:30-05:30", INT64_C(1255369830) * NS_PER_S},
		{"20130524T000000Z", INT64_C(1369353600) * NS_PER_S},
		{"1970-01-01T00:00:00.000000001Z", 1},
		{"", -1},
		{"2009-10-12", -1},
		{"2009-10-12T17:50:30", -1},
		{"2009-10-12T17:50:30.Z", -1},
		{"2009-10-12 17:50:30Z", -1},
		{"2009-13-12T17:50:30Z", -1},
		{"2009-02-29T17:50:30Z", -1},
		{"2009-10-12T17:50:30+24:00", -1},
		{"2009-10-12T17:50:30+0200", -1},
		{"2009-10-12T17:50:30ZZ", -1},
		{"9999-10-12T17:50:30Z", -1},
		{"0001-10-12T17:50:30Z", -1},
		{"20130524T000000", -1},
		{"20130524T250000Z", -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int64_t ns = -1;

		assert_row(date_parse_iso(rows[i].text, &ns) == (rows[i].ns >= 0), rows[i].text);
		assert_row(ns == rows[i].ns, rows[i].text);
	}
}

/* Compares the results with the C library, for one day of every month in six centuries. */
static void formats_agree_with_the_c_library_and_come_back(void **state)
{
	static const int64_t start = INT64_C(-9466848000), end = INT64_C(9466848000);

	(void)state;
	for (int64_t t = start; t < end; t += 86400 * 27 + 4637) {
		char ours[DATE_HTTP_SIZE], theirs[64], basic[DATE_BASIC_SIZE];
		time_t clock = (time_t)t;
		int64_t back;
		struct tm tm;

		gmtime_r(&clock, &tm);
		strftime(theirs, sizeof(theirs), "%a, %d %b %Y %H:%M:%S GMT", &tm);
		date_format_http(t, ours);
		assert_string_equal(ours, theirs);
		assert_true(date_parse_http(ours, &back));
		assert_int_equal(back, t);
		strftime(theirs, sizeof(theirs), "%Y%m%dT%H%M%SZ", &tm);
		date_format_basic(t, basic);
		assert_string_equal(basic, theirs);
		assert_true(date_parse_basic(basic, &back));
		assert_int_equal(back, t);
	}
}

/* Tests milliseconds, also before 1970, and the limits of the calendar. */
static void formats_hold_at_the_edges(void **state)
{
	char iso[DATE_ISO_SIZE], http[DATE_HTTP_SIZE], basic[DATE_BASIC_SIZE];

	(void)state;
	date_format_iso(INT64_C(1255369830) * NS_PER_S + 999999999, iso);
	assert_string_equal(iso, "2009-10-12T17:50:30.999Z");
	date_format_iso(-1, iso);
	assert_string_equal(iso, "1969-12-31T23:59:59.999Z");
	date_format_iso(INT64_MAX, iso);
	assert_string_equal(iso, "2262-04-11T23:47:16.854Z");
	date_format_iso(INT64_MIN, iso);
	assert_string_equal(iso, "1677-09-21T00:12:43.145Z");
	date_format_http(INT64_MAX, http);
	assert_string_equal(http, "Fri, 31 Dec 9999 23:59:59 GMT");
	date_format_basic(INT64_MIN, basic);
	assert_string_equal(basic, "00000101T000000Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(http_dates_are_read_strictly),
		cmocka_unit_test(mail_dates_have_a_zone),
		cmocka_unit_test(iso_dates_are_read_strictly),
		cmocka_unit_test(formats_agree_with_the_c_library_and_come_back),
		cmocka_unit_test(formats_hold_at_the_edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
