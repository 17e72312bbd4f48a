/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The extension headers of IPv6 (RFC 8200, 4): at most EXTENSION_HEADERS, within EXTENSION_BYTES. What cannot be followed to its L4 header has no
 * ports to be judged by. A routing header with segments left is such: the packet goes on to another address than the one it names.
 */
#ifndef WEIR_HEADERS_H
#define WEIR_HEADERS_H

#include <linux/in.h>
#include <linux/ipv6.h>

#include "common.h"
#include "packet.h"

#define EXTENSION_HEADERS 8
#define EXTENSION_BYTES 1024

#define V6_HOP_BY_HOP 0
#define V6_ROUTING 43
#define V6_FRAGMENT 44
#define V6_AUTHENTICATION 51
#define V6_DESTINATION 60

/* The beginning of each; of a fragment header all but the id. */
struct v6_extension {
	__u8 next;
	__u8 length;
	union {
		struct {
			__u8 routing;
			__u8 segments_left;
		};
		__be16 offset; /* in units of 8 bytes: bits 3..15; bit 0: more follow */
	};
};

static __always_inline bool v6_is_extension(__u8 protocol)
{
	return protocol == V6_HOP_BY_HOP || protocol == V6_ROUTING || protocol == V6_FRAGMENT || protocol == V6_AUTHENTICATION ||
	       protocol == V6_DESTINATION;
}

/* Follows the headers from `h->l4` on, of which the first is one of `h->protocol`; false: they cannot be followed. */
static __noinline __maybe_unused bool headers_follow(struct __sk_buff *skb, struct headers *h)
{
	__u32 at, end, datagram = 0;
	struct v6_extension x;
	__u8 protocol;
	int i;

	if (!h)
		return false;
	at = h->l4;
	end = h->end;
	protocol = h->protocol;
	for (i = 0; i < EXTENSION_HEADERS && v6_is_extension(protocol); i++) {
		if (at + 8 > end || bpf_skb_load_bytes(skb, at, &x, sizeof(x)))
			return false;
		if (protocol == V6_FRAGMENT) {
			if (h->fragmented || bpf_skb_load_bytes(skb, at + 4, &h->fragment, 4))
				return false;
			h->fragmented = true;
			h->offset = bpf_ntohs(x.offset) & 0xfff8;
			h->more = bpf_ntohs(x.offset) & 1;
			at += 8;
			datagram = at;
			protocol = x.next;
			if (h->offset)
				break;
			continue;
		}
		if (protocol == V6_ROUTING && x.segments_left)
			return false;
		at += protocol == V6_AUTHENTICATION ? (x.length + 2) * 4 : (x.length + 1) * 8;
		protocol = x.next;
		if (at > end || at > h->l4 + EXTENSION_BYTES)
			return false;
	}
	if (!h->offset && v6_is_extension(protocol))
		return false;
	h->l4 = at;
	h->protocol = protocol;
	h->before = datagram ? at - datagram : 0;
	return true;
}

#endif
