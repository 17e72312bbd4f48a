/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From bytes to struct packet. Every length is checked against the IP total length, not only against the buffer:
 * padding behind the datagram is not payload. IP options are skipped by the header length.
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "discovery.h"
#include "fragments.h"
#include "packet.h"

/* Ethernet, the longest IPv4 header, and the fixed part of TCP. */
#define HEADER_BYTES (ETH_HLEN + 60 + 20)

struct arp_ipv4 {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;
	__u8 sender_mac[6];
	__u8 sender_ip[4];
	__u8 target_mac[6];
	__u8 target_ip[4];
};

/* Bytes of L4 header that must lie in the first fragment and that no later fragment may overlap. */
static __always_inline __u32 l4_header_bytes(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return 20;
	case IPPROTO_UDP:
	case IPPROTO_ICMP:
		return 8;
	case IPPROTO_SCTP:
		return 12;
	default:
		return 0;
	}
}

/* The ICMP query that `type` belongs to (its request type), or -1. */
static __always_inline int icmp_query(__u8 type)
{
	switch (type) {
	case 8: /* echo */
	case 13: /* timestamp */
	case 15: /* information */
	case 17: /* address mask */
	case 42: /* extended echo */
		return type;
	case 0:
		return 8;
	case 14:
	case 16:
	case 18:
	case 43:
		return type - 1;
	default:
		return -1;
	}
}

/* Errors that quote the packet they are about. A redirect (5) is not one: it asks the host to change its routes. */
static __always_inline bool icmp_error(__u8 type)
{
	return type == ICMP_DEST_UNREACH || type == ICMP_SOURCE_QUENCH || type == ICMP_TIME_EXCEEDED ||
	       type == ICMP_PARAMETERPROB;
}

/* The flow that a packet of `key` would be a reply of. */
static __always_inline struct ct_key flow_reversed(const struct ct_key *key)
{
	__u32 ports = (__u32)key->rest;

	return (struct ct_key){
		.addresses = key->addresses << 32 | key->addresses >> 32,
		.rest = ((key->rest >> 32 ^ 1ULL << 24) << 32) | (__u32)(ports << 16 | ports >> 16),
	};
}

/*
 * Sets p->reply: the flow this packet would be a reply of. An ICMP query and its answer share identifier and request
 * type, which do not swap sides.
 */
static __always_inline void packet_orient(struct packet *p)
{
	p->reply = flow_reversed(&p->key);
}

static __always_inline void packet_orient_icmp(struct packet *p)
{
	int query = icmp_query(p->icmp_type);

	packet_orient(p);
	p->reply.rest = (p->reply.rest >> 32 << 32) | ((__u32)bpf_htons(query) << 16) | (__u16)p->key.rest;
	if (query < 0)
		p->track = 0;
	else
		p->track = query == p->icmp_type ? TRACK_FORWARD | TRACK_CREATE : TRACK_REPLY;
}

/*
 * Fills the packet from the IPv4 header on; returns a drop reason or REASON_NONE. `p` itself is handed to no helper and
 * no subprogram, so that the compiler can keep it in registers.
 */
static __always_inline __u32 parse_ipv4(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 header, total, available, payload, fragment;
	__u8 version_ihl, protocol;
	struct ct_key key;
	__u8 *l4;

	if ((void *)(ip + 1) > end)
		return REASON_INVALID_PACKET;
	version_ihl = *(__u8 *)ip;
	header = (version_ihl & 0xf) * 4;
	available = skb->len - ETH_HLEN;
	total = bpf_ntohs(ip->tot_len);
	/* A TCP super-packet longer than 64 KiB has no total length; only offload makes one. */
	if (unlikely(!total) && skb->gso_size)
		total = available;
	if (unlikely(version_ihl >> 4 != 4 || header < sizeof(*ip) || total < header || total > available))
		return REASON_INVALID_PACKET;
	payload = total - header;
	protocol = ip->protocol;
	p->key.addresses = ct_addresses(ip->saddr, ip->daddr);
	p->key.rest = ct_rest(p->ep.id, protocol, p->direction);
	if (p->direction == WEIR_EGRESS && unlikely(ip->saddr != p->ep.ipv4) &&
	    !(WORD_FLAGS(p->ep.word) & ENDPOINT_NO_SOURCE_CHECK))
		return REASON_INVALID_SOURCE;
	/* On no wire (RFC 1122, 3.2.1.3); but a node with route_localnet, which kube-proxy sets, takes it for its own. */
	if (p->direction == WEIR_EGRESS && unlikely((ip->daddr & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000)))
		return REASON_INVALID_PACKET;

	fragment = bpf_ntohs(ip->frag_off);
	p->track = TRACK_ALL;
	if (unlikely(fragment & IP_OFFSET_MASK)) {
		__u32 offset = (fragment & IP_OFFSET_MASK) * 8;

		if (offset < l4_header_bytes(protocol) || offset + payload + header > 65535)
			return REASON_INVALID_PACKET;
		key = p->key;
		p->later_fragment = true;
		if (!fragment_recall(&key, ip->id)) {
			p->track = 0;
			/* It may have overtaken its first. */
			return endpoint_enforces(&p->ep, p->direction) ? REASON_FRAGMENT_WITHOUT_FIRST : REASON_NONE;
		}
		p->key.rest = key.rest;
		if (protocol == IPPROTO_ICMP) {
			p->icmp_type = bpf_ntohs(key.dport);
			packet_orient_icmp(p);
		} else {
			packet_orient(p);
		}
		p->track &= ~TRACK_CREATE;
		return REASON_NONE;
	}

	l4 = (void *)ip + header;
	switch (protocol) {
	case IPPROTO_TCP: {
		__u32 length;

		if (unlikely(payload < 20 || (void *)(l4 + 20) > end))
			return REASON_INVALID_PACKET;
		length = (l4[12] >> 4) * 4;
		if (unlikely(length < 20 || (length > payload && !(fragment & IP_MORE_FRAGMENTS))))
			return REASON_INVALID_PACKET;
		p->tcp_flags = l4[13];
		p->tcp_number = *(__be32 *)(l4 + (p->direction == WEIR_EGRESS ? 8 : 4));
		p->key.rest |= *(__u32 *)l4;
		break;
	}
	case IPPROTO_UDP:
		if (unlikely(payload < 8 || (void *)(l4 + 8) > end))
			return REASON_INVALID_PACKET;
		p->key.rest |= *(__u32 *)l4;
		break;
	case IPPROTO_SCTP:
		if (unlikely(payload < 12 || (void *)(l4 + 12) > end))
			return REASON_INVALID_PACKET;
		p->key.rest |= *(__u32 *)l4;
		break;
	case IPPROTO_ICMP:
		if (unlikely(payload < 8 || (void *)(l4 + 8) > end))
			return REASON_INVALID_PACKET;
		p->icmp_type = l4[0];
		p->icmp_code = l4[1];
		p->key.rest |= (__u32)bpf_htons(p->icmp_type) << 16;
		if (icmp_query(p->icmp_type) >= 0)
			p->key.rest |= *(__be16 *)(l4 + 4);
		break;
	}
	if (protocol == IPPROTO_ICMP)
		packet_orient_icmp(p);
	else
		packet_orient(p);
	if (unlikely(fragment & IP_MORE_FRAGMENTS)) {
		p->first_fragment = true;
		p->fragment_id = ip->id;
	}
	return REASON_NONE;
}

