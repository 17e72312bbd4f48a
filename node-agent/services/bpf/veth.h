/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Services at pods' interfaces, packet by packet, over IPv4: for what reaches them untranslated, such as raw sockets, virtual machines, and pods of other
 * cgroups. What a pod sends to a frontend goes to a backend before policy judges it, and what comes from that backend comes from the frontend again
 * after policy has judged it; so do errors about such packets, and fragments. A pod that is its own backend gets its packets back at once, from
 * HAIRPIN, since no pod takes packets from its own address.
 */
#ifndef WEIR_SVC_VETH_H
#define WEIR_SVC_VETH_H

#include "flows.h"
#include "refuse.h"
#include "rewrite.h"
#include "stage.h"

/* 169.254.1.2: link-local, beside the pods' gateway. */
#define HAIRPIN bpf_htonl(0xa9fe0102)

enum sent {
	SENT_ON, /* to be judged as it is now */
	SENT_BACK, /* for the pod itself */
	SENT_NOWHERE, /* no backend: to be refused */
	SENT_UNTRANSLATED, /* still to the frontend: to be dropped where egress is enforced */
	SENT_DROPPED,
};

/* What fragments.h remembers of a datagram of the pod, by the addresses that it has here. */
static __always_inline bool datagram_of(struct __sk_buff *skb, const struct l4 *p, __u8 direction, struct ct_key *key)
{
	struct endpoint ep = {};

	if (!endpoint_find(skb->ifindex, &ep))
		return false;
	key->addresses = ct_addresses(p->src, p->dst);
	key->rest = ct_rest(ep.id, p->protocol, direction);
	key->sport = p->sport;
	key->dport = p->dport;
	return true;
}

static __noinline bool recall_ports(struct __sk_buff *skb, struct l4 *p, __u8 direction)
{
	struct ct_key key = {};

	if (!p || !datagram_of(skb, p, direction, &key) || !fragment_recall(&key, key.addresses, fragment_v4(p->id, p->protocol), 0xffff))
		return false;
	p->sport = key.sport;
	p->dport = key.dport;
	return true;
}

static __noinline int remember_ports(struct __sk_buff *skb, const struct l4 *p)
{
	struct ct_key key = {};

	if (p && datagram_of(skb, p, WEIR_EGRESS, &key))
		fragment_remember(&key, key.addresses, fragment_v4(p->id, p->protocol), 0);
	return 0;
}

/* Writes the flow's backend into the packet. */
static __noinline enum sent send_on(struct __sk_buff *skb, const struct l4 *p, const struct svc_flow *flow)
{
	struct change c = {};

	if (!p || !flow)
		return SENT_DROPPED;
	c.from = p->dst;
	c.to = flow->backend;
	c.from_port = p->dport;
	c.to_port = flow->backend_port;
	if (translate_packet(skb, p, &c, false))
		return SENT_UNTRANSLATED;
	if (flow->backend != p->src)
		return SENT_ON;
	c.from = p->src;
	c.to = HAIRPIN;
	c.from_port = c.to_port = p->sport;
	return translate_packet(skb, p, &c, true) ? SENT_DROPPED : SENT_BACK;
}

/* A flow whose backend is in use, and that was not silent for too long. Of TCP, what is no SYN goes on to the backend that it had. */
static __always_inline bool flow_goes_on(const struct svc_flow *flow, const struct l4 *p, __u32 now)
{
	struct svc_backend *backend;

	if (p->protocol == IPPROTO_TCP && !tcp_opens(p->tcp_flags))
		return true;
	if (now - flow->seen > TICKS(SVC_FLOW_SECONDS))
		return false;
	backend = bpf_map_lookup_elem(&svc_backends, &flow->backend_id);
	return backend && backend->address.words[3] == flow->backend && backend->port == flow->backend_port;
}

/* What cannot be translated: of a cluster IP nobody's, else of whoever has the address. */
static __always_inline enum sent untranslated(__be32 address)
{
	struct svc_address to;

	address_v4(&to, address);
	return bpf_map_lookup_elem(&svc_addresses, &to) ? SENT_UNTRANSLATED : SENT_ON;
}

/* False: the packet is dropped when it is judged, and is no client. */
static __noinline bool is_own(struct __sk_buff *skb, const struct l4 *p)
{
	struct endpoint ep = {};

	return p && endpoint_find(skb->ifindex, &ep) &&
	       (p->src == ep.ipv4 || (WORD_FLAGS(ep.word) & ENDPOINT_NO_SOURCE_CHECK));
}

