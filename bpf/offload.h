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
 * Whether the checksum is that of the packet's own L4 header, `l4` bytes into the frame, or of something behind it, as in a tunnel. Of
 * ICMP more is judged than its header: what an error quotes. Nobody leaves its checksum.
 */
static __always_inline bool checksum_in_place(__u32 left, __u32 l4, __u8 protocol)
{
	__u32 own = l4_checksum_offset(protocol);

	if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
		return false;
	/* A start before the frame's is negative. */
	return (own && left == CHECKSUM_LEFT(l4, own)) || (__s16)left >= (__s32)(l4 + l4_header_bytes(protocol));
}

/* The same of any frame. Of other protocols than these nothing is judged that a checksum could be written over. */
static __noinline bool checksum_in_place_of_frame(struct __sk_buff *skb, __u32 left)
{
	struct ipv6hdr ip6;
	struct iphdr ip;
	__be16 ethertype;

	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, sizeof(ethertype)))
		return false;
	switch (ethertype) {
	case bpf_htons(ETH_P_IP):
		return !bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) && !(ip.frag_off & bpf_htons(IP_OFFSET_MASK)) &&
		       checksum_in_place(left, ETH_HLEN + ip.ihl * 4, ip.protocol);
	case bpf_htons(ETH_P_IPV6):
		return !bpf_skb_load_bytes(skb, ETH_HLEN, &ip6, sizeof(ip6)) &&
		       checksum_in_place(left, ETH_HLEN + sizeof(ip6), ip6.nexthdr);
	default:
		return ethertype != bpf_htons(ETH_P_ARP);
	}
}

/* Whether the packet will be delivered as it is judged: no checksum is left that is written over its headers. */
static __always_inline bool offload_harmless(struct __sk_buff *ctx)
{
	const struct sk_buff *skb = kernel_skb(ctx);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 left;

	if (SKB_IP_SUMMED(skb) != CHECKSUM_PARTIAL)
		return true;
	left = SKB_FIELD(skb, csum) - SKB_FIELD(skb, mac_header);
	/* What pods send most, without a call. */
	if (likely((void *)(ip + 1) <= end && eth->h_proto == bpf_htons(ETH_P_IP) && *(__u8 *)ip == 0x45 &&
		   !(ip->frag_off & bpf_htons(IP_OFFSET_MASK)))) {
		if (ip->protocol == IPPROTO_TCP && left == CHECKSUM_LEFT(ETH_HLEN + sizeof(*ip), 16))
			return true;
		if (ip->protocol == IPPROTO_UDP && left == CHECKSUM_LEFT(ETH_HLEN + sizeof(*ip), 6))
			return true;
	}
	return checksum_in_place_of_frame(ctx, left);
}

#endif
