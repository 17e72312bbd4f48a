/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a tuple back to the packet: addresses and ports are written, with all checksums that cover them, and in an ICMP error those of the packet that it
 * quotes, too. Then what programs do with packets of flows that are known, and of new ones.
 */
#ifndef WEIR_NAT_REWRITE_H
#define WEIR_NAT_REWRITE_H

#include "metrics.h"
#include "nat-packet.h"

/* Where the checksum is that covers the L4 header at `l4`; 0: there is none to write. */
static __always_inline __u32 checksum_at(__u32 l4, __u8 protocol)
{
	if (is_icmp(protocol))
		return l4 + 2;
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP)
		return l4 + l4_checksum_offset(protocol);
	return 0;
}

/* A datagram without a checksum keeps none. */
static __always_inline __u64 checksum_flags(__u8 protocol)
{
	return protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

static __noinline bool write_address(struct __sk_buff *skb, struct nat_packet *p, struct nat_address *old, struct nat_address *new,
				     bool source)
{
	__u32 at, sum;

	if (!p || !old || !new)
		return false;
	if (nat_address_same(old, new))
		return true;
	sum = p->later_fragment ? 0 : checksum_at(p->l4, p->protocol);
	if (!p->v6) {
		at = p->l3 + (source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr));
		if (sum && p->protocol != IPPROTO_ICMP &&
		    bpf_l4_csum_replace(skb, sum, old->words[3], new->words[3], BPF_F_PSEUDO_HDR | checksum_flags(p->protocol) | 4))
			return false;
		return !bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), old->words[3], new->words[3], 4) &&
		       !bpf_skb_store_bytes(skb, at, &new->words[3], 4, 0);
	}
	at = p->l3 + (source ? offsetof(struct ipv6hdr, saddr) : offsetof(struct ipv6hdr, daddr));
	if (sum) {
		/* An IPv6 header has no checksum: what a device has summed up stays right. */
		__u64 pseudo = SKB_IP_SUMMED(kernel_skb(skb)) == CHECKSUM_PARTIAL ? BPF_F_PSEUDO_HDR : 0;
		__s64 by = bpf_csum_diff(old->words, sizeof(*old), new->words, sizeof(*new), 0);

		if (bpf_l4_csum_replace(skb, sum, 0, by, pseudo | checksum_flags(p->protocol)))
			return false;
	}
	return !bpf_skb_store_bytes(skb, at, new, sizeof(*new), 0);
}

/* A port, or the identifier of an echo. */
static __always_inline bool write_port(struct __sk_buff *skb, __u32 at, __u32 sum, __u8 protocol, __be16 old, __be16 new)
{
	if (old == new)
		return true;
	return !bpf_l4_csum_replace(skb, sum, old, new, checksum_flags(protocol) | 2) &&
	       !bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0);
}

/* Both ports of the L4 header at `l4`. `sum`: the checksum that covers them. */
static __always_inline bool write_ports(struct __sk_buff *skb, __u32 l4, __u32 sum, __u8 summed, const struct nat_tuple *old,
					const struct nat_tuple *new)
{
	if (old->query)
		return write_port(skb, l4 + 4, sum, summed, old->query == NAT_QUESTION ? old->sport : old->dport,
				  old->query == NAT_QUESTION ? new->sport : new->dport);
	if (old->protocol != IPPROTO_TCP && old->protocol != IPPROTO_UDP)
		return true;
	return write_port(skb, l4, sum, summed, old->sport, new->sport) &&
	       write_port(skb, l4 + 2, sum, summed, old->dport, new->dport);
}

/* An address of the quoted packet. Its own header's checksum makes up for it in the error's, which an IPv6 header has not. */
static __noinline bool write_quoted_address(struct __sk_buff *skb, struct nat_packet *p, struct nat_address *old,
					    struct nat_address *new, bool source)
{
	__u32 at;

	if (!p || !old || !new)
		return false;
	if (nat_address_same(old, new))
		return true;
	if (!p->v6) {
		at = p->quote + (source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr));
		return !bpf_l3_csum_replace(skb, p->quote + offsetof(struct iphdr, check), old->words[3], new->words[3], 4) &&
		       !bpf_skb_store_bytes(skb, at, &new->words[3], 4, 0);
	}
	at = p->quote + (source ? offsetof(struct ipv6hdr, saddr) : offsetof(struct ipv6hdr, daddr));
	return !bpf_l4_csum_replace(skb, p->l4 + 2, 0, bpf_csum_diff(old->words, sizeof(*old), new->words, sizeof(*new), 0), 0) &&
	       !bpf_skb_store_bytes(skb, at, new, sizeof(*new), 0);
}

