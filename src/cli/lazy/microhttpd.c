/* libmicrohttpd, loaded when a server is started. */
#include <microhttpd.h>
#include <stdarg.h>

#define LAZY_SECTION lazy_microhttpd
#include "cli/lazy/library.h"

LAZY_LIBRARY(LAZY_MICROHTTPD)

LAZY(struct MHD_Response *, MHD_create_response_from_buffer,
	(size_t a, void *b, enum MHD_ResponseMemoryMode c), (a, b, c))
LAZY(struct MHD_Response *, MHD_create_response_from_buffer_with_free_callback_cls,
	(size_t a, void *b, MHD_ContentReaderFreeCallback c, void *d), (a, b, c, d))
LAZY(struct MHD_Response *, MHD_create_response_from_callback,
	(uint64_t a, size_t b, MHD_ContentReaderCallback c, void *d,
		MHD_ContentReaderFreeCallback e),
	(a, b, c, d, e))
LAZY(struct MHD_Response *, MHD_create_response_from_iovec,
	(const struct MHD_IoVec *a, unsigned int b, MHD_ContentReaderFreeCallback c, void *d),
	(a, b, c, d))
LAZY(struct MHD_Response *, MHD_create_response_from_fd_at_offset64,
	(uint64_t a, int b, uint64_t c), (a, b, c))
LAZY_END(MHD_destroy_response, struct MHD_Response)
LAZY(int, MHD_get_connection_values,
	(struct MHD_Connection * a, enum MHD_ValueKind b, MHD_KeyValueIterator c, void *d),
	(a, b, c, d))
LAZY_FIRST(const char *, MHD_get_version, (void), (), "which cannot be loaded")
LAZY(const char *, MHD_lookup_connection_value,
	(struct MHD_Connection * a, enum MHD_ValueKind b, const char *c), (a, b, c))
LAZY(MHD_socket, MHD_quiesce_daemon, (struct MHD_Daemon * a), (a))
LAZY(void, MHD_resume_connection, (struct MHD_Connection * a), (a))
LAZY(void, MHD_stop_daemon, (struct MHD_Daemon * a), (a))
LAZY(void, MHD_suspend_connection, (struct MHD_Connection * a), (a))
LAZY(enum MHD_Result, MHD_add_response_header,
	(struct MHD_Response * a, const char *b, const char *c), (a, b, c))
LAZY(enum MHD_Result, MHD_queue_response,
	(struct MHD_Connection * a, unsigned int b, struct MHD_Response *c), (a, b, c))

LAZY_FUNCTION(MHD_get_connection_info)
/* Ignores the variable arguments: the kinds of information that penstock requests take no
 * arguments. */
const union MHD_ConnectionInfo *MHD_get_connection_info(
	struct MHD_Connection *a, enum MHD_ConnectionInfoType b, ...)
{
	return REAL(MHD_get_connection_info)(a, b);
}

LAZY_FUNCTION(MHD_start_daemon_va)
struct MHD_Daemon *MHD_start_daemon(unsigned int a, uint16_t b, MHD_AcceptPolicyCallback c, void *d,
	MHD_AccessHandlerCallback e, void *f, ...)
{
	struct MHD_Daemon *daemon = NULL;
	va_list ap;

	va_start(ap, f);
	if (LOADED)
		daemon = REAL(MHD_start_daemon_va)(a, b, c, d, e, f, ap);
	va_end(ap);
	return daemon;
}
