/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Checksum offload. A sender may leave its packet's checksum (CHECKSUM_PARTIAL) to whoever needs it first: the sum is made of the bytes
 * from csum_start on, and written csum_offset bytes behind that. A raw socket with PACKET_VNET_HDR chooses both: a checksum that is
 * written to a port behind these programs makes another flow of the packet than was judged.
 */
#ifndef WEIR_OFFLOAD_H
#define WEIR_OFFLOAD_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_core_read.h>

#include "parse.h"

#define CHECKSUM_PARTIAL 3

/*
 * Of the kernel's own sk_buff, which differs between kernels: libbpf looks its fields up by name (CO-RE). mac_header and csum_start count
 * from skb->head; at tc, the frame begins at mac_header.
 */
struct sk_buff {
	__u16 mac_header;
	__u32 csum; /* while ip_summed is CHECKSUM_PARTIAL: bits 0..15 csum_start, 16..31 csum_offset */
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

#ifdef WEIR_SKB_BY_CALLS
/* Linux before 6.2. */
#define kernel_skb(skb) ((const struct sk_buff *)(skb))
#define SKB_FIELD(skb, field) BPF_CORE_READ(skb, field)
#define SKB_IP_SUMMED(skb) BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed)
#else
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
#define kernel_skb(skb) ((const struct sk_buff *)bpf_cast_to_kern_ctx(skb))
#define SKB_FIELD(skb, field) ((skb)->field)
#define SKB_IP_SUMMED(skb) skb_ip_summed(skb)

/* BPF_CORE_READ_BITFIELD, with one width instead of a choice of four that each packet would go through. */
static __always_inline __u64 skb_ip_summed(const struct sk_buff *skb)
{
	__u64 bits = *((const __u8 *)skb + __CORE_RELO(skb, ip_summed, BYTE_OFFSET));

	return bits << __CORE_RELO(skb, ip_summed, LSHIFT_U64) >> __CORE_RELO(skb, ip_summed, RSHIFT_U64);
}
#endif

/* What is left of a checksum: from where on it is made, in bytes into the frame, and how far behind that it is written. */
#define CHECKSUM_LEFT(start, offset) ((__u32)(offset) << 16 | (__u32)(start))

/* Bytes from the start of an L4 header to the checksum that its sender may leave; 0: none. */
static __always_inline __u32 l4_checksum_offset(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return 16;
	case IPPROTO_UDP:
		return 6;
	case IPPROTO_SCTP:
		return 8;
	default:
		return 0;
	}
}

/*
 * Whether the packet is delivered as it was judged: no checksum is left, or it is that of the packet's own L4 header, `l4` bytes into the frame, or of
 * something behind it, as in a tunnel. Of ICMP more is judged than its header: what an error quotes. Nobody leaves its checksum, nor that of a later
 * fragment (`protocol` 0).
 */
static __always_inline bool offload_harmless(struct __sk_buff *ctx, __u32 l4, __u8 protocol)
{
	const struct sk_buff *skb = kernel_skb(ctx);
	__u32 own, left;

	if (SKB_IP_SUMMED(skb) != CHECKSUM_PARTIAL)
		return true;
	left = SKB_FIELD(skb, csum) - SKB_FIELD(skb, mac_header);
	own = l4_checksum_offset(protocol);
	if (likely(own && left == CHECKSUM_LEFT(l4, own)))
		return true;
	/* A start before the frame's is negative. */
	return protocol && !is_icmp(protocol) && (__s16)left >= (__s32)(l4 + l4_header_bytes(protocol));
}

#endif
