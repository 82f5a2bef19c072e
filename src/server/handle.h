/* Callbacks for libmicrohttpd: the life of a request from its first line to its reply. */
#ifndef SERVER_HANDLE_H
#define SERVER_HANDLE_H

#include <microhttpd.h>

struct server;

void *request_new(void *cls, const char *uri, struct MHD_Connection *connection);
/* The same for the address of the metrics. */
void *request_new_to_monitor(void *cls, const char *uri, struct MHD_Connection *connection);
void request_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
	enum MHD_RequestTerminationCode code);
enum MHD_Result request_handle(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *data, size_t *len, void **con_cls);

/* Replies to a request to that address (server.c). */
enum MHD_Result server_monitor(struct server *server, struct MHD_Connection *connection,
	const char *path, const char *method);

#endif
