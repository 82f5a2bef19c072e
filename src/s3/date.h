/*
 * Parses and formats the dates of HTTP and S3, in GMT and the proleptic Gregorian calendar; the
 * locale and the time zone of the process have no effect. Seconds and nanoseconds count from
 * 1970-01-01T00:00:00Z. Formatters support the years 0000 to 9999 and clamp other times.
 */
#ifndef S3_DATE_H
#define S3_DATE_H

#include <stdbool.h>
#include <stdint.h>

#define DATE_HTTP_SIZE	30 /* "Sun, 06 Nov 1994 08:49:37 GMT" and its NUL */
#define DATE_BASIC_SIZE 17 /* "20130524T000000Z" and its NUL */
#define DATE_ISO_SIZE	25 /* "2009-10-12T17:50:30.000Z" and its NUL */

/* Parses the three formats of RFC 9110: IMF-fixdate, RFC 850 (two-digit year) and asctime().
 * Returns false for any other form. */
bool date_parse_http(const char *s, int64_t *seconds);
/* Like date_parse_http(), but also accepts the date of RFC 1123 with a numeric zone: "Fri, 24 May
 * 2013 02:00:00 +0200". */
bool date_parse_mail(const char *s, int64_t *seconds);
/* Parses exactly "20130524T000000Z". */
bool date_parse_basic(const char *s, int64_t *seconds);
/* Parses "2009-10-12T17:50:30[.fraction](Z|+hh:mm|-hh:mm)", or the basic form. Returns false for a
 * date outside the range of 64 bits, from 1677 to 2262. */
bool date_parse_iso(const char *s, int64_t *ns);
/* Like date_parse_iso() for an expiry: a date that 64 bits cannot hold (after 2262) gives
 * INT64_MAX, which means "never". */
bool date_parse_iso_end(const char *s, int64_t *ns);

void date_format_http(int64_t seconds, char out[static DATE_HTTP_SIZE]);
void date_format_basic(int64_t seconds, char out[static DATE_BASIC_SIZE]);
/* Formats a date with milliseconds, as in <LastModified> of S3. */
void date_format_iso(int64_t ns, char out[static DATE_ISO_SIZE]);

#endif
