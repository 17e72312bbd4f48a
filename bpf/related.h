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
 * An error carries no more than this (RFC 1812, 4.3.2.3; RFC 4443, 2.4), so that it brings little of its sender's own. Of IPv4 Linux counts the IP
 * header, too (__icmp_send in net/ipv4/icmp.c); the RFC can be read otherwise, and a router that does so is heard.
 */
#define ICMP_ERROR_BYTES 576
#define ICMPV6_ERROR_BYTES 1280

/*
 * Whether the packet's sender may tell of a flow with the other end that `quoted` goes to: as that end, or as a router. A pod is none; nor is an address
 * whose identity is not known, which is one of a pod network and never more allowed than a known pod.
 */
static __always_inline bool on_the_way(const struct packet *p, const struct ct_key *quoted)
{
	struct ipcache_key source = {};
	__u32 sender;

	if (p->family == 6 ? address6_same(&p->key.src6, &quoted->dst6) : p->key.src == quoted->dst)
		return true;
	address_key(&source, &p->key, p->family, false);
	sender = peer_of(&source, WEIR_INGRESS, p->local, p->ep.word);
	return sender && scope_class(sender) != CLASS_CLUSTER;
}

/* Reads the quoted IP header at `at` into `p->quoted` and `p->quoted_headers`; false where it is not whole, or no first fragment's. */
static __noinline bool quoted_addresses(struct __sk_buff *skb, struct packet *p, __u32 at)
{
	struct headers *h = &p->quoted_headers;
	struct ct_key *q = &p->quoted;

	h->end = p->headers.end;
	if (p->family == 6) {
		struct ipv6hdr ip;

		if (at + sizeof(ip) > h->end || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 6)
			return false;
		__builtin_memcpy(&q->src6, &ip.saddr, sizeof(ip.saddr));
		__builtin_memcpy(&q->dst6, &ip.daddr, sizeof(ip.daddr));
		h->l4 = at + sizeof(ip);
		h->protocol = ip.nexthdr;
		h->offset = h->before = h->more = h->fragmented = 0;
		return !v6_is_extension(ip.nexthdr) || (headers_follow(skb, h) && !h->offset);
	} else {
		struct iphdr ip;

		if (at + sizeof(ip) > h->end || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5 ||
		    (bpf_ntohs(ip.frag_off) & IP_OFFSET_MASK))
			return false;
		q->addresses = ct_addresses(ip.saddr, ip.daddr);
		h->l4 = at + ip.ihl * 4;
		h->protocol = ip.protocol;
		return true;
	}
}

static __always_inline bool quotes_own(const struct packet *p)
{
	return p->family == 6 ? address6_same(&p->quoted.src6, &p->key.dst6) : p->quoted.src == p->key.dst;
}

/*
 * Reads the quoted packet into `p->quoted`, oriented as it was sent; false when it names no flow that the sender may tell of. Only what lies
 * within the error's own length is a quote: its receiver does not see what pads the frame. Not inline, so that its stack does not
 * add to that of flow_allowed.
 */
static __noinline bool quoted_flow(struct __sk_buff *skb, struct packet *p)
{
	__u32 bytes = p->headers.end - p->headers.l4, at;
	struct ct_key *q = &p->quoted;
	__u8 l4[8], protocol;

	if (p->family == 6 ? p->headers.end - ETH_HLEN > ICMPV6_ERROR_BYTES : bytes > ICMP_ERROR_BYTES)
		return false;
	if (!quoted_addresses(skb, p, p->headers.l4 + QUOTE_OFFSET) || !quotes_own(p) || !on_the_way(p, q))
		return false;
	at = p->quoted_headers.l4;
	protocol = p->quoted_headers.protocol;
	if (at + sizeof(l4) > p->headers.end || bpf_skb_load_bytes(skb, at, l4, sizeof(l4)))
		return false;

	q->rest = ct_rest(p->ep.id, protocol, (p->direction & 1) ^ 1);
	if (protocol == icmp_of(p->family)) {
		int query = icmp_query(l4[0], p->family);

		if (query < 0)
			return false;
		/* An answer was quoted: its query came the other way. */
		if (query != l4[0])
			flow_reverse(q, q, p->family);
		__builtin_memcpy(&q->sport, l4 + 4, 2);
		q->dport = bpf_htons(query);
		return true;
	}
	if (!is_icmp(protocol) && l4_header_bytes(protocol)) {
		__builtin_memcpy(&q->sport, l4, 2);
		__builtin_memcpy(&q->dport, l4 + 2, 2);
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
	struct ct_value *e = ct_find(flow, p->family);
	__u64 current, seen;
	struct decision d = {};

	if (!e)
		return false;
	/* Its opener's packet is not at hand: the entry says who that is. */
	current = ct_current(flow, p->family, p->ep.word, READ_ONCE(e->word) & CT_LOCAL);
	switch (look(e, flow, current, own, &seen)) {
	case CT_CURRENT:
		/* What is between a pod and a proxy is no business of others. */
		return !(seen & CT_PROXIED);
	case CT_UNDECIDED:
		decide_again(p->ep.word, flow, p->family, current, seen, false, &d);
		ct_settle(e, seen, current, d.reason == REASON_NONE, d.listener);
		return d.reason == REASON_NONE && !d.listener;
	default:
		return false;
	}
}

static __noinline bool icmp_error_related(struct __sk_buff *skb, struct packet *p)
{
	if (!quoted_flow(skb, p))
		return false;
	if (flow_allowed(p, &p->quoted, false))
		return true;
	if (p->quoted.protocol == icmp_of(p->family))
		return false;
	flow_reverse(&p->quoted, &p->quoted, p->family);
	return flow_allowed(p, &p->quoted, false);
}

#endif
