/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a packet to its tuple, and back: addresses and ports are written, with all checksums that cover them, and in an ICMP error those of the packet that
 * it quotes, too. An error goes with the packets that answer what it quotes: its tuple is theirs.
 */
#ifndef WEIR_NAT_PACKET_H
#define WEIR_NAT_PACKET_H

#include "metrics.h"
#include "nat.h"
#include "offload.h"

#define NEXTHDR_FRAGMENT 44
#define ICMP_HEADER_BYTES 8

/* Of a TCP header, from its fifth byte on. */
struct tcp_numbers {
	__be32 seq;
	__be32 ack;
	__u8 offset;
	__u8 flags;
	__u8 pad[2];
};

struct nat_packet {
	struct nat_tuple tuple;
	struct nat_address src; /* of the packet itself: of an error its sender */
	struct nat_address dst;
	struct nat_tuple to; /* what it becomes */
	__u32 l3; /* offsets into the frame */
	__u32 l4;
	__u32 quote; /* the quoted IP header, of an error; else 0 */
	__u32 quoted_l4;
	__u32 fragment_id;
	struct tcp_numbers tcp; /* 0 of other protocols */
	__u8 protocol; /* of the packet itself */
	__u8 v6; /* 0 or 1 */
	bool first_fragment; /* of several */
	bool later_fragment;
	bool unknown; /* a fragment whose first was not seen, or headers that are not read: no ports */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_packet);
} nat_packets SEC(".maps");

struct v6_fragment {
	__u8 next;
	__u8 reserved;
	__be16 offset;
	__be32 id;
};

static __always_inline void v6_address(struct nat_address *to, const struct in6_addr *from)
{
	__builtin_memcpy(to, from, sizeof(*to));
}

static __always_inline bool is_icmp(__u8 protocol)
{
	return protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6;
}

/* Of an echo: NAT_QUESTION, NAT_ANSWER; else 0. */
static __always_inline __u8 echo_query(__u8 protocol, __u8 type)
{
	if (protocol == IPPROTO_ICMP)
		return type == 8 ? NAT_QUESTION : type == 0 ? NAT_ANSWER : 0;
	return type == 128 ? NAT_QUESTION : type == 129 ? NAT_ANSWER : 0;
}

static __always_inline bool is_error(__u8 protocol, __u8 type)
{
	return protocol == IPPROTO_ICMP ? icmp_error(type) : protocol == IPPROTO_ICMPV6 && type >= 1 && type <= 4;
}

/* Ports, or what stands for them, from the 8 bytes at `at`; false where the packet has not so many. */
static __always_inline bool read_ports(struct __sk_buff *skb, __u32 at, struct nat_tuple *t, __u8 *type)
{
	__u8 l4[8];

	*type = 0;
	if (t->protocol != IPPROTO_TCP && t->protocol != IPPROTO_UDP && t->protocol != IPPROTO_SCTP && !is_icmp(t->protocol))
		return true;
	if (bpf_skb_load_bytes(skb, at, l4, sizeof(l4)))
		return false;
	if (is_icmp(t->protocol)) {
		*type = l4[0];
		t->query = echo_query(t->protocol, l4[0]);
		if (t->query == NAT_QUESTION)
			__builtin_memcpy(&t->sport, l4 + 4, 2);
		else if (t->query == NAT_ANSWER)
			__builtin_memcpy(&t->dport, l4 + 4, 2);
		return true;
	}
	__builtin_memcpy(&t->sport, l4, 2);
	__builtin_memcpy(&t->dport, l4 + 2, 2);
	return true;
}

static __always_inline void fragment_name(const struct nat_packet *p, struct nat_fragment_key *key)
{
	key->src = p->src;
	key->dst = p->dst;
	key->id = p->fragment_id;
	key->protocol = p->protocol;
}

static __noinline void recall_ports(struct nat_packet *p)
{
	struct nat_fragment_key key = {};
	struct nat_fragment *first;

	fragment_name(p, &key);
	first = bpf_map_lookup_elem(&nat_fragments, &key);
	p->unknown = !first;
	if (first) {
		p->tuple.sport = first->sport;
		p->tuple.dport = first->dport;
		p->tuple.query = first->query;
	}
}

/* Of a first fragment whose flow counts here. */
static __noinline void remember_ports(const struct nat_packet *p)
{
	struct nat_fragment_key key = {};
	struct nat_fragment first = {.sport = p->tuple.sport, .dport = p->tuple.dport, .query = p->tuple.query};

	fragment_name(p, &key);
	bpf_map_update_elem(&nat_fragments, &key, &first, BPF_ANY);
}

