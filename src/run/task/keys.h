/*
 * Temporary keys for tasks: an endpoint on the loopback address that hands out the current keys to
 * clients that have its token, in the protocol of Amazon's containers, which every SDK knows. The
 * keys are renewed while the tasks run and are in no environment.
 *
 *	#include "net/credentials/credentials.h"
 *
 *	struct key_server *servers = NULL, *server = NULL;
 *
 *	r = key_server_get(&server, &servers, settings->credentials, NULL, err);
 *	if (r == 0)
 *		... key_server_uri(server), key_server_token(server) ...
 *	key_servers_free(servers);	// after the tasks
 *
 * A task with its own network has another loopback address: its init makes a socket in that network
 * with key_socket(), on the same port, and passes it to the parent for key_listener_new(). One
 * thread calls these functions; each socket has threads of its own.
 */
#ifndef RUN_TASK_KEYS_H
#define RUN_TASK_KEYS_H

#include <stdint.h>

struct credentials_provider;
struct key_listener;
struct key_server;
struct penstock_error;

#define KEY_TOKEN_SIZE 65

/* Creates a token, which log_redact() hides. */
int key_token_make(char out[static KEY_TOKEN_SIZE], struct penstock_error *err);
void key_token_forget(char token[static KEY_TOKEN_SIZE]);

/* Gets the server of this provider from the list, or adds one. `token` is the token of a new
 * server; NULL if the server makes its own. The provider is borrowed. */
int key_server_get(struct key_server **out, struct key_server **list,
	struct credentials_provider *provider, const char *token, struct penstock_error *err);
/* Frees the whole list and the servers' own sockets. All other listeners must have been freed. */
void key_servers_free(struct key_server *list);
const char *key_server_uri(const struct key_server *server);
const char *key_server_token(const struct key_server *server);
uint16_t key_server_port(const struct key_server *server);

/* Creates a listening socket on the loopback address of the caller's network; any port if `port` is
 * 0. Allocates no memory. Returns -1 and sets errno on failure. */
int key_socket(uint16_t port);
/* Serves the same keys on the socket `fd`. Takes ownership of `fd`, even on failure. */
int key_listener_new(struct key_listener **out, const struct key_server *server, int fd,
	struct penstock_error *err);
void key_listener_free(struct key_listener *listener);

#endif
