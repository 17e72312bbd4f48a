/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which endpoint a device belongs to, read so that one packet sees one policy. */
#ifndef WEIR_ENDPOINT_H
#define WEIR_ENDPOINT_H

#include "maps.h"

struct endpoint {
	__u64 word;
	__be32 ipv4;
	__u32 identity;
	__u16 id;
	__u16 quarantine;
	struct address6 ipv6;
};

/*
 * The fields are taken between two reads of the word. An element that was given to another device meanwhile shows by
 * its guard, its ifindex, or a changed word; one that is half written has a word of 0 (layout.h).
 */
static __always_inline bool endpoint_copy(const struct endpoint_value *v, __u32 ifindex, struct endpoint *out)
{
	out->word = READ_ONCE(v->word);
	out->ipv4 = READ_ONCE(v->ipv4);
	out->identity = READ_ONCE(v->identity);
	out->id = READ_ONCE(v->id);
	out->quarantine = READ_ONCE(v->quarantine);
	out->ipv6.words[0] = READ_ONCE(v->ipv6.words[0]);
	out->ipv6.words[1] = READ_ONCE(v->ipv6.words[1]);
	return READ_ONCE(v->ifindex) == ifindex && out->word && WORD_GUARD(out->word) == GUARD_OF(ifindex) &&
	       READ_ONCE(v->word) == out->word;
}

static __always_inline bool endpoint_in_array(__u32 ifindex, struct endpoint *out)
{
	__u32 cell = ENDPOINT_CELL(ifindex);
	struct endpoint_value *v = bpf_map_lookup_elem(&endpoint_array, &cell);

	return v && endpoint_copy(v, ifindex, out);
}

static __always_inline bool endpoint_in_hash(__u32 ifindex, struct endpoint *out)
{
	struct endpoint_value *v = bpf_map_lookup_elem(&endpoints, &ifindex);

	return v && endpoint_copy(v, ifindex, out);
}

/*
 * Not in the array: the endpoint is in the hash, or moved from one to the other meanwhile, or had its element replaced
 * between two reads. Losing it in all of these looks drops the packet.
 */
static __noinline bool endpoint_search(__u32 ifindex, struct endpoint *out)
{
	return endpoint_in_hash(ifindex, out) || endpoint_in_array(ifindex, out) || endpoint_in_hash(ifindex, out);
}

/* When it returns false, `out` is not to be used. */
static __always_inline bool endpoint_find(__u32 ifindex, struct endpoint *out)
{
	return likely(endpoint_in_array(ifindex, out)) || endpoint_search(ifindex, out);
}

static __always_inline bool endpoint_enforces(const struct endpoint *ep, __u8 direction)
{
	return WORD_FLAGS(ep->word) & (ENDPOINT_INGRESS_ENFORCED << direction);
}

#endif
