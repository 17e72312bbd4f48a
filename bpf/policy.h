/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The decision about a new flow: peer address -> identity -> class -> verdict. */
#ifndef WEIR_POLICY_H
#define WEIR_POLICY_H

#include <linux/in.h>

#include "maps.h"

struct decision {
	__u32 reason; /* REASON_NONE = allow */
	__u32 cookie;
	__u32 identity; /* of the peer; 0 when unknown or not looked up */
};

#define IDENTITY_HOST 1
#define IDENTITY_WORLD 2

#define IS_LOCAL_CIDR(identity) ((identity) >> 24 == 1)

static __always_inline void address_key(struct ipcache_key *key, __be32 address)
{
	key->prefixlen = IPCACHE_V4_BITS;
	key->family = 4;
	key->v4 = address;
}

/* The identity of the longest prefix in the ipcache that has at most the key's bits and holds its address; 0: there is none. */
static __always_inline __u32 identity_at(const struct ipcache_key *key)
{
	struct ipcache_value *v = bpf_map_lookup_elem(&ipcache, key);

	return v ? READ_ONCE(v->identity) : 0;
}

static __always_inline __u32 identity_of(__be32 address)
{
	struct ipcache_key key = {};

	address_key(&key, address);
	return identity_at(&key);
}

/*
 * The class of an identity that the policy does not name. Reserved identities other than world are always named where
 * they matter, so here they are as little as unknown ones.
 */
static __always_inline __u16 scope_class(__u32 identity)
{
	if ((identity >= 100 && identity <= 65535) || identity >> 24 == 3)
		return CLASS_CLUSTER;
	if (identity == IDENTITY_WORLD || identity == 9 || identity == 10 || IS_LOCAL_CIDR(identity))
		return CLASS_WORLD;
	return CLASS_UNKNOWN;
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
 * The class of the address `key`, whose identity it is. Where only other policies name its prefix, the class is that of the longest prefix around it
 * which this policy names, or else of the world: a lookup with fewer bits finds the next prefix around.
 */
static __always_inline __u16 class_of(void *classes, __u32 identity, struct ipcache_key *key, __u32 direction)
{
	int step;

	/* Its own prefix is looked up once more, then at most 32 around it. */
	for (step = 0; step < 34; step++) {
		int class = named_class(classes, identity, direction);
		struct ipcache_value *v;
		__u32 around;

		if (class != NOT_NAMED)
			return class;
		if (!IS_LOCAL_CIDR(identity))
			return scope_class(identity);
		v = bpf_map_lookup_elem(&ipcache, key);
		around = v && v->bits ? READ_ONCE(v->identity) : IDENTITY_WORLD;
		if (IS_LOCAL_CIDR(around) || around == IDENTITY_WORLD)
			identity = around;
		if (v)
			key->prefixlen = IPCACHE_V4_BITS - 32 + v->bits - 1;
	}
	return CLASS_UNKNOWN;
}

static __always_inline __u8 decided_protocol(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_ICMP:
		return protocol;
	default:
		return PROTOCOL_OTHER;
	}
}

/*
 * The peer of a flow. What the node itself sends to a pod is the host's, whichever of the node's addresses it has. What an interface has
 * brought with an address of this node is masqueraded, as by kube-proxy for a NodePort: its sender is not known, and is no more than world.
 */
static __always_inline __u32 peer_of(const struct ipcache_key *key, __u32 direction, bool local)
{
	__u32 identity;

	if (direction == WEIR_INGRESS && local)
		return IDENTITY_HOST;
	identity = identity_at(key);
	return direction == WEIR_INGRESS && identity == IDENTITY_HOST ? IDENTITY_WORLD : identity;
}

/* The policy's row for packets of the class. */
static __always_inline struct verdict_value *row_of(void *verdicts, __u16 class, const struct ct_key *flow)
{
	struct verdict_key key = {
		.prefixlen = VERDICT_FULL_BITS,
		.class = bpf_htons(class),
		.direction = flow->direction & 1,
		.protocol = decided_protocol(flow->protocol),
	};

	key.port = key.protocol == PROTOCOL_OTHER ? 0 : flow->dport;
	return bpf_map_lookup_elem(verdicts, &key);
}

/*
 * Decides `flow` (initiator to responder) in its own direction by the policy of `word`. Anything that is missing drops.
 * A row with a proxy port is not an allow: there is no proxy to hand the flow to.
 *
 * Not static: the verifier checks it once, for any arguments, and not once more for every path to a call.
 */
__noinline int decide(__u64 word, const struct ct_key *flow, bool local, struct decision *d)
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
	d->reason = REASON_NONE;
	if (!(WORD_FLAGS(word) & (ENDPOINT_INGRESS_ENFORCED << direction)))
		return 0;

	address_key(&peer, direction == WEIR_EGRESS ? flow->dst : flow->src);
	d->identity = peer_of(&peer, direction, local);
	classes = bpf_map_lookup_elem(&policy_classes, &slot);
	verdicts = bpf_map_lookup_elem(&policy_verdicts, &slot);
	if (!classes || !verdicts) {
		d->reason = REASON_NO_POLICY;
		return 0;
	}

	row = row_of(verdicts, class_of(classes, d->identity, &peer, direction), flow);
	if (!row) {
		d->reason = d->identity ? REASON_POLICY : REASON_UNKNOWN_IDENTITY;
		return 0;
	}
	d->cookie = row->cookie;
	if (row->verdict == VERDICT_ALLOW && !row->proxy_port)
		return 0;
	d->reason = row->verdict == VERDICT_DENY ? REASON_POLICY_DENIED : REASON_POLICY;
	return 0;
}

#endif
