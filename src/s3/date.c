#include "s3/date.h"

#include <stddef.h>
#include <string.h>

#include "base/clock.h"

static const char *const months[] = {
	"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const char *const days[] = {
	"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

/* Formats have the letters of strftime(), %e without a leading zero, and %f for milliseconds. */
#define HTTP_FORMAT  "%a, %d %b %Y %H:%M:%S GMT"
#define BASIC_FORMAT "%Y%m%dT%H%M%SZ"
#define ISO_FORMAT   "%Y-%m-%dT%H:%M:%S"

struct civil {
	int year, month, day; /* month and day from 1 */
	int hour, minute, second, millisecond;
	int weekday; /* 0 for Sunday */
};

/* Returns the days since 1970-01-01. Listings parse a date for each object; timegm() would be too
 * slow for them, because it takes 190 ns and the time zone lock of the C library. Years are counted
 * from March, so that the leap day is the last day of its year. */
static int64_t days_of_civil(int year, int month, int day)
{
	int64_t y = year - (month <= 2);
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 +
	       day_of_year - 719468;
}

/* Replaces gmtime_r(), which takes a process-wide lock: a page of a listing has a thousand
 * dates. */
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

static bool civil_to_seconds(const struct civil *c, int64_t *seconds)
{
	static const int8_t length[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (c->year % 4 == 0 && c->year % 100 != 0) || c->year % 400 == 0;

	if (c->month < 1 || c->month > 12 || c->day < 1 ||
		c->day > length[c->month - 1] + (c->month == 2 && leap) || c->hour > 23 ||
		c->minute > 59 || c->second > 60)
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
	c->weekday = (int)(((day + 4) % 7 + 7) % 7);
	c->hour = (int)(rest / 3600);
	c->minute = (int)(rest / 60 % 60);
	c->second = (int)(rest % 60);
}

/* Maps a letter of a format to its member. The table is for speed, because listings parse a date
 * for each object. */
static const uint8_t members['z'] = {['Y'] = offsetof(struct civil, year),
	['y'] = offsetof(struct civil, year),
	['m'] = offsetof(struct civil, month),
	['d'] = offsetof(struct civil, day),
	['e'] = offsetof(struct civil, day),
	['H'] = offsetof(struct civil, hour),
	['M'] = offsetof(struct civil, minute),
	['S'] = offsetof(struct civil, second),
	['f'] = offsetof(struct civil, millisecond)};

static inline int *number_of(struct civil *c, char letter, int *digits)
{
	*digits = letter == 'Y' ? 4 : letter == 'f' ? 3 : 2;
	return (int *)(void *)((char *)c + members[(unsigned char)letter]);
}

/* Returns the text after the date, or NULL if the beginning of `s` does not match the format. */
static const char *scan(const char *s, const char *format, struct civil *c)
{
	for (; *format; format++) {
		int digits, *out;

		if (*format != '%') {
			if (*s++ != *format)
				return NULL;
			continue;
		}
		if (*++format == 'a' || *format == 'A' || *format == 'b') {
			const char *const *names = *format == 'b' ? months : days;
			int i = *format == 'b' ? 12 : 7;
			size_t n = 3;

			while (i-- > 0) {
				n = *format == 'A' ? strlen(names[i]) : 3;
				if (strncmp(s, names[i], n) == 0)
					break;
			}
			if (i < 0)
				return NULL;
			s += n;
			/* The name of the day is not checked: some senders get it wrong although
			 * the date is right. */
			if (*format == 'b')
				c->month = i + 1;
			continue;
		}
		out = number_of(c, *format, &digits);
		if (*format == 'e' && *s == ' ') {
			digits = 1;
			s++;
		}
		for (*out = 0; digits > 0; digits--, s++) {
			if (*s < '0' || *s > '9')
				return NULL;
			*out = *out * 10 + (*s - '0');
		}
		if (*format == 'y')
			c->year += c->year < 70 ? 2000 : 1900;
	}
	return s;
}

/* Returns true if the format matches all of `s`. */
static bool parse(const char *s, const char *format, int64_t *seconds)
{
	struct civil c = {0};

	s = scan(s, format, &c);
	return s && !*s && civil_to_seconds(&c, seconds);
}

bool date_parse_http(const char *s, int64_t *seconds)
{
	return parse(s, HTTP_FORMAT, seconds) || parse(s, "%A, %d-%b-%y %H:%M:%S GMT", seconds) ||
	       parse(s, "%a %b %e %H:%M:%S %Y", seconds);
}

/* Reads a zone: a sign, then hours and minutes in `format`. Sets `ahead` to the seconds by which
 * the zone is ahead of UTC. Returns the text after the zone, or NULL if there is no valid zone. */
static const char *scan_zone(const char *s, const char *format, int64_t *ahead)
{
	struct civil zone = {0};
	char sign = *s;

	if (sign != '+' && sign != '-')
		return NULL;
	s = scan(s + 1, format, &zone);
	if (!s || zone.hour > 23 || zone.minute > 59)
		return NULL;
	*ahead = (zone.hour * 3600 + zone.minute * 60) * (sign == '-' ? -1 : 1);
	return s;
}

bool date_parse_mail(const char *s, int64_t *seconds)
{
	struct civil c = {0};
	int64_t ahead;

	if (date_parse_http(s, seconds))
		return true;
	s = scan(s, "%a, %d %b %Y %H:%M:%S ", &c);
	s = s ? scan_zone(s, "%H%M", &ahead) : NULL;
	if (!s || *s || !civil_to_seconds(&c, seconds))
		return false;
	*seconds -= ahead;
	return true;
}

bool date_parse_basic(const char *s, int64_t *seconds)
{
	return parse(s, BASIC_FORMAT, seconds);
}

/* Reads ".123…" as nanoseconds; digits after the ninth are dropped. */
static const char *scan_fraction(const char *s, int64_t *ns)
{
	int64_t unit = NS_PER_S / 10;

	if (*s != '.')
		return s;
	if (*++s < '0' || *s > '9')
		return NULL;
	for (; *s >= '0' && *s <= '9'; s++) {
		*ns += unit * (*s - '0');
		unit /= 10;
	}
	return s;
}

static bool parse_iso(const char *text, int64_t *seconds, int64_t *fraction)
{
	struct civil c = {0};
	int64_t ahead = 0;
	const char *s;

	*fraction = 0;
	if (!(s = scan(text, ISO_FORMAT, &c)))
		return date_parse_basic(text, seconds);
	s = scan_fraction(s, fraction);
	if (s)
		s = *s == 'Z' ? s + 1 : scan_zone(s, "%H:%M", &ahead);
	if (!s || *s || !civil_to_seconds(&c, seconds))
		return false;
	*seconds -= ahead;
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

static void put(char *out, const char *format, struct civil *c)
{
	for (; *format; format++) {
		int digits, value;

		if (*format != '%') {
			*out++ = *format;
			continue;
		}
		if (*++format == 'a' || *format == 'b') {
			memcpy(out, *format == 'a' ? days[c->weekday] : months[c->month - 1], 3);
			out += 3;
			continue;
		}
		value = *number_of(c, *format, &digits);
		for (int i = digits - 1; i >= 0; i--, value /= 10)
			out[i] = (char)('0' + value % 10);
		out += digits;
	}
	*out = '\0';
}

void date_format_http(int64_t seconds, char out[static DATE_HTTP_SIZE])
{
	struct civil c;

	civil_of_seconds(seconds, &c);
	put(out, HTTP_FORMAT, &c);
}

void date_format_basic(int64_t seconds, char out[static DATE_BASIC_SIZE])
{
	struct civil c;

	civil_of_seconds(seconds, &c);
	put(out, BASIC_FORMAT, &c);
}

void date_format_iso(int64_t ns, char out[static DATE_ISO_SIZE])
{
	struct civil c;
	int64_t rest = ns % NS_PER_S;

	if (rest < 0)
		rest += NS_PER_S;
	civil_of_seconds(ns / NS_PER_S - (ns % NS_PER_S < 0), &c);
	c.millisecond = (int)(rest / NS_PER_MS);
	put(out, ISO_FORMAT ".%fZ", &c);
}
