/* HTTP and ISO 8601 dates: a date that was parsed and formatted parses to the same time. */
#include "fuzz.h"

#include "base/clock.h"
#include "s3/date.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	char http[DATE_HTTP_SIZE], basic[DATE_BASIC_SIZE], iso[DATE_ISO_SIZE];
	int64_t value, back;

	if (date_parse_http(text, &value)) {
		date_format_http(value, http);
		require(strlen(http) == DATE_HTTP_SIZE - 1);
		require(date_parse_http(http, &back));
		/* Only 9999-12-31T23:59:60 is outside the years that can be formatted. */
		require(back == value || value > INT64_C(253402300799));
	}
	if (date_parse_mail(text, &value)) {
		/* A zone may move the date outside the years that can be formatted. */
		date_format_http(value, http);
		require(date_parse_http(http, &back));
	}
	if (date_parse_basic(text, &value)) {
		date_format_basic(value, basic);
		require(date_parse_basic(basic, &back));
		require(back == value || value > INT64_C(253402300799));
	}
	if (date_parse_iso(text, &value)) {
		date_format_iso(value, iso);
		require(date_parse_iso(iso, &back));
		require(back <= value && value - back < NS_PER_MS);
	}
	return 0;
}
