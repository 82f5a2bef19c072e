/* Declares the functions of newer.c; the portable build includes this before each source file. */
#ifndef PACKAGE_NEWER_H
#define PACKAGE_NEWER_H

#include <stddef.h>

void arc4random_buf(void *buffer, size_t size);
int close_range(unsigned first, unsigned last, int flags);

/* NULL if there is no such signal. */
const char *sigabbrev_np(int signal);
const char *sigdescr_np(int signal);

#endif
