/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is known of the packet being judged. */
#ifndef WEIR_PACKET_H
#define WEIR_PACKET_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>

#include "endpoint.h"

/* Of RFC 792, RFC 826 and RFC 4443. The kernel's own headers of the first two (linux/icmp.h, linux/if_arp.h) include the C library's, which has none for BPF. */
#define ICMP_DEST_UNREACH 3
#define ICMP_SOURCE_QUENCH 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PARAMETERPROB 4
#define ARPHRD_ETHER 1

/* Which conntrack lookups make sense: an echo request is never a reply, an echo reply never opens a flow. */
#define TRACK_FORWARD 1
#define TRACK_REPLY 2
#define TRACK_CREATE 4
#define TRACK_ALL 7

/* The words of a ct_key, made whole so that they stay in registers. Ports come later, in the lower half of the first. */
static __always_inline __u64 ct_addresses(__be32 src, __be32 dst)
{
	return (__u64)dst << 32 | src;
}

static __always_inline __u64 ct_rest(__u16 endpoint, __u8 protocol, __u8 direction)
{
	return (__u64)endpoint << 32 | (__u64)protocol << 48 | (__u64)direction << 56;
}

static __always_inline __u8 ct_protocol(__u64 rest)
{
	return rest >> 48;
}

static __always_inline bool address6_same(const struct address6 *a, const struct address6 *b)
{
	return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}

/* Bytes of L4 header that must lie in the first fragment and that no later fragment may overlap. */
static __always_inline __u32 l4_header_bytes(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return 20;
	case IPPROTO_UDP:
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return 8;
	case IPPROTO_SCTP:
		return 12;
	default:
		return 0;
	}
}

/* Where a packet's headers lead: what comes behind those of IP (headers.h). Offsets count from the frame's start. */
struct headers {
	__u32 l4; /* the L4 header; of a later fragment, where its bytes begin */
	__u32 end; /* behind the last byte that IP says the packet has */
	__u32 fragment; /* id of the datagram (fragments.h) */
	__u16 offset; /* bytes of it that come before this fragment */
	__u16 before; /* headers between that of the fragment and L4 */
	__u8 protocol;
	__u8 more; /* fragments follow */
	__u8 fragmented; /* it has a fragment header */
	__u8 pad;
};

/* One of each CPU: it does not fit onto the stack beside the frames of calls. No other packet of this CPU is judged meanwhile. */
struct packet {
	struct endpoint ep;
	struct ct_key key; /* source to destination, as if this packet opened the flow; addresses are those of `family` */
	struct ct_key reply; /* the flow this packet would be a reply of */
	struct ct_key quoted; /* the flow that an ICMP error is about */
	struct headers headers;
	struct headers quoted_headers;
	/* Of TCP. Of what a pod sends the acknowledgment number, of what it receives the sequence number. */
	__be32 tcp_number;
	__be16 ethertype;
	__u8 family;
	__u8 direction;
	__u8 tcp_flags;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 track;
	/*
	 * To a pod: the node itself sends it, as no interface has brought it. A pod that reaches itself through a Service counts as that: such
	 * packets are masqueraded, and a pod always reaches itself.
	 */
	__u8 local;
	__u8 first_fragment; /* of several */
	__u8 later_fragment;
	/* What conntrack says (weir.c). */
	__u8 over;
	__u64 seen;
	__u64 current;
};

/* Clears what a packet does not set by itself. */
static __always_inline void packet_begin(struct packet *p, __u32 direction)
{
	p->ethertype = 0;
	p->key.rest = 0;
	p->tcp_number = 0;
	p->family = 0;
	p->direction = direction;
	p->tcp_flags = 0;
	p->icmp_type = 0;
	p->icmp_code = 0;
	p->track = 0;
	p->local = false;
	p->first_fragment = false;
	p->later_fragment = false;
	p->over = false;
}

#endif
