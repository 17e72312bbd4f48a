/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The sample part's programs: another address for a pod, at its interface and at sockets, and an event for each packet that was sent to it. */
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include "stage.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Both ways: other address -> the pod's, for what is sent; the pod's -> the other one, for what is got. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16);
	__type(key, __be32);
	__type(value, __be32);
} sample_addrs SEC(".maps");

/* Header as in `struct event` (layout.h). */
struct sample_event {
	__u64 time_ns;
	__u8 kind;
	__u8 pad[3];
	__be32 address;
};
#define SAMPLE_EVENT 16

/* Puts another address into a UDP packet. Returns the one that it had; 0: it stays. */
static __always_inline __be32 readdress(struct __sk_buff *skb, __u32 at)
{
	__u32 offset = ETH_HLEN + at, sum = ETH_HLEN + __builtin_offsetof(struct iphdr, check);
	__be32 old, *found;
	__u8 protocol;

	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, offset, &old, 4) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, protocol), &protocol, 1) ||
	    protocol != IPPROTO_UDP)
		return 0;
	found = bpf_map_lookup_elem(&sample_addrs, &old);
	if (!found)
		return 0;
	bpf_l4_csum_replace(skb, ETH_HLEN + sizeof(struct iphdr) + __builtin_offsetof(struct udphdr, check), old, *found,
			    BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | 4);
	bpf_l3_csum_replace(skb, sum, old, *found, 4);
	bpf_skb_store_bytes(skb, offset, found, 4, 0);
	return old;
}

SEC("tc")
int sample_from_pod(struct __sk_buff *skb)
{
	__be32 address = readdress(skb, __builtin_offsetof(struct iphdr, daddr));
	struct sample_event *e = address ? bpf_ringbuf_reserve(&events, sizeof(*e), 0) : NULL;

	if (e) {
		__builtin_memset(e, 0, sizeof(*e));
		e->time_ns = bpf_ktime_get_boot_ns();
		e->kind = SAMPLE_EVENT;
		e->address = address;
		bpf_ringbuf_submit(e, 0);
	}
	return judge_sent(skb);
}

SEC("tc")
int sample_to_pod(struct __sk_buff *skb)
{
	readdress(skb, __builtin_offsetof(struct iphdr, saddr));
	return TC_ACT_UNSPEC;
}

SEC("tc")
int sample_uplink(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

SEC("cgroup/connect4")
int sample_connect(struct bpf_sock_addr *ctx)
{
	__be32 address = ctx->user_ip4;
	__be32 *found = bpf_map_lookup_elem(&sample_addrs, &address);

	if (found)
		ctx->user_ip4 = *found;
	return 1;
}