static __noinline enum sent send_to_service(struct __sk_buff *skb, const struct l4 *p, const struct svc_frontend *frontend)
{
	__u32 now = now_ticks();
	struct svc_address client;
	struct svc_backend *backend;
	struct svc_flow *known, flow = {};

	if (!p || !frontend)
		return SENT_DROPPED;
	if (p->first_fragment)
		remember_ports(skb, p);
	known = flow_sent(skb->ifindex, p->protocol, p->sport, p->dst, p->dport);
	if (known && flow_goes_on(known, p, now)) {
		known->seen = now;
		flow = *known;
		return send_on(skb, p, &flow);
	}
	if (p->protocol == IPPROTO_TCP && !tcp_opens(p->tcp_flags))
		return untranslated(p->dst);
	if (!is_own(skb, p))
		return SENT_ON;
	address_v4(&client, p->src);
	if (!source_allowed(frontend, &client))
		return SENT_DROPPED;
	backend = pick_backend(frontend, &client, bpf_get_prandom_u32(), &flow.backend_id);
	if (!backend)
		return frontend->flags & SVC_ELSEWHERE ? SENT_DROPPED : SENT_NOWHERE;
	flow.frontend = p->dst;
	flow.frontend_port = p->dport;
	flow.backend = backend->address.words[3];
	flow.backend_port = backend->port;
	flow.pod_port = p->sport;
	flow.protocol = p->protocol;
	flow.seen = now;
	flow_remember(skb->ifindex, &flow);
	return send_on(skb, p, &flow);
}

/* A fragment that has no ports goes where its first one went. */
static __noinline enum sent send_fragment(struct __sk_buff *skb, const struct l4 *p)
{
	struct svc_flow *known, flow;

	if (!p)
		return SENT_ON;
	known = flow_sent(skb->ifindex, p->protocol, p->sport, p->dst, p->dport);
	if (!known)
		return SENT_ON;
	flow = *known;
	return send_on(skb, p, &flow);
}

/* What a pod answers to itself. */
static __noinline enum sent send_answer_back(struct __sk_buff *skb, struct l4 *p)
{
	struct svc_flow *flow;
	struct change c = {};

	if (!p || !has_ports(p->protocol))
		return SENT_ON;
	if (p->first_fragment)
		remember_ports(skb, p);
	if (p->later_fragment && !recall_ports(skb, p, WEIR_EGRESS))
		return SENT_ON;
	flow = flow_answered(skb->ifindex, p->protocol, p->dport, p->src, p->sport);
	if (!flow)
		return SENT_ON;
	c.from = p->src;
	c.to = flow->frontend;
	c.from_port = p->sport;
	c.to_port = flow->frontend_port;
	flow->seen = now_ticks();
	if (translate_packet(skb, p, &c, true))
		return SENT_DROPPED;
	c.from = HAIRPIN;
	c.to = p->src;
	c.from_port = c.to_port = p->dport;
	return translate_packet(skb, p, &c, false) ? SENT_DROPPED : SENT_BACK;
}

/* The pod tells of a packet that it got from a frontend: its backend is told. */
static __noinline enum sent send_error(struct __sk_buff *skb, const struct l4 *p)
{
	struct change c = {};
	struct svc_flow *flow;
	struct l4 q = {};

	if (!p || !read_quote(skb, p->at + QUOTE_AT, &q))
		return SENT_ON;
	flow = flow_sent(skb->ifindex, q.protocol, q.dport, q.src, q.sport);
	if (!flow)
		return SENT_ON;
	c.from = q.src;
	c.to = flow->backend;
	c.from_port = q.sport;
	c.to_port = flow->backend_port;
	if (translate_quote(skb, p, &q, &c, true) || (p->dst == c.from && translate_error(skb, p, c.to, false)))
		return SENT_DROPPED;
	return SENT_ON;
}

/* A connection to a backend itself: what answers it is no Service's, though one from the same port was. */
static __noinline int forget_flow(struct __sk_buff *skb, const struct l4 *p)
{
	struct svc_flow *flow;

	if (!p || !has_flows(skb->ifindex))
		return 0;
	flow = flow_answered(skb->ifindex, p->protocol, p->sport, p->dst, p->dport);
	if (flow)
		flow->protocol = 0;
	return 0;
}

/* Whether an IPv6 packet begins a flow to the port of a Service at an address that is no cluster IP. What cannot be read is dropped when it is judged. */
static __noinline bool opens_service6(struct __sk_buff *skb, const struct svc_address *to)
{
	struct ipv6hdr ip;
	struct headers h = {.l4 = ETH_HLEN + sizeof(ip)};
	__be16 ports[2];
	__u8 tcp_flags;
	__u32 node;

	if (!to || bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return false;
	h.end = skb->len;
	h.protocol = ip.nexthdr;
	if (v6_is_extension(ip.nexthdr) && (!headers_follow(skb, &h) || h.offset))
		return false;
	if (!has_ports(h.protocol) || bpf_skb_load_bytes(skb, h.l4, ports, sizeof(ports)))
		return false;
	if (h.protocol == IPPROTO_TCP && (bpf_skb_load_bytes(skb, h.l4 + 13, &tcp_flags, 1) || !tcp_opens(tcp_flags)))
		return false;
	return find_frontend(to, ports[1], h.protocol, SCOPE_CLUSTER, &node) && !(node & SVC_NODE_LOOPBACK);
}

/*
 * IPv6 is translated at sockets alone. What still goes to a Service here is not of whoever has the address: kube-proxy would send it to a pod that nobody
 * judged.
 */
static __noinline enum sent send_untranslated(struct __sk_buff *skb)
{
	struct svc_address to;
	__be16 ethertype;

	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, sizeof(ethertype)) ||
	    ethertype != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, daddr), &to, sizeof(to)))
		return SENT_ON;
	return bpf_map_lookup_elem(&svc_addresses, &to) || opens_service6(skb, &to) ? SENT_UNTRANSLATED : SENT_ON;
}

