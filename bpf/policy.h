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

static __always_inline __u32 identity_of(__be32 address)
{
	struct ipcache_key key = {};
	struct ipcache_value *v;

	key.prefixlen = IPCACHE_V4_BITS;
	key.family = 4;
	*(__be32 *)key.addr = address;
	v = bpf_map_lookup_elem(&ipcache, &key);
	return v ? READ_ONCE(v->identity) : 0;
}

/*
 * The class of an identity that the policy does not name. Reserved identities other than world are always named where
 * they matter, so here they are as little as unknown ones.
 */
static __always_inline __u16 scope_class(__u32 identity)
{
	if ((identity >= 100 && identity <= 65535) || identity >> 24 == 3)
		return CLASS_CLUSTER;
	if (identity == IDENTITY_WORLD || identity == 9 || identity == 10 || identity >> 24 == 1)
		return CLASS_WORLD;
	return CLASS_UNKNOWN;
}

static __always_inline __u16 class_of(void *classes, __u32 identity, __u32 direction)
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
			return scope_class(identity);
		word = READ_ONCE(v->word);
		if ((word & ~0xffffULL) == proof)
			return word & 0xffff;
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
static __always_inline __u32 peer_of(const struct ct_key *flow, __u32 direction, bool local)
{
	__u32 identity;

	if (direction == WEIR_EGRESS)
		return identity_of(flow->dst);
	if (local)
		return IDENTITY_HOST;
	identity = identity_of(flow->src);
	return identity == IDENTITY_HOST ? IDENTITY_WORLD : identity;
}

/*
 * Decides `flow` (initiator to responder) in its own direction by the policy of `word`. Anything that is missing drops.
 * A row with a proxy port is not an allow: there is no proxy to hand the flow to.
 */
static __noinline void decide(__u64 word, const struct ct_key *flow, bool local, struct decision *d)
{
	__u32 direction = flow->direction & 1;
	__u32 slot = WORD_SLOT(word);
	struct verdict_key key = {};
	struct verdict_value *row;
	void *classes, *verdicts;

	d->cookie = 0;
	d->identity = 0;
	d->reason = REASON_NONE;
	if (!(WORD_FLAGS(word) & (ENDPOINT_INGRESS_ENFORCED << direction)))
		return;

	d->identity = peer_of(flow, direction, local);
	classes = bpf_map_lookup_elem(&policy_classes, &slot);
	verdicts = bpf_map_lookup_elem(&policy_verdicts, &slot);
	if (!classes || !verdicts) {
		d->reason = REASON_NO_POLICY;
		return;
	}

	key.prefixlen = VERDICT_FULL_BITS;
	key.class = bpf_htons(class_of(classes, d->identity, direction));
	key.direction = direction;
	key.protocol = decided_protocol(flow->protocol);
	key.port = key.protocol == PROTOCOL_OTHER ? 0 : flow->dport;
	row = bpf_map_lookup_elem(verdicts, &key);
	if (!row) {
		d->reason = d->identity ? REASON_POLICY : REASON_UNKNOWN_IDENTITY;
		return;
	}
	d->cookie = row->cookie;
	if (row->verdict == VERDICT_ALLOW && !row->proxy_port)
		return;
	d->reason = row->verdict == VERDICT_DENY ? REASON_POLICY_DENIED : REASON_POLICY;
}

#endif
