/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of translated flows, and what identifies a flow (nat.h). */
#ifndef WEIR_NAT_LAYOUT_H
#define WEIR_NAT_LAYOUT_H

#include <linux/in6.h>

#include "conntrack.h"

#define NAT_FLOWS 262144
#define NAT_SHARE (NAT_FLOWS / 8) /* of a pod */
#define NAT_OUTSIDE_SHARE (NAT_FLOWS / 2) /* of those outside together */
#define NAT_OWNERS 4096 /* endpoints, by the last bits of their ids; 0: those outside */
/* Ports that flows get: above those of NodePorts, where they are as Kubernetes has them. */
#define NAT_FIRST_PORT 32768
#define NAT_TRIES 16
#define NAT_COLLECT_TICKS 1
/* What nobody has answered for so long, and a handshake that is not done, makes room. */
#define NAT_OPENING_TICKS TICKS(5)

/* IPv4 as ::ffff:a.b.c.d. */
struct nat_address {
	__u32 words[4]; /* __be */
};

#define NAT_QUESTION 1
#define NAT_ANSWER 2

/* Of an ICMP query the identifier is the asking side's port, and `query` says which of the two it is. */
struct nat_tuple {
	struct nat_address src;
	struct nat_address dst;
	__be16 sport;
	__be16 dport;
	__u8 protocol;
	__u8 query;
	__u16 pad;
};

#define NAT_REPLIED 1
#define NAT_LASTING 2 /* its opener went on after an answer */
#define NAT_FIN_FORWARD 4
#define NAT_FIN_REPLY 8
#define NAT_RESET 16
#define NAT_INWARD 32 /* from outside to a Service, before it leaves the node again where its backend is elsewhere */

struct nat_flow {
	struct nat_tuple from; /* repeats the key: an element may become another flow's under a reader */
	struct nat_tuple to;
	__u32 last_seen; /* ticks */
	__u32 flags;
	__u32 owner;
	__u32 backend; /* of a Service's client: the number of the backend; else 0 */
	__be32 acked; /* of TCP: the number that the side within waits for: a reset from outside with another is not taken there (RFC 5961) */
};

struct nat_fragment_key {
	struct nat_address src;
	struct nat_address dst;
	__u32 id;
	__u32 protocol;
};

struct nat_fragment {
	__be16 sport;
	__be16 dport;
	__u32 query;
};

/* Counters of owners, and in the last element the tick of the last collection. */
#define NAT_COLLECTED NAT_OWNERS

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NAT_FLOWS);
	__type(key, struct nat_tuple);
	__type(value, struct nat_flow);
} nat_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NAT_FLOWS);
	__type(key, struct nat_tuple);
	__type(value, struct nat_tuple); /* key of the flow */
} nat_replies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAT_OWNERS + 1);
	__type(key, __u32);
	__type(value, __s32);
} nat_owners SEC(".maps");

/* Ports of first fragments: those behind them carry none. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct nat_fragment_key);
	__type(value, struct nat_fragment);
} nat_fragments SEC(".maps");

_Static_assert(sizeof(struct nat_tuple) == 40, "nat_tuple");
_Static_assert(sizeof(struct nat_flow) == 100, "nat_flow");
_Static_assert(sizeof(struct nat_fragment_key) == 40, "nat_fragment_key");

static __always_inline void nat_v4(struct nat_address *to, __be32 address)
{
	to->words[0] = 0;
	to->words[1] = 0;
	to->words[2] = bpf_htonl(0xffff);
	to->words[3] = address;
}

static __always_inline bool nat_is_v4(const struct nat_address *a)
{
	return !a->words[0] && !a->words[1] && a->words[2] == bpf_htonl(0xffff);
}

static __always_inline bool nat_address_same(const struct nat_address *a, const struct nat_address *b)
{
	return a->words[0] == b->words[0] && a->words[1] == b->words[1] && a->words[2] == b->words[2] &&
	       a->words[3] == b->words[3];
}

static __always_inline bool nat_same(const struct nat_tuple *a, const struct nat_tuple *b)
{
	return nat_address_same(&a->src, &b->src) && nat_address_same(&a->dst, &b->dst) && a->sport == b->sport &&
	       a->dport == b->dport && a->protocol == b->protocol && a->query == b->query;
}

/* What an answer says. */
static __always_inline void nat_reverse(const struct nat_tuple *t, struct nat_tuple *out)
{
	out->src = t->dst;
	out->dst = t->src;
	out->sport = t->dport;
	out->dport = t->sport;
	out->protocol = t->protocol;
	out->query = t->query ? t->query ^ (NAT_QUESTION | NAT_ANSWER) : 0;
	out->pad = 0;
}

#endif
