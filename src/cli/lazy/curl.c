/* libcurl, loaded when the first request is made. */
#include <curl/curl.h>
#include <stdarg.h>

#define LAZY_SECTION lazy_curl
#include "cli/lazy/library.h"

/* The header defines macros with the names of these functions; the macros check types. */
#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

LAZY_LIBRARY(LAZY_CURL)

LAZY_END(curl_easy_cleanup, CURL)
LAZY(CURL *, curl_easy_init, (void), ())
LAZY(CURLcode, curl_easy_pause, (CURL * a, int b), (a, b))
LAZY_FIRST(const char *, curl_easy_strerror, (CURLcode a), (a), "libcurl cannot be loaded")
LAZY_END(curl_free, void)
LAZY_FIRST(CURLcode, curl_global_init, (long a), (a), CURLE_FAILED_INIT)
LAZY(CURLMcode, curl_multi_add_handle, (CURLM * a, CURL *b), (a, b))
LAZY_CLOSE(CURLMcode, curl_multi_cleanup, CURLM)
LAZY(CURLMsg *, curl_multi_info_read, (CURLM * a, int *b), (a, b))
LAZY(CURLM *, curl_multi_init, (void), ())
LAZY(CURLMcode, curl_multi_perform, (CURLM * a, int *b), (a, b))
LAZY(CURLMcode, curl_multi_poll, (CURLM * a, struct curl_waitfd *b, unsigned int c, int d, int *e),
	(a, b, c, d, e))
LAZY(CURLMcode, curl_multi_remove_handle, (CURLM * a, CURL *b), (a, b))
LAZY(const char *, curl_multi_strerror, (CURLMcode a), (a))
LAZY(CURLMcode, curl_multi_wakeup, (CURLM * a), (a))
LAZY_FIRST(CURLU *, curl_url, (void), (), NULL)
LAZY_END(curl_url_cleanup, CURLU)
LAZY(CURLUcode, curl_url_get, (CURLU * a, CURLUPart b, char **c, unsigned int d), (a, b, c, d))
LAZY(CURLUcode, curl_url_set, (CURLU * a, CURLUPart b, const char *c, unsigned int d), (a, b, c, d))

/* Callers read the version without a check for NULL. */
LAZY_FUNCTION(curl_version_info)
curl_version_info_data *curl_version_info(CURLversion a)
{
	static curl_version_info_data none = {.version = "which cannot be loaded"};

	return LOADED ? REAL(curl_version_info)(a) : &none;
}

/* The variable argument is a pointer, a long or a curl_off_t. All three types are passed in the
 * same way, because they have the same size. */
_Static_assert(sizeof(void *) == sizeof(long) && sizeof(void *) == sizeof(curl_off_t),
	"the arguments of libcurl's options differ in size");
#define LAZY_OPTION(result, f, handle, option)                                                     \
	LAZY_FUNCTION(f)                                                                           \
	result f(handle *a, option b, ...)                                                         \
	{                                                                                          \
		va_list ap;                                                                        \
		void *value;                                                                       \
                                                                                                   \
		va_start(ap, b);                                                                   \
		value = va_arg(ap, void *);                                                        \
		va_end(ap);                                                                        \
		return REAL(f)(a, b, value);                                                       \
	}
LAZY_OPTION(CURLcode, curl_easy_getinfo, CURL, CURLINFO)
LAZY_OPTION(CURLcode, curl_easy_setopt, CURL, CURLoption)
LAZY_OPTION(CURLMcode, curl_multi_setopt, CURLM, CURLMoption)
