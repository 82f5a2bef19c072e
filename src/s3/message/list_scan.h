/*
 * Fast scanner for lists of objects in the form in which stores nearly always write them: plain
 * ASCII elements without attributes. The XML parser takes most of the time of a long listing; the
 * scanner takes a fraction of that time.
 */
#ifndef S3_MESSAGE_LIST_SCAN_H
#define S3_MESSAGE_LIST_SCAN_H

#include "s3/message/messages.h"

enum list_scan {
	LIST_SCAN_DONE,
	/* the document contains something else: use the XML parser, which also reports errors */
	LIST_SCAN_NOT,
	LIST_SCAN_NO_MEMORY
};
/*
 * Fills a zeroed `out`, with names still encoded. Unless the result is LIST_SCAN_DONE the caller
 * must release `out`. The XML parser accepts every document that list_scan() accepts, with the same
 * result.
 */
enum list_scan list_scan(const char *xml, size_t len, struct s3_list *out);

#endif
