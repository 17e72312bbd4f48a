/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connection tracking. An entry says: this flow was allowed by that policy revision. It never outlives that: a packet
 * that finds another revision has its flow decided again.
 *
 * Entries are preallocated and may be given to another flow while a reader holds one. The word (revision and tag) is
 * therefore the only thing a verdict depends on. A late write of last_seen, flags or counters may land in the entry of
 * another flow: it moves that entry's expiry, never its verdict.
 */
#ifndef WEIR_CONNTRACK_H
#define WEIR_CONNTRACK_H

#include <linux/in.h>

#include "common.h"
#include "maps.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

enum ct_status { CT_MISS, CT_CURRENT, CT_STALE };

static __always_inline __u64 ct_tag(const struct ct_key *key)
{
	__u64 mixed = (key->addresses ^ 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;

	mixed = (mixed ^ (mixed >> 32) ^ key->rest) * 0xc4ceb9fe1a85ec53ULL;
	return mixed & 0xffffffff00000000ULL;
}

static __always_inline bool ct_closing(__u32 flags)
{
	return (flags & CT_RESET) || (flags & (CT_FIN_FORWARD | CT_FIN_REPLY)) == (CT_FIN_FORWARD | CT_FIN_REPLY);
}

static __always_inline __u32 ct_timeout(__u8 protocol, __u32 flags)
{
	if (protocol == IPPROTO_TCP) {
		if (ct_closing(flags))
			return TICKS(10);
		return flags & CT_REPLIED ? TICKS(21600) : TICKS(60);
	}
	return protocol == IPPROTO_UDP && (flags & CT_REPLIED) ? TICKS(180) : TICKS(60);
}

/*
 * `word` gets the entry's word. An entry seen within this stamp is alive; otherwise the clock decides, and the entry is
 * stamped. The difference is signed: another CPU may already have written a later tick.
 */
static __always_inline enum ct_status ct_check(struct ct_value *e, __u8 protocol, __u64 current, __u32 stamp, __u64 *word)
{
	*word = READ_ONCE(e->word);
	if (unlikely((*word ^ current) >> 32))
		return CT_MISS;
	if (unlikely(READ_ONCE(e->stamp) != stamp)) {
		__u32 now = now_ticks();

		if ((__s32)(now - READ_ONCE(e->last_seen)) > (__s32)ct_timeout(protocol, READ_ONCE(e->flags)))
			return CT_MISS;
		WRITE_ONCE(e->last_seen, now);
		WRITE_ONCE(e->stamp, stamp);
	}
	return likely(*word == current) ? CT_CURRENT : CT_STALE;
}

static __always_inline __u32 ct_flags_of(__u8 tcp_flags, bool reply)
{
	__u32 flags = reply ? CT_REPLIED : 0;

	if (tcp_flags & TCP_FIN)
		flags |= reply ? CT_FIN_REPLY : CT_FIN_FORWARD;
	if (tcp_flags & TCP_RST)
		flags |= CT_RESET;
	return flags;
}

static __always_inline void ct_touch(struct ct_value *e, __u8 tcp_flags, bool reply, __u32 bytes)
{
	__u32 flags = ct_flags_of(tcp_flags, reply);

	if (unlikely(flags & ~READ_ONCE(e->flags)))
		__sync_fetch_and_or(&e->flags, flags);
	e->packets += 1;
	e->bytes += bytes;
}

/* A reset or finished connection whose tuple is used again. */
static __always_inline bool tcp_opens(__u8 tcp_flags)
{
	return (tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
}

/* Marks the flow as allowed by the revision in `current`, unless the entry changed since `seen` was read or is newer. */
static __always_inline void ct_refresh(struct ct_value *e, __u64 seen, __u64 current)
{
	if ((__s32)((__u32)current - (__u32)seen) > 0)
		__sync_val_compare_and_swap(&e->word, seen, current);
}

/*
 * Forgets a flow that the policy of `current` denies. A packet still judged by an older policy does not delete what a
 * newer one allowed.
 */
static __always_inline void ct_forget(const struct ct_key *key, __u64 seen, __u64 current)
{
	if ((__s32)((__u32)current - (__u32)seen) > 0)
		bpf_map_delete_elem(&ct4, key);
}

/* False when the table is full. */
static __always_inline bool ct_create(const struct ct_key *key, __u64 current, __u8 tcp_flags, __u32 cookie, __u32 bytes)
{
	struct ct_value v = {
		.word = current,
		.last_seen = now_ticks(),
		.stamp = now_stamp(),
		.flags = ct_flags_of(tcp_flags, false),
		.cookie = cookie,
		.packets = 1,
		.bytes = bytes,
	};

	return bpf_map_update_elem(&ct4, key, &v, BPF_ANY) == 0;
}

#endif
