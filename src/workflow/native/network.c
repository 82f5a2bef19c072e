/* `network`, `dns` and `customNetworkInterfaces` of a run; `virtualNetworks` of a workflow. */
#include <arpa/inet.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native/native.h"

#define MAX_PORT      65535
#define MAX_KEEPALIVE 65535 /* seconds */

static bool is_address(const char *text)
{
	unsigned char bytes[16];

	return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* Returns true for "10.0.0.1/24"; if `plain`, also for an address without a network. */
static bool is_cidr(const char *text, bool plain)
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

static void check_cidr(struct reader *rd, const char *key, const struct workflow_text *text)
{
	if (reader_knows(rd, text) && !is_cidr(text->value, false))
		reader_refuse(rd, text, key, "be an address with its network, such as 10.0.0.2/24");
}

static void check_cidrs(struct reader *rd, const char *key, const struct workflow_texts *texts)
{
	for (size_t i = 0; i < texts->n; i++) {
		if (reader_knows(rd, &texts->items[i]) && !is_cidr(texts->items[i].value, true))
			reader_refuse(rd, &texts->items[i], key,
				"be addresses with their networks, such as 10.0.0.2/24");
	}
}

static void check_endpoint(struct reader *rd, const char *key, const struct workflow_text *text)
{
	const char *colon = text->value ? strrchr(text->value, ':') : NULL;
	uint64_t port;

	if (reader_knows(rd, text) &&
		(!colon || colon == text->value || !str_to_u64(colon + 1, 1, MAX_PORT, &port)))
		reader_refuse(rd, text, key, "be HOST:PORT");
}

/* ---- wireguard ---- */

static void check_peer(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow_peer *peer = out;

	(void)map;
	check_cidrs(rd, "allowedIPs", &peer->allowed_ips);
	check_endpoint(rd, "endpoint", &peer->endpoint);
}

static const struct schema_key peer_keys[] = {
	{"publicKey", TEXT(workflow_peer, public_key), .flags = KEY_REQUIRED | KEY_SHOWN,
		.says = "the public key of the peer"},
	{"preSharedKey", CREDENTIAL(workflow_peer, pre_shared_key), .flags = KEY_SHOWN,
		.says = "a secret that both peers share, in addition to their keys"},
	{"allowedIPs", TEXTS(workflow_peer, allowed_ips), .flags = KEY_SHOWN,
		.value = "list of `ADDRESS/BITS`", .says = "the addresses behind the peer"},
	{"endpoint", TEXT(workflow_peer, endpoint), .flags = KEY_SHOWN, .value = "`HOST:PORT`",
		.says = "the address at which the peer listens"},
	{"persistentKeepalive", NUMBER(workflow_peer, persistent_keepalive, 0, MAX_KEEPALIVE),
		.flags = KEY_SHOWN, .otherwise = "0",
		.says = "seconds between keepalive packets; 0: no such packets"},
};
static const struct schema schema_peer = {SCHEMA("peer", "a peer of `wireguard`", peer_keys),
	.size = sizeof(struct workflow_peer), AT(workflow_peer, at), .check = check_peer};

static void check_wireguard(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_interface *interface = out;

	(void)map;
	interface->kind = WORKFLOW_WIREGUARD;
	check_cidrs(rd, "address", &interface->wireguard.address);
}

static const struct schema_key wireguard_keys[] = {
	{"address", TEXTS(workflow_interface, wireguard.address), .flags = KEY_SHOWN,
		.value = "list of `ADDRESS/BITS`", .says = "the addresses of the interface"},
	{"privateKey", CREDENTIAL(workflow_interface, wireguard.private_key),
		.flags = KEY_REQUIRED | KEY_SHOWN, .says = "the private key of the interface"},
	{"peers", LIST(workflow_interface, wireguard.peers, wireguard.n_peers, &schema_peer),
		.flags = KEY_SHOWN, .says = "the peers of the interface"},
};
static const struct schema schema_wireguard = {
	SCHEMA("wireguard", "`wireguard`", wireguard_keys), .check = check_wireguard};

/* ---- bore ---- */

static const struct schema schema_bore;

/* Joins the older `address` and `port` to `boreAddress`. */
static void join_address(struct reader *rd, const struct node *map, struct workflow_text *out)
{
	struct workflow_text address = {0};
	struct workflow_number port = {.value = 7835};

	if (!reader_text(rd, map, "address", &address))
		return;
	reader_number(rd, map, schema_find(&schema_bore, "port"), &port);
	reader_note(rd, &address.at, "`address` and `port` are read as `boreAddress`");
	*out = address;
	out->value = workflow_arena_printf(
		rd->arena, "%s:%lld", address.value, (long long)port.value);
	if (address.shown)
		out->shown = workflow_arena_printf(
			rd->arena, "%s:%lld", address.shown, (long long)port.value);
}

static void check_bore(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_interface *interface = out;

	interface->kind = WORKFLOW_BORE;
	if (!interface->bore.address.value)
		join_address(rd, map, &interface->bore.address);
	else
		check_endpoint(rd, "boreAddress", &interface->bore.address);
	if (!node_get(map, "boreAddress") && !node_get(map, "address"))
		reader_missing(rd, map, &schema_bore, "boreAddress");
}

static const struct schema_key bore_keys[] = {
	{"boreAddress", TEXT(workflow_interface, bore.address), .flags = KEY_SHOWN,
		.value = "`HOST:PORT`", .otherwise = "required",
		.says = "the address of the server"},
	{"targetPort", NUMBER(workflow_interface, bore.target_port, 1, MAX_PORT),
		.flags = KEY_REQUIRED | KEY_SHOWN, .says = "the port that the step listens on"},
	{"secret", CREDENTIAL(workflow_interface, bore.secret), .flags = KEY_SHOWN,
		.says = "the `-id` of the route: an argument of `bore`, so other users of this "
			"machine can see it"},
	{"address", .kinds = KEY_TEXT, .says = "with `port`, the older form of `boreAddress`"},
	{"port", .kinds = KEY_WHOLE, .min = 1, .max = MAX_PORT, .otherwise = "7835",
		.says = "the port of `address`"},
};
static const struct schema schema_bore = {SCHEMA("bore", "`bore`", bore_keys), .check = check_bore};

/* ---- vnet ---- */

static void check_vnet(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow *wf = rd->workflow;
	struct workflow_interface *interface = out;
	const struct workflow_text *name = &interface->vnet.name;

	(void)map;
	interface->kind = WORKFLOW_VNET;
	check_cidr(rd, "address", &interface->vnet.address);
	if (!name->value)
		return;
	for (size_t i = 0; i < wf->n_virtual_networks; i++) {
		const char *known = wf->virtual_networks[i].name.value;

		if (known && strcmp(known, name->value) == 0)
			return;
	}
	reader_error(rd, &name->at, "`%s`: `virtualNetworks` has no network %s",
		reader_field(rd, "name"), quote(workflow_shown(name)));
}

static const struct schema_key vnet_keys[] = {
	{"name", TEXT(workflow_interface, vnet.name), .flags = KEY_REQUIRED | KEY_SHOWN,
		.says = "one of the workflow's `virtualNetworks`"},
	{"address", TEXT(workflow_interface, vnet.address), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "`ADDRESS/BITS`",
		.says = "an address with its network, such as 10.0.0.2/24"},
};
static const struct schema schema_vnet = {SCHEMA("vnet", "`vnet`", vnet_keys), .check = check_vnet};

/* ---- interfaces ---- */

static void check_interface(struct reader *rd, const struct node *map, void *out)
{
	(void)out;
	if (!!node_get(map, "wireguard") + !!node_get(map, "bore") + !!node_get(map, "vnet") != 1)
		reader_error_of(
			rd, &map->at, NULL, "must be one of `wireguard`, `bore` and `vnet`");
}

static const struct schema_key interface_keys[] = {
	{"wireguard", MAP_OF(&schema_wireguard),
		.shown = {IS(workflow_interface, kind, WORKFLOW_WIREGUARD)},
		.says = "an interface `wg0`, `wg1`, …, which `wg-quick` (package "
			"wireguard-tools) makes before the step begins, with the kernel's "
			"WireGuard or else with wireguard-go. Keys are never written to disk"},
	{"bore", MAP_OF(&schema_bore), .shown = {IS(workflow_interface, kind, WORKFLOW_BORE)},
		.says = "the program `bore` (github.com/jkuri/bore) makes a port of the step "
			"reachable at a server; penstock restarts `bore` until the step "
			"listens, and adds its output to the log"},
	{"vnet", MAP_OF(&schema_vnet), .shown = {IS(workflow_interface, kind, WORKFLOW_VNET)},
		.says = "refused when the run starts"},
};
const struct schema schema_interface = {
	SCHEMA("interface", "an entry of `customNetworkInterfaces`", interface_keys),
	.size = sizeof(struct workflow_interface), AT(workflow_interface, at),
	.check = check_interface};

/* Checks `dns` and `customNetworkInterfaces` of the run `map`. */
void check_network(struct reader *rd, const struct node *map, const struct workflow_run *run)
{
	static const char *const keys[] = {"dns", "customNetworkInterfaces"};
	const struct node *network = node_get(map, "network");

	for (size_t i = 0; i < run->dns.n; i++) {
		if (reader_knows(rd, &run->dns.items[i]) && !is_address(run->dns.items[i].value))
			reader_refuse(
				rd, &run->dns.items[i], "dns", "be an IP address, such as 1.1.1.1");
	}
	/* `run->network` is HOST even if `network` is unknown, which was reported: report nothing
	 * more. */
	if (run->network != WORKFLOW_NETWORK_HOST ||
		(network && (network->kind != NODE_SCALAR || strcmp(network->text, "host") != 0)))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct node *list = node_get(map, keys[i]);

		if (list && (list->kind != NODE_LIST || list->n))
			reader_error_of(rd, &list->at, keys[i],
				"needs a network of the step's own; add `network: slirp4netns` "
				"or `network: pasta`");
	}
}

