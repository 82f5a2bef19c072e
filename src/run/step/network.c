#include "run/step/network.h"

#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"

/* ---- wireguard ---- */

/* Refuses a line break, which would start another setting: some settings run commands. */
static int put(struct buf *text, const char *key, const char *value, struct penstock_error *err)
{
	for (const char *p = value; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot set up `wireguard`: the value of %s has a line break or "
				"another control character",
				key);
	}
	buf_printf(text, "%s = %s\n", key, value);
	return 0;
}

static int put_list(struct buf *text, const char *key, const struct workflow_texts *list,
	struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->n; i++)
		r = put(text, key, list->items[i].value, err);
	return r;
}

static int put_peer(struct buf *text, const struct workflow_peer *peer, struct penstock_error *err)
{
	int r;

	buf_add_str(text, "[Peer]\n");
	r = put(text, "PublicKey", peer->public_key.value, err);
	if (r == 0 && peer->pre_shared_key.value)
		r = put(text, "PresharedKey", peer->pre_shared_key.value, err);
	if (r == 0)
		r = put_list(text, "AllowedIPs", &peer->allowed_ips, err);
	if (r == 0 && peer->endpoint.value)
		r = put(text, "Endpoint", peer->endpoint.value, err);
	if (r == 0 && peer->persistent_keepalive.given)
		buf_printf(text, "PersistentKeepalive = %lld\n",
			(long long)peer->persistent_keepalive.value);
	return r;
}

static int describe_wireguard(struct step_network *out, struct task_interface *interface,
	const struct workflow_interface *given, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_STRING);
	int r;

	buf_add_str(&text, "[Interface]\n");
	r = put(&text, "PrivateKey", given->wireguard.private_key.value, err);
	if (r == 0)
		r = put_list(&text, "Address", &given->wireguard.address, err);
	for (size_t i = 0; r == 0 && i < given->wireguard.n_peers; i++)
		r = put_peer(&text, &given->wireguard.peers[i], err);
	if (r < 0)
		return r;
	if (buf_failed(&text) || strlist_add(&out->texts, buf_str(&text)) < 0)
		return error_memory(err);
	interface->kind = TASK_INTERFACE_WIREGUARD;
	interface->config = out->texts.items[out->texts.n - 1];
	return 0;
}

/* ---- the description ---- */

int step_network_describe(
	struct step_network *out, const struct workflow_run *what, struct penstock_error *err)
{
	switch (what->network) {
	case WORKFLOW_NETWORK_SLIRP4NETNS:
		out->network.kind = TASK_NETWORK_SLIRP4NETNS;
		break;
	case WORKFLOW_NETWORK_PASTA:
		out->network.kind = TASK_NETWORK_PASTA;
		break;
	default:
		return 0;
	}
	for (size_t i = 0; i < what->dns.n; i++) {
		if (strlist_add(&out->dns, what->dns.items[i].value) < 0)
			return error_memory(err);
	}
	out->network.dns = (const char *const *)out->dns.items;
	int r = 0;

	if (!what->n_interfaces)
		return 0;
	out->interfaces = calloc(what->n_interfaces, sizeof(*out->interfaces));
	if (!out->interfaces)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < what->n_interfaces; i++) {
		const struct workflow_interface *given = &what->interfaces[i];
		struct task_interface *interface = &out->interfaces[i];

		if (given->kind == WORKFLOW_WIREGUARD) {
			r = describe_wireguard(out, interface, given, err);
			continue;
		}
		*interface = (struct task_interface){
			.kind = TASK_INTERFACE_BORE,
			.server = given->bore.address.value,
			.secret = given->bore.secret.value,
			.port = (int)given->bore.target_port.value,
		};
	}
	out->network.interfaces = out->interfaces;
	out->network.n_interfaces = what->n_interfaces;
	return r;
}

void step_network_release(struct step_network *network)
{
	for (size_t i = 0; i < network->texts.n; i++)
		explicit_bzero(network->texts.items[i], strlen(network->texts.items[i]));
	strlist_release(&network->texts);
	strlist_release(&network->dns);
	free(network->interfaces);
	*network = (struct step_network){0};
}
