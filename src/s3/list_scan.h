/*
 * Lists of objects as stores write them nearly always: plain ASCII elements without attributes. They are read in a
 * fraction of the time that the XML parser needs, which is most of the time of a long listing.
 */
#ifndef S3_LIST_SCAN_H
#define S3_LIST_SCAN_H

#include "s3/messages.h"

enum list_scan {
	LIST_SCAN_DONE,
	LIST_SCAN_NOT, /* it has something else in it: for the XML parser, which also says what is wrong with it */
	LIST_SCAN_NO_MEMORY
};
/*
 * Fills a zeroed `out` but for `version` 1, and leaves names as they are encoded. Unless it is done `out` is to be
 * released. What it reads the parser reads, too, and no differently.
 */
enum list_scan list_scan(const char *xml, size_t len, struct s3_list *out);

#endif
