/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Events to user space. An endpoint may have a few a second that nobody else uses up, so that a flood of one pod does not hide what happens to others; beyond
 * these all share a budget. Both are of each CPU. What is suppressed is counted.
 */
#ifndef WEIR_EVENTS_H
#define WEIR_EVENTS_H

#include "metrics.h"
#include "packet.h"
#include "policy.h"

/* Events a second, and those that may come at once. */
#define SHARED_RATE 2000
#define SHARED_BURST 500
#define OWN_RATE 20
#define OWN_BURST 20

static __always_inline bool event_spend(__u32 key, __u64 now, __u64 rate, __u64 burst)
{
	struct event_budget *b = bpf_map_lookup_elem(&event_budgets, &key);
	__u64 elapsed, ns_per_event = NS_PER_SECOND / rate;

	if (!b)
		return false;
	elapsed = now - b->refilled_ns;
	if (elapsed >= ns_per_event) {
		__u64 earned = elapsed >= burst * ns_per_event ? burst : elapsed / ns_per_event;

		b->tokens = b->tokens + earned > burst ? burst : b->tokens + earned;
		b->refilled_ns = now;
	}
	if (!b->tokens)
		return false;
	b->tokens--;
	return true;
}

static __always_inline bool event_affordable(__u16 endpoint)
{
	__u64 now = bpf_ktime_get_coarse_ns();

	/* Ids follow one another: of one node's endpoints few have to share. */
	return event_spend(endpoint & (EVENT_BUDGETS - 1), now, OWN_RATE, OWN_BURST) ||
	       event_spend(EVENT_BUDGETS, now, SHARED_RATE, SHARED_BURST);
}

static __noinline void event_emit(struct __sk_buff *skb, const struct packet *p, const struct decision *d, __u8 kind)
{
	__u32 direction = p->direction & 1;
	struct event *e;
	__u32 peer;

	if (!event_affordable(p->ep.id))
		goto lost;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		goto lost;
	__builtin_memset(e, 0, sizeof(*e));
	e->time_ns = bpf_ktime_get_boot_ns();
	e->kind = kind;
	e->direction = direction;
	e->reason = d->reason;
	e->protocol = p->key.protocol;
	e->endpoint = p->ep.id;
	e->sport = p->key.sport;
	e->dport = p->key.dport;
	e->ethertype = p->ethertype;
	e->icmp_type = p->icmp_type;
	e->icmp_code = p->icmp_code;
	e->tcp_flags = p->tcp_flags;
	e->family = p->family;
	e->ifindex = skb->ifindex;
	e->cookie = d->cookie;
	e->length = skb->len;
	e->revision = WORD_REVISION(p->ep.word);
	if (p->family == 6) {
		__builtin_memcpy(e->src, &p->key.src6, 16);
		__builtin_memcpy(e->dst, &p->key.dst6, 16);
	} else if (p->family == 4) {
		*(__be32 *)e->src = p->key.src;
		*(__be32 *)e->dst = p->key.dst;
	}
	if (p->family) {
		struct ipcache_key key = {};

		address_key(&key, &p->key, p->family, direction == WEIR_EGRESS);
		peer = d->identity ?: identity_at(&key, p->ep.word);
		e->src_identity = direction == WEIR_EGRESS ? p->ep.identity : peer;
		e->dst_identity = direction == WEIR_EGRESS ? peer : p->ep.identity;
	}
	bpf_ringbuf_submit(e, 0);
	return;
lost:
	metric_count(REASON_EVENT_LOST, direction, skb->len);
}

static __always_inline bool allow_events(void)
{
	__u32 zero = 0;
	__u32 *bits = bpf_map_lookup_elem(&settings, &zero);

	return bits && (READ_ONCE(*bits) & SETTING_ALLOW_EVENTS);
}

#endif
