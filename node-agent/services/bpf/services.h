/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Services: frontends, their backends, and what was translated. The bytes shared with user space; ../layout.ts is the other half. Host byte order
 * unless a field says __be. An address takes 16 bytes in either family: IPv4 as ::ffff:a.b.c.d.
 *
 * A frontend names its service by number, and the service's slots 0 .. count-1 name backends. A NodePort is a frontend of the unspecified address (:: or
 * ::ffff:0.0.0.0), for destinations that svc_nodes has. User space writes so that whoever finds a frontend finds a
 * backend: a backend before the slots that name it, a slot before the count that covers it; and takes away in the opposite order.
 */
#ifndef WEIR_SERVICES_H
#define WEIR_SERVICES_H

#include "common.h"

struct svc_address {
	__u32 words[4]; /* __be */
};

/* SCOPE_LOCAL: what comes from outside of the cluster to a frontend with SVC_LOCAL_EXTERNAL; backends of this node alone. */
#define SCOPE_CLUSTER 0
#define SCOPE_LOCAL 1

struct svc_frontend_key {
	struct svc_address address;
	__be16 port;
	__u8 protocol;
	__u8 scope;
};

#define SVC_AFFINITY 1 /* a client stays with its backend */
#define SVC_EXTERNAL 2 /* for clients outside of the cluster, too */
#define SVC_LOCAL_EXTERNAL 4 /* those find the frontend of SCOPE_LOCAL, and keep their addresses */
#define SVC_SOURCES 8 /* only for who is in svc_sources */
#define SVC_ELSEWHERE 16 /* without a backend because a traffic policy leaves out those of other nodes: to be dropped rather than refused */

struct svc_frontend {
	__u32 service;
	__u32 count; /* of backends; 0: what is sent there is refused */
	__u32 flags;
	__u32 affinity_seconds;
};

struct svc_slot_key {
	__u32 service;
	__u32 index;
};

/* An element of a hash map may be another's by the time it is read: the service tells. */
struct svc_slot {
	__u32 backend;
	__u32 service;
};

struct svc_backend {
	struct svc_address address;
	__be16 port;
	__u8 protocol;
	__u8 flags;
};

/* A client of a service with affinity: the address of a packet's sender, or the network namespace of a socket. */
struct svc_client_key {
	__u32 service;
	__u32 pad;
	struct svc_address client;
};

struct svc_client {
	__u32 backend;
	__u32 last_seen; /* ticks */
};

/* Backends of services with affinity: what a client had last counts only while it is one. */
struct svc_member {
	__u32 service;
	__u32 backend;
};

/* Who may use a frontend with SVC_SOURCES. In a trie of prefixes: 32 bits of the service, then those of the address. */
struct svc_source {
	__u32 bits;
	__u32 service;
	struct svc_address address;
};

#define SVC_NODE_SELF 1 /* an address of this node */
#define SVC_NODE_OTHER 2 /* of another one */
#define SVC_NODE_LOOPBACK 4 /* in the network namespace of the node alone */

/* A socket's peer as it was translated, for the way back. */
struct svc_socket_key {
	__u64 cookie;
	struct svc_address backend;
	__be16 port;
	__u8 protocol;
	__u8 pad[5];
};

struct svc_original {
	struct svc_address address;
	__be16 port;
	__u16 pad;
	__u32 service;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct svc_frontend_key);
	__type(value, struct svc_frontend);
} svc_frontends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 524288);
	__type(key, struct svc_slot_key);
	__type(value, struct svc_slot);
} svc_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, __u32);
	__type(value, struct svc_backend);
} svc_backends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct svc_member);
	__type(value, __u32);
} svc_members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct svc_source);
	__type(value, __u32);
} svc_sources SEC(".maps");

/* Addresses at which NodePorts answer, of all nodes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct svc_address);
	__type(value, __u32); /* SVC_NODE_... */
} svc_nodes SEC(".maps");

/*
 * A bit for each value of `address_hash` that some IPv4 address of a Service or a node has or had: most packets are found to go to none of them without a
 * look-up by address.
 */
#define SVC_FILTER_WORDS 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SVC_FILTER_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} svc_filter SEC(".maps");

/* Cluster IPs: what cannot be translated there is not the world's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct svc_address);
	__type(value, __u32); /* 1 */
} svc_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct svc_client_key);
	__type(value, struct svc_client);
} svc_clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct svc_socket_key);
	__type(value, struct svc_original);
} svc_sockets SEC(".maps");

_Static_assert(sizeof(struct svc_frontend_key) == 20, "svc_frontend_key");
_Static_assert(sizeof(struct svc_frontend) == 16, "svc_frontend");
_Static_assert(sizeof(struct svc_slot) == 8, "svc_slot");
_Static_assert(sizeof(struct svc_backend) == 20, "svc_backend");
_Static_assert(sizeof(struct svc_member) == 8, "svc_member");
_Static_assert(sizeof(struct svc_source) == 24, "svc_source");
_Static_assert(sizeof(struct svc_client_key) == 24, "svc_client_key");
_Static_assert(sizeof(struct svc_socket_key) == 32, "svc_socket_key");
_Static_assert(sizeof(struct svc_original) == 24, "svc_original");

static __always_inline void address_v4(struct svc_address *to, __be32 address)
{
	to->words[0] = 0;
	to->words[1] = 0;
	to->words[2] = bpf_htonl(0xffff);
	to->words[3] = address;
}

