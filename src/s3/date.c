#include "s3/date.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/banned.h"

static const char months[12][4] = {
	"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char long_days[7][10] = {
	"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

struct civil {
	int year, month, day; /* month and day from 1 */
	int hour, minute, second;
};

/* Days since 1970-01-01. timegm() takes 190 ns and the time zone lock of the C library, and
 * listings parse a date for each object. Years are counted from March, so that the leap day is the
 * last of its year. */
static int64_t days_of_civil(int year, int month, int day)
{
	int64_t y = year - (month <= 2);
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 +
	       day_of_year - 719468;
}

static void civil_of_days(int64_t days_since, struct civil *c)
{
	int64_t z = days_since + 719468;
	int64_t era = (z >= 0 ? z : z - 146096) / 146097;
	int64_t day_of_era = z - era * 146097;
	int64_t year_of_era =
		(day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	int64_t day_of_year = day_of_era -
			      (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64_t shifted = (5 * day_of_year + 2) / 153;

	c->day = (int)(day_of_year - (153 * shifted + 2) / 5 + 1);
	c->month = (int)(shifted < 10 ? shifted + 3 : shifted - 9);
	c->year = (int)(year_of_era + era * 400 + (c->month <= 2));
}

static int days_in_month(int year, int month)
{
	static const int8_t n[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return month == 2 && leap ? 29 : n[month - 1];
}

static bool civil_to_seconds(const struct civil *c, int64_t *seconds)
{
	if (c->month < 1 || c->month > 12 || c->day < 1 ||
		c->day > days_in_month(c->year, c->month) || c->hour > 23 || c->minute > 59 ||
		c->second > 60)
		return false;
	/* A leap second is the first second of the next minute, as in POSIX. */
	*seconds = days_of_civil(c->year, c->month, c->day) * 86400 + c->hour * 3600 +
		   c->minute * 60 + c->second;
	return true;
}

static void civil_of_seconds(int64_t seconds, struct civil *c)
{
	static const int64_t first = INT64_C(-62167219200); /* 0000-01-01 */
	static const int64_t last = INT64_C(253402300799); /* 9999-12-31 */

	if (seconds < first)
		seconds = first;
	if (seconds > last)
		seconds = last;
	int64_t day = seconds / 86400;
	int64_t rest = seconds % 86400;

	if (rest < 0) {
		rest += 86400;
		day--;
	}
	civil_of_days(day, c);
	c->hour = (int)(rest / 3600);
	c->minute = (int)(rest / 60 % 60);
	c->second = (int)(rest % 60);
}

/* A cursor that every step advances, and that stays NULL after the first mismatch. */
static void take_number(const char **at, int digits, int *out)
{
	int value = 0;

	for (int i = 0; i < digits && *at; i++) {
		char c = (*at)[i];

		if (c < '0' || c > '9')
			*at = NULL;
		else
			value = value * 10 + (c - '0');
	}
	if (*at) {
		*at += digits;
		*out = value;
	}
}

static void take_text(const char **at, const char *text)
{
	size_t n = strlen(text);

	if (*at)
		*at = strncmp(*at, text, n) == 0 ? *at + n : NULL;
}

static void take_month(const char **at, int *month)
{
	if (!*at)
		return;
	for (int i = 0; i < 12; i++) {
		if (strncmp(*at, months[i], 3) == 0) {
			*month = i + 1;
			*at += 3;
			return;
		}
	}
	*at = NULL;
}

static bool take_day_name(const char **at, const char *names, size_t stride, int *day)
{
	for (int i = 0; i < 7; i++) {
		const char *name = names + (size_t)i * stride;
		size_t n = strlen(name);

		if (strncmp(*at, name, n) == 0) {
			*at += n;
			*day = i;
			return true;
		}
	}
	return false;
}

static void take_time(const char **at, struct civil *c)
{
	take_number(at, 2, &c->hour);
	take_text(at, ":");
	take_number(at, 2, &c->minute);
	take_text(at, ":");
	take_number(at, 2, &c->second);
}

/* "Sun, 06 Nov 1994 08:49:37 GMT", after the comma. */
static void take_fixdate(const char **at, struct civil *c)
{
	take_text(at, " ");
	take_number(at, 2, &c->day);
	take_text(at, " ");
	take_month(at, &c->month);
	take_text(at, " ");
	take_number(at, 4, &c->year);
	take_text(at, " ");
	take_time(at, c);
	take_text(at, " GMT");
}

/* "Sunday, 06-Nov-94 08:49:37 GMT", after the comma. Two-digit years are 1970 to 2069. */
static void take_rfc850(const char **at, struct civil *c)
{
	take_text(at, " ");
	take_number(at, 2, &c->day);
	take_text(at, "-");
	take_month(at, &c->month);
	take_text(at, "-");
	take_number(at, 2, &c->year);
	take_text(at, " ");
	take_time(at, c);
	take_text(at, " GMT");
	c->year += c->year < 70 ? 2000 : 1900;
}

/* "Sun Nov  6 08:49:37 1994", after the name of the day. */
static void take_asctime(const char **at, struct civil *c)
{
	take_text(at, " ");
	take_month(at, &c->month);
	take_text(at, " ");
	if (*at && **at == ' ') {
		(*at)++;
		take_number(at, 1, &c->day);
	} else {
		take_number(at, 2, &c->day);
	}
	take_text(at, " ");
	take_time(at, c);
	take_text(at, " ");
	take_number(at, 4, &c->year);
}

bool date_parse_http(const char *s, int64_t *seconds)
{
	struct civil c = {0};
	const char *at = s;
	int day = 0;
	int64_t value;

	if (take_day_name(&at, long_days[0], sizeof(long_days[0]), &day) && *at == ',') {
		at++;
		take_rfc850(&at, &c);
	} else {
		at = s;
		if (!take_day_name(&at, days[0], sizeof(days[0]), &day))
			return false;
		if (*at == ',') {
			at++;
			take_fixdate(&at, &c);
		} else {
			take_asctime(&at, &c);
		}
	}
	if (!at || *at != '\0' || !civil_to_seconds(&c, &value))
		return false;
	/* The name of the day is not checked: some senders get it wrong although the date is
	 * right. */
	*seconds = value;
	return true;
}

static void take_basic(const char **at, struct civil *c)
{
	take_number(at, 4, &c->year);
	take_number(at, 2, &c->month);
	take_number(at, 2, &c->day);
	take_text(at, "T");
	take_number(at, 2, &c->hour);
	take_number(at, 2, &c->minute);
	take_number(at, 2, &c->second);
	take_text(at, "Z");
}

bool date_parse_basic(const char *s, int64_t *seconds)
{
	struct civil c = {0};
	const char *at = s;
	int64_t value;

	take_basic(&at, &c);
	if (!at || *at != '\0' || !civil_to_seconds(&c, &value))
		return false;
	*seconds = value;
	return true;
}

/* Reads ".123…" as nanoseconds; digits after the ninth are dropped. */
static void take_fraction(const char **at, int64_t *ns)
{
	int64_t unit = NS_PER_S / 10;

	if (!*at || **at != '.')
		return;
	(*at)++;
	if (**at < '0' || **at > '9') {
		*at = NULL;
		return;
	}
	for (; **at >= '0' && **at <= '9'; (*at)++) {
		*ns += unit * (**at - '0');
		unit /= 10;
	}
}

static void take_zone(const char **at, int64_t *offset)
{
	int hours = 0, minutes = 0;

	if (!*at)
		return;
	char sign = **at;

	if (sign == 'Z') {
		(*at)++;
		return;
	}
	if (sign != '+' && sign != '-') {
		*at = NULL;
		return;
	}
	(*at)++;
	take_number(at, 2, &hours);
	take_text(at, ":");
	take_number(at, 2, &minutes);
	if (*at && (hours > 23 || minutes > 59))
		*at = NULL;
	*offset = (hours * 3600 + minutes * 60) * (sign == '-' ? -1 : 1);
}

static bool parse_iso(const char *s, int64_t *seconds, int64_t *fraction)
{
	struct civil c = {0};
	const char *at = s;
	int64_t offset = 0;

	*fraction = 0;
	if (date_parse_basic(s, seconds))
		return true;
	take_number(&at, 4, &c.year);
	take_text(&at, "-");
	take_number(&at, 2, &c.month);
	take_text(&at, "-");
	take_number(&at, 2, &c.day);
	take_text(&at, "T");
	take_time(&at, &c);
	take_fraction(&at, fraction);
	take_zone(&at, &offset);
	if (!at || *at != '\0' || !civil_to_seconds(&c, seconds))
		return false;
	*seconds -= offset;
	return true;
}

bool date_parse_iso(const char *s, int64_t *ns)
{
	int64_t seconds, fraction;

	/* Nanoseconds in 64 bits reach from 1677 to 2262. */
	if (!parse_iso(s, &seconds, &fraction) || seconds >= INT64_MAX / NS_PER_S ||
		seconds <= INT64_MIN / NS_PER_S)
		return false;
	*ns = seconds * NS_PER_S + fraction;
	return true;
}

bool date_parse_iso_end(const char *s, int64_t *ns)
{
	int64_t seconds, fraction;

	if (!parse_iso(s, &seconds, &fraction) || seconds < INT64_MAX / NS_PER_S)
		return date_parse_iso(s, ns);
	*ns = INT64_MAX;
	return true;
}

static char *put_number(char *out, int value, int digits)
{
	for (int i = digits - 1; i >= 0; i--) {
		out[i] = (char)('0' + value % 10);
		value /= 10;
	}
	return out + digits;
}

static char *put_text(char *out, const char *text)
{
	size_t n = strlen(text);

	memcpy(out, text, n);
	return out + n;
}

static char *put_time(char *out, const struct civil *c)
{
	out = put_number(out, c->hour, 2);
	*out++ = ':';
	out = put_number(out, c->minute, 2);
	*out++ = ':';
	return put_number(out, c->second, 2);
}

void date_format_http(int64_t seconds, char out[static DATE_HTTP_SIZE])
{
	struct civil c;

	civil_of_seconds(seconds, &c);
	int64_t day = days_of_civil(c.year, c.month, c.day);
	int weekday = (int)(((day + 4) % 7 + 7) % 7);

	out = put_text(out, days[weekday]);
	out = put_text(out, ", ");
	out = put_number(out, c.day, 2);
	*out++ = ' ';
	out = put_text(out, months[c.month - 1]);
	*out++ = ' ';
	out = put_number(out, c.year, 4);
	*out++ = ' ';
	out = put_time(out, &c);
	out = put_text(out, " GMT");
	*out = '\0';
}

void date_format_basic(int64_t seconds, char out[static DATE_BASIC_SIZE])
{
	struct civil c;

	civil_of_seconds(seconds, &c);
	out = put_number(out, c.year, 4);
	out = put_number(out, c.month, 2);
	out = put_number(out, c.day, 2);
	*out++ = 'T';
	out = put_number(out, c.hour, 2);
	out = put_number(out, c.minute, 2);
	out = put_number(out, c.second, 2);
	*out++ = 'Z';
	*out = '\0';
}

void date_format_iso(int64_t ns, char out[static DATE_ISO_SIZE])
{
	struct civil c;
	int64_t seconds = ns / NS_PER_S;
	int64_t rest = ns % NS_PER_S;

	if (rest < 0) {
		rest += NS_PER_S;
		seconds--;
	}
	civil_of_seconds(seconds, &c);
	out = put_number(out, c.year, 4);
	*out++ = '-';
	out = put_number(out, c.month, 2);
	*out++ = '-';
	out = put_number(out, c.day, 2);
	*out++ = 'T';
	out = put_time(out, &c);
	*out++ = '.';
	out = put_number(out, (int)(rest / NS_PER_MS), 3);
	*out++ = 'Z';
	*out = '\0';
}
