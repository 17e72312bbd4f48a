/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows whose addresses are translated where the node meets the network outside. `nat_flows` has the truth, by what the opener's packets say before they
 * are translated; `nat_replies` finds a flow by what the answers say before they are.
 *
 * Guarantees: of two flows no answers are alike; no flow takes a port that a socket of the node has, and one that a socket takes later gives it up; a flow
 * is over after its time without a packet, whether an agent runs or not; an owner has its share of flows at most.
 */
#ifndef WEIR_NAT_H
#define WEIR_NAT_H

#include "nat-layout.h"

/* How long a flow counts after its last packet: as conntrack has it, but for questions that get one answer. */
static __always_inline __u32 nat_timeout(__u8 protocol, __u32 flags)
{
	if (protocol == IPPROTO_TCP) {
		if ((flags & NAT_RESET) || (flags & (NAT_FIN_FORWARD | NAT_FIN_REPLY)) == (NAT_FIN_FORWARD | NAT_FIN_REPLY))
			return TICKS(10);
		return flags & NAT_LASTING ? TICKS(21600) : TICKS(60);
	}
	if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
		return TICKS(30);
	return flags & NAT_LASTING ? TICKS(180) : TICKS(30);
}

static __always_inline bool nat_over(const struct nat_flow *f, __u32 now)
{
	return (__s32)(now - READ_ONCE(f->last_seen)) > (__s32)nat_timeout(f->from.protocol, READ_ONCE(f->flags));
}

/* What is worked on does not fit onto the stack. No other packet of this CPU is translated meanwhile. */
struct nat_scratch {
	struct nat_tuple key; /* of a flow that is looked up or removed */
	struct nat_tuple reply;
	struct nat_tuple found;
	struct nat_flow flow; /* a new one */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_scratch);
} nat_scratch SEC(".maps");

static __always_inline struct nat_scratch *nat_aside(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&nat_scratch, &zero);
}

static __always_inline void nat_count(__u32 owner, __s32 by)
{
	__u32 key = owner & (NAT_OWNERS - 1);
	__s32 *flows = bpf_map_lookup_elem(&nat_owners, &key);

	if (flows)
		__sync_fetch_and_add(flows, by);
}

static __always_inline __s32 nat_flows_of(__u32 owner)
{
	__u32 key = owner & (NAT_OWNERS - 1);
	__s32 *flows = bpf_map_lookup_elem(&nat_owners, &key);

	return flows ? READ_ONCE(*flows) : 0;
}

static __always_inline bool nat_may_have_more(__u32 owner)
{
	return nat_flows_of(owner) < (owner ? NAT_SHARE : NAT_OUTSIDE_SHARE);
}

/* Removes a flow by a copy of its key, which may be over by now. */
static __noinline long nat_forget(struct nat_tuple *key, struct nat_tuple *reply)
{
	struct nat_flow *f;
	struct nat_tuple *of;
	__u32 owner;

	if (!key || !reply)
		return 0;
	f = bpf_map_lookup_elem(&nat_flows, key);
	if (!f)
		return 0;
	owner = f->owner;
	nat_reverse(&f->to, reply);
	if (bpf_map_delete_elem(&nat_flows, key))
		return 0;
	nat_count(owner, -1);
	of = bpf_map_lookup_elem(&nat_replies, reply);
	if (of && nat_same(of, key))
		bpf_map_delete_elem(&nat_replies, reply);
	return 0;
}

static long nat_collect_one(void *map, struct nat_tuple *key, struct nat_flow *f, __u32 *now)
{
	struct nat_scratch *s = nat_aside();
	__u32 flags = READ_ONCE(f->flags);
	bool opening = !(flags & (key->protocol == IPPROTO_TCP ? NAT_LASTING : NAT_REPLIED));
	__s32 idle = (__s32)(*now - READ_ONCE(f->last_seen));

	if (!s || !(nat_over(f, *now) || (opening && idle > (__s32)NAT_OPENING_TICKS)))
		return 0;
	s->found = *key;
	nat_forget(&s->found, &s->reply);
	return 0;
}

/* Removes what is over, once in a while, when there is no room: nobody else does. True where there may be more room than before. */
static __noinline bool nat_collect(void)
{
	__u32 at = NAT_COLLECTED, now = now_ticks();
	__s32 *collected = bpf_map_lookup_elem(&nat_owners, &at), before;

	if (!collected)
		return false;
	before = READ_ONCE(*collected);
	if (now - (__u32)before <= NAT_COLLECT_TICKS || __sync_val_compare_and_swap(collected, before, (__s32)now) != before)
		return false;
	bpf_for_each_map_elem(&nat_flows, nat_collect_one, &now, 0);
	return true;
}

/*
 * The flow that has `t` as its opener's or as its answerer's packets, and in `to` what such a packet becomes; NULL where it is none's. One whose time is
 * over is none.
 */
static __noinline struct nat_flow *nat_find(const struct nat_tuple *t, struct nat_tuple *to, bool *reply)
{
	struct nat_scratch *s = nat_aside();
	struct nat_tuple *of;
	struct nat_flow *f;

	if (!s || !t || !to || !reply)
		return NULL;
	*reply = false;
	s->key = *t;
	f = bpf_map_lookup_elem(&nat_flows, &s->key);
	if (f) {
		*to = f->to;
		if (!nat_same(&f->from, &s->key))
			return NULL;
	} else {
		of = bpf_map_lookup_elem(&nat_replies, &s->key);
		if (!of)
			return NULL;
		s->key = *of;
		f = bpf_map_lookup_elem(&nat_flows, &s->key);
		if (!f)
			return NULL;
		nat_reverse(&f->to, &s->found);
		if (!nat_same(&f->from, &s->key) || !nat_same(&s->found, t))
			return NULL;
		nat_reverse(&s->key, to);
		*reply = true;
	}
	if (nat_over(f, now_ticks())) {
		nat_forget(&s->key, &s->reply);
		return NULL;
	}
	return f;
}

