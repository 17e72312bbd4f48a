/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a packet to its tuple. An ICMP error goes with the packets that answer what it quotes: its tuple is theirs. */
#ifndef WEIR_NAT_PACKET_H
#define WEIR_NAT_PACKET_H

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

/* Of an echo: NAT_QUESTION, NAT_ANSWER; else 0. */
static __always_inline __u8 echo_query(__u8 protocol, __u8 type)
{
	if (protocol == IPPROTO_ICMP)
		return type == 8 ? NAT_QUESTION : type == 0 ? NAT_ANSWER : 0;
	return type == 128 ? NAT_QUESTION : type == 129 ? NAT_ANSWER : 0;
}

static __always_inline bool is_error(__u8 protocol, __u8 type)
{
	return is_icmp(protocol) && icmp_error(type, protocol == IPPROTO_ICMP ? 4 : 6);
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
	/* A redirect is of one link. */
	if (p->protocol == IPPROTO_ICMP && type == 5) {
		p->unknown = true;
		return p;
	}
	if (is_error(p->protocol, type) && !read_quote(skb, p))
		p->unknown = true;
	return p;
}

#endif
