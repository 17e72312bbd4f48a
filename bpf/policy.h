/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The decision about a new flow: peer address -> identity -> class -> verdict. */
#ifndef WEIR_POLICY_H
#define WEIR_POLICY_H

#include <linux/in.h>
#include <linux/in6.h>

#include "maps.h"

struct decision {
	__u32 reason; /* REASON_NONE = allow */
	__u32 cookie;
	__u32 identity; /* of the peer; 0 when unknown or not looked up */
	__u32 listener; /* of the proxy that decides; 0: none does */
};

#define IDENTITY_HOST 1
#define IDENTITY_WORLD 2
#define IDENTITY_WORLD_V6 10
#define IDENTITY_REMOTE_NODE 6
#define IDENTITY_KUBE_APISERVER 7

#define IS_LOCAL_CIDR(identity) ((identity) >> 24 == 1)
/* Another node that rules tell from the others. */
#define IS_NODE(identity) ((identity) >> 24 == 2)
#define SERVES_API 0x00800000

static __always_inline void key_v4(struct ipcache_key *key, __be32 address)
{
	key->prefixlen = IPCACHE_V4_BITS;
	key->family = 4;
	key->v4 = address;
}

static __always_inline void key_v6(struct ipcache_key *key, const struct address6 *address)
{
	key->prefixlen = IPCACHE_V6_BITS;
	key->family = 6;
	key->v6 = *address;
}

/* The key of a flow's source or destination. */
static __always_inline void address_key(struct ipcache_key *key, const struct ct_key *flow, __u32 family, bool destination)
{
	if (family == 6)
		key_v6(key, destination ? &flow->dst6 : &flow->src6);
	else
		key_v4(key, destination ? flow->dst : flow->src);
}

/*
 * Whose the element says its addresses are to an endpoint with this word. It may be replaced under us, never changed: an element that is given to another
 * prefix meanwhile is what a packet of a moment later finds.
 */
static __always_inline __u32 identity_in(const struct ipcache_value *v, __u64 word)
{
	return (__s32)(WORD_REVISION(word) - READ_ONCE(v->since)) >= 0 ? READ_ONCE(v->after) : READ_ONCE(v->before);
}

/* The identity of the longest prefix in the ipcache that has at most the key's bits and holds its address; 0: there is none. */
static __always_inline __u32 identity_at(const struct ipcache_key *key, __u64 word)
{
	struct ipcache_value *v = bpf_map_lookup_elem(&ipcache, key);

	return v ? identity_in(v, word) : 0;
}

/*
 * The class of an identity that the policy does not name. Reserved identities other than world are always named where
 * they matter, so here they are as little as unknown ones.
 */
static __always_inline __u16 scope_class(__u32 identity)
{
	if ((identity >= 100 && identity <= 65535) || identity >> 24 == 3)
		return CLASS_CLUSTER;
	if (identity == IDENTITY_WORLD || identity == 9 || identity == IDENTITY_WORLD_V6 || IS_LOCAL_CIDR(identity))
		return CLASS_WORLD;
	return CLASS_UNKNOWN;
}

/* Whom an address of the family belongs to that nobody else has. */
static __always_inline __u32 world_of(__u32 family)
{
	return family == 6 ? IDENTITY_WORLD_V6 : IDENTITY_WORLD;
}

#define NOT_NAMED (-1)

/* The class that the policy gives the identity itself. */
static __always_inline int named_class(void *classes, __u32 identity, __u32 direction)
{
	struct class_key key = {.identity = identity, .direction = direction};
	__u64 proof = ((__u64)identity << 32) | (direction << 16);
	int attempt;

	/* A value that does not repeat its key was replaced under us: the second look sees what replaced it. */
#pragma unroll
	for (attempt = 0; attempt < 2; attempt++) {
		struct class_value *v = bpf_map_lookup_elem(classes, &key);
		__u64 word;

		if (!v)
			return NOT_NAMED;
		word = READ_ONCE(v->word);
		if ((word & ~0xffffULL) == proof)
			return word & 0xffff;
	}
	return CLASS_UNKNOWN;
}

/*
 * The class of the address `key`, whose identity it is. A node that this policy does not name is any remote node. Where only other policies name its prefix, the class is that of the longest prefix around it
 * which this policy names, or else of the world: a lookup with fewer bits finds the next prefix around.
 */
