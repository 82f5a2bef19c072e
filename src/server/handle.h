/* Callbacks for libmicrohttpd: the life of a request from its first line to its reply. */
#ifndef SERVER_HANDLE_H
#define SERVER_HANDLE_H

#include <microhttpd.h>

void *request_new(void *cls, const char *uri, struct MHD_Connection *connection);
void request_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
	enum MHD_RequestTerminationCode code);
enum MHD_Result request_handle(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *data, size_t *len, void **con_cls);

#endif
