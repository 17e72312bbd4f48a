/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The bytes shared with user space. layout.ts and flows.ts are the other half; sizes are asserted below, offsets by a test
 * that has the compiler assert the codecs' own. Host byte order unless a field says __be. No implicit padding.
 */
#ifndef WEIR_LAYOUT_H
#define WEIR_LAYOUT_H

#include <linux/types.h>

#define WEIR_INGRESS 0
#define WEIR_EGRESS 1

/* Endpoint flags. INGRESS_ENFORCED << direction is the flag of a direction. */
#define ENDPOINT_INGRESS_ENFORCED 1
#define ENDPOINT_EGRESS_ENFORCED 2
#define ENDPOINT_NO_SOURCE_CHECK 4
/* 8 was in use. */

/*
 * The policy of an endpoint in one aligned 64-bit word, so that a packet sees the old or the new policy, never a mix:
 * bits 0..31 revision, 32..47 slot, 48..51 flags, 52..63 guard (12 bits of the ifindex xor the next 12).
 * The guard makes the word prove whose it is: a hash element may be given to another key while a reader holds it, and a
 * cell of the array to another ifindex with the same low 12 bits.
 */
#define WORD_REVISION(w) ((__u32)(w))
#define WORD_SLOT(w) ((__u32)((w) >> 32) & 0xffff)
#define WORD_FLAGS(w) ((__u32)((w) >> 48) & 0xf)
#define WORD_GUARD(w) ((__u32)((w) >> 52))
#define GUARD_OF(ifindex) (((ifindex) ^ (ifindex) >> 12) & 0xfff)

/* Elements of `stages`. */
#define STAGE_FROM_POD 0 /* before what a pod sends is judged */
#define STAGE_TO_POD 1 /* after what a pod gets was judged, and may pass */
#define STAGE_JUDGE_SENT 2 /* judges what a pod sends */
#define STAGE_TO_PROXY 3 /* hands what a pod sends to a proxy (proxy.h) */
#define STAGE_ANSWER_TO_PROXY 4 /* what a server sends to the pod instead of which a proxy asked */
#define STAGES 5

struct address6 {
	union {
		__u64 words[2];
		__be32 quarters[4];
		__u8 bytes[16];
	};
};

#define ENDPOINT_CELLS 4096
#define ENDPOINT_CELL(ifindex) ((ifindex) & (ENDPOINT_CELLS - 1))

/*
 * Element of `endpoints` and of `endpoint_array`. In the array it is written in place: the word is stored last when the
 * endpoint comes and first (as 0) when it goes, and only the word, and identity and quarantine, change in between, each by
 * one store. So a word that is not 0 stands for a complete element. A word of 0 is no endpoint in either map.
 *
 * quarantine: 1 for the first seconds after the endpoint's packets passed unjudged. What it sends may be an answer to one of
 * those, so that nothing but a SYN begins a flow.
 */
struct endpoint_value {
	__u64 word;
	__u32 ifindex;
	__be32 ipv4;
	__u32 identity;
	__u16 id;
	__u16 quarantine;
	struct address6 ipv6;
};

/* prefixlen = 32 + address bits; family 4 (address in the first four bytes) or 6. */
struct ipcache_key {
	__u32 prefixlen;
	__u8 family;
	__u8 pad[3];
	union {
		struct address6 v6;
		__be32 v4;
	};
};

#define IPCACHE_FAMILY_BITS 32
#define IPCACHE_V4_BITS (IPCACHE_FAMILY_BITS + 32)
#define IPCACHE_V6_BITS (IPCACHE_FAMILY_BITS + 128)

/*
 * Whose the addresses are, in two worlds: `after` to endpoints whose word's revision is `since` or later, `before` to others. Both are one where nothing
 * changes. bits: those of the prefix that the element is of.
 */
struct ipcache_value {
	__u32 before;
	__u32 after;
	__u32 since;
	__u8 bits;
	__u8 pad[3];
};

/* An address outside that names have. */
struct name_key {
	__u8 family;
	__u8 pad[7];
	union {
		struct address6 v6;
		__be32 v4;
	};
};

/* identity: of the selectors of names that the address's names are of; classes of a policy name it as any other. */
struct name_value {
	__u32 identity;
};

struct class_key {
	__u32 identity;
	__u32 direction;
};

/* word: bits 0..15 class, bit 16 direction, 32..63 identity: it repeats its key for the reason given at the endpoint's word. */
struct class_value {
	__u64 word;
};

/* Classes below 16 are whole scopes (see scope_class in policy.h). */
#define CLASS_UNKNOWN 0
#define CLASS_CLUSTER 1
#define CLASS_WORLD 2

/*
 * Three kinds, by what is added to the direction. 0: ports of a class of identities; of their data at most 6 bytes are matched. port: of ICMP the
 * type, of PROTOCOL_OTHER the protocol. BY_ADDRESS: the same of a class of addresses, which are numbered apart. ADDRESSES: prefixes, whose value's
 * cookie is the class of their addresses; class 0, protocol: the family, 4 or 6.
 */
