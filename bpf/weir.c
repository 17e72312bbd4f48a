// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The packet path of Weir.
 *
 *   weir_from_pod   tc ingress of a pod's host-side veth: what the pod sends, its egress policy
 *   weir_to_pod     tc egress of a pod's host-side veth: what the pod receives, its ingress policy
 *   weir_to_proxy, weir_answer
 *                   what a proxy decides (proxy.h)
 *   weir_pass       passes everything: the floor of benchmarks
 *
 * Guarantees:
 * - A packet is judged by one policy revision: the endpoint's word is read once and everything follows from it.
 * - What cannot be parsed, attributed to an endpoint, or decided is dropped, with a reason that is counted and, up to a
 *   rate, reported as an event.
 * - A packet is delivered as it was judged: one whose checksum is left to be written over what is judged is dropped (offload.h).
 * - To a pod, only what the node itself sends is the host's; what was masqueraded with the node's address is no more than world (policy.h).
 * - A conntrack entry speeds up or extends (to replies and ICMP errors) a decision; it never replaces one: an entry of
 *   another revision means that its flow is decided again. A flow that the policy no longer allows is cut in the direction
 *   that denies it, whatever its other side sends, and for as long as anything of it is sent: see "denied" below.
 * - When the conntrack table is full, or the endpoint or its peer has as much of it as it may (shares.h), a packet that the policy allows passes untracked, and
 *   its replies, and ICMP errors about it, are judged on their own. Nothing becomes wider.
 *
 * User space owes this: a slot is complete before a word names it; after the last word that names it is gone, it stays
 * in place for one RCU grace period before it is emptied or reused; a word's revision grows whenever anything that a
 * decision depends on has become stricter (rows of a slot, classes, ipcache), after the change is in the maps; of an address
 * that changes in one round with rules the ipcache has both identities, and words of that round have revisions of `since` or later (layout.h); an
 * endpoint is complete in `endpoint_array` or `endpoints` before programs run on its device, is never absent from both
 * before they are detached, and only its word and its identity change in the array (layout.h, endpoint-cells.ts).
 *
 * Denied. A flow that has an entry and is denied keeps it (conntrack.h). Then
 *   - a packet of its initiator is dropped, for the reason that the present policy gives;
 *   - a packet of its responder is judged by its own direction as if it stood alone, and when allowed passes without an
 *     entry, so that nothing of the denied flow becomes a reply. A bare SYN stands alone: it opens a connection;
 *   - an ICMP error about it is judged by its own direction, as one about no known flow, or by a pod about a flow of others, is;
 *   - when the policy allows it again, the next packet of either side revives it.
 *
 * Who opened. A packet of a TCP connection that has no entry is judged by its own direction and begins no flow, unless it is a bare
 * SYN: nothing in it says who opened the connection, which may be one that was cut. Other protocols do not show who began: what an
 * entry remembers says it (conntrack.h), and for some seconds an endpoint whose programs or flows somebody took away is in quarantine
 * (layout.h).
 *
 * Limit: a flow that is not TCP and whose both sides were silent for longer than it is remembered (360 s, UDP 480 s once it was
 * answered) belongs to the side that sends first; so does one that was let through while the table was full. A TCP connection that was silent for six hours
 * is forgotten.
 *
 * Order of judging: endpoint, L3, lengths, fragments, neighbour discovery, source, checksum offload, ICMP errors, conntrack, policy. Both families go through the
 * same functions, compiled once for each; the packet lies in an element of its own for each CPU.
 */
#include "common.h"
#include "conntrack.h"
#include "endpoint.h"
#include "events.h"
#include "fragments.h"
#include "headers.h"
#include "icmp.h"
#include "layout.h"
#include "maps.h"
#include "metrics.h"
#include "offload.h"
#include "packet.h"
#include "parse.h"
#include "policy.h"
#include "proxy.h"
#include "related.h"
#include "shares.h"
#include "stage.h"
#include "track.h"

char _license[] SEC("license") = "Dual BSD/GPL";

static __always_inline int pass(struct __sk_buff *skb, __u32 direction)
{
	metric_count(REASON_FORWARDED, direction, skb->len);
	/* What others attach after this program gets what it lets through; without them this is TC_ACT_OK. */
	return TC_ACT_UNSPEC;
}

static __noinline int drop(struct __sk_buff *skb, const struct packet *p, const struct decision *d)
{
	metric_count(d->reason & (REASON_LIMIT - 1), p->direction & 1, skb->len);
	event_emit(skb, p, d, EVENT_DROP);
	return TC_ACT_SHOT;
}

static __always_inline int drop_for(struct __sk_buff *skb, const struct packet *p, __u32 reason)
{
	struct decision d = {.reason = reason};

	return drop(skb, p, &d);
}

/* Whether the packet, when it is allowed, may begin a flow. */
static __always_inline bool begins(const struct packet *p)
{
	if (!(p->track & TRACK_CREATE))
		return false;
	return p->key.protocol == IPPROTO_TCP ? tcp_opens(p->tcp_flags) : !p->ep.quarantine;
}

/* A verdict: what a proxy decides, hand_over ends. */
#define HANDS_OVER 0x100