/* Whether a socket of the node gets what answers say. */
static __always_inline bool nat_has_socket(struct __sk_buff *skb, const struct nat_tuple *answer)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 size;

	if (nat_is_v4(&answer->src)) {
		tuple.ipv4.saddr = answer->src.words[3];
		tuple.ipv4.daddr = answer->dst.words[3];
		tuple.ipv4.sport = answer->sport;
		tuple.ipv4.dport = answer->dport;
		size = sizeof(tuple.ipv4);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, &answer->src, 16);
		__builtin_memcpy(tuple.ipv6.daddr, &answer->dst, 16);
		tuple.ipv6.sport = answer->sport;
		tuple.ipv6.dport = answer->dport;
		size = sizeof(tuple.ipv6);
	}
	if (answer->protocol == IPPROTO_TCP)
		sk = bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	else if (answer->protocol == IPPROTO_UDP)
		sk = bpf_sk_lookup_udp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	else
		return false;
	if (!sk)
		return false;
	bpf_sk_release(sk);
	return true;
}

enum nat_claim {
	NAT_CLAIMED,
	NAT_TAKEN,
	NAT_FULL,
};

/* Takes the answers of s->flow for it. */
static __noinline enum nat_claim nat_claim(struct __sk_buff *skb)
{
	struct nat_scratch *s = nat_aside();
	struct nat_tuple *of;
	struct nat_flow *f;
	long error;

	if (!s)
		return NAT_FULL;
	nat_reverse(&s->flow.to, &s->reply);
	/* What answers those outside is no node's: its destination is theirs. */
	if (!(s->flow.flags & NAT_INWARD) && nat_has_socket(skb, &s->reply))
		return NAT_TAKEN;
	error = bpf_map_update_elem(&nat_replies, &s->reply, &s->flow.from, BPF_NOEXIST);
	if (!error)
		return NAT_CLAIMED;
	if (error != -EEXIST)
		return NAT_FULL;
	of = bpf_map_lookup_elem(&nat_replies, &s->reply);
	if (!of)
		return NAT_TAKEN;
	s->key = *of;
	/* Another packet of the same flow was here before. */
	if (nat_same(&s->key, &s->flow.from))
		return NAT_CLAIMED;
	f = bpf_map_lookup_elem(&nat_flows, &s->key);
	/* One that is not there is only beginning, on another CPU. */
	if (!f || !nat_over(f, now_ticks()))
		return NAT_TAKEN;
	nat_forget(&s->key, &s->found);
	return bpf_map_update_elem(&nat_replies, &s->reply, &s->flow.from, BPF_NOEXIST) ? NAT_TAKEN : NAT_CLAIMED;
}

static __always_inline bool nat_has_ports(__u8 protocol, __u8 query)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || query;
}

/*
 * Begins s->flow: its `from`, `to`, `flags` and `owner` are set, and of `to` the source port may become another, but for protocols whose ports cannot be written
 * (`any_port` is false). Returns why it cannot.
 */
static __noinline __u32 nat_begin(struct __sk_buff *skb, bool any_port)
{
	struct nat_scratch *s = nat_aside();
	enum nat_claim claimed = NAT_TAKEN;
	__u16 wanted;
	long error;
	int try;

	if (!s)
		return REASON_NAT_FULL;
	if (!nat_may_have_more(s->flow.owner) && (!nat_collect() || !nat_may_have_more(s->flow.owner)))
		return REASON_NAT_SHARE;
	wanted = bpf_ntohs(s->flow.to.sport);
	for (try = 0; try < NAT_TRIES; try++) {
		if (any_port && (try || (wanted < NAT_FIRST_PORT && !s->flow.to.query)))
			s->flow.to.sport = bpf_htons(NAT_FIRST_PORT + (bpf_get_prandom_u32() & (NAT_FIRST_PORT - 1)));
		claimed = nat_claim(skb);
		if (claimed == NAT_CLAIMED || !any_port)
			break;
		if (claimed == NAT_FULL && !nat_collect())
			break;
	}
	if (claimed == NAT_FULL)
		return REASON_NAT_FULL;
	if (claimed == NAT_TAKEN)
		return REASON_NAT_PORT;
	s->flow.last_seen = now_ticks();
	s->flow.acked = 0;
	error = bpf_map_update_elem(&nat_flows, &s->flow.from, &s->flow, BPF_NOEXIST);
	if (error && error != -EEXIST && nat_collect())
		error = bpf_map_update_elem(&nat_flows, &s->flow.from, &s->flow, BPF_NOEXIST);
	if (!error) {
		nat_count(s->flow.owner, 1);
		return REASON_NONE;
	}
	nat_reverse(&s->flow.to, &s->reply);
	if (error == -EEXIST) {
		struct nat_flow *f = bpf_map_lookup_elem(&nat_flows, &s->flow.from);

		if (f) {
			s->found = f->to;
			if (!nat_same(&s->found, &s->flow.to))
				bpf_map_delete_elem(&nat_replies, &s->reply);
			s->flow.to = s->found;
			return REASON_NONE;
		}
	}
	bpf_map_delete_elem(&nat_replies, &s->reply);
	return REASON_NAT_FULL;
}

#endif
