/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From bytes to struct packet, of either family. Every length is checked against the one that IP gives, not only against the buffer:
 * padding behind the datagram is not payload. IPv4 options are read for source routes alone, IPv6 extension headers are followed.
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "discovery.h"
#include "fragments.h"
#include "headers.h"
#include "icmp.h"
#include "packet.h"

/* Ethernet, the longest IPv4 header (or that of IPv6, and 20 bytes more), and the fixed part of TCP. */
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

/* Writes the flow that a packet of `key` would be a reply of. */
static __always_inline void flow_reverse(const struct ct_key *key, struct ct_key *reply, __u32 family)
{
	__u32 ports = (__u32)key->rest;

	reply->rest = ((key->rest >> 32 ^ 1ULL << 24) << 32) | (__u32)(ports << 16 | ports >> 16);
	if (family == 6) {
		struct address6 src = key->src6;

		reply->src6 = key->dst6;
		reply->dst6 = src;
	} else {
		reply->addresses = key->addresses << 32 | key->addresses >> 32;
	}
}

/* Which lookups make sense. */
static __always_inline void packet_orient(struct packet *p, __u8 protocol, const __u32 family)
{
	int query;

	p->track = TRACK_ALL;
	if (protocol != icmp_of(family))
		return;
	query = icmp_query(p->icmp_type, family);
	if (query < 0)
		p->track = 0;
	else
		p->track = query == p->icmp_type ? TRACK_FORWARD | TRACK_CREATE : TRACK_REPLY;
}

/*
 * Sets p->reply, which most packets do not need: the flow that this one would be a reply of. An ICMP query and its answer share identifier and request
 * type, which do not swap sides.
 */
static __always_inline void packet_reply(struct packet *p, const __u32 family)
{
	flow_reverse(&p->key, &p->reply, family);
	if (p->key.protocol == icmp_of(family))
		p->reply.rest = (p->reply.rest >> 32 << 32) | ((__u32)bpf_htons(icmp_query(p->icmp_type, family)) << 16) |
				(__u16)p->key.rest;
}

/* A later fragment: the ports are those that its first one carried. `offset`: as struct headers has it. */
static __always_inline __u32 parse_fragment(struct packet *p, __u64 addresses, __u32 offset, const __u32 family)
{
	p->later_fragment = true;
	if (!fragment_recall(&p->key, addresses, p->headers.fragment, offset)) {
		p->track = 0;
		/* It may have overtaken its first. */
		return endpoint_enforces(&p->ep, p->direction) ? REASON_FRAGMENT_WITHOUT_FIRST : REASON_NONE;
	}
	if (p->key.protocol == icmp_of(family))
		p->icmp_type = bpf_ntohs(p->key.dport);
	packet_orient(p, p->key.protocol, family);
	p->track &= ~TRACK_CREATE;
	return REASON_NONE;
}

/* `payload`: bytes of the L4 packet, as IP counts them. `more`: fragments follow. */
static __always_inline __u32 parse_l4(struct packet *p, const __u8 *l4, const void *end, __u32 payload, bool more, __u8 protocol,
				      const __u32 family)
{
	switch (protocol) {
	case IPPROTO_TCP: {
		__u32 length;

		if (unlikely(payload < 20 || (void *)(l4 + 20) > end))
			return REASON_INVALID_PACKET;
		length = (l4[12] >> 4) * 4;
		if (unlikely(length < 20 || (length > payload && !more)))
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
	case IPPROTO_ICMPV6:
		/* In the other family it is a protocol like others. */
		if (protocol != icmp_of(family))
			break;
		if (unlikely(payload < 8 || (void *)(l4 + 8) > end))
			return REASON_INVALID_PACKET;
		p->icmp_type = l4[0];
		p->icmp_code = l4[1];
		p->key.rest |= (__u32)bpf_htons(p->icmp_type) << 16;
		if (icmp_query(p->icmp_type, family) >= 0)
			p->key.rest |= *(__be16 *)(l4 + 4);
		break;
	}
	packet_orient(p, protocol, family);
	return REASON_NONE;
}

/* RFC 791, 3.1. */
#define OPTION_END 0
#define OPTION_NONE 1
#define OPTION_LOOSE_ROUTE 131
#define OPTION_STRICT_ROUTE 137
#define OPTIONS_BYTES 40

/*
 * Whether the options of an IPv4 header of so many bytes can be read, and none is a source route: such a packet goes on to another address than the one it
 * names, as by a routing header of IPv6.
 */
static __noinline __maybe_unused bool options_plain(struct __sk_buff *skb, __u32 header)
{
	__u8 options[OPTIONS_BYTES + 1] = {};
	__u32 bytes = header - sizeof(struct iphdr), at, skipped = 0;

	if (bytes < 4 || bytes > OPTIONS_BYTES || bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(struct iphdr), options, bytes))
		return false;
	for (at = 0; at < OPTIONS_BYTES && at < bytes; at++) {
		__u8 type = options[at];

		if (skipped) {
			skipped--;
			continue;
		}
		if (type == OPTION_END)
			return true;
		if (type == OPTION_NONE)
			continue;
		if (type == OPTION_LOOSE_ROUTE || type == OPTION_STRICT_ROUTE || options[at + 1] < 2)
			return false;
		skipped = options[at + 1] - 1;
	}
	return !skipped;
}