static __always_inline enum sent send_translated(struct __sk_buff *skb)
{
	struct svc_frontend *frontend;
	struct svc_address to;
	struct l4 p = {};
	__u32 node;

	if (!read_l4(skb, &p))
		return send_untranslated(skb);
	if (unlikely(p.dst == HAIRPIN))
		return send_answer_back(skb, &p);
	if (p.protocol == IPPROTO_ICMP && icmp_error(p.icmp_type, 4))
		return send_error(skb, &p);
	if (likely(!maybe_service(p.dst))) {
		if (unlikely(p.protocol == IPPROTO_TCP && tcp_opens(p.tcp_flags)))
			forget_flow(skb, &p);
		return SENT_ON;
	}
	if (unlikely(p.later_fragment) && recall_ports(skb, &p, WEIR_EGRESS))
		return send_fragment(skb, &p);
	address_v4(&to, p.dst);
	frontend = p.later_fragment ? NULL : find_frontend(&to, p.dport, p.protocol, SCOPE_CLUSTER, &node);
	/* A pod's own 127.0.0.1 is none of the node's. */
	if (unlikely(frontend) && !(node & SVC_NODE_LOOPBACK))
		return send_to_service(skb, &p, frontend);
	if (p.protocol == IPPROTO_TCP && tcp_opens(p.tcp_flags))
		forget_flow(skb, &p);
	return untranslated(p.dst);
}

static __always_inline int from_pod(struct __sk_buff *skb)
{
	switch (send_translated(skb)) {
	case SENT_ON:
		return judge_sent(skb);
	case SENT_BACK:
		return send_back(skb);
	case SENT_NOWHERE:
		metric_count(REASON_NO_BACKEND, WEIR_EGRESS, skb->len);
		return refuse_packet(skb);
	case SENT_UNTRANSLATED:
		return drop_sent(skb, REASON_NO_SERVICE, false);
	default:
		return drop_sent(skb, REASON_NO_BACKEND, true);
	}
}

/* Of what comes to a pod: an error about a packet that went to a backend is about its frontend. */
static __noinline int receive_error(struct __sk_buff *skb, const struct l4 *p)
{
	struct change c = {};
	struct svc_flow *flow;
	struct l4 q = {};

	if (!p || !read_quote(skb, p->at + QUOTE_AT, &q))
		return TC_ACT_UNSPEC;
	flow = flow_answered(skb->ifindex, q.protocol, q.sport, q.dst, q.dport);
	if (!flow)
		return TC_ACT_UNSPEC;
	c.from = q.dst;
	c.to = flow->frontend;
	c.from_port = q.dport;
	c.to_port = flow->frontend_port;
	if (translate_quote(skb, p, &q, &c, false) || (p->src == c.from && translate_error(skb, p, c.to, true)))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

static __noinline int receive_answer(struct __sk_buff *skb, const struct l4 *p)
{
	__u32 now = now_ticks();
	struct svc_flow *flow;
	struct change c = {};

	if (!p)
		return TC_ACT_UNSPEC;
	flow = flow_answered(skb->ifindex, p->protocol, p->dport, p->src, p->sport);
	/* A SYN opens a connection of its own; so does, of UDP, what comes long after the last packet. */
	if (!flow || (p->protocol == IPPROTO_TCP ? tcp_opens(p->tcp_flags) : now - flow->seen > TICKS(SVC_FLOW_SECONDS)))
		return TC_ACT_UNSPEC;
	c.from = p->src;
	c.to = flow->frontend;
	c.from_port = p->sport;
	c.to_port = flow->frontend_port;
	flow->seen = now;
	return translate_packet(skb, p, &c, true) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

static __always_inline int to_pod(struct __sk_buff *skb)
{
	struct l4 p = {};

	if (likely(!has_flows(skb->ifindex)) || !read_l4(skb, &p))
		return TC_ACT_UNSPEC;
	if (p.protocol == IPPROTO_ICMP && icmp_error(p.icmp_type, 4))
		return receive_error(skb, &p);
	if (!has_ports(p.protocol))
		return TC_ACT_UNSPEC;
	if (unlikely(p.later_fragment) && !recall_ports(skb, &p, WEIR_INGRESS))
		return TC_ACT_UNSPEC;
	return receive_answer(skb, &p);
}

#endif
