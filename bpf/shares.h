/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Who may have how much of a connection table. An endpoint may have half as many flows as the table has room for, whoever opens flows to endpoints a quarter: so
 * one that takes all it can get leaves two thirds to others, and the more there are of them, the less each may have; the table is never full.
 *
 * Who has as much as it may gets room for a new flow by losing one that nobody has answered, of the last that the same endpoint began. Else the new one is not
 * stored.
 */
#ifndef WEIR_SHARES_H
#define WEIR_SHARES_H

#include "conntrack.h"
#include "metrics.h"

static __always_inline __u32 ct_cell(__u32 family, __u32 at)
{
	return (family == 6 ? CT_CELLS : 0) + at;
}

static __always_inline __u32 ct_endpoint_cell(__u32 family, __u16 endpoint)
{
	return ct_cell(family, endpoint & (CT_SHARES - 1));
}

static __always_inline struct ct_share *ct_share_at(__u32 cell)
{
	return bpf_map_lookup_elem(&ct_shares, &cell);
}

static __always_inline void ct_count(__u32 cell, __s32 flows)
{
	struct ct_share *share = ct_share_at(cell);

	if (share)
		__sync_fetch_and_add(&share->flows, flows);
}

/* Where the sender of a packet is counted. Nobody can choose whom to share a cell with, as nobody knows the seed. */
static __always_inline __u32 ct_peer_cell(const struct packet *p)
{
	__u64 address = p->family == 6 ? p->key.src6.words[0] : p->key.src;
	struct ct_share *seed = ct_share_at(CT_SEED);

	if (seed)
		address ^= (__u64)READ_ONCE(seed->size) << 32 | (__u32)READ_ONCE(seed->flows);
	address = (address ^ (address >> 32)) * 0xff51afd7ed558ccdULL;
	return ct_cell(p->family, CT_SHARES + (((address ^ (address >> 29)) * 0xc4ceb9fe1a85ec53ULL) >> 52));
}

/* Removes a flow that `e` was found for. */
static __always_inline bool ct_drop_flow(const struct ct_key *flow, const struct ct_value *e, __u32 family)
{
	__u32 peer = READ_ONCE(e->peer), endpoint = flow->endpoint;

	if (ct_remove(flow, family) != 0)
		return false;
	ct_count(ct_endpoint_cell(family, endpoint), -1);
	ct_count(ct_cell(family, CT_TABLE), -1);
	if (peer)
		ct_count(peer, -1);
	return true;
}

/*
 * Nobody has answered it yet: of TCP, the initiator has not gone on after the answer. A denied flow is none of these, nor one of a proxy: its entry protects. (Without
 * it a server's answer would be a flow of its own, in which the pod goes on past the proxy.)
 */
static __always_inline bool ct_unanswered(__u8 protocol, __u64 word, __u32 flags)
{
	if (word & (CT_DENIED | CT_PROXIED))
		return false;
	return protocol == IPPROTO_TCP ? !ct_established(flags) : !(flags & CT_REPLIED);
}

/*
 * User space collects what is over. Where it has not for a minute, a packet for which there is no room does, at most once a minute: it looks at the whole
 * tables, some 25 ms for 262,144 flows. Without that a node whose agent is gone would fill up for good.
 */
#define COLLECTED_SECONDS 60
/* A handshake that has been silent for longer makes room. */
#define HANDSHAKE_SECONDS 5

static __always_inline long ct_collect_flow(const struct ct_key *key, struct ct_value *e, __u32 now, const __u32 family)
{
	__u64 word = READ_ONCE(e->word);
	__u32 flags = READ_ONCE(e->flags);
	__s32 idle = (__s32)(now - READ_ONCE(e->last_seen));
	bool half_open = key->protocol == IPPROTO_TCP && ct_unanswered(IPPROTO_TCP, word, flags);
	struct ct_key flow;

	if (idle <= (__s32)ct_memory(key->protocol, word, flags) && !(half_open && idle > (__s32)TICKS(HANDSHAKE_SECONDS)))
		return 0;
	__builtin_memcpy(&flow, key, family == 6 ? sizeof(flow) : CT4_KEY_BYTES);
	ct_drop_flow(&flow, e, family);
	return 0;
}

static long ct_collect_v4(void *map, struct ct_key *key, struct ct_value *e, __u32 *now)
{
	return ct_collect_flow(key, e, *now, 4);
}

static long ct_collect_v6(void *map, struct ct_key *key, struct ct_value *e, __u32 *now)
{
	return ct_collect_flow(key, e, *now, 6);
}

/* Whether there may be more room than before. */
static __noinline bool ct_collect(void)
{
	__u32 setting = SETTING_COLLECTED, now = now_ticks(), before;
	__u32 *collected = bpf_map_lookup_elem(&settings, &setting);

	if (!collected)
		return false;
	before = READ_ONCE(*collected);
	if (now - before < TICKS(COLLECTED_SECONDS) || __sync_val_compare_and_swap(collected, before, now) != before)
		return false;
	bpf_for_each_map_elem(&ct4, ct_collect_v4, &now, 0);
	bpf_for_each_map_elem(&ct6, ct_collect_v6, &now, 0);
	return true;
}

