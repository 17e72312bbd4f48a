/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * ICMP errors, path MTU discovery among them. The quoted packet travelled the other way, to or from this endpoint; it is looked up
 * as what it was: a packet of a flow or a reply of one. The error must go to the quoted packet's sender, and any router on the way may
 * send it, so that it keeps no flow alive. A pod is on the way of its own flows alone. An error about a flow that is denied, not known, or
 * not the sending pod's, is judged on its own.
 */
#ifndef WEIR_RELATED_H
#define WEIR_RELATED_H

#include "parse.h"
#include "policy.h"

#define QUOTE_OFFSET 8

/*
 * An error carries no more than this (RFC 1812, 4.3.2.3), so that it brings little of its sender's own. Linux counts the IP header, too
 * (__icmp_send in net/ipv4/icmp.c); the RFC can be read otherwise, and a router that does so is heard.
 */
#define ICMP_ERROR_BYTES 576

/*
 * Whether the packet's sender may tell of a flow with `other_end`: as that end, or as a router. A pod is none; nor is an address whose
 * identity is not known, which is one of a pod network and never more allowed than a known pod.
 */
static __always_inline bool on_the_way(const struct packet *p, __be32 other_end)
{
	struct ipcache_key source = {};
	__u32 sender;

	if (p->key.src == other_end)
		return true;
	address_key(&source, p->key.src);
	sender = peer_of(&source, WEIR_INGRESS, p->local);
	return sender && scope_class(sender) != CLASS_CLUSTER;
}

/*
 * Reads the quoted packet into `key`, oriented as it was sent; false when it names no flow that the sender may tell of. Only what lies
 * within the error's own total length is a quote: its receiver does not see what pads the frame. Not inline, so that its stack does not
 * add to that of flow_allowed.
 */
static __noinline bool quoted_flow(struct __sk_buff *skb, const struct packet *p, struct ct_key *key)
{
	__u32 at = ETH_HLEN, end;
	struct iphdr ip;
	__u8 l4[8];

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return false;
	end = at + bpf_ntohs(ip.tot_len);
	at += ip.ihl * 4;
	if (end - at > ICMP_ERROR_BYTES)
		return false;
	at += QUOTE_OFFSET;
	if (at + sizeof(ip) > end || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return false;
	if (ip.version != 4 || ip.ihl < 5 || (bpf_ntohs(ip.frag_off) & IP_OFFSET_MASK) || ip.saddr != p->key.dst ||
	    !on_the_way(p, ip.daddr))
		return false;
	at += ip.ihl * 4;
	if (at + sizeof(l4) > end || bpf_skb_load_bytes(skb, at, l4, sizeof(l4)))
		return false;

	key->addresses = ct_addresses(ip.saddr, ip.daddr);
	key->rest = ct_rest(p->ep.id, ip.protocol, (p->direction & 1) ^ 1);
	if (ip.protocol == IPPROTO_ICMP) {
		int query = icmp_query(l4[0]);

		if (query < 0)
			return false;
		__builtin_memcpy(&key->sport, l4 + 4, 2);
		key->dport = bpf_htons(query);
		/* An answer was quoted: its query came the other way. */
		if (query != l4[0]) {
			key->addresses = key->addresses << 32 | key->addresses >> 32;
			key->direction ^= 1;
		}
		return true;
	}
	if (l4_header_bytes(ip.protocol)) {
		__builtin_memcpy(&key->sport, l4, 2);
		__builtin_memcpy(&key->dport, l4 + 2, 2);
	}
	return true;
}

/* ct_look, not inline: flow_allowed has no stack to spare (bpf/testing/stack.ts). `word`: as ct_look's. */
static __noinline enum ct_status look(struct ct_value *e, const struct ct_key *flow, __u64 current, bool own, __u64 *word)
{
	return e && word ? ct_look(e, flow->protocol, current, now_stamp(), own, word) : CT_MISS;
}

/* Whether `flow` is known and allowed by the policy of this packet's revision. `own`: the packet is one of that flow, and keeps it alive. */
static __noinline bool flow_allowed(const struct packet *p, const struct ct_key *flow, bool own)
{
	struct ct_value *e = bpf_map_lookup_elem(&ct4, flow);
	__u64 current, seen;
	struct decision d = {};

	if (!e)
		return false;
	/* Its opener's packet is not at hand: the entry says who that is. */
	current = ct_current(flow, p->ep.word, READ_ONCE(e->word) & CT_LOCAL);
	switch (look(e, flow, current, own, &seen)) {
	case CT_CURRENT:
		return true;
	case CT_UNDECIDED:
		decide(p->ep.word, flow, current & CT_LOCAL, &d);
		ct_settle(e, seen, current, d.reason == REASON_NONE);
		return d.reason == REASON_NONE;
	default:
		return false;
	}
}

static __noinline bool icmp_error_related(struct __sk_buff *skb, const struct packet *p)
{
	struct ct_key quoted = {};

	if (!quoted_flow(skb, p, &quoted))
		return false;
	if (flow_allowed(p, &quoted, false))
		return true;
	if (quoted.protocol == IPPROTO_ICMP)
		return false;
	quoted = flow_reversed(&quoted);
	return flow_allowed(p, &quoted, false);
}

#endif
