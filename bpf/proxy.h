/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows that a proxy of the node decides. What the pod sends goes to the proxy's socket with source and destination as they are; the proxy asks the server with
 * the pod's address and port. So both connections have one tuple, and one entry in conntrack. To the pod goes what the proxy sends, which its mark shows;
 * what the server sends goes to the proxy.
 *
 * A socket of another program never gets any of it: only sockets count that have the proxy's mark, a listener by its own address, others that are bound to exactly
 * the packet's destination. Where there is none the packet is dropped.
 */
#ifndef WEIR_PROXY_H
#define WEIR_PROXY_H

#include <linux/in.h>

#include "conntrack.h"
#include "packet.h"

static __always_inline __u32 proxy_port(void)
{
	__u32 key = SETTING_PROXY_PORT, *port = bpf_map_lookup_elem(&settings, &key);

	return port ? READ_ONCE(*port) : 0;
}

static __always_inline bool sent_by_proxy(const struct __sk_buff *skb)
{
	return (skb->mark & MARK_PROXY) == MARK_FROM_PROXY;
}

/* Packets in a second, unless the settings say otherwise; twice as many at once. */
#define PROXY_RATE 1000
#define PROXY_BURST_NS (2 * NS_PER_SECOND)

/* Whether the packet asks something: any datagram, and of TCP what opens a connection or brings data. */
static __always_inline bool asks(struct __sk_buff *skb, const struct packet *p)
{
	__u8 words;

	if (p->key.protocol != IPPROTO_TCP || tcp_opens(p->tcp_flags))
		return true;
	return bpf_skb_load_bytes(skb, p->headers.l4 + 12, &words, 1) || p->headers.end > p->headers.l4 + (words >> 4) * 4;
}

/* Takes tokens of the endpoint's bucket, as many as packets that the segment stands for. Where its CPUs all take at once, some get none. */
static __always_inline bool within_rate(struct __sk_buff *skb, const struct packet *p)
{
	__u32 key = SETTING_PROXY_RATE, cell = p->ep.id & (PROXY_BUDGETS - 1), try;
	__u32 *setting = bpf_map_lookup_elem(&settings, &key), rate = setting ? READ_ONCE(*setting) : 0;
	__u64 *full_at = bpf_map_lookup_elem(&proxy_budgets, &cell), now = bpf_ktime_get_ns();
	__u64 cost = NS_PER_SECOND / (rate ?: PROXY_RATE) * (skb->gso_segs ?: 1);

	for (try = 0; full_at && try < 8; try++) {
		__u64 before = READ_ONCE(*full_at), from = before > now ? before : now;

		if (from + cost > now + PROXY_BURST_NS)
			return false;
		if (__sync_val_compare_and_swap(full_at, before, from + cost) == before)
			return true;
	}
	return false;
}

/* The tuple of the packet; `port`: that of the proxy's listener instead of its destination. Returns the tuple's size. */
static __always_inline __u32 tuple_of(struct bpf_sock_tuple *t, const struct packet *p, __u32 port)
{
	if (p->family == 6) {
		__builtin_memcpy(t->ipv6.saddr, &p->key.src6, 16);
		t->ipv6.sport = p->key.sport;
		if (port)
			t->ipv6.daddr[3] = bpf_htonl(1);
		else
			__builtin_memcpy(t->ipv6.daddr, &p->key.dst6, 16);
		t->ipv6.dport = port ? bpf_htons(port) : p->key.dport;
		return sizeof(t->ipv6);
	}
	t->ipv4.saddr = p->key.src;
	t->ipv4.sport = p->key.sport;
	t->ipv4.daddr = port ? bpf_htonl(0x7f000001) : p->key.dst;
	t->ipv4.dport = port ? bpf_htons(port) : p->key.dport;
	return sizeof(t->ipv4);
}