/* ---- virtualNetworks ---- */

static void check_virtual_network(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow *wf = rd->workflow;
	const struct workflow_virtual_network *net = out;

	(void)map;
	check_cidr(rd, "gatewayAddress", &net->gateway_address);
	for (const struct workflow_virtual_network *other = wf->virtual_networks;
		net->name.value && other < net; other++) {
		if (other->name.value && strcmp(other->name.value, net->name.value) == 0)
			reader_error(rd, &net->name.at, "a second network has the name %s",
				quote(workflow_shown(&net->name)));
	}
}

static const struct schema_key virtual_network_keys[] = {
	{"name", TEXT(workflow_virtual_network, name), .flags = KEY_REQUIRED | KEY_SHOWN,
		.says = "the name of the network, for `vnet`"},
	{"gatewayAddress", TEXT(workflow_virtual_network, gateway_address),
		.flags = KEY_REQUIRED | KEY_SHOWN, .value = "`ADDRESS/BITS`",
		.says = "an address with its network, such as 10.0.0.1/24"},
};
const struct schema schema_virtual_network = {
	SCHEMA("virtual-network", "an entry of `virtualNetworks`", virtual_network_keys),
	.size = sizeof(struct workflow_virtual_network), AT(workflow_virtual_network, at),
	.check = check_virtual_network};
