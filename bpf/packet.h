/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is known of the packet being judged. */
#ifndef WEIR_PACKET_H
#define WEIR_PACKET_H

#include "endpoint.h"

/* Of RFC 792 and RFC 826. The kernel's own headers of them (linux/icmp.h, linux/if_arp.h) include the C library's, which has none for BPF. */
#define ICMP_DEST_UNREACH 3
#define ICMP_SOURCE_QUENCH 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ARPHRD_ETHER 1

/* Which conntrack lookups make sense: an echo request is never a reply, an echo reply never opens a flow. */
#define TRACK_FORWARD 1
#define TRACK_REPLY 2
#define TRACK_CREATE 4
#define TRACK_ALL 7

/* The two words of a ct_key, made whole so that they stay in registers. Ports come later, in the lower half of the second. */
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

struct packet {
	struct endpoint ep;
	struct ct_key key; /* source to destination, as if this packet opened the flow */
	struct ct_key reply; /* the flow this packet would be a reply of */
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
	bool local : 1;
	bool first_fragment : 1; /* of several */
	bool later_fragment : 1;
	__be16 fragment_id;
	/* Of TCP. Of what a pod sends the acknowledgment number, of what it receives the sequence number. */
	__be32 tcp_number;
};

#endif