static __always_inline __u16 class_of(void *classes, __u32 identity, struct ipcache_key *key, __u32 direction, __u64 word)
{
	__u32 world = world_of(key->family);
	int step;

	/* Its own prefix is looked up once more, then at most 128 around it. */
	for (step = 0; step < 130; step++) {
		int class = named_class(classes, identity, direction);
		struct ipcache_value *v;
		__u32 around;

		if (class != NOT_NAMED)
			return class;
		if (IS_NODE(identity)) {
			identity = identity & SERVES_API ? IDENTITY_KUBE_APISERVER : IDENTITY_REMOTE_NODE;
			continue;
		}
		if (!IS_LOCAL_CIDR(identity))
			return scope_class(identity);
		v = bpf_map_lookup_elem(&ipcache, key);
		around = v && v->bits ? identity_in(v, word) : world;
		if (IS_LOCAL_CIDR(around) || around == world)
			identity = around;
		if (v)
			key->prefixlen = IPCACHE_FAMILY_BITS + v->bits - 1;
	}
	return CLASS_UNKNOWN;
}

/* ICMP of the other family is a protocol like any. */
static __always_inline __u8 decided_protocol(__u8 protocol, __u32 family)
{
	switch (protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		return protocol;
	case IPPROTO_ICMP:
		return family == 4 ? protocol : PROTOCOL_OTHER;
	case IPPROTO_ICMPV6:
		return family == 6 ? protocol : PROTOCOL_OTHER;
	default:
		return PROTOCOL_OTHER;
	}
}

/*
 * The peer of a flow. What the node itself sends to a pod is the host's, whichever of the node's addresses it has. What an interface has
 * brought with an address of this node is masqueraded, as by kube-proxy for a NodePort: its sender is not known, and is no more than world.
 */
static __always_inline __u32 peer_of(const struct ipcache_key *key, __u32 direction, bool local, __u64 word)
{
	__u32 identity;

	if (direction == WEIR_INGRESS && local)
		return IDENTITY_HOST;
	identity = identity_at(key, word);
	return direction == WEIR_INGRESS && identity == IDENTITY_HOST ? world_of(key->family) : identity;
}

/* The policy's row for packets of the class. `kind`: 0, or VERDICT_BY_ADDRESS for a class of addresses. */
static __always_inline struct verdict_value *row_of(void *verdicts, __u16 class, const struct ct_key *flow, __u32 family, __u8 kind)
{
	struct verdict_key key = {
		.prefixlen = VERDICT_FULL_BITS,
		.class = bpf_htons(class),
		.direction = (flow->direction & 1) | kind,
		.protocol = decided_protocol(flow->protocol, family),
	};

	key.port = key.protocol == PROTOCOL_OTHER ? bpf_htons(flow->protocol) : flow->dport;
	return bpf_map_lookup_elem(verdicts, &key);
}

/* The policy's row for packets of the peer's address, where it is the identity's. */
static __always_inline struct verdict_value *row_of_address(void *verdicts, const struct ct_key *flow, __u32 family, __u32 identity)
{
	bool destination = (flow->direction & 1) == WEIR_EGRESS;
	struct verdict_key key = {
		.prefixlen = family == 6 ? VERDICT_V6_BITS : VERDICT_V4_BITS,
		.direction = (flow->direction & 1) | VERDICT_ADDRESSES,
		.protocol = family,
	};
	struct verdict_value *of;

	if (family == 6)
		key.v6 = destination ? flow->dst6 : flow->src6;
	else
		key.v4 = destination ? flow->dst : flow->src;
	of = bpf_map_lookup_elem(verdicts, &key);
	if (!of || (of->identity && of->identity != identity))
		return NULL;
	return row_of(verdicts, of->cookie, flow, family, VERDICT_BY_ADDRESS);
}

/*
 * Broadcast and multicast: whoever listens, first of all the node itself. A directed broadcast is one of the node's addresses in the ipcache.
 */