static __always_inline __u32 address_hash(__be32 address)
{
	__u32 bits = bpf_ntohl(address);

	return (bits ^ bits >> 16) & (SVC_FILTER_WORDS * 64 - 1);
}

/* False: the address is no Service's and no node's. */
static __always_inline bool maybe_service(__be32 address)
{
	__u32 hash = address_hash(address), word = hash / 64;
	__u64 *bits = bpf_map_lookup_elem(&svc_filter, &word);

	return bits && (READ_ONCE(*bits) >> hash % 64 & 1);
}

static __always_inline bool is_v4(const struct svc_address *address)
{
	return !address->words[0] && !address->words[1] && address->words[2] == bpf_htonl(0xffff);
}

/* What svc_nodes has of an address; 0: it is no node's. Of 127.0.0.0/8, the node's own, one stands for all, and for 0.0.0.0, which leads there. */
static __always_inline __u32 node_flags(const struct svc_address *address)
{
	struct svc_address key = *address;
	__u32 *flags;

	if (is_v4(&key) && ((bpf_ntohl(key.words[3]) >> 24) == 127 || !key.words[3]))
		key.words[3] = bpf_htonl(0x7f000001);
	flags = bpf_map_lookup_elem(&svc_nodes, &key);
	return flags ? *flags : 0;
}

/* :: or 0.0.0.0: the loopback address of whoever sends there, and no key but of NodePorts. */
static __always_inline bool is_unspecified(const struct svc_address *address)
{
	return !address->words[3] && !address->words[0] && !address->words[1] && (!address->words[2] || is_v4(address));
}

/*
 * The frontend at an address and port, NodePorts included. `node`: what svc_nodes has of the address where it is a NodePort, else 0. The second look-up of
 * most misses costs less than to look for the address among the nodes' first. A NodePort precedes an address that anybody may claim.
 */
static __always_inline struct svc_frontend *find_frontend(const struct svc_address *address, __be16 port, __u8 protocol,
							   __u8 scope, __u32 *node)
{
	struct svc_frontend_key key = {.address = *address, .port = port, .protocol = protocol, .scope = scope};
	struct svc_frontend *frontend, *claimed = is_unspecified(address) ? NULL : bpf_map_lookup_elem(&svc_frontends, &key);

	*node = 0;
	if (claimed && !(claimed->flags & SVC_EXTERNAL))
		return claimed;
	if (is_v4(address))
		address_v4(&key.address, 0);
	else
		__builtin_memset(&key.address, 0, sizeof(key.address));
	frontend = bpf_map_lookup_elem(&svc_frontends, &key);
	if (frontend)
		*node = node_flags(address);
	return *node ? frontend : claimed;
}

/* Whether a frontend's source ranges have the client, if it has any. */
static __always_inline bool source_allowed(const struct svc_frontend *frontend, const struct svc_address *client)
{
	struct svc_source who = {.bits = 160, .service = frontend->service, .address = *client};

	return !(frontend->flags & SVC_SOURCES) || bpf_map_lookup_elem(&svc_sources, &who);
}

/* No shorter than asked for: ticks are longer than seconds. */
static __always_inline __u32 affinity_ticks(__u32 seconds)
{
	return (__u32)(((__u64)seconds * 1000000000ULL >> TICK_SHIFT) + 1);
}

/*
 * A backend of the frontend for a client; NULL where it has none. `seed` spreads clients. With affinity the client's last backend, while that is one of
 * its backends still and the time is not over. `picked`: its number.
 */
static __always_inline struct svc_backend *pick_backend(const struct svc_frontend *frontend,
							 const struct svc_address *client, __u32 seed, __u32 *picked)
{
	struct svc_client_key who = {.service = frontend->service, .client = *client};
	struct svc_slot_key slot = {.service = frontend->service};
	struct svc_member member = {.service = frontend->service};
	__u32 count = READ_ONCE(frontend->count), now = now_ticks();
	struct svc_client chosen = {.last_seen = now};
	struct svc_backend *backend;
	struct svc_slot *found;

	if (!count)
		return NULL;
	if (frontend->flags & SVC_AFFINITY) {
		struct svc_client *last = bpf_map_lookup_elem(&svc_clients, &who);

		if (last && now - last->last_seen <= affinity_ticks(frontend->affinity_seconds)) {
			member.backend = last->backend;
			backend = bpf_map_lookup_elem(&svc_backends, &member.backend);
			if (backend && bpf_map_lookup_elem(&svc_members, &member)) {
				last->last_seen = now;
				*picked = member.backend;
				return backend;
			}
		}
	}
	slot.index = seed % count;
	found = bpf_map_lookup_elem(&svc_slots, &slot);
	if (!found && slot.index) {
		/* The count that was read is over: the first slot lasts as long as there is one. */
		slot.index = 0;
		found = bpf_map_lookup_elem(&svc_slots, &slot);
	}
	if (!found)
		return NULL;
	chosen.backend = READ_ONCE(found->backend);
	if (READ_ONCE(found->service) != slot.service)
		return NULL;
	*picked = chosen.backend;
	backend = bpf_map_lookup_elem(&svc_backends, &chosen.backend);
	if (backend && (frontend->flags & SVC_AFFINITY))
		bpf_map_update_elem(&svc_clients, &who, &chosen, BPF_ANY);
	return backend;
}

#endif
