#include "alloc_fail.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * These definitions replace those of libc and of the sanitizers' libraries, for the program and for
 * every library that it loads. Each one calls the next definition, so that a sanitizer still sees
 * each allocation. While dlsym() looks up the next definitions, allocations come from the array
 * `early` and are never freed.
 */
#define EXPORT __attribute__((visibility("default")))

struct range {
	uintptr_t from, to;
};

#define SKIPPED_MAX 64

static struct range skipped[SKIPPED_MAX];
static size_t n_skipped;
static atomic_bool armed, all_after, fired;
static atomic_size_t counted, wanted;
/* The general TLS model would allocate memory at the first use in a thread. */
static __thread unsigned paused __attribute__((tls_model("initial-exec")));

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);
static __thread bool resolving __attribute__((tls_model("initial-exec")));

static _Alignas(16) char early[16384];
static size_t early_used;

static void *early_alloc(size_t size)
{
	void *p = early + early_used;

	size = (size + 15) & ~(size_t)15;
	if (size > sizeof(early) - early_used)
		abort();
	early_used += size;
	return p;
}

static bool resolve(void)
{
	if (next_posix_memalign)
		return true;
	if (resolving)
		return false;
	resolving = true;
	*(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
	*(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
	*(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
	*(void **)&next_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
	*(void **)&next_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
	resolving = false;
	return true;
}

static bool is_skipped(const void *caller)
{
	for (size_t i = 0; i < n_skipped; i++)
		if ((uintptr_t)caller >= skipped[i].from && (uintptr_t)caller < skipped[i].to)
			return true;
	return false;
}

static void trace(size_t n)
{
	void *frames[32];
	char line[64];
	int len;

	paused++;
	len = snprintf(line, sizeof(line), "allocation %zu fails:\n", n);
	if (write(STDERR_FILENO, line, (size_t)len) == len)
		backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
	paused--;
}

/* Returns true if this allocation has to fail. */
static bool fails(const void *caller)
{
	size_t n, at;

	if (!atomic_load_explicit(&armed, memory_order_relaxed) || paused || is_skipped(caller))
		return false;
	n = atomic_fetch_add(&counted, 1) + 1;
	at = atomic_load(&wanted);
	if (n != at && !(n > at && atomic_load(&all_after)))
		return false;
	atomic_store(&fired, true);
	if (getenv("ALLOC_FAIL_TRACE"))
		trace(n);
	errno = ENOMEM;
	return true;
}

#define CALLER __builtin_return_address(0)

EXPORT void *malloc(size_t size)
{
	if (!resolve())
		return early_alloc(size);
	return fails(CALLER) ? NULL : next_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	if (!resolve())
		return early_alloc(n * size);
	return fails(CALLER) ? NULL : next_calloc(n, size);
}

EXPORT void *realloc(void *p, size_t size)
{
	if (!resolve())
		return early_alloc(size);
	return fails(CALLER) ? NULL : next_realloc(p, size);
}

EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return fails(CALLER) || !resolve() ? NULL : next_realloc(p, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	return fails(CALLER) || !resolve() ? NULL : next_aligned_alloc(alignment, size);
}

void *memalign(size_t alignment, size_t size);
EXPORT void *memalign(size_t alignment, size_t size)
{
	return fails(CALLER) || !resolve() ? NULL : next_aligned_alloc(alignment, size);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
	return fails(CALLER) || !resolve() ? ENOMEM : next_posix_memalign(out, alignment, size);
}

/* A sanitizer's strdup() would allocate its memory without calling malloc(). */
static char *copy(const char *s, size_t len, const void *caller)
{
	char *p = fails(caller) || !resolve() ? NULL : next_malloc(len + 1);

	if (p) {
		memcpy(p, s, len);
		p[len] = '\0';
	}
	return p;
}

#undef strdup
EXPORT char *strdup(const char *s)
{
	return copy(s, strlen(s), CALLER);
}

#undef strndup
EXPORT char *strndup(const char *s, size_t len)
{
	return copy(s, strnlen(s, len), CALLER);
}

/* A sanitizer calls this at the start of a thread, and cannot handle a failure. */
EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
	int (*next)(pthread_t, pthread_attr_t *);
	int rc;

	paused++;
	*(void **)&next = dlsym(RTLD_NEXT, "pthread_getattr_np");
	rc = next(thread, attr);
	paused--;
	return rc;
}

static void arm(size_t n, bool all)
{
	atomic_store(&wanted, n);
	atomic_store(&counted, 0);
	atomic_store(&fired, false);
	atomic_store(&all_after, all);
	atomic_store(&armed, true);
}

void alloc_fail_arm(size_t n)
{
	arm(n, false);
}

void alloc_fail_arm_all(size_t n)
{
	arm(n, true);
}

bool alloc_fail_disarm(void)
{
	atomic_store(&armed, false);
	return atomic_load(&fired);
}

size_t alloc_fail_count(void)
{
	return atomic_load(&counted);
}

void alloc_fail_pause(void)
{
	paused++;
}

void alloc_fail_resume(void)
{
	paused--;
}

static int skip_segments(struct dl_phdr_info *info, size_t size, void *prefix)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;

	(void)size;
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return 0;
	for (size_t i = 0; i < info->dlpi_phnum && n_skipped < SKIPPED_MAX; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];

		if (h->p_type == PT_LOAD && (h->p_flags & PF_X))
			skipped[n_skipped++] = (struct range){.from = info->dlpi_addr + h->p_vaddr,
				.to = info->dlpi_addr + h->p_vaddr + h->p_memsz};
	}
	return 0;
}

void alloc_fail_skip_library(const char *prefix)
{
	dl_iterate_phdr(skip_segments, (void *)prefix);
}
