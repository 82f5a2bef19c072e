/* The first include of every cmocka test of src/s3. */
#ifndef SUPPORT_S3_TEST_H
#define SUPPORT_S3_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"

/* Asserts the condition; a failure names the row of the test's table. */
#define assert_row(condition, what)                                                                \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail_msg("%s: %s", #condition, what);                                      \
	} while (0)

#endif
