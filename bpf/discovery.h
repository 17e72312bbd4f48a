/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * IPv6 neighbour discovery (RFC 4861). It is no flow and has no identity: what a pod and its node need to find each other passes
 * whatever policies say, and nothing that carries more than that, or farther than the link between them.
 */
#ifndef WEIR_DISCOVERY_H
#define WEIR_DISCOVERY_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>

#include "common.h"
#include "layout.h"

/* ICMPv6 types. */
#define ND_ROUTER_SOLICITATION 133
#define ND_ROUTER_ADVERTISEMENT 134
#define ND_NEIGHBOUR_SOLICITATION 135
#define ND_NEIGHBOUR_ADVERTISEMENT 136
#define ND_REDIRECT 137

/* Only a packet that no router has forwarded still has it; receivers take neighbour discovery with no other. */
#define ND_HOP_LIMIT 255

/* Options, each of 8 bytes on Ethernet. The nonce (RFC 7527) tells an echo of one's own solicitation from another's. */
#define ND_SOURCE_LINK_ADDRESS 1
#define ND_TARGET_LINK_ADDRESS 2
#define ND_NONCE 14
#define ND_OPTION_BYTES 8

/* A neighbour solicitation or advertisement without its options. */
struct nd_message {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u32 flags;
	struct in6_addr target;
};

#define ND_OPTIONS_OFFSET (ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct nd_message))

static __always_inline bool address_unspecified(const struct in6_addr *a)
{
	return !(a->s6_addr32[0] | a->s6_addr32[1] | a->s6_addr32[2] | a->s6_addr32[3]);
}

static __always_inline bool address_is(const struct in6_addr *a, const struct address6 *b)
{
	return a->s6_addr32[0] == b->quarters[0] && a->s6_addr32[1] == b->quarters[1] && a->s6_addr32[2] == b->quarters[2] &&
	       a->s6_addr32[3] == b->quarters[3];
}

/* fe80::/10 */
static __always_inline bool address_link_local(const struct in6_addr *a)
{
	return (a->s6_addr32[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* ff02::1 */
static __always_inline bool address_all_nodes(const struct in6_addr *a)
{
	return a->s6_addr32[0] == bpf_htonl(0xff020000) && !a->s6_addr32[1] && !a->s6_addr32[2] && a->s6_addr32[3] == bpf_htonl(1);
}

/* ff02::1:ff00:0/104: whoever has an address with the same last three bytes. */
static __always_inline bool address_solicited_node(const struct in6_addr *a)
{
	return a->s6_addr32[0] == bpf_htonl(0xff020000) && !a->s6_addr32[1] && a->s6_addr32[2] == bpf_htonl(1) &&
	       a->s6_addr[12] == 0xff;
}

/* Whether `type` may have the option. Who has no address yet has nobody answer to its link address (RFC 4861, 4.3). */
static __always_inline bool nd_option_needed(__u8 type, bool unspecified, __u8 option)
{
	if (type == ND_NEIGHBOUR_ADVERTISEMENT)
		return option == ND_TARGET_LINK_ADDRESS;
	return option == ND_NONCE || (option == ND_SOURCE_LINK_ADDRESS && !unspecified);
}

/*
 * Whether the packet is a neighbour solicitation or advertisement from the sender's own link that carries no more than it needs: one
 * link address, a solicitation also a nonce. Nothing lies behind it, within the IPv6 payload or after it.
 */
static __always_inline bool nd_plain(struct __sk_buff *skb, const struct ipv6hdr *ip)
{
	bool unspecified = address_unspecified(&ip->saddr);
	__u32 payload = bpf_ntohs(ip->payload_len), allowed, options, at;
	struct nd_message message;
	__u8 option[2];

	if (ip->nexthdr != IPPROTO_ICMPV6 || ip->hop_limit != ND_HOP_LIMIT ||
	    payload != skb->len - ETH_HLEN - sizeof(*ip) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(*ip), &message, sizeof(message)) || message.code)
		return false;
	if (message.type == ND_NEIGHBOUR_SOLICITATION)
		allowed = 2 * ND_OPTION_BYTES;
	else if (message.type == ND_NEIGHBOUR_ADVERTISEMENT)
		allowed = ND_OPTION_BYTES;
	else
		return false;
	options = payload - sizeof(message);
	if (options > allowed || options % ND_OPTION_BYTES)
		return false;
#pragma unroll
	for (at = 0; at < 2 * ND_OPTION_BYTES; at += ND_OPTION_BYTES)
		if (at < options && (bpf_skb_load_bytes(skb, ND_OPTIONS_OFFSET + at, option, sizeof(option)) ||
				     option[1] != 1 || !nd_option_needed(message.type, unspecified, option[0])))
			return false;
	return true;
}

/*
 * Whether a plain message of a pod has addresses with which it finds its node and stays on the link. It may solicit and advertise from a
 * link-local address or its own.
 */
static __always_inline bool nd_on_link(const struct ipv6hdr *ip, __u8 type, const struct address6 *own)
{
	if (address_unspecified(&ip->saddr))
		return type == ND_NEIGHBOUR_SOLICITATION && address_solicited_node(&ip->daddr);
	if (!address_link_local(&ip->saddr) && !address_is(&ip->saddr, own))
		return false;
	return address_link_local(&ip->daddr) ||
	       (type == ND_NEIGHBOUR_SOLICITATION ? address_solicited_node(&ip->daddr) : address_all_nodes(&ip->daddr));
}

/*
 * Judges a pod's message of `type`, one of the above; 0: it lies behind extension headers. From a router's advertisement or redirect its
 * node would take routes, addresses and name servers; there is no router to solicit.
 */
static __always_inline __u32 nd_from_pod(struct __sk_buff *skb, const struct ipv6hdr *ip, __u8 type, const struct address6 *own)
{
	if (type == ND_ROUTER_ADVERTISEMENT || type == ND_REDIRECT || !type)
		return REASON_NOT_A_ROUTER;
	return nd_plain(skb, ip) && nd_on_link(ip, type, own) ? REASON_FORWARDED : REASON_NEIGHBOUR_DISCOVERY;
}

#endif