/* The packet is of a flow between a pod and a proxy. A datagram in fragments is not put together for a proxy. */
static __noinline int pass_proxied(struct __sk_buff *skb, const struct packet *p)
{
	if (p->direction == WEIR_INGRESS && sent_by_proxy(skb))
		return pass(skb, WEIR_INGRESS);
	if (p->first_fragment || p->later_fragment)
		return drop_for(skb, p, REASON_NO_PROXY);
	return HANDS_OVER;
}

/* A new flow to a proxy. The proxy finds by the entry which rules it is to ask: without one nothing passes. */
static __noinline int judge_proxied(struct __sk_buff *skb, const struct packet *p, bool opens, struct decision *d)
{
	__u64 current = ct_current(&p->key, p->family, p->ep.word, p->local);

	if (!opens || !begins(p) || ct_create(p, current, d->cookie, skb->len, d->listener) != REASON_NONE) {
		d->reason = REASON_NO_PROXY;
		return drop(skb, p, d);
	}
	if (unlikely(allow_events()))
		event_emit(skb, p, d, EVENT_ALLOW);
	return pass_proxied(skb, p);
}

/* The packet is judged by its own direction; when it is allowed and `opens`, it gets an entry. */
static __noinline int judge_new(struct __sk_buff *skb, const struct packet *p, bool opens)
{
	__u32 direction = p->direction & 1;
	struct decision d = {};

	decide(p->ep.word, &p->key, p->family, p->local, &d);
	if (d.reason != REASON_NONE)
		return drop(skb, p, &d);
	if (unlikely(d.listener))
		return judge_proxied(skb, p, opens, &d);
	if (opens && begins(p)) {
		__u32 untracked = ct_create(p, ct_current(&p->key, p->family, p->ep.word, p->local), d.cookie, skb->len, 0);

		if (untracked != REASON_NONE)
			metric_count(untracked & (REASON_LIMIT - 1), direction, skb->len);
		else if (p->key.protocol == IPPROTO_TCP)
			/* A connection that the other side opened before ends with it: its packets are replies of this one. */
			ct_delete(p, &p->reply);
		if (unlikely(allow_events()))
			event_emit(skb, p, &d, EVENT_ALLOW);
	}
	return pass(skb, direction);
}

/* Decides the flow that the packet belongs to (`reply`: as its responder's) and stores that; true when it is allowed. */
static __noinline bool judge_tracked(struct __sk_buff *skb, const struct packet *p, bool reply, struct decision *d)
{
	const struct ct_key *flow = reply ? &p->reply : &p->key;
	bool allowed;
	struct ct_value *e;

	decide_again(p->ep.word, flow, p->family, p->current, p->seen, !reply && tcp_opens(p->tcp_flags), d);
	allowed = d->reason == REASON_NONE;
	e = ct_find(flow, p->family);
	if (e) {
		ct_settle(e, p->seen, p->current, allowed, d->listener);
		if (allowed) {
			ct_revive(e);
			ct_touch(e, p, reply, skb->len);
		}
	}
	return allowed;
}

static __noinline int settle(struct __sk_buff *skb, const struct packet *p, enum state state)
{
	struct decision d = {};

	if (state == STATE_NEW || state == STATE_ALONE) {
		int verdict = judge_new(skb, p, state == STATE_NEW);

		if (verdict == TC_ACT_SHOT && p->over) {
			struct ct_value *e = ct_find(&p->key, p->family);

			if (e)
				ct_remember(e);
		}
		return verdict;
	}
	if (judge_tracked(skb, p, state == STATE_REPLY_UNDECIDED, &d))
		return d.listener ? pass_proxied(skb, p) : pass(skb, p->direction & 1);
	if (state == STATE_REPLY_UNDECIDED)
		return judge_new(skb, p, tcp_opens(p->tcp_flags));
	/* Both sides may have opened the same tuple: then this still is a reply. */
	if ((p->track & TRACK_REPLY) && !tcp_opens(p->tcp_flags) && flow_allowed(p, &p->reply, true))
		return pass(skb, p->direction & 1);
	return drop(skb, p, &d);
}

static __always_inline bool is_local(struct __sk_buff *skb)
{
	__u32 from = skb->ingress_ifindex;

	return from <= LOOPBACK_IFINDEX || from == skb->ifindex;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} scratch SEC(".maps");

