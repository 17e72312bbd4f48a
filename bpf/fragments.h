/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Ports of IPv4 fragments. The first fragment carries the ports and is judged by them; what it carried is remembered,
 * so that later fragments are judged as the same flow. A recycled LRU element can only mislead a later fragment, which
 * is worthless to its receiver unless the first one passed.
 */
#ifndef WEIR_FRAGMENTS_H
#define WEIR_FRAGMENTS_H

#include "conntrack.h"

#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff
/* How long a receiver keeps an incomplete datagram (Linux: 30 s). */
#define FRAGMENT_SECONDS 30

static __always_inline struct fragment_key fragment_key_of(const struct ct_key *key, __be16 id)
{
	return (struct fragment_key){
		.src = key->src,
		.dst = key->dst,
		.id = id,
		.protocol = key->protocol,
		.direction = key->direction,
		.endpoint = key->endpoint,
	};
}

static __noinline void fragment_remember(const struct ct_key *key, __be16 id)
{
	struct fragment_key k = fragment_key_of(key, id);
	struct fragment_value v = {.sport = key->sport, .dport = key->dport, .seen = now_ticks()};

	bpf_map_update_elem(&frags, &k, &v, BPF_ANY);
}

/* Writes the ports of the datagram into `key`; false when its first fragment has not been seen. */
static __noinline bool fragment_recall(struct ct_key *key, __be16 id)
{
	struct fragment_key k = fragment_key_of(key, id);
	struct fragment_value *v = bpf_map_lookup_elem(&frags, &k);

	if (!v || (__s32)(now_ticks() - v->seen) > (__s32)TICKS(FRAGMENT_SECONDS))
		return false;
	key->sport = v->sport;
	key->dport = v->dport;
	return true;
}

#endif
