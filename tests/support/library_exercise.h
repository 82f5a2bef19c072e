/*
 * Checks for the programs that use all of libpenstock: at the first result that differs from the
 * header's description, a program prints the line of the check and exits.
 *
 *	CHECK(penstock_head(t, url, NULL, &err) == 0);
 *	FAILS(PENSTOCK_E_NOT_FOUND, penstock_head(t, missing, NULL, &err));
 */
#ifndef LIBRARY_EXERCISE_H
#define LIBRARY_EXERCISE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

static struct penstock_error err = PENSTOCK_ERROR_INIT;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s; error: %s\n", __FILE__, __LINE__, #condition,  \
				err.message ? err.message : "none");                               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define FAILS(expected, call)                                                                      \
	do {                                                                                       \
		CHECK((call) == -(int)(expected));                                                 \
		CHECK(err.code == (expected) && err.message && !strchr(err.message, '\n'));        \
		penstock_error_release(&err);                                                      \
	} while (0)

static char *name(const char *bucket, const char *key)
{
	char *url = malloc(strlen(bucket) + strlen(key) + 2);

	sprintf(url, "%s/%s", bucket, key);
	return url;
}

#endif
