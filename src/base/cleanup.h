/*
 * Scope-bound cleanup. Always declare with an initial value:
 *
 *	_cleanup_free_ char *path = NULL;
 *	_cleanup_close_ int fd = -1;
 *
 * take_pointer() and take_fd() return the value and leave the variable empty, which passes
 * ownership on.
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_freep(void *p)
{
	void **pp = p;

	free(*pp);
	*pp = NULL;
}

static inline void cleanup_closep(const int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

static inline void cleanup_fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void cleanup_closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static inline void cleanup_unlockp(pthread_mutex_t **m)
{
	if (*m)
		pthread_mutex_unlock(*m);
}

#define _cleanup_(fn)	   __attribute__((cleanup(fn)))
#define _cleanup_free_	   _cleanup_(cleanup_freep)
#define _cleanup_close_	   _cleanup_(cleanup_closep)
#define _cleanup_fclose_   _cleanup_(cleanup_fclosep)
#define _cleanup_closedir_ _cleanup_(cleanup_closedirp)

/* Holds `mutex` until the end of the scope. */
#define LOCK_SCOPE(mutex)                                                                          \
	_cleanup_(cleanup_unlockp) pthread_mutex_t *lock_scope_ = (mutex);                         \
	pthread_mutex_lock(lock_scope_)

#define take_pointer(p)                                                                            \
	({                                                                                         \
		__typeof__(p) taken_ = (p);                                                        \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})

static inline int take_fd_from(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}
#define take_fd(fd) take_fd_from(&(fd))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
