/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What pods send to addresses outside of the cluster leaves with an address of the node; what answers it comes back to them. Policy has judged it at the
 * pod's interface, on the pod's own address. The bytes shared with user space: ../maps.ts is the other half.
 */
#ifndef WEIR_MASQUERADE_H
#define WEIR_MASQUERADE_H

#include "nat-rewrite.h"

#define MASQ_PODS 1

/* Addresses that pods reach with their own: those of the cluster, and others that the configuration names. */
struct masq_prefix {
	__u32 prefixlen;
	struct nat_address address;
};

/* Of one of the node's interfaces: IPv4, IPv6; all 0 where it has none of that family. */
struct masq_addresses {
	struct nat_address of[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct masq_prefix);
	__type(value, __u32); /* MASQ_PODS, or 0 */
} masq_excluded SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32); /* index of the interface */
	__type(value, struct masq_addresses);
} masq_uplinks SEC(".maps");

_Static_assert(sizeof(struct masq_prefix) == 20, "masq_prefix");
_Static_assert(sizeof(struct masq_addresses) == 32, "masq_addresses");

static __always_inline __u32 *excluded(const struct nat_address *to)
{
	struct masq_prefix key = {.prefixlen = 128, .address = *to};

	return bpf_map_lookup_elem(&masq_excluded, &key);
}

/* The same of the destination of a packet that needs no closer look. */
static __always_inline __u32 *plainly_excluded(struct __sk_buff *skb)
{
	struct iphdr *ip = plain_ipv4(skb);
	struct nat_address to;

	if (!ip)
		return NULL;
	nat_v4(&to, ip->daddr);
	return excluded(&to);
}

/* The endpoint's address of the packet's family. */
static __always_inline void own_address(const struct endpoint *ep, const struct nat_packet *p, struct nat_address *own)
{
	if (p->v6)
		__builtin_memcpy(own, &ep->ipv6, sizeof(*own));
	else
		nat_v4(own, ep->ipv4);
}

static __always_inline bool is_own(const struct endpoint *ep, const struct nat_packet *p, const struct masq_addresses *node)
{
	struct nat_address own;

	if (WORD_FLAGS(ep->word) & ENDPOINT_NO_SOURCE_CHECK)
		return !nat_address_same(&p->tuple.src, &node->of[p->v6 & 1]);
	own_address(ep, p, &own);
	return nat_address_same(&p->tuple.src, &own);
}

/* Whether it belongs to a flow that somebody outside opened to the pod's own address: such a flow is known by that. */
static __noinline bool answers_outside(const struct nat_packet *p, const struct endpoint *ep)
{
	const struct nat_tuple *t = &p->tuple;
	__be16 dport = t->query ? bpf_htons(p->v6 ? 128 : 8) : t->sport;
	__u32 family = p->v6 ? 6 : 4;
	struct ct_value *e;
	struct ct_key key;
	__u64 seen;

	if (t->query == NAT_QUESTION)
		return false;
	if (family == 6) {
		__builtin_memcpy(&key.src6, &t->dst, sizeof(key.src6));
		__builtin_memcpy(&key.dst6, &t->src, sizeof(key.dst6));
	} else {
		key.addresses = ct_addresses(t->dst.words[3], t->src.words[3]);
	}
	key.rest = ct_rest(ep->id, t->protocol, WEIR_INGRESS) | (__u32)dport << 16 | t->dport;
	e = ct_find(&key, family);
	if (!e)
		return false;
	switch (ct_look(e, t->protocol, ct_current(&key, family, ep->word, READ_ONCE(e->word) & CT_LOCAL), now_stamp(), false, &seen)) {
	case CT_CURRENT:
	case CT_UNDECIDED:
		return true;
	default:
		return false;
	}
}

/* An error of a pod about packets of others, which it has no way to see. */
static __noinline bool tells_of_others(const struct nat_packet *p, __u32 from)
{
	struct nat_address own;
	struct endpoint ep;

	if (!p || !p->quote || !endpoint_find(from, &ep) || WORD_FLAGS(ep.word) & ENDPOINT_NO_SOURCE_CHECK)
		return false;
	own_address(&ep, p, &own);
	return nat_address_same(&p->src, &own) && !nat_address_same(&p->tuple.src, &own);
}

static __always_inline int masquerade_new(struct __sk_buff *skb, struct nat_packet *p, const struct endpoint *ep,
					  const struct masq_addresses *node)
{
	struct nat_scratch *s = nat_aside();

	if (!s)
		return nat_drop(skb, REASON_NAT_FULL, WEIR_EGRESS);
	s->flow.from = p->tuple;
	s->flow.to = p->tuple;
	s->flow.to.src = node->of[p->v6 & 1];
	s->flow.owner = ep->id;
	s->flow.flags = 0;
	s->flow.backend = 0;
	if (!s->flow.to.src.words[3])
		return nat_drop(skb, REASON_NAT_ADDRESS, WEIR_EGRESS);
	return nat_open(skb, p, nat_has_ports(p->protocol, p->tuple.query), WEIR_EGRESS);
}

static __always_inline int masquerade_out(struct __sk_buff *skb)
{
	__u32 from = skb->ingress_ifindex, to = skb->ifindex;
	struct masq_addresses *node;
	struct nat_packet *p;
	struct endpoint ep;

	if (from <= LOOPBACK_IFINDEX ? plainly_goes_on(skb) : !!plainly_excluded(skb))
		return TC_ACT_UNSPEC;
	p = read_packet(skb);
	if (!p)
		return TC_ACT_UNSPEC;
	if (from <= LOOPBACK_IFINDEX && !p->quote) {
		yield_port(p);
		return TC_ACT_UNSPEC;
	}
	if (excluded(&p->dst))
		return TC_ACT_UNSPEC;
	node = bpf_map_lookup_elem(&masq_uplinks, &to);
	if (node && tells_of_others(p, from))
		return nat_drop(skb, REASON_NAT_UNKNOWN, WEIR_EGRESS);
	switch (nat_known(skb, p, false, false)) {
	case NAT_UNKNOWN:
		break;
	case NAT_BROKEN:
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
	if (!node || !endpoint_find(from, &ep) || !is_own(&ep, p, node))
		return TC_ACT_UNSPEC;
	if (p->unknown)
		return nat_drop(skb, p->later_fragment ? REASON_FRAGMENT_WITHOUT_FIRST : REASON_NAT_UNKNOWN, WEIR_EGRESS);
	if (p->first_fragment)
		remember_ports(p);
	if (answers_outside(p, &ep))
		return TC_ACT_UNSPEC;
	/* An answer, or an error, about nothing that is known. */
	if (p->quote || p->tuple.query == NAT_ANSWER)
		return nat_drop(skb, REASON_NAT_UNKNOWN, WEIR_EGRESS);
	return masquerade_new(skb, p, &ep, node);
}

static __always_inline int masquerade_in(struct __sk_buff *skb)
{
	__u32 *what = plainly_excluded(skb);
	struct nat_packet *p;

	/* Answers that are to be translated are sent to the node. */
	if (what && *what == MASQ_PODS)
		return TC_ACT_UNSPEC;
	p = read_packet(skb);
	return p && nat_known(skb, p, true, false) == NAT_BROKEN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

#endif