/* DHCP (RFC 2131, 4.1): from port 68 to port 67 of whoever hears it. */
static __always_inline bool asks_for_address(const struct iphdr *ip, const void *end, __u32 header)
{
	const __be16 *ports = (const void *)ip + header;

	return ip->daddr == 0xffffffff && ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(IP_OFFSET_MASK)) &&
	       (const void *)(ports + 2) <= end && ports[0] == bpf_htons(68) && ports[1] == bpf_htons(67);
}

/* Fills the packet from the IPv4 header on; returns a drop reason or REASON_NONE. */
static __always_inline __u32 parse_ipv4(struct __sk_buff *skb, struct packet *p, const __u32 direction)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 header, total, available, payload, fragment;
	__u8 version_ihl, protocol;

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
	/* Read anew, so that the verifier does not follow the rest once for each length. */
	if (unlikely((READ_ONCE(*(__u8 *)ip) & 0xf) > 5) && !options_plain(skb, header))
		return REASON_INVALID_PACKET;
	payload = total - header;
	protocol = ip->protocol;
	p->key.addresses = ct_addresses(ip->saddr, ip->daddr);
	p->key.rest = ct_rest(p->ep.id, protocol, direction);
	p->family = 4;
	p->headers.l4 = ETH_HLEN + header;
	p->headers.protocol = protocol;
	p->headers.end = ETH_HLEN + total;
	/* Who has no address yet may ask for one. */
	if (direction == WEIR_EGRESS && unlikely(ip->saddr != p->ep.ipv4 || (!ip->saddr && !asks_for_address(ip, end, header))) &&
	    !(WORD_FLAGS(p->ep.word) & ENDPOINT_NO_SOURCE_CHECK))
		return REASON_INVALID_SOURCE;
	/* On no wire (RFC 1122, 3.2.1.3); but a node with route_localnet, which kube-proxy sets, takes it for its own. */
	if (direction == WEIR_EGRESS && unlikely((ip->daddr & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000)))
		return REASON_INVALID_PACKET;

	fragment = bpf_ntohs(ip->frag_off);
	if (unlikely(fragment & (IP_OFFSET_MASK | IP_MORE_FRAGMENTS)))
		p->headers.fragment = fragment_v4(ip->id, protocol);
	if (unlikely(fragment & IP_OFFSET_MASK)) {
		__u32 offset = (fragment & IP_OFFSET_MASK) * 8;

		if (offset < l4_header_bytes(protocol) || offset + payload + header > 65535)
			return REASON_INVALID_PACKET;
		return parse_fragment(p, p->key.addresses, offset, 4);
	}
	p->headers.before = 0;
	p->first_fragment = !!(fragment & IP_MORE_FRAGMENTS);
	return parse_l4(p, (void *)ip + header, end, payload, p->first_fragment, protocol, 4);
}

/* The packet passes as it is: it is no flow, and policies do not say anything of it. */
#define PASSES REASON_FORWARDED

/* Neighbour discovery, of which a pod gets solicitations and advertisements, and sends them (discovery.h). */
static __noinline __u32 judge_discovery(struct __sk_buff *skb, struct packet *p)
{
	bool plain = p->headers.l4 == ETH_HLEN + sizeof(struct ipv6hdr);
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return REASON_INVALID_PACKET;
	if ((p->direction & 1) == WEIR_INGRESS)
		return plain && nd_plain(skb, &ip) ? PASSES : REASON_NONE;
	return nd_from_pod(skb, &ip, plain ? p->icmp_type : 0, &p->ep.ipv6);
}