/* Whether the socket is bound to the packet's destination, and to no wildcard. */
static __always_inline bool bound_to(const struct bpf_sock *sk, const struct packet *p)
{
	/* Each by a load of its own: the verifier takes no address of a socket's field. */
	__u32 v4 = READ_ONCE(sk->src_ip4), a = READ_ONCE(sk->src_ip6[0]), b = READ_ONCE(sk->src_ip6[1]),
	      c = READ_ONCE(sk->src_ip6[2]), d = READ_ONCE(sk->src_ip6[3]);

	if (sk->src_port != bpf_ntohs(p->key.dport))
		return false;
	if (p->family == 4)
		return v4 == p->key.dst;
	return a == p->key.dst6.quarters[0] && b == p->key.dst6.quarters[1] && c == p->key.dst6.quarters[2] &&
	       d == p->key.dst6.quarters[3];
}

static __always_inline void mark_as(struct __sk_buff *skb, __u32 mark)
{
	skb->mark = (skb->mark & ~MARK_PROXY) | mark;
}

/* Nobody without CAP_NET_ADMIN can give a socket the mark. */
static __always_inline bool is_proxys(const struct bpf_sock *sk)
{
	__u32 mark = READ_ONCE(sk->mark);

	return (mark & MARK_PROXY) == MARK_FROM_PROXY;
}

/* Whether there is a connection of the proxy's that the packet is of. The kernel finds it again when it delivers. */
static __always_inline bool in_connection(struct __sk_buff *skb, struct bpf_sock_tuple *t, __u32 size)
{
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, t, size, BPF_F_CURRENT_NETNS, 0), *full;
	bool is_found;

	if (!sk)
		return false;
	/* One that is being opened, or that is over, has no mark, and takes no data. */
	full = bpf_sk_fullsock(sk);
	is_found = full ? full->state != BPF_TCP_LISTEN && is_proxys(full) : true;
	bpf_sk_release(sk);
	return is_found;
}

/*
 * Hands the packet to the proxy's listener, or to the connection that it is of. Where many connections are being opened the kernel remembers none of them, and
 * the ACK that ends the handshake says it all (tcp_syncookies): the listener takes or resets it.
 */
static __always_inline bool to_proxy(struct __sk_buff *skb, const struct packet *p)
{
	__u32 port = proxy_port(), size;
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	long error = -1;

	if (!port)
		return false;
	if (p->key.protocol == IPPROTO_TCP && !tcp_opens(p->tcp_flags)) {
		size = tuple_of(&t, p, 0);
		if (in_connection(skb, &t, size)) {
			mark_as(skb, MARK_TO_PROXY);
			return true;
		}
		if ((p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_ACK)
			return false;
		__builtin_memset(&t, 0, sizeof(t));
	}
	size = tuple_of(&t, p, port);
	sk = p->key.protocol == IPPROTO_TCP ? bpf_sk_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0) :
					      bpf_sk_lookup_udp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	if (is_proxys(sk))
		error = bpf_sk_assign(skb, sk, 0);
	bpf_sk_release(sk);
	if (error)
		return false;
	mark_as(skb, MARK_TO_PROXY);
	return true;
}

/* Sends what a server answered to the proxy's socket, by way of the loopback. */
static __always_inline int answer_to_proxy(struct __sk_buff *skb, const struct packet *p)
{
	__u8 loopback[6] = {};
	struct bpf_sock_tuple t = {};
	__u32 size = tuple_of(&t, p, 0);

	if (p->key.protocol == IPPROTO_TCP) {
		if (!in_connection(skb, &t, size))
			return TC_ACT_SHOT;
	} else {
		struct bpf_sock *sk = bpf_sk_lookup_udp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
		bool is_found;

		if (!sk)
			return TC_ACT_SHOT;
		is_found = is_proxys(sk) && bound_to(sk, p);
		bpf_sk_release(sk);
		if (!is_found)
			return TC_ACT_SHOT;
	}
	if (bpf_skb_store_bytes(skb, 0, loopback, sizeof(loopback), 0))
		return TC_ACT_SHOT;
	mark_as(skb, MARK_ANSWER);
	return bpf_redirect(LOOPBACK_IFINDEX, BPF_F_INGRESS);
}

#endif