/* The rest of judging for one family: compiled once for each. `drop`: what a program before this one says of the packet (stage.h). */
static __always_inline int judge_ip(struct __sk_buff *skb, struct packet *p, const __u32 direction, const __u32 family, __u32 drop)
{
	__u32 reason, length = skb->len;
	enum state state;
	int verdict;

	/* What a proxy sends is a pod's, or a server's. */
	p->local = direction == WEIR_INGRESS && is_local(skb) && !sent_by_proxy(skb);
	reason = family == 6 ? parse_ipv6(skb, p, direction) : parse_ipv4(skb, p, direction);
	if (unlikely(reason != REASON_NONE))
		return reason == PASSES ? pass(skb, direction) : drop_for(skb, p, reason);
	if (unlikely(!offload_harmless(skb, p->headers.l4, p->later_fragment ? 0 : p->headers.protocol)))
		return drop_for(skb, p, REASON_MISPLACED_CHECKSUM);
	if (unlikely(drop) && ((drop & SENT_DROP_ALWAYS) || endpoint_enforces(&p->ep, direction)))
		return drop_for(skb, p, drop & (REASON_LIMIT - 1));
	if (unlikely(!p->track && !p->later_fragment && icmp_error(p->icmp_type, family)) && icmp_error_related(skb, p)) {
		fragment_passed(p);
		return pass(skb, direction);
	}

	state = track(p, length, family);
	if (likely(state == STATE_CURRENT && !p->first_fragment && !(p->seen & CT_PROXIED)))
		return pass(skb, direction);
	if (state == STATE_CURRENT)
		verdict = p->seen & CT_PROXIED ? pass_proxied(skb, p) : pass(skb, direction);
	else
		verdict = settle(skb, p, state);
	if (verdict != TC_ACT_SHOT)
		fragment_passed(p);
	return verdict;
}

static __always_inline int judge(struct __sk_buff *skb, const __u32 direction, __u32 drop)
{
	__u32 zero = 0, length = skb->len, wanted = length < HEADER_BYTES ? length : HEADER_BYTES, reason;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);

	if (!p)
		return TC_ACT_SHOT;
	packet_begin(p, direction);
	if (unlikely(!endpoint_find(skb->ifindex, &p->ep))) {
		__builtin_memset(&p->ep, 0, sizeof(p->ep));
		return drop_for(skb, p, REASON_NO_ENDPOINT);
	}
	if (unlikely((__u64)(end - data) < wanted)) {
		if (bpf_skb_pull_data(skb, wanted))
			return drop_for(skb, p, REASON_INVALID_PACKET);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	if (unlikely(data + ETH_HLEN > end))
		return drop_for(skb, p, REASON_INVALID_PACKET);
	p->ethertype = ((struct ethhdr *)data)->h_proto;
	if (likely(!skb->vlan_present)) {
		if (likely(p->ethertype == bpf_htons(ETH_P_IP)))
			return judge_ip(skb, p, direction, 4, drop);
		if (p->ethertype == bpf_htons(ETH_P_IPV6))
			return judge_ip(skb, p, direction, 6, drop);
	}
	reason = judge_other_l3(skb, p);
	if (p->ethertype == bpf_htons(ETH_P_ARP) && reason == REASON_NONE && !offload_harmless(skb, 0, 0))
		reason = REASON_MISPLACED_CHECKSUM;
	return reason == REASON_NONE ? pass(skb, direction) : drop_for(skb, p, reason);
}

/* Where the stage has no program. */
static __noinline int no_proxy(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);

	return p ? drop_for(skb, p, REASON_NO_PROXY) : TC_ACT_SHOT;
}

SEC("tc")
int weir_from_pod(struct __sk_buff *skb)
{
	int verdict;

	/* Goes on where a part has a program here, which ends by weir_judge_sent. */
	bpf_tail_call(skb, &stages, STAGE_FROM_POD);
	verdict = judge(skb, WEIR_EGRESS, REASON_NONE);
	if (likely(verdict != HANDS_OVER))
		return verdict;
	bpf_tail_call(skb, &stages, STAGE_TO_PROXY);
	return no_proxy(skb);
}

SEC("tc")
int weir_judge_sent(struct __sk_buff *skb)
{
	int verdict = judge(skb, WEIR_EGRESS, skb->cb[0]);

	if (likely(verdict != HANDS_OVER))
		return verdict;
	bpf_tail_call(skb, &stages, STAGE_TO_PROXY);
	return no_proxy(skb);
}

SEC("tc")
int weir_to_pod(struct __sk_buff *skb)
{
	int verdict = judge(skb, WEIR_INGRESS, REASON_NONE);

	if (unlikely(verdict == HANDS_OVER)) {
		bpf_tail_call(skb, &stages, STAGE_ANSWER_TO_PROXY);
		return no_proxy(skb);
	}
	if (likely(verdict != TC_ACT_SHOT))
		bpf_tail_call(skb, &stages, STAGE_TO_POD);
	return verdict;
}

/* Goes on with the packet that was judged. */
SEC("tc")
int weir_to_proxy(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);

	if (!p)
		return TC_ACT_SHOT;
	if (asks(skb, p) && !within_rate(skb, p))
		return drop_for(skb, p, REASON_PROXY_RATE);
	return to_proxy(skb, p) ? pass(skb, WEIR_EGRESS) : drop_for(skb, p, REASON_NO_PROXY);
}

SEC("tc")
int weir_answer(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);
	int verdict;

	if (!p)
		return TC_ACT_SHOT;
	verdict = answer_to_proxy(skb, p);
	if (verdict == TC_ACT_SHOT)
		return drop_for(skb, p, REASON_NO_PROXY);
	metric_count(REASON_FORWARDED, WEIR_INGRESS, skb->len);
	return verdict;
}

SEC("tc")
int weir_pass(struct __sk_buff *skb)
{
	return TC_ACT_OK;
}
