/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Ports of fragments. The first fragment carries the ports and is judged by them; once it has passed, what it carried is remembered,
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

/* An IPv4 datagram is known by its protocol, too. */
static __always_inline __u32 fragment_v4(__be16 id, __u8 protocol)
{
	return (__u32)id | (__u32)protocol << 16;
}

/* Two datagrams may have the same: see above. */
static __always_inline __u64 fragment_v6(const struct ct_key *key)
{
	__u64 mixed = (key->src6.words[0] ^ 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;

	mixed = (mixed ^ (mixed >> 32) ^ key->src6.words[1]) * 0xc4ceb9fe1a85ec53ULL;
	mixed = (mixed ^ (mixed >> 32) ^ key->dst6.words[0]) * 0xff51afd7ed558ccdULL;
	return (mixed ^ (mixed >> 32) ^ key->dst6.words[1]) * 0xc4ceb9fe1a85ec53ULL;
}

/* Senders count their datagrams: those that follow one another are in different sets. */
static __always_inline struct fragment_key fragment_key_of(const struct ct_key *key, __u64 addresses, __u32 id)
{
	__u32 hash = addresses ^ addresses >> 32;

	hash ^= hash >> 16;
	hash ^= hash >> 8;
	return (struct fragment_key){
		.endpoint = key->endpoint,
		.direction = key->direction,
		.set = (hash + bpf_ntohs(id) + (id >> 16)) % FRAGMENT_SETS,
	};
}

static __always_inline bool fragment_is_of(const struct fragmented *f, __u64 addresses, __u32 id)
{
	return f->id == id && f->addresses == addresses;
}

/* `end`: bytes of the datagram that its headers take. */
static __noinline void fragment_remember(const struct ct_key *key, __u64 addresses, __u32 id, __u32 end)
{
	struct fragment_key k = fragment_key_of(key, addresses, id);
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

		if (fragment_is_of(f, addresses, id)) {
			place = f;
			break;
		}
		if (now - f->seen > oldest) {
			oldest = now - f->seen;
			place = f;
		}
	}
	*place = (struct fragmented){
		.addresses = addresses,
		.id = id,
		.protocol = key->protocol,
		.sport = key->sport,
		.dport = key->dport,
		.end = end,
		.seen = now,
	};
}

/* Writes protocol and ports of the datagram into `key`; false when no first fragment of it is known to have passed, or `offset` lies within its headers. */
static __noinline bool fragment_recall(struct ct_key *key, __u64 addresses, __u32 id, __u32 offset)
{
	struct fragment_key k = fragment_key_of(key, addresses, id);
	struct fragment_value *v = bpf_map_lookup_elem(&frags, &k);
	int way;

	if (!v)
		return false;
#pragma unroll
	for (way = 0; way < FRAGMENT_WAYS; way++) {
		struct fragmented *f = &v->ways[way];

		if (!fragment_is_of(f, addresses, id) || (__s32)(now_ticks() - f->seen) > (__s32)TICKS(FRAGMENT_SECONDS))
			continue;
		if (offset < f->end)
			return false;
		key->protocol = f->protocol;
		key->sport = f->sport;
		key->dport = f->dport;
		return true;
	}
	return false;
}

/* The packet has passed. */
static __always_inline void fragment_passed(const struct packet *p)
{
	const struct headers *h = &p->headers;

	if (p->first_fragment)
		fragment_remember(&p->key, p->family == 6 ? fragment_v6(&p->key) : p->key.addresses, h->fragment,
				  h->before + l4_header_bytes(p->key.protocol));
}

#endif
