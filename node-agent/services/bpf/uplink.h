/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Services from outside of the node: NodePorts, external addresses and those of load balancers, at the interfaces that lead out. A client's packet gets a
 * backend where it comes in, and keeps the client as its sender, so that policy judges that. Where the backend is on another node, it leaves with this
 * node's address instead, so that answers come back here: that is a second flow, begun on the way out (bpf/nat.h).
 */
#ifndef WEIR_SVC_UPLINK_H
#define WEIR_SVC_UPLINK_H

#include "nat-rewrite.h"
#include "services.h"

/* Of one of the node's interfaces: IPv4, IPv6; all 0 where it has none of that family. */
struct uplink_addresses {
	struct nat_address of[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32); /* index of the interface */
	__type(value, struct uplink_addresses);
} node_uplinks SEC(".maps");

_Static_assert(sizeof(struct uplink_addresses) == 32, "uplink_addresses");
_Static_assert(sizeof(struct nat_address) == sizeof(struct svc_address), "one address");

static __always_inline const struct svc_address *as_service(const struct nat_address *address)
{
	return (const struct svc_address *)address;
}

static __always_inline bool opens(const struct nat_packet *p)
{
	if (p->unknown || p->quote || p->later_fragment)
		return false;
	return p->protocol == IPPROTO_UDP || (p->protocol == IPPROTO_TCP && tcp_opens(p->tcp.flags));
}

/* The frontend for those outside at the packet's destination. `node`: as find_frontend's. */
static __always_inline struct svc_frontend *outside_frontend(const struct nat_packet *p, __u32 *node)
{
	const struct svc_address *dst = as_service(&p->dst);
	struct svc_frontend *frontend = find_frontend(dst, p->tuple.dport, p->protocol, SCOPE_CLUSTER, node);

	if (!frontend || !(frontend->flags & SVC_EXTERNAL))
		return NULL;
	if (*node && ((*node & SVC_NODE_LOOPBACK) || !(*node & SVC_NODE_SELF)))
		return NULL;
	return frontend->flags & SVC_LOCAL_EXTERNAL ? find_frontend(dst, p->tuple.dport, p->protocol, SCOPE_LOCAL, node) :
						      frontend;
}

/* What opens a connection, or a datagram, whose flow has a backend that is none any more begins a flow of its own. */
static __always_inline void leave_backend(const struct nat_packet *p, struct nat_scratch *s)
{
	const struct svc_backend *backend;
	struct nat_flow *f;
	__u32 id;

	if (p->unknown || p->quote || !(p->protocol == IPPROTO_UDP || tcp_opens(p->tcp.flags)))
		return;
	s->key = p->tuple;
	f = bpf_map_lookup_elem(&nat_flows, &s->key);
	if (!f || f->owner || !(READ_ONCE(f->flags) & NAT_INWARD))
		return;
	id = f->backend;
	backend = bpf_map_lookup_elem(&svc_backends, &id);
	if (!backend || backend->port != f->to.dport ||
	    !nat_address_same((const struct nat_address *)&backend->address, &f->to.dst))
		nat_forget(&s->key, &s->found);
}

static __always_inline int from_outside(struct __sk_buff *skb)
{
	/* Most nodes take in nothing for Services. */
	bool none = nat_flows_of(0) <= 0;
	struct nat_scratch *s = nat_aside();
	struct svc_frontend *frontend;
	struct svc_backend *backend;
	struct nat_packet *p;
	__u32 node, id;

	if (none && plainly_goes_on(skb))
		return TC_ACT_UNSPEC;
	p = read_packet(skb);
	if (!p || !s)
		return TC_ACT_UNSPEC;
	if (!none) {
		leave_backend(p, s);
		switch (nat_known(skb, p, true, true)) {
		case NAT_UNKNOWN:
			break;
		case NAT_BROKEN:
			return TC_ACT_SHOT;
		default:
			return TC_ACT_UNSPEC;
		}
	}
	if (!opens(p))
		return TC_ACT_UNSPEC;
	frontend = outside_frontend(p, &node);
	if (!frontend)
		return TC_ACT_UNSPEC;
	/* Who may write Services may name an address of the node: what its own programs listen for stays theirs. */
	if (!node && (node_flags(as_service(&p->dst)) & SVC_NODE_SELF) && nat_has_socket(skb, &p->tuple))
		return TC_ACT_UNSPEC;
	if (!source_allowed(frontend, as_service(&p->src)))
		return nat_drop(skb, REASON_SOURCE_RANGE, WEIR_INGRESS);
	backend = pick_backend(frontend, as_service(&p->src), bpf_get_prandom_u32(), &id);
	if (!backend) {
		/* The node itself refuses what goes to a port of its own that nobody has. */
		if (node && !(frontend->flags & SVC_ELSEWHERE))
			return TC_ACT_UNSPEC;
		return nat_drop(skb, REASON_NO_BACKEND, WEIR_INGRESS);
	}
	s->flow.from = p->tuple;
	s->flow.to = p->tuple;
	__builtin_memcpy(&s->flow.to.dst, &backend->address, sizeof(s->flow.to.dst));
	s->flow.to.dport = backend->port;
	s->flow.owner = 0;
	s->flow.flags = NAT_INWARD;
	s->flow.backend = id;
	if (p->first_fragment)
		remember_ports(p);
	return nat_open(skb, p, false, WEIR_INGRESS);
}

/* Whether it is a client's packet to a backend that has just been chosen here. */
static __always_inline bool was_led_on(const struct nat_packet *p)
{
	struct nat_scratch *s = nat_aside();
	struct nat_tuple *of;
	struct nat_flow *f;

	if (!s)
		return false;
	nat_reverse(&p->tuple, &s->reply);
	of = bpf_map_lookup_elem(&nat_replies, &s->reply);
	if (!of)
		return false;
	s->key = *of;
	f = bpf_map_lookup_elem(&nat_flows, &s->key);
	return f && !f->owner && (READ_ONCE(f->flags) & NAT_INWARD) && nat_same(&f->to, &p->tuple) && !nat_over(f, now_ticks());
}

static __always_inline int to_outside(struct __sk_buff *skb)
{
	struct nat_scratch *s = nat_aside();
	struct uplink_addresses *node;
	__u32 to = skb->ifindex;
	struct nat_packet *p;

	if (nat_flows_of(0) <= 0)
		return TC_ACT_UNSPEC;
	p = read_packet(skb);
	if (!p || !s)
		return TC_ACT_UNSPEC;
	/* The node itself may be the backend: what it answers is translated as a pod's answers are. */
	switch (nat_known(skb, p, false, true)) {
	case NAT_UNKNOWN:
		break;
	case NAT_BROKEN:
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
	if (skb->ingress_ifindex <= LOOPBACK_IFINDEX && !p->quote) {
		yield_port(p);
		return TC_ACT_UNSPEC;
	}
	if (p->unknown || p->quote || p->later_fragment || !was_led_on(p))
		return TC_ACT_UNSPEC;
	node = bpf_map_lookup_elem(&node_uplinks, &to);
	if (!node || !node->of[p->v6 & 1].words[3])
		return nat_drop(skb, REASON_NAT_ADDRESS, WEIR_EGRESS);
	s->flow.from = p->tuple;
	s->flow.to = p->tuple;
	s->flow.to.src = node->of[p->v6 & 1];
	s->flow.owner = 0;
	s->flow.flags = 0;
	s->flow.backend = 0;
	if (p->first_fragment)
		remember_ports(p);
	return nat_open(skb, p, true, WEIR_EGRESS);
}

#endif
