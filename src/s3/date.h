/*
 * Dates as HTTP and S3 write them. Always GMT, always the proleptic Gregorian calendar, never the
 * locale or the time zone of the process. Seconds and nanoseconds count from 1970-01-01T00:00:00Z.
 * Formatters are for years 0000 to 9999 and clamp what lies outside.
 */
#ifndef S3_DATE_H
#define S3_DATE_H

#include <stdbool.h>
#include <stdint.h>

#define DATE_HTTP_SIZE	30 /* "Sun, 06 Nov 1994 08:49:37 GMT" and its NUL */
#define DATE_BASIC_SIZE 17 /* "20130524T000000Z" and its NUL */
#define DATE_ISO_SIZE	25 /* "2009-10-12T17:50:30.000Z" and its NUL */

/* The three formats of RFC 9110: IMF-fixdate, RFC 850 (two-digit year) and asctime(). Strict. */
bool date_parse_http(const char *s, int64_t *seconds);
/* "20130524T000000Z" exactly. */
bool date_parse_basic(const char *s, int64_t *seconds);
/* "2009-10-12T17:50:30[.fraction](Z|+hh:mm|-hh:mm)", or the basic form. */
bool date_parse_iso(const char *s, int64_t *ns);
/* The same of when something ends: beyond what 64 bits reach (2262), as of what never ends, it is INT64_MAX. */
bool date_parse_iso_end(const char *s, int64_t *ns);

void date_format_http(int64_t seconds, char out[static DATE_HTTP_SIZE]);
void date_format_basic(int64_t seconds, char out[static DATE_BASIC_SIZE]);
/* With milliseconds, as S3 writes <LastModified>. */
void date_format_iso(int64_t ns, char out[static DATE_ISO_SIZE]);

#endif