static __always_inline __u32 judge_arp(struct __sk_buff *skb, const struct packet *p)
{
	struct arp_ipv4 arp;
	__be32 sender;

	if (p->direction == WEIR_INGRESS)
		return REASON_NONE;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &arp, sizeof(arp)) || arp.hardware != bpf_htons(ARPHRD_ETHER) ||
	    arp.protocol != bpf_htons(ETH_P_IP) || arp.hardware_length != 6 || arp.protocol_length != 4)
		return REASON_INVALID_PACKET;
	__builtin_memcpy(&sender, arp.sender_ip, 4);
	if (sender && sender != p->ep.ipv4 && !(WORD_FLAGS(p->ep.word) & ENDPOINT_NO_SOURCE_CHECK))
		return REASON_INVALID_SOURCE;
	return REASON_NONE;
}

/*
 * Whether extension headers may hide neighbour discovery: none of it is taken with another hop limit, and with this one no header
 * may stand before what is looked at.
 */
static __always_inline bool may_hide_discovery(const struct ipv6hdr *ip)
{
	return ip->hop_limit == ND_HOP_LIMIT && ip->nexthdr != IPPROTO_ICMPV6 && ip->nexthdr != IPPROTO_TCP &&
	       ip->nexthdr != IPPROTO_UDP && ip->nexthdr != IPPROTO_SCTP;
}

/*
 * A pod receives neighbour solicitations and advertisements, which only its node can send it, and no router advertisement where
 * its ingress is enforced: its node sends none, it configures pods itself.
 */
static __always_inline __u32 judge_ipv6(struct __sk_buff *skb, struct packet *p, bool enforced)
{
	struct ipv6hdr ip;
	__u8 type = 0;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.version != 6)
		return REASON_INVALID_PACKET;
	p->family = 6;
	p->key.protocol = ip.nexthdr;
	if (ip.nexthdr == IPPROTO_ICMPV6 && bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &type, 1))
		return REASON_INVALID_PACKET;
	p->icmp_type = type;
	if (p->direction == WEIR_EGRESS) {
		if (may_hide_discovery(&ip))
			return REASON_NOT_A_ROUTER;
		if (type >= ND_ROUTER_SOLICITATION && type <= ND_REDIRECT)
			return nd_from_pod(skb, &ip, type, enforced);
	} else if (nd_plain(skb, &ip)) {
		return REASON_NONE;
	}
	return enforced ? REASON_IPV6_UNSUPPORTED : REASON_NONE;
}

/*
 * Anything but IPv4. ARP and what a pod and its node need of IPv6 neighbour discovery pass; what is not understood passes only to
 * a pod whose ingress is not enforced.
 */
static __noinline __maybe_unused __u32 judge_other_l3(struct __sk_buff *skb, struct packet *p)
{
	bool enforced = endpoint_enforces(&p->ep, p->direction & 1);

	if (!skb->vlan_present) {
		if (p->ethertype == bpf_htons(ETH_P_ARP))
			return judge_arp(skb, p);
		if (p->ethertype == bpf_htons(ETH_P_IPV6))
			return judge_ipv6(skb, p, enforced);
	}
	return enforced || p->direction == WEIR_EGRESS ? REASON_UNKNOWN_L3 : REASON_NONE;
}

#endif
