/* The networks of a workflow and of its steps. */
#include <arpa/inet.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native.h"
#include "base/banned.h"

#define MAX_PORT      65535
#define MAX_KEEPALIVE 65535 /* seconds */

static bool is_address(const char *text)
{
	unsigned char bytes[16];

	return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

bool is_cidr(const char *text, bool plain)
{
	const char *slash = strchr(text, '/');
	char address[INET6_ADDRSTRLEN];
	uint64_t bits;

	if (!slash)
		return plain && is_address(text);
	if ((size_t)(slash - text) >= sizeof(address))
		return false;
	memcpy(address, text, (size_t)(slash - text));
	address[slash - text] = '\0';
	return is_address(address) &&
	       str_to_u64(slash + 1, 0, strchr(address, ':') ? 128 : 32, &bits);
}

/* "host:port" */
static bool is_host_and_port(const char *text)
{
	const char *colon = strrchr(text, ':');
	uint64_t port;

	return colon && colon != text && str_to_u64(colon + 1, 1, MAX_PORT, &port);
}

static bool read_cidr(struct reader *rd, const struct node *map, const struct schema *schema,
	const char *key, struct workflow_text *out)
{
	char quoted[QUOTE_SIZE];

	if (!node_get(map, key)) {
		reader_missing(rd, map, schema, key,
			"an address with its network, such as "
			"10.0.0.2/24");
		return false;
	}
	if (!reader_text(rd, map, key, out))
		return false;
	if (is_cidr(out->value, false) || reader_is_open(rd, out))
		return true;
	reader_error(rd, &out->at,
		"`%s` must be an address with its network, such as 10.0.0.2/24, not %s",
		reader_field(rd, key), quote(workflow_shown(out), quoted));
	return false;
}

static void read_cidrs(
	struct reader *rd, const struct node *map, const char *key, struct workflow_texts *out)
{
	char quoted[QUOTE_SIZE];

	read_texts(rd, map, key, false, out);
	for (size_t i = 0; i < out->n; i++) {
		if (!is_cidr(out->items[i].value, true) && !reader_is_open(rd, &out->items[i]))
			reader_error(rd, &out->items[i].at,
				"`%s` holds addresses with their networks, such as 10.0.0.2/24, "
				"not %s",
				reader_field(rd, key),
				quote(workflow_shown(&out->items[i]), quoted));
	}
}

static void read_endpoint(
	struct reader *rd, const struct node *map, const char *key, struct workflow_text *out)
{
	char quoted[QUOTE_SIZE];

	if (reader_text(rd, map, key, out) && !is_host_and_port(out->value) &&
		!reader_is_open(rd, out))
		reader_error(rd, &out->at, "`%s` must be HOST:PORT, not %s", reader_field(rd, key),
			quote(workflow_shown(out), quoted));
}

static void read_peer(struct reader *rd, const struct node *node, struct workflow_peer *peer)
{
	peer->at = node->at;
	if (!reader_check_map(rd, node, &schema_peer))
		return;
	if (!node_get(node, "publicKey"))
		reader_missing(rd, node, &schema_peer, "publicKey", "");
	reader_text(rd, node, "publicKey", &peer->public_key);
	reader_credential(rd, node, "preSharedKey", &peer->pre_shared_key);
	read_cidrs(rd, node, "allowedIPs", &peer->allowed_ips);
	read_endpoint(rd, node, "endpoint", &peer->endpoint);
	reader_number(
		rd, node, "persistentKeepalive", 0, MAX_KEEPALIVE, &peer->persistent_keepalive);
}

static void read_wireguard(
	struct reader *rd, const struct node *map, struct workflow_interface *out)
{
	struct node *peers;
	size_t saved;

	if (!reader_check_map(rd, map, &schema_wireguard))
		return;
	read_cidrs(rd, map, "address", &out->wireguard.address);
	if (!node_get(map, "privateKey"))
		reader_missing(rd, map, &schema_wireguard, "privateKey", "");
	reader_credential(rd, map, "privateKey", &out->wireguard.private_key);
	peers = reader_list(rd, map, "peers");
	if (!peers)
		return;
	out->wireguard.peers = workflow_arena_array(
		rd->arena, peers->n + 1, sizeof(*out->wireguard.peers));
	if (!out->wireguard.peers)
		return;
	out->wireguard.n_peers = peers->n;
	saved = reader_enter(rd, "peers", 0);
	for (size_t i = 0; i < peers->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_peer(rd, peers->entries[i].value, &out->wireguard.peers[i]);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

/* `boreAddress: host:port`, or the older `address` and `port`. */
static void read_bore(struct reader *rd, const struct node *map, struct workflow_interface *out)
{
	struct workflow_text address = {0};
	struct workflow_number port = {.value = 7835};

	if (!reader_check_map(rd, map, &schema_bore))
		return;
	read_endpoint(rd, map, "boreAddress", &out->bore.address);
	if (reader_text(rd, map, "address", &address) && !out->bore.address.value) {
		reader_number(rd, map, "port", 1, MAX_PORT, &port);
		reader_note(rd, &address.at, "`address` and `port` are read as `boreAddress`");
		out->bore.address = address;
		out->bore.address.value = workflow_arena_printf(
			rd->arena, "%s:%lld", address.value, (long long)port.value);
		if (address.shown)
			out->bore.address.shown = workflow_arena_printf(
				rd->arena, "%s:%lld", address.shown, (long long)port.value);
	} else if (!node_get(map, "boreAddress")) {
		reader_missing(rd, map, &schema_bore, "boreAddress", "HOST:PORT of the server");
	}
	if (!node_get(map, "targetPort"))
		reader_missing(
			rd, map, &schema_bore, "targetPort", "the port that the step listens on");
	reader_number(rd, map, "targetPort", 1, MAX_PORT, &out->bore.target_port);
	reader_credential(rd, map, "secret", &out->bore.secret);
}

static void read_vnet(struct reader *rd, const struct node *map, struct workflow_interface *out)
{
	const struct workflow *wf = rd->workflow;
	char quoted[QUOTE_SIZE];

	if (!reader_check_map(rd, map, &schema_vnet))
		return;
	if (!node_get(map, "name"))
		reader_missing(
			rd, map, &schema_vnet, "name", "one of the workflow's `virtualNetworks`");
	read_cidr(rd, map, &schema_vnet, "address", &out->vnet.address);
	if (!reader_text(rd, map, "name", &out->vnet.name))
		return;
	for (size_t i = 0; i < wf->n_virtual_networks; i++) {
		const char *name = wf->virtual_networks[i].name.value;

		if (name && strcmp(name, out->vnet.name.value) == 0)
			return;
	}
	reader_error(rd, &out->vnet.name.at, "`%s`: `virtualNetworks` has no network %s",
		reader_field(rd, "name"), quote(workflow_shown(&out->vnet.name), quoted));
}

static void read_interface(
	struct reader *rd, const struct node *node, struct workflow_interface *out)
{
	static const struct {
		const char *key;
		enum workflow_interface_kind kind;
		void (*read)(
			struct reader *rd, const struct node *map, struct workflow_interface *out);
	} kinds[] = {
		{"wireguard", WORKFLOW_WIREGUARD, read_wireguard},
		{"bore", WORKFLOW_BORE, read_bore},
		{"vnet", WORKFLOW_VNET, read_vnet},
	};
	int given = 0;

	out->at = node->at;
	if (!reader_check_map(rd, node, &schema_interface))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct node *map = node_get(node, kinds[i].key);
		size_t saved;

		if (!map)
			continue;
		given++;
		out->kind = kinds[i].kind;
		saved = reader_enter(rd, kinds[i].key, 0);
		kinds[i].read(rd, map, out);
		reader_leave(rd, saved);
	}
	if (given != 1)
		reader_error(rd, &node->at, "`%s` is one of `wireguard`, `bore` and `vnet`",
			buf_str(&rd->path));
}

static void read_interfaces(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	struct node *list = reader_list(rd, map, "customNetworkInterfaces");
	size_t saved;

	if (!list)
		return;
	run->interfaces = workflow_arena_array(rd->arena, list->n + 1, sizeof(*run->interfaces));
	if (!run->interfaces)
		return;
	run->n_interfaces = list->n;
	saved = reader_enter(rd, "customNetworkInterfaces", 0);
	for (size_t i = 0; i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_interface(rd, list->entries[i].value, &run->interfaces[i]);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	if (list->n && run->network == WORKFLOW_NETWORK_HOST)
		reader_error(rd, &list->at,
			"`%s` needs a network of its own; give `network: slirp4netns` or `network: "
			"pasta` beside it",
			reader_field(rd, "customNetworkInterfaces"));
}

static void read_dns(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	char quoted[QUOTE_SIZE];

	if (!read_texts(rd, map, "dns", false, &run->dns))
		return;
	for (size_t i = 0; i < run->dns.n; i++) {
		const struct workflow_text *text = &run->dns.items[i];

		if (!is_address(text->value) && !reader_is_open(rd, text))
			reader_error(rd, &text->at, "`%s` holds addresses, such as 1.1.1.1, not %s",
				reader_field(rd, "dns"), quote(workflow_shown(text), quoted));
	}
	if (run->dns.n && run->network == WORKFLOW_NETWORK_HOST)
		reader_error(rd, &run->dns.at,
			"`%s` needs a network of its own; give `network: slirp4netns` or `network: "
			"pasta` beside it",
			reader_field(rd, "dns"));
}

void read_network(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	static const char *const names[] = {"host", "slirp4netns", "pasta"};
	struct workflow_text given = {0};
	char quoted[QUOTE_SIZE];
	size_t i = 0;

	run->network_at = map->at;
	if (reader_text(rd, map, "network", &given)) {
		run->network_at = given.at;
		while (i < ARRAY_SIZE(names) && strcmp(given.value, names[i]) != 0)
			i++;
		if (i < ARRAY_SIZE(names))
			run->network = (enum workflow_network)i;
		else
			reader_error(rd, &given.at, "`%s` is host, slirp4netns or pasta, not %s",
				reader_field(rd, "network"), quote(workflow_shown(&given), quoted));
	}
	if (i == ARRAY_SIZE(names)) /* said; what it is about is not known */
		return;
	read_dns(rd, map, run);
	read_interfaces(rd, map, run);
}

void read_virtual_networks(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;
	struct node *list = reader_list(rd, job, "virtualNetworks");
	char quoted[QUOTE_SIZE];
	size_t saved;

	if (!list)
		return;
	wf->virtual_networks = workflow_arena_array(
		rd->arena, list->n + 1, sizeof(*wf->virtual_networks));
	if (!wf->virtual_networks)
		return;
	wf->n_virtual_networks = list->n;
	saved = reader_enter(rd, "virtualNetworks", 0);
	for (size_t i = 0; i < list->n; i++) {
		struct workflow_virtual_network *net = &wf->virtual_networks[i];
		const struct node *node = list->entries[i].value;
		size_t at_list = reader_enter(rd, NULL, i);

		net->at = node->at;
		if (reader_check_map(rd, node, &schema_virtual_network)) {
			if (!node_get(node, "name"))
				reader_missing(rd, node, &schema_virtual_network, "name", "");
			reader_text(rd, node, "name", &net->name);
			read_cidr(rd, node, &schema_virtual_network, "gatewayAddress",
				&net->gateway_address);
		}
		for (size_t j = 0; net->name.value && j < i; j++) {
			if (wf->virtual_networks[j].name.value &&
				strcmp(wf->virtual_networks[j].name.value, net->name.value) == 0)
				reader_error(rd, &net->name.at, "a second network is called %s",
					quote(workflow_shown(&net->name), quoted));
		}
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}
