#ifndef SERVER_ROUTE_H
#define SERVER_ROUTE_H

struct request;

/* Finds the operation, checks its headers, prepares the body; sets `finish` or a reply. */
void request_route(struct request *req);

#endif
