/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads a packet at a pod's interface, and writes other addresses and ports into it, and into what an ICMP error quotes. IPv4. */
#ifndef WEIR_SVC_REWRITE_H
#define WEIR_SVC_REWRITE_H

#include <stddef.h>

#include "fragments.h"
#include "offload.h"
#include "services.h"

/* Summed up by the device that has brought it. */
#define CHECKSUM_COMPLETE 2

/* Of an ICMP error, in bytes from its header on. */
#define QUOTE_AT 8

/* A packet, as far as it is translated. */
struct l4 {
	__be32 src;
	__be32 dst;
	union {
		struct {
			__be16 sport;
			__be16 dport;
		};
		__u32 ports;
	};
	__be16 id;
	__u16 at; /* bytes into the frame, of the L4 header */
	__u8 protocol;
	__u8 tcp_flags;
	__u8 icmp_type;
	bool first_fragment;
	bool later_fragment;
};

/* Where and what a translation writes. */
struct change {
	__be32 from;
	__be32 to;
	__be16 from_port;
	__be16 to_port;
};

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

/* Reads what there is of the packet; false: it is not of IPv4, or shorter than its headers. Lengths are checked when the packet is judged. */
static __always_inline bool read_l4_by_calls(struct __sk_buff *skb, struct l4 *p)
{
	__be16 ethertype;
	struct iphdr ip;
	__u8 head[14];

	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, sizeof(ethertype)) ||
	    ethertype != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.version != 4 ||
	    ip.ihl < 5)
		return false;
	p->src = ip.saddr;
	p->dst = ip.daddr;
	p->protocol = ip.protocol;
	p->id = ip.id;
	p->at = ETH_HLEN + ip.ihl * 4;
	p->later_fragment = ip.frag_off & bpf_htons(IP_OFFSET_MASK);
	p->first_fragment = !p->later_fragment && (ip.frag_off & bpf_htons(IP_MORE_FRAGMENTS));
	if (p->later_fragment)
		return true;
	if (p->protocol == IPPROTO_ICMP)
		return !bpf_skb_load_bytes(skb, p->at, &p->icmp_type, sizeof(p->icmp_type));
	if (!has_ports(p->protocol))
		return true;
	if (bpf_skb_load_bytes(skb, p->at, &p->ports, sizeof(p->ports)))
		return false;
	if (p->protocol == IPPROTO_TCP && !bpf_skb_load_bytes(skb, p->at, head, sizeof(head)))
		p->tcp_flags = head[13];
	return true;
}

/* The same, without a call for what pods send most. */
static __always_inline bool read_l4(struct __sk_buff *skb, struct l4 *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	__u8 *l4 = (__u8 *)(ip + 1);

	if (skb->vlan_present)
		return false;
	if (unlikely((void *)(l4 + 14) > end || eth->h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)ip != 0x45 ||
		     (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_OFFSET_MASK)) || !has_ports(ip->protocol)))
		return read_l4_by_calls(skb, p);
	p->src = ip->saddr;
	p->dst = ip->daddr;
	p->protocol = ip->protocol;
	p->at = ETH_HLEN + sizeof(*ip);
	p->sport = *(__be16 *)l4;
	p->dport = *(__be16 *)(l4 + 2);
	p->tcp_flags = l4[13];
	return true;
}

/* What the one's complement sum of a packet gains by the change. */
static __always_inline __u64 sum_of(const struct change *c, bool ports)
{
	__u64 by = (__u64)(__u32)~c->from + c->to;

	return ports ? by + (__u16)~c->from_port + c->to_port : by;
}

static __always_inline __u32 folded_sum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (__u32)sum + (__u32)(sum >> 32);
}

