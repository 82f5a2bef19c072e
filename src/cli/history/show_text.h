/* Prints the object of `penstock show` as text. */
#ifndef CLI_HISTORY_SHOW_TEXT_H
#define CLI_HISTORY_SHOW_TEXT_H

#include <jansson.h>

#include "records/records.h"

/* `host` is the machine of the last attempt; "" if it is this machine. */
void show_print(const json_t *object, const struct records_run *run, const char *host);

#endif