/* What a pod sends comes from its own address, and does not go to ::1, which is on no wire (RFC 4291, 2.5.3). */
static __always_inline __u32 ends_ipv6(const struct packet *p, const __u32 direction)
{
	const struct address6 *src = &p->key.src6, *dst = &p->key.dst6;
	bool own = address6_same(src, &p->ep.ipv6) && (src->words[0] | src->words[1]);

	if (direction == WEIR_INGRESS)
		return REASON_NONE;
	if (unlikely(!own) && !(WORD_FLAGS(p->ep.word) & ENDPOINT_NO_SOURCE_CHECK))
		return REASON_INVALID_SOURCE;
	return unlikely(!dst->words[0] && dst->words[1] == bpf_cpu_to_be64(1)) ? REASON_INVALID_PACKET : REASON_NONE;
}

/* The same of the IPv6 header. Returns PASSES of neighbour discovery, which is not judged. */
static __always_inline __u32 parse_ipv6(struct __sk_buff *skb, struct packet *p, const __u32 direction)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip = data + ETH_HLEN;
	__u32 payload, available, l4 = ETH_HLEN + sizeof(*ip), wanted, reason;
	bool discovers;
	__u8 protocol;

	if ((void *)(ip + 1) > end)
		return REASON_INVALID_PACKET;
	available = skb->len - l4;
	payload = bpf_ntohs(ip->payload_len);
	/* As above. */
	if (unlikely(!payload) && skb->gso_size)
		payload = available;
	if (unlikely(*(__u8 *)ip >> 4 != 6 || payload > available))
		return REASON_INVALID_PACKET;
	protocol = ip->nexthdr;
	__builtin_memcpy(&p->key.src6, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(&p->key.dst6, &ip->daddr, sizeof(ip->daddr));
	p->key.rest = ct_rest(p->ep.id, protocol, direction);
	p->family = 6;
	p->headers.l4 = l4;
	p->headers.end = l4 + payload;
	p->headers.protocol = protocol;
	p->headers.offset = 0;
	p->headers.before = 0;
	p->headers.more = 0;
	p->headers.fragmented = 0;
	if (unlikely(v6_is_extension(protocol))) {
		if (!headers_follow(skb, &p->headers))
			return REASON_IPV6_HEADERS;
		l4 = p->headers.l4 & 0x7ff;
		protocol = p->headers.protocol;
		p->key.rest = ct_rest(p->ep.id, protocol, direction);
		payload = p->headers.end - l4;
		wanted = l4 + 20 < skb->len ? l4 + 20 : skb->len;
		if (bpf_skb_pull_data(skb, wanted))
			return REASON_INVALID_PACKET;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	if (unlikely(p->headers.offset)) {
		reason = ends_ipv6(p, direction);
		if (reason != REASON_NONE)
			return reason;
		if (p->headers.offset + payload > 65535)
			return REASON_INVALID_PACKET;
		return parse_fragment(p, fragment_v6(&p->key), p->headers.offset, 6);
	}
	p->first_fragment = p->headers.more;
	reason = parse_l4(p, data + l4, end, payload, p->first_fragment, protocol, 6);
	if (unlikely(reason != REASON_NONE))
		return reason;
	discovers = protocol == IPPROTO_ICMPV6 && p->icmp_type >= ND_ROUTER_SOLICITATION && p->icmp_type <= ND_REDIRECT;
	if (unlikely(discovers)) {
		reason = judge_discovery(skb, p);
		if (reason != REASON_NONE)
			return reason;
	}
	return ends_ipv6(p, direction);
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

/* Neither IPv4 nor IPv6. ARP passes; what is not understood passes only to a pod whose ingress is not enforced. */
static __noinline __maybe_unused __u32 judge_other_l3(struct __sk_buff *skb, struct packet *p)
{
	if (!skb->vlan_present && p->ethertype == bpf_htons(ETH_P_ARP))
		return judge_arp(skb, p);
	return p->direction == WEIR_EGRESS || endpoint_enforces(&p->ep, p->direction & 1) ? REASON_UNKNOWN_L3 : REASON_NONE;
}

#endif
