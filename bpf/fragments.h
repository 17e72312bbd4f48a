/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Ports of IPv4 fragments. The first fragment carries the ports and is judged by them; once it has passed, what it carried is remembered,
 * so that later fragments are judged as the same flow. Each endpoint has a budget of its own: of a set that is full the oldest datagram is
 * forgotten. Elements are written in place by several CPUs at once: what is read torn can only mislead a later fragment, which is
 * worthless to its receiver unless its first one passed.
 */
#ifndef WEIR_FRAGMENTS_H
#define WEIR_FRAGMENTS_H

#include "conntrack.h"
#include "packet.h"

#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff
/* How long a receiver keeps an incomplete datagram (Linux: 30 s). */
#define FRAGMENT_SECONDS 30

/* Senders count their datagrams: those that follow one another are in different sets. */
static __always_inline struct fragment_key fragment_key_of(const struct ct_key *key, __be16 id)
{
	__u32 hash = key->src ^ key->dst;

	hash ^= hash >> 16;
	hash ^= hash >> 8;
	return (struct fragment_key){
		.endpoint = key->endpoint,
		.direction = key->direction,
		.set = (hash + bpf_ntohs(id)) % FRAGMENT_SETS,
	};
}

static __always_inline bool fragment_is_of(const struct fragmented *f, const struct ct_key *key, __be16 id)
{
	return f->id == id && f->src == key->src && f->dst == key->dst && f->protocol == key->protocol;
}

static __noinline void fragment_remember(const struct ct_key *key, __be16 id)
{
	struct fragment_key k = fragment_key_of(key, id);
	struct fragment_value *v = bpf_map_lookup_elem(&frags, &k), empty = {};
	__u32 now = now_ticks(), oldest = 0;
	struct fragmented *place;
	int way;

	if (!v) {
		bpf_map_update_elem(&frags, &k, &empty, BPF_NOEXIST);
		v = bpf_map_lookup_elem(&frags, &k);
		if (!v)
			return;
	}
	place = &v->ways[0];
#pragma unroll
	for (way = 0; way < FRAGMENT_WAYS; way++) {
		struct fragmented *f = &v->ways[way];

		if (fragment_is_of(f, key, id)) {
			place = f;
			break;
		}
		if (now - f->seen > oldest) {
			oldest = now - f->seen;
			place = f;
		}
	}
	*place = (struct fragmented){
		.src = key->src,
		.dst = key->dst,
		.id = id,
		.protocol = key->protocol,
		.sport = key->sport,
		.dport = key->dport,
		.seen = now,
	};
}

/* The packet has passed. */
static __always_inline void fragment_passed(const struct packet *p)
{
	if (p->first_fragment)
		fragment_remember(&p->key, p->fragment_id);
}

/* Writes the ports of the datagram into `key`; false when no first fragment of it is known to have passed. */
static __noinline bool fragment_recall(struct ct_key *key, __be16 id)
{
	struct fragment_key k = fragment_key_of(key, id);
	struct fragment_value *v = bpf_map_lookup_elem(&frags, &k);
	int way;

	if (!v)
		return false;
#pragma unroll
	for (way = 0; way < FRAGMENT_WAYS; way++) {
		struct fragmented *f = &v->ways[way];

		if (!fragment_is_of(f, key, id) || (__s32)(now_ticks() - f->seen) > (__s32)TICKS(FRAGMENT_SECONDS))
			continue;
		key->sport = f->sport;
		key->dport = f->dport;
		return true;
	}
	return false;
}

#endif