/* False: the checksum of its segment cannot be mended. */
static __always_inline bool mend_checksum(struct __sk_buff *skb, const struct l4 *p, const struct change *c)
{
	__u32 sum = p->at + l4_checksum_offset(p->protocol), state = SKB_IP_SUMMED(kernel_skb(skb));
	__u64 flags = p->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;

	/* Of SCTP it covers ports and no address, and must be left for later where a port changes. */
	if (p->protocol == IPPROTO_SCTP)
		return state == CHECKSUM_PARTIAL || c->from_port == c->to_port;
	/* What is left for later has the addresses summed up and the ports not. What a device has summed up has both, and the checksum. */
	if (bpf_l4_csum_replace(skb, sum, 0, folded_sum(sum_of(c, state < CHECKSUM_COMPLETE)), flags | BPF_F_PSEUDO_HDR))
		return false;
	return state != CHECKSUM_COMPLETE || !bpf_l4_csum_replace(skb, sum, c->from_port, c->to_port, flags | 2);
}

/*
 * Writes another source (`source`) or destination, and port but for later fragments. Helpers keep the checksums right, whether they are written
 * already or left for later.
 */
static __noinline int translate_packet(struct __sk_buff *skb, const struct l4 *p, const struct change *c, bool source)
{
	struct {
		__be32 address;
		__be16 sport;
		__be16 dport;
	} end;
	__u32 address = ETH_HLEN + (source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr));

	if (!p || !c)
		return -1;
	if (bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), c->from, c->to, 4))
		return -1;
	if (p->later_fragment)
		return bpf_skb_store_bytes(skb, address, &c->to, sizeof(c->to), 0);
	if (!mend_checksum(skb, p, c))
		return -1;
	end.address = c->to;
	end.sport = p->sport;
	end.dport = c->to_port;
	/* Without options the ports come right behind the destination. */
	if (!source && p->at == ETH_HLEN + sizeof(struct iphdr))
		return bpf_skb_store_bytes(skb, address, &end, sizeof(end), 0);
	if (bpf_skb_store_bytes(skb, address, &c->to, sizeof(c->to), 0))
		return -1;
	return bpf_skb_store_bytes(skb, p->at + (source ? 0 : 2), &c->to_port, sizeof(c->to_port), 0);
}

/* The packet that an ICMP error quotes, `at` bytes into the frame; false: it quotes none with ports. */
static __always_inline bool read_quote(struct __sk_buff *skb, __u32 at, struct l4 *q)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5 || !has_ports(ip.protocol) ||
	    (ip.frag_off & bpf_htons(IP_OFFSET_MASK)))
		return false;
	q->src = ip.saddr;
	q->dst = ip.daddr;
	q->protocol = ip.protocol;
	q->at = at + ip.ihl * 4;
	return !bpf_skb_load_bytes(skb, q->at, &q->ports, sizeof(q->ports));
}

/* The same of the quoted packet. Its own checksums are not looked at by whoever gets the error, but for that of its header. */
static __noinline int translate_quote(struct __sk_buff *skb, const struct l4 *p, const struct l4 *q, const struct change *c,
				      bool source)
{
	__u32 ip, address;

	if (!p || !q || !c)
		return -1;
	ip = p->at + QUOTE_AT;
	address = ip + (source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr));
	/* What the header's checksum takes from the error's, the address gives. */
	if (bpf_l3_csum_replace(skb, ip + offsetof(struct iphdr, check), c->from, c->to, 4) ||
	    bpf_skb_store_bytes(skb, address, &c->to, sizeof(c->to), 0) ||
	    bpf_l4_csum_replace(skb, p->at + 2, c->from_port, c->to_port, 2))
		return -1;
	return bpf_skb_store_bytes(skb, q->at + (source ? 0 : 2), &c->to_port, sizeof(c->to_port), 0);
}

/* The other address of an error's own header. */
static __noinline int translate_error(struct __sk_buff *skb, const struct l4 *p, __be32 to, bool source)
{
	__u32 address = ETH_HLEN + (source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr));

	if (!p)
		return -1;
	if (bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), source ? p->src : p->dst, to, 4))
		return -1;
	return bpf_skb_store_bytes(skb, address, &to, sizeof(to), 0);
}

#endif
