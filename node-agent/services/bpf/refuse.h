/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Answers a pod's packet from the node, without a way through the network. */
#ifndef WEIR_SVC_REFUSE_H
#define WEIR_SVC_REFUSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>

#include "common.h"

#define ICMP_UNREACHABLE 3
#define ICMP_PORT 3
/* Of the quoted packet: its header without options, and what names its flow. */
#define QUOTED (sizeof(struct iphdr) + 8)
#define REFUSAL (ETH_HLEN + sizeof(struct iphdr) + 8 + QUOTED)

struct refusal {
	struct iphdr ip;
	__u8 type;
	__u8 code;
	__sum16 sum;
	__be32 unused;
	__u8 quote[QUOTED];
} __attribute__((packed));

static __always_inline __sum16 folded(__s64 sum)
{
	__u32 folded = (__u32)sum;

	folded = (folded & 0xffff) + (folded >> 16);
	folded = (folded & 0xffff) + (folded >> 16);
	return (__sum16)~folded;
}

/* Hands a packet that a pod sent to the same pod, with the addresses of its frame turned round. */
static __always_inline int send_back(struct __sk_buff *skb)
{
	__u8 macs[2 * ETH_ALEN], turned[2 * ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, macs, sizeof(macs)))
		return TC_ACT_SHOT;
	__builtin_memcpy(turned, macs + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(turned + ETH_ALEN, macs, ETH_ALEN);
	bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0);
	return bpf_redirect_peer(skb->ifindex, 0);
}

/* Tells the pod at once, by ICMP, that nothing answers at the port that it sent to. */
static __noinline int refuse_packet(struct __sk_buff *skb)
{
	struct refusal r = {.type = ICMP_UNREACHABLE, .code = ICMP_PORT};
	struct iphdr *quoted = (struct iphdr *)r.quote;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, r.quote, sizeof(r.quote)))
		return TC_ACT_SHOT;
	r.ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(sizeof(r)),
		.ttl = 64,
		.protocol = IPPROTO_ICMP,
		.saddr = quoted->daddr,
		.daddr = quoted->saddr,
	};
	r.ip.check = folded(bpf_csum_diff(NULL, 0, (void *)&r.ip, sizeof(r.ip), 0));
	r.sum = folded(bpf_csum_diff(NULL, 0, (void *)&r.type, sizeof(r) - sizeof(r.ip), 0));
	if (bpf_skb_change_tail(skb, REFUSAL, 0) || bpf_skb_store_bytes(skb, ETH_HLEN, &r, sizeof(r), 0))
		return TC_ACT_SHOT;
	return send_back(skb);
}

#endif
