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
};

/*
 * The fields are taken between two reads of the word. An element that was given to another device meanwhile shows by
 * its guard, its ifindex, or a changed word.
 */
static __always_inline bool endpoint_copy(__u32 ifindex, struct endpoint *out)
{
	struct endpoint_value *v = bpf_map_lookup_elem(&endpoints, &ifindex);

	if (!v)
		return false;
	out->word = READ_ONCE(v->word);
	out->ipv4 = READ_ONCE(v->ipv4);
	out->identity = READ_ONCE(v->identity);
	out->id = READ_ONCE(v->id);
	return READ_ONCE(v->ifindex) == ifindex && WORD_GUARD(out->word) == GUARD_OF(ifindex) &&
	       READ_ONCE(v->word) == out->word;
}

/* A second look finds the element that replaced the one just lost; losing that too drops the packet. */
static __always_inline bool endpoint_find(__u32 ifindex, struct endpoint *out)
{
	return likely(endpoint_copy(ifindex, out)) || endpoint_copy(ifindex, out);
}

static __always_inline bool endpoint_enforces(const struct endpoint *ep, __u8 direction)
{
	return WORD_FLAGS(ep->word) & (ENDPOINT_INGRESS_ENFORCED << direction);
}

#endif
