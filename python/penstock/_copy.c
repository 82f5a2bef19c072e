#include "_copy.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define MAX_THREADS 16
#define PAGE	    ((size_t)4096)
/* Number of pages copied in parallel. The processor prefetches within a page only, so copying page
 * after page would mostly wait for memory. */
#define STREAMS 8
/* Copies of this size and larger would not stay in a cache. */
#define LARGE ((size_t)1 << 20)

#ifdef __SSE2__

/* Non-temporal stores: normal stores would first read the destination into a cache, but this thread
 * does not read the copy. */
static void copy_line(char *to, const char *from)
{
	__m128i a = _mm_loadu_si128((const __m128i *)from);
	__m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
	__m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
	__m128i d = _mm_loadu_si128((const __m128i *)(from + 48));

	_mm_stream_si128((__m128i *)to, a);
	_mm_stream_si128((__m128i *)(to + 16), b);
	_mm_stream_si128((__m128i *)(to + 32), c);
	_mm_stream_si128((__m128i *)(to + 48), d);
}

static void copy_large(char *to, const char *from, size_t size)
{
	size_t head = -(uintptr_t)to & 63;

	memcpy(to, from, head);
	to += head, from += head, size -= head;
	for (; size >= STREAMS * PAGE; size -= STREAMS * PAGE) {
		for (size_t at = 0; at < PAGE; at += 64) {
			for (size_t i = 0; i < STREAMS; i++)
				copy_line(to + i * PAGE + at, from + i * PAGE + at);
		}
		to += STREAMS * PAGE, from += STREAMS * PAGE;
	}
	memcpy(to, from, size);
	_mm_sfence(); /* a mutex does not order non-temporal stores */
}

#else

static void copy_large(char *to, const char *from, size_t size)
{
	memcpy(to, from, size);
}

#endif

struct work {
	const struct copy_piece *pieces;
	size_t n;
	atomic_size_t next;
};

static void *work(void *cookie)
{
	struct work *w = cookie;
	size_t i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->n) {
		const struct copy_piece *p = &w->pieces[i];

		if (p->size >= LARGE)
			copy_large(p->to, p->from, p->size);
		else if (p->size)
			memcpy(p->to, p->from, p->size);
	}
	return NULL;
}

void copy_pieces(const struct copy_piece *pieces, size_t n, unsigned threads)
{
	struct work w = {.pieces = pieces, .n = n};
	pthread_t helpers[MAX_THREADS - 1];
	unsigned started = 0;
	sigset_t all, before;

	/* Signals must go to the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	while (started + 1 < threads && started < MAX_THREADS - 1 &&
		pthread_create(&helpers[started], NULL, work, &w) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	work(&w);
	while (started > 0)
		pthread_join(helpers[--started], NULL);
}