/*
 * Removes one of the last flows for a new one: if nobody has answered it, and it is of the same `peer` if that is not 0. Returns whether.
 *
 * Not static: the verifier checks it once, and not once more for every look.
 */
__noinline int ct_make_way(struct ct_key *flow, __u32 family, __u32 peer)
{
	struct ct_value *e;

	if (!flow || !flow->protocol)
		return false;
	e = ct_find(flow, family);
	if (!e || (peer && e->peer != peer) || !ct_unanswered(flow->protocol, READ_ONCE(e->word), READ_ONCE(e->flags)))
		return false;
	return ct_drop_flow(flow, e, family);
}

/*
 * Notes the packet's flow among those that its endpoint began last. With `make_room` the oldest of them that can goes for it; false if none can. Two CPUs
 * may write one place at a time: then a key is none, or of another flow of the endpoint.
 */
static __noinline bool ct_note(const struct packet *p, bool make_room, __u32 peer, __u32 bytes)
{
	__u32 cell = (p->family == 6 ? CT_SHARES : 0) + (p->ep.id & (CT_SHARES - 1)), look, first;
	struct ct_recent *recent = bpf_map_lookup_elem(&ct_recent, &cell);
	struct ct_key flow;

	if (!recent)
		return false;
	first = READ_ONCE(recent->next);
	for (look = 0; make_room && look < CT_RECENT; look++) {
		__u32 at = (first + look) & (CT_RECENT - 1);

		flow = recent->flows[at];
		if (!ct_make_way(&flow, p->family, peer))
			continue;
		recent->flows[at] = recent->flows[first & (CT_RECENT - 1)];
		metric_count(REASON_CT_EVICTED, p->direction & 1, bytes);
		make_room = false;
	}
	if (make_room)
		return false;
	recent->flows[first & (CT_RECENT - 1)] = p->key;
	WRITE_ONCE(recent->next, first + 1);
	return true;
}

static __always_inline __u32 ct_store(const struct packet *p, const struct ct_value *v)
{
	__u32 own = ct_endpoint_cell(p->family, p->ep.id), whole = ct_cell(p->family, CT_TABLE), refused = REASON_CT_SHARE;
	struct ct_share *mine = ct_share_at(own), *table = ct_share_at(whole), *peer = v->peer ? ct_share_at(v->peer) : NULL;
	__s32 room, flows, of_peer = peer ? READ_ONCE(peer->flows) : 0;
	bool much, too_much, peer_has_too_much;

	if (!mine || !table)
		return REASON_CT_SHARE;
	flows = READ_ONCE(mine->flows);
	room = READ_ONCE(table->size) ? (__s32)READ_ONCE(table->size) - READ_ONCE(table->flows) : 1 << 30;
	much = flows >= room >> 2 || of_peer >= room >> 3;
	too_much = flows >= room >> 1;
	peer_has_too_much = peer && of_peer >= room >> 2;
	if (likely(!much) || ct_note(p, too_much || peer_has_too_much, peer_has_too_much ? v->peer : 0, v->bytes)) {
		long error = ct_update(&p->key, p->family, v, BPF_NOEXIST);

		if (!error) {
			__sync_fetch_and_add(&mine->flows, 1);
			__sync_fetch_and_add(&table->flows, 1);
			if (peer)
				__sync_fetch_and_add(&peer->flows, 1);
			return REASON_NONE;
		}
		if (error != -EEXIST)
			return REASON_CT_FULL;
		refused = REASON_CT_FULL;
	}
	/* One that is counted already begins anew. */
	return ct_update(&p->key, p->family, v, BPF_EXIST) ? refused : REASON_NONE;
}

/*
 * Begins a flow. Of TCP the packet is a bare SYN, which says nothing of the flow's state. Returns why it cannot be stored: the table is full, or
 * the endpoint or its peer has as much of it as it may. Not static, as ct_make_way.
 */
__noinline __u32 ct_create(const struct packet *p, __u64 current, __u32 cookie, __u32 bytes, __u32 listener)
{
	struct ct_value v = {
		.word = listener ? current | CT_PROXIED : current,
		.flags = listener << CT_LISTENER_SHIFT,
		.last_seen = now_ticks(),
		.stamp = now_stamp(),
		.cookie = cookie,
		.packets = 1,
		.bytes = bytes,
	};
	__u32 refused;

	if (!p)
		return REASON_CT_SHARE;
	if (p->direction == WEIR_INGRESS && !p->local)
		v.peer = ct_peer_cell(p);
	refused = ct_store(p, &v);
	return likely(refused == REASON_NONE) || !ct_collect() ? refused : ct_store(p, &v);
}

/* The flow is none any more. */
static __noinline __maybe_unused void ct_delete(const struct packet *p, const struct ct_key *flow)
{
	struct ct_value *e = ct_find(flow, p->family);

	if (e)
		ct_drop_flow(flow, e, p->family);
}

#endif