static __always_inline bool is_group(const struct ct_key *flow, __u32 family)
{
	if (family == 6)
		return flow->dst6.bytes[0] == 0xff;
	return (flow->dst & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || flow->dst == 0xffffffff;
}

/* The policy's row for names that the flow's destination has. */
static __always_inline struct verdict_value *row_of_names(void *classes, void *verdicts, const struct ct_key *flow, __u32 family)
{
	struct name_key key = {.family = family};
	struct name_value *of;
	int class;

	if (family == 6)
		key.v6 = flow->dst6;
	else
		key.v4 = flow->dst;
	of = bpf_map_lookup_elem(&names, &key);
	class = of ? named_class(classes, READ_ONCE(of->identity), WEIR_EGRESS) : NOT_NAMED;
	return class == NOT_NAMED ? NULL : row_of(verdicts, class, flow, family, 0);
}

/* The lower, the more it counts. */
static __always_inline __u32 rank_of(const struct verdict_value *row)
{
	switch (row->verdict) {
	case VERDICT_ALLOW:
		return row->proxy_port ? 0 : 0x30000;
	case VERDICT_REDIRECT:
		return 0x20000 + row->priority;
	case VERDICT_AUTHENTICATE:
		return 0x10000;
	default:
		return 0;
	}
}

/* Of two that decide alike, that of the lower cookie, 0 last. */
static __always_inline struct verdict_value *higher(struct verdict_value *row, struct verdict_value *other)
{
	if (rank_of(row) != rank_of(other))
		return rank_of(row) < rank_of(other) ? row : other;
	return row->cookie - 1 <= other->cookie - 1 ? row : other;
}

/* The listener of the proxy that the row hands the flow to; 0: none. */
static __always_inline __u32 listener_of(const struct verdict_value *row, const struct ct_key *flow)
{
	bool is_proxied = row->verdict == VERDICT_REDIRECT && (flow->direction & 1) == WEIR_EGRESS &&
			  (flow->protocol == IPPROTO_TCP || flow->protocol == IPPROTO_UDP);

	return is_proxied ? bpf_ntohs(row->proxy_port) : 0;
}

static __always_inline bool allows(const struct verdict_value *row)
{
	return row && row->verdict == VERDICT_ALLOW && !row->proxy_port;
}

static __always_inline __u32 refusal(const struct verdict_value *row)
{
	switch (row->verdict) {
	case VERDICT_DENY:
		return REASON_POLICY_DENIED;
	case VERDICT_REDIRECT:
		return REASON_NO_PROXY;
	case VERDICT_AUTHENTICATE:
		return REASON_NO_AUTHENTICATION;
	default:
		return REASON_POLICY;
	}
}

/* To a group: allowed where the same flow is allowed to the host and to all pods. Never told of a drop: a rule that allows one of them. */
static __always_inline void decide_group(void *classes, void *verdicts, const struct ct_key *flow, __u32 family, struct decision *d)
{
	int class = named_class(classes, IDENTITY_HOST, WEIR_EGRESS);
	struct verdict_value *row = row_of(verdicts, class == NOT_NAMED ? CLASS_UNKNOWN : class, flow, family, 0);

	d->reason = REASON_GROUP_ADDRESS;
	if (allows(row)) {
		row = row_of(verdicts, CLASS_CLUSTER, flow, family, 0);
		if (allows(row))
			d->reason = REASON_NONE;
	}
	if (row)
		d->cookie = row->cookie;
}

/*
 * Decides `flow` (initiator to responder) in its own direction by the policy of `word`. Anything that is missing drops.
 * An allow with a proxy port is none.
 *
 * Not static: the verifier checks it once, for any arguments, and not once more for every path to a call.
 */
__noinline int decide(__u64 word, const struct ct_key *flow, __u32 family, bool local, struct decision *d)
{
	struct ipcache_key peer = {};
	struct verdict_value *row;
	void *classes, *verdicts;
	__u32 direction, slot;

	if (!flow || !d)
		return 0;
	direction = flow->direction & 1;
	slot = WORD_SLOT(word);
	d->cookie = 0;
	d->identity = 0;
	d->listener = 0;
	d->reason = REASON_NONE;
	if (!(WORD_FLAGS(word) & (ENDPOINT_INGRESS_ENFORCED << direction)))
		return 0;

	classes = bpf_map_lookup_elem(&policy_classes, &slot);
	verdicts = bpf_map_lookup_elem(&policy_verdicts, &slot);
	if (!classes || !verdicts) {
		d->reason = REASON_NO_POLICY;
		return 0;
	}
	if (direction == WEIR_EGRESS && unlikely(is_group(flow, family))) {
		decide_group(classes, verdicts, flow, family, d);
		return 0;
	}

	address_key(&peer, flow, family, direction == WEIR_EGRESS);
	d->identity = peer_of(&peer, direction, local, word);
	row = row_of(verdicts, class_of(classes, d->identity, &peer, direction, word), flow, family, 0);
	if (!row && d->identity)
		row = row_of_address(verdicts, flow, family, d->identity);
	if (direction == WEIR_EGRESS && scope_class(d->identity) == CLASS_WORLD) {
		struct verdict_value *named = row_of_names(classes, verdicts, flow, family);

		if (named)
			row = row ? higher(row, named) : named;
	}
	if (!row) {
		d->reason = d->identity ? REASON_POLICY : REASON_UNKNOWN_IDENTITY;
		return 0;
	}
	d->cookie = row->cookie;
	d->listener = listener_of(row, flow);
	if (!allows(row) && !d->listener)
		d->reason = refusal(row);
	return 0;
}

/*
 * Decides a flow whose entry's word is `seen`. A connection with a proxy cannot go on with the server, which has another one with the proxy: its initiator opens
 * a new one (`opens`). One with the server is reset by the proxy, which does not know it.
 */
static __always_inline void decide_again(__u64 word, const struct ct_key *flow, __u32 family, __u64 current, __u64 seen, bool opens,
					 struct decision *d)
{
	decide(word, flow, family, current & CT_LOCAL, d);
	if (flow->protocol == IPPROTO_TCP && !opens && (seen & CT_PROXIED) && d->reason == REASON_NONE && !d->listener)
		d->reason = REASON_NO_PROXY;
}

#endif