static __always_inline bool rewrite_error(struct __sk_buff *skb, struct nat_packet *p)
{
	struct nat_scratch *s = nat_aside();

	if (!s)
		return false;
	/* As quoted, and as it is to be quoted. */
	nat_reverse(&p->tuple, &s->key);
	nat_reverse(&p->to, &s->found);
	return write_quoted_address(skb, p, &s->key.src, &s->found.src, true) &&
	       write_quoted_address(skb, p, &s->key.dst, &s->found.dst, false) &&
	       write_ports(skb, p->quoted_l4, p->l4 + 2, p->protocol, &s->key, &s->found) &&
	       (!nat_address_same(&p->src, &p->tuple.src) || write_address(skb, p, &p->src, &p->to.src, true)) &&
	       (!nat_address_same(&p->dst, &p->tuple.dst) || write_address(skb, p, &p->dst, &p->to.dst, false));
}

/* Makes the packet what p->to says. False: it is half written, and must not go on. */
static __noinline bool rewrite(struct __sk_buff *skb, struct nat_packet *p)
{
	if (!p)
		return false;
	if (p->quote)
		return rewrite_error(skb, p);
	if (!p->later_fragment &&
	    !write_ports(skb, p->l4, checksum_at(p->l4, p->protocol), p->protocol, &p->tuple, &p->to))
		return false;
	return write_address(skb, p, &p->src, &p->to.src, true) && write_address(skb, p, &p->dst, &p->to.dst, false);
}

/* A packet of the flow. `in`: from outside. */
static __always_inline void nat_touch(struct nat_flow *f, const struct nat_packet *p, bool reply, bool in)
{
	__u32 now = now_ticks(), before = READ_ONCE(f->flags), flags = before;
	__u8 tcp_flags = p->tcp.flags;

	if (reply)
		flags |= NAT_REPLIED;
	else if (before & NAT_REPLIED)
		flags |= NAT_LASTING;
	if (tcp_flags & TCP_FIN)
		flags |= reply ? NAT_FIN_REPLY : NAT_FIN_FORWARD;
	if ((tcp_flags & TCP_RST) && (!in || p->tcp.seq == READ_ONCE(f->acked)))
		flags |= NAT_RESET;
	if (!reply && tcp_opens(tcp_flags))
		flags &= ~(NAT_RESET | NAT_FIN_FORWARD | NAT_FIN_REPLY);
	if (flags != before)
		WRITE_ONCE(f->flags, flags);
	if (!in && (tcp_flags & TCP_ACK))
		WRITE_ONCE(f->acked, p->tcp.ack);
	if (READ_ONCE(f->last_seen) != now)
		WRITE_ONCE(f->last_seen, now);
}

enum nat_known {
	NAT_UNKNOWN,
	NAT_TRANSLATED,
	NAT_BROKEN, /* half written: must not go on */
	NAT_OTHERS, /* of a flow that another program translates */
};

/*
 * A packet of a known flow becomes what it must. `in`: it comes from outside. `outsiders`: flows of clients outside are meant, else those of pods. Each
 * flow has its packets in one direction, and its answers in the other.
 */
static __always_inline enum nat_known nat_known(struct __sk_buff *skb, struct nat_packet *p, bool in, bool outsiders)
{
	struct nat_flow *f;
	bool reply, inward;

	if (p->unknown)
		return NAT_UNKNOWN;
	f = nat_find(&p->tuple, &p->to, &reply);
	if (!f)
		return NAT_UNKNOWN;
	if (!f->owner != outsiders)
		return NAT_OTHERS;
	inward = READ_ONCE(f->flags) & NAT_INWARD;
	if ((reply == in) == inward)
		return NAT_UNKNOWN;
	/* An error keeps no flow alive: any router sends it. */
	if (!p->quote)
		nat_touch(f, p, reply, in);
	if (p->first_fragment)
		remember_ports(p);
	return rewrite(skb, p) ? NAT_TRANSLATED : NAT_BROKEN;
}

/*
 * The node itself sends it. Where a flow has the port that a socket of the node has taken since, the socket has it from now on. Of TCP the first packet
 * says that.
 */
static __always_inline void yield_port(struct nat_packet *p)
{
	struct nat_scratch *s = nat_aside();
	struct nat_tuple *of;

	if (!s || p->unknown || (p->protocol == IPPROTO_TCP && !tcp_opens(p->tcp.flags)))
		return;
	nat_reverse(&p->tuple, &s->reply);
	of = bpf_map_lookup_elem(&nat_replies, &s->reply);
	if (!of)
		return;
	s->key = *of;
	nat_forget(&s->key, &s->found);
}

static __always_inline int nat_drop(struct __sk_buff *skb, __u32 reason, __u32 direction)
{
	metric_count(reason & (REASON_LIMIT - 1), direction, skb->len);
	return TC_ACT_SHOT;
}

/* Begins s->flow with this packet. */
static __always_inline int nat_open(struct __sk_buff *skb, struct nat_packet *p, bool any_port, __u32 direction)
{
	struct nat_scratch *s = nat_aside();
	__u32 reason = nat_begin(skb, any_port);

	if (!s || reason != REASON_NONE)
		return nat_drop(skb, reason, direction);
	p->to = s->flow.to;
	return rewrite(skb, p) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

#endif