struct verdict_key {
	__u32 prefixlen;
	__be16 class;
	__u8 direction;
	__u8 protocol;
	union {
		__be16 port;
		struct address6 v6;
		__be32 v4;
	};
};

#define VERDICT_BY_ADDRESS 2
#define VERDICT_ADDRESSES 4
#define VERDICT_FULL_BITS 48
#define VERDICT_V4_BITS (32 + 32)
#define VERDICT_V6_BITS (32 + 128)
#define VERDICT_ALLOW 1
#define VERDICT_DENY 2
/* proxy_port: what the proxy knows the rules by; 0: there is no proxy, and nothing passes. */
#define VERDICT_REDIRECT 3
/* Nothing passes by it: there is no authentication. */
#define VERDICT_AUTHENTICATE 4
/* Neither TCP, UDP, SCTP, ICMP nor ICMPv6. */
#define PROTOCOL_OTHER 0

/* identity: of ADDRESSES, whose they must be; 0: anybody's. */
struct verdict_value {
	union {
		struct {
			__u8 verdict;
			__u8 priority; /* Of a redirect: among several the lowest counts. */
			__be16 proxy_port;
		};
		__u32 identity;
	};
	__u32 cookie;
};

/*
 * Initiator to responder. `direction` is that of the initiator's packets, seen from the endpoint. The key of ct6; that of ct4 are its first
 * CT4_KEY_BYTES.
 */
struct ct_key {
	union {
		struct {
			__be16 sport;
			__be16 dport;
			__u16 endpoint;
			__u8 protocol;
			__u8 direction;
		};
		__u64 rest;
	};
	union {
		struct {
			__be32 src;
			__be32 dst;
		};
		__u64 addresses;
		struct {
			struct address6 src6;
			struct address6 dst6;
		};
	};
};

#define CT4_KEY_BYTES 16

/*
 * word: bits 0..31 the policy revision that decided the flow, 32..60 a tag made of the key, so that an entry that was
 * given to another flow is recognised, and a compare-and-swap never decides another flow; 61: the revision hands the flow to a proxy (of a denied
 * flow: the last that did not deny it), and the upper 16 bits of flags are the proxy's number of the listener; 62: the node itself opened the flow to the
 * pod (packet.h, local); 63: that revision denies it.
 * last_seen: ticks of 2^30 ns of CLOCK_MONOTONIC, written when `stamp` (units of 128 jiffies) changes: while it does not,
 * the flow is alive without asking the clock. Counters count both directions and may lose a packet when two CPUs
 * carry one flow at the same instant.
 * acked: of TCP the acknowledgment number that the pod has sent last: the sequence number that it waits for.
 * peer: the cell of ct_shares in which its sender is counted; 0: in none.
 */
struct ct_value {
	__u64 word;
	__u32 last_seen;
	__u32 flags;
	__u32 cookie;
	__u32 stamp;
	__u64 packets;
	__u64 bytes;
	__be32 acked;
	__u32 peer;
};

#define CT_PROXIED (1ULL << 61)
#define CT_LOCAL (1ULL << 62)
#define CT_DENIED (1ULL << 63)

/* Flags. OVER: its time is over, and its responder has sent since. ACKED: its initiator has sent an ACK, as it does once it is answered. */
#define CT_REPLIED 1
#define CT_FIN_FORWARD 2
#define CT_FIN_REPLY 4
#define CT_RESET 8
#define CT_ACKED 16
#define CT_OVER 32
#define CT_LISTENER_SHIFT 16

/*
 * Cells of ct_shares, for each family the same: of endpoints, by the last bits of their ids; of those who open flows to them, by a hash of their
 * address, of IPv6 of its first half; of the whole table. Then the seed of that hash.
 */
#define CT_SHARES 4096
#define CT_PEERS 4096
#define CT_TABLE (CT_SHARES + CT_PEERS)
#define CT_CELLS (CT_TABLE + 1)
#define CT_SEED (2 * CT_CELLS)

/*
 * flows: entries, as the programs count them; user space corrects that by what it has counted, and takes away what it has deleted.
 * size: of a table how many it can hold; 0: no limit.
 */
struct ct_share {
	__s32 flows;
	__u32 size;
};

/* Flows that an endpoint began last, of one family, while it has many: `next` is the place of the oldest. */
#define CT_RECENT 32

struct ct_recent {
	__u32 next;
	__u32 pad;
	struct ct_key flows[CT_RECENT];
};

/* An endpoint's budget of datagrams of which later fragments are awaited: so many sets of so many, for each direction. */
#define FRAGMENT_SETS 32
#define FRAGMENT_WAYS 4

struct fragment_key {
	__u16 endpoint;
	__u8 direction;
	__u8 set;
};