/* The packet that an error at p->l4 quotes; its tuple is that of packets that answer it. False: it quotes none that counts. */
static __noinline bool read_quote(struct __sk_buff *skb, struct nat_packet *p)
{
	struct nat_tuple quoted = {};
	__u8 type;

	if (!p)
		return false;
	p->quote = p->l4 + ICMP_HEADER_BYTES;
	if (p->v6) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, p->quote, &ip, sizeof(ip)) || ip.version != 6)
			return false;
		v6_address(&quoted.src, &ip.saddr);
		v6_address(&quoted.dst, &ip.daddr);
		quoted.protocol = ip.nexthdr;
		p->quoted_l4 = p->quote + sizeof(ip);
	} else {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, p->quote, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5 ||
		    (ip.frag_off & bpf_htons(IP_OFFSET_MASK)))
			return false;
		nat_v4(&quoted.src, ip.saddr);
		nat_v4(&quoted.dst, ip.daddr);
		quoted.protocol = ip.protocol;
		p->quoted_l4 = p->quote + ip.ihl * 4;
	}
	if (!read_ports(skb, p->quoted_l4, &quoted, &type))
		return false;
	nat_reverse(&quoted, &p->tuple);
	return true;
}

static __always_inline bool read_l3_v4(struct __sk_buff *skb, struct nat_packet *p)
{
	struct iphdr ip;
	__u16 fragment;

	if (bpf_skb_load_bytes(skb, p->l3, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return false;
	nat_v4(&p->src, ip.saddr);
	nat_v4(&p->dst, ip.daddr);
	p->protocol = ip.protocol;
	p->l4 = p->l3 + ip.ihl * 4;
	fragment = bpf_ntohs(ip.frag_off);
	p->later_fragment = fragment & IP_OFFSET_MASK;
	p->first_fragment = !p->later_fragment && (fragment & IP_MORE_FRAGMENTS);
	p->fragment_id = ip.id;
	return true;
}

static __always_inline bool read_l3_v6(struct __sk_buff *skb, struct nat_packet *p)
{
	struct v6_fragment fragment;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, p->l3, &ip, sizeof(ip)) || ip.version != 6)
		return false;
	p->v6 = 1;
	v6_address(&p->src, &ip.saddr);
	v6_address(&p->dst, &ip.daddr);
	p->protocol = ip.nexthdr;
	p->l4 = p->l3 + sizeof(ip);
	if (ip.nexthdr == NEXTHDR_FRAGMENT) {
		if (bpf_skb_load_bytes(skb, p->l4, &fragment, sizeof(fragment)))
			return false;
		p->protocol = fragment.next;
		p->l4 += sizeof(fragment);
		p->fragment_id = fragment.id;
		p->later_fragment = fragment.offset & bpf_htons(0xfff8);
		p->first_fragment = !p->later_fragment && (fragment.offset & bpf_htons(1));
	}
	/* Headers of options, routing and authentication hide what comes behind. */
	p->unknown = p->protocol == 0 || p->protocol == 43 || p->protocol == 51 || p->protocol == 60;
	return true;
}

/* The header of an IPv4 packet without options that is no fragment, without a call; NULL for others. */
static __always_inline struct iphdr *plain_ipv4(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)ip != 0x45 ||
	    (ip->frag_off & bpf_htons(IP_OFFSET_MASK | IP_MORE_FRAGMENTS)))
		return NULL;
	return ip;
}

/* Whether it goes on with a TCP connection: most packets do. False where that takes a closer look. */
static __always_inline bool plainly_goes_on(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct iphdr *ip = plain_ipv4(skb);
	__u8 *l4 = (__u8 *)(ip + 1);

	return ip && ip->protocol == IPPROTO_TCP && (void *)(l4 + 14) <= end && !tcp_opens(l4[13]);
}

/* Reads the frame; NULL: it is nothing that is translated. */
static __always_inline struct nat_packet *read_packet(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct nat_packet *p = bpf_map_lookup_elem(&nat_packets, &zero);
	__be16 ethertype;
	__u8 type;

	if (!p || skb->vlan_present || bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, sizeof(ethertype)))
		return NULL;
	__builtin_memset(p, 0, sizeof(*p));
	p->l3 = ETH_HLEN;
	if (ethertype == bpf_htons(ETH_P_IP)) {
		if (!read_l3_v4(skb, p))
			return NULL;
	} else if (ethertype != bpf_htons(ETH_P_IPV6) || !read_l3_v6(skb, p)) {
		return NULL;
	}
	p->tuple.src = p->src;
	p->tuple.dst = p->dst;
	p->tuple.protocol = p->protocol;
	if (p->unknown)
		return p;
	if (p->later_fragment) {
		recall_ports(p);
		return p;
	}
	if (!read_ports(skb, p->l4, &p->tuple, &type)) {
		p->unknown = true;
		return p;
	}
	if (p->protocol == IPPROTO_TCP && bpf_skb_load_bytes(skb, p->l4 + 4, &p->tcp, offsetof(struct tcp_numbers, pad))) {
		p->unknown = true;
		return p;
	}
	if (p->protocol == IPPROTO_ICMPV6 && type >= 130 && type <= 137)
		return NULL;
	if (p->protocol == IPPROTO_ICMP && type == 5)
		return NULL;
	if (is_error(p->protocol, type) && !read_quote(skb, p))
		p->unknown = true;
	return p;
}

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