/*
 * addresses: of IPv4 both, of IPv6 a hash of them. id: of IPv4 the identification and, above it, the protocol. seen: ticks as above. end: bytes of the
 * datagram that its first fragment's headers take; no later fragment may reach into them. For ICMP: sport = identifier, dport = type.
 */
struct fragmented {
	__u64 addresses;
	__u32 id;
	__u32 seen;
	__be16 sport;
	__be16 dport;
	__u8 protocol;
	__u8 pad;
	__u16 end;
};

struct fragment_value {
	struct fragmented ways[FRAGMENT_WAYS];
};

struct metric {
	__u64 packets;
	__u64 bytes;
};

/* Marks of packets between the kernel and proxies: what a pod sends, and a server answers, to be delivered on this node; what a proxy sends. */
#define MARK_PROXY 0xf00
#define MARK_TO_PROXY 0x200
#define MARK_ANSWER 0x300
#define MARK_FROM_PROXY 0xa00

#define EVENT_DROP 1
#define EVENT_ALLOW 2

/* IPv4 addresses are in the first four bytes of src and dst. Identity 0 = unknown. length = bytes of the frame. */
struct event {
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u8 kind;
	__u8 direction;
	__u8 reason;
	__u8 protocol;
	__u16 endpoint;
	__be16 sport;
	__be16 dport;
	__be16 ethertype;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 tcp_flags;
	__u8 family; /* 4, 6, or 0: no addresses */
	__u32 ifindex;
	__u32 src_identity;
	__u32 dst_identity;
	__u32 cookie;
	__u32 length;
	__u32 revision;
	__u8 src[16];
	__u8 dst[16];
};

/* Endpoints' token buckets of packets to proxies, by the last bits of their ids: the time at which the bucket is full again. */
#define PROXY_BUDGETS 4096

/* Endpoints' token buckets of events; a power of two. */
#define EVENT_BUDGETS 1024

/* Per-CPU token bucket of events. */
struct event_budget {
	__u64 refilled_ns;
	__u64 tokens;
};

enum reason {
	REASON_NONE = 0,
	REASON_NO_ENDPOINT = 1,
	REASON_INVALID_PACKET = 2,
	REASON_INVALID_SOURCE = 3,
	REASON_FRAGMENT_WITHOUT_FIRST = 4,
	REASON_UNKNOWN_L3 = 5,
	REASON_IPV6_HEADERS = 6,
	REASON_POLICY_DENIED = 7,
	REASON_POLICY = 8,
	REASON_UNKNOWN_IDENTITY = 9,
	REASON_NO_POLICY = 10,
	REASON_NOT_A_ROUTER = 11,
	REASON_NEIGHBOUR_DISCOVERY = 12,
	REASON_MISPLACED_CHECKSUM = 13,
	REASON_NO_JUDGE = 14,
	REASON_NO_BACKEND = 15,
	REASON_NO_SERVICE = 16,
	REASON_GROUP_ADDRESS = 17,
	REASON_NO_PROXY = 18,
	REASON_SOURCE_RANGE = 19,
	REASON_NAT_FULL = 20,
	REASON_NAT_SHARE = 21,
	REASON_NAT_PORT = 22,
	REASON_NAT_ADDRESS = 23,
	REASON_NAT_UNKNOWN = 24,
	REASON_NO_AUTHENTICATION = 25,
	REASON_PROXY_RATE = 26,
	/* counted, not drops */
	REASON_FORWARDED = 32,
	REASON_CT_FULL = 33,
	REASON_EVENT_LOST = 34,
	REASON_CT_SHARE = 35,
	REASON_CT_EVICTED = 36,
	REASON_LIMIT = 64,
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the words above are laid out for little endian");
_Static_assert(sizeof(struct endpoint_value) == 40, "endpoint_value");
_Static_assert(sizeof(struct ipcache_key) == 24, "ipcache_key");
_Static_assert(sizeof(struct ipcache_value) == 16, "ipcache_value");
_Static_assert(sizeof(struct name_key) == 24, "name_key");
_Static_assert(sizeof(struct name_value) == 4, "name_value");
_Static_assert(sizeof(struct class_key) == 8, "class_key");
_Static_assert(sizeof(struct class_value) == 8, "class_value");
_Static_assert(sizeof(struct verdict_key) == 24, "verdict_key");
_Static_assert(sizeof(struct verdict_value) == 8, "verdict_value");
_Static_assert(sizeof(struct ct_key) == 40, "ct_key");
_Static_assert(sizeof(struct ct_value) == 48, "ct_value");
_Static_assert(sizeof(struct ct_share) == 8, "ct_share");
_Static_assert(sizeof(struct ct_recent) == 1288, "ct_recent");
_Static_assert(sizeof(struct fragment_key) == 4, "fragment_key");
_Static_assert(sizeof(struct fragment_value) == 96, "fragment_value");
_Static_assert(sizeof(struct event) == 80, "event");

#endif
