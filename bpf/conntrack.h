/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connection tracking. An entry says: this flow was opened, and that policy revision allowed it. It never outlives that: a
 * packet that finds another revision has its flow decided again, and the outcome is stored.
 *
 * A flow that is denied then keeps its entry, marked. Were it removed, the next packet of its responder would open a flow
 * of the other direction, and the initiator's packets would pass as replies to that one. A denied entry passes nothing:
 * every packet that finds it has the flow decided again. It dies after 300 s without a packet of either side, because TCP
 * waits up to 120 s between two retransmissions. A flow that was denied from the start has no entry.
 *
 * Of TCP only a bare SYN says who opens a connection: nothing else begins a flow. Other protocols do not say it. So an entry whose time
 * is over is remembered for 300 s more: a packet of its responder then begins no flow of its own, as its initiator's packets would be
 * replies of that one, whatever the policy says of them. It is judged by its own direction, and the memory lasts as long as such packets
 * come. Of TCP nothing is
 * remembered: nothing but a SYN begins a connection.
 *
 * A TCP connection lives for hours only once its initiator has acknowledged the answer. A reset that a pod receives ends it only where its sequence number
 * is the one that the pod waits for, as the pod takes no other (RFC 5961, 3.2): who does not see the connection could end it for
 * Weir alone, and the two sides, which ignore the reset, would hang once they were silent for a while.
 *
 * A revision never undoes what a newer one stored.
 *
 * Entries are preallocated and may be given to another flow while a reader holds one. The word (denied, tag, revision) is
 * therefore the only thing a verdict depends on. A late write of last_seen, flags or counters may land in the entry of
 * another flow: it moves that entry's expiry, never its verdict.
 */
#ifndef WEIR_CONNTRACK_H
#define WEIR_CONNTRACK_H

#include <linux/errno.h>
#include <linux/in.h>

#include "common.h"
#include "maps.h"
#include "packet.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

enum ct_status {
	CT_MISS,
	CT_CURRENT, /* this revision allowed the flow */
	CT_UNDECIDED, /* it did not, or denies it: the flow must be decided again */
	CT_EXPIRED, /* its time is over, and it is remembered: not of TCP */
};

/* The tag of a word (layout.h): bits 32..60. */
#define CT_TAG(word) ((word) << 3 >> 35)

static __always_inline __u64 ct_tag(const struct ct_key *key, __u32 family)
{
	__u64 mixed = (key->addresses ^ 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;

	if (family == 6) {
		mixed = (mixed ^ (mixed >> 32) ^ key->src6.words[1]) * 0xc4ceb9fe1a85ec53ULL;
		mixed = (mixed ^ (mixed >> 32) ^ key->dst6.words[0]) * 0xff51afd7ed558ccdULL;
		mixed = (mixed ^ (mixed >> 32) ^ key->dst6.words[1]) * 0xff51afd7ed558ccdULL;
	}
	mixed = (mixed ^ (mixed >> 32) ^ key->rest) * 0xc4ceb9fe1a85ec53ULL;
	return (mixed & ~(CT_DENIED | CT_LOCAL | CT_PROXIED)) >> 32 << 32;
}

/* The map of the family: two calls, so that each is made without looking which map it is. */
static __always_inline struct ct_value *ct_find(const struct ct_key *key, __u32 family)
{
	return family == 6 ? bpf_map_lookup_elem(&ct6, key) : bpf_map_lookup_elem(&ct4, key);
}

static __always_inline long ct_update(const struct ct_key *key, __u32 family, const struct ct_value *v, __u64 flags)
{
	return family == 6 ? bpf_map_update_elem(&ct6, key, v, flags) : bpf_map_update_elem(&ct4, key, v, flags);
}

static __always_inline long ct_remove(const struct ct_key *key, __u32 family)
{
	return family == 6 ? bpf_map_delete_elem(&ct6, key) : bpf_map_delete_elem(&ct4, key);
}

static __always_inline bool ct_established(__u32 flags)
{
	return (flags & (CT_REPLIED | CT_ACKED)) == (CT_REPLIED | CT_ACKED);
}

static __always_inline bool ct_closing(__u32 flags)
{
	return (flags & CT_RESET) || (flags & (CT_FIN_FORWARD | CT_FIN_REPLY)) == (CT_FIN_FORWARD | CT_FIN_REPLY);
}

/* How long an entry counts after its last packet. */
static __always_inline __u32 ct_timeout(__u8 protocol, __u64 word, __u32 flags)
{
	if (word & CT_DENIED)
		return TICKS(300);
	if (protocol == IPPROTO_TCP) {
		if (ct_closing(flags))
			return TICKS(10);
		return ct_established(flags) ? TICKS(21600) : TICKS(60);
	}
	return protocol == IPPROTO_UDP && (flags & CT_REPLIED) ? TICKS(180) : TICKS(60);
}

/* How long it is remembered, from its last packet on. What is not TCP is so for as long whether it was denied meanwhile or not. */
static __always_inline __u32 ct_memory(__u8 protocol, __u64 word, __u32 flags)
{
	return protocol == IPPROTO_TCP ? ct_timeout(protocol, word, flags) : TICKS(300) + ct_timeout(protocol, 0, flags);
}

/* A packet that goes on with nothing has met an entry whose time is over: it stays over, and is remembered for as long as such packets come. */
static __always_inline void ct_remember(struct ct_value *e)
{
	if (!(READ_ONCE(e->flags) & CT_OVER))
		__sync_fetch_and_or(&e->flags, CT_OVER);
	WRITE_ONCE(e->last_seen, now_ticks());
}

/* What the word of a flow's entry must be for this revision. */
static __always_inline __u64 ct_current(const struct ct_key *flow, __u32 family, __u64 endpoint_word, bool local)
{
	return ct_tag(flow, family) | WORD_REVISION(endpoint_word) | (local ? CT_LOCAL : 0);
}

/*
 * `word` gets the entry's word. An entry seen within this stamp is alive; otherwise the clock decides, and the entry is
 * stamped if the packet is one of its flow (`own`). The difference is signed: another CPU may already have written a later tick.
 */
static __always_inline enum ct_status ct_look(struct ct_value *e, __u8 protocol, __u64 current, __u32 stamp, bool own, __u64 *word)
{
	__u64 found = READ_ONCE(e->word);

	*word = found;
	if (unlikely(CT_TAG(found ^ current)))
		return CT_MISS;
	if (unlikely(READ_ONCE(e->stamp) != stamp)) {
		__u32 now = now_ticks(), flags = READ_ONCE(e->flags);
		__s32 idle = (__s32)(now - READ_ONCE(e->last_seen));

		/* Of a TCP entry the flag is a late write of another flow's. */
		if (idle > (__s32)ct_timeout(protocol, found, flags) || ((flags & CT_OVER) && protocol != IPPROTO_TCP))
			return idle > (__s32)ct_memory(protocol, found, flags) ? CT_MISS : CT_EXPIRED;
		if (own) {
			WRITE_ONCE(e->last_seen, now);
			WRITE_ONCE(e->stamp, stamp);
		}
	}
	return likely((found & ~CT_PROXIED) == current) ? CT_CURRENT : CT_UNDECIDED;
}

/* What a packet of the flow says of its state, beside what is stored. */
static __always_inline __u32 ct_flags_of(const struct ct_value *e, const struct packet *p, bool reply)
{
	__u32 flags = reply ? CT_REPLIED : 0;

	if (!reply && (p->tcp_flags & TCP_ACK))
		flags |= CT_ACKED;
	if (p->tcp_flags & TCP_FIN)
		flags |= reply ? CT_FIN_REPLY : CT_FIN_FORWARD;
	if (unlikely(p->tcp_flags & TCP_RST) && (p->direction == WEIR_EGRESS || p->tcp_number == READ_ONCE(e->acked)))
		flags |= CT_RESET;
	return flags;
}

static __always_inline void ct_touch(struct ct_value *e, const struct packet *p, bool reply, __u32 bytes)
{
	__u32 flags = ct_flags_of(e, p, reply);

	if (unlikely(flags & ~READ_ONCE(e->flags)))
		__sync_fetch_and_or(&e->flags, flags);
	if (p->direction == WEIR_EGRESS && (p->tcp_flags & TCP_ACK))
		WRITE_ONCE(e->acked, p->tcp_number);
	e->packets += 1;
	e->bytes += bytes;
}

/* Opens a connection. A reset or finished one, or one whose time is over, may have had the same tuple. */
static __always_inline bool tcp_opens(__u8 tcp_flags)
{
	return (tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
}

/*
 * Stores what the revision in `current` decided, unless the entry changed since `seen` was read or holds a newer decision.
 * A denied flow may be allowed by the same revision: a policy that becomes wider may keep its number.
 */
static __always_inline void ct_settle(struct ct_value *e, __u64 seen, __u64 current, bool allowed, __u32 listener)
{
	__s32 newer = (__s32)((__u32)current - (__u32)seen);

	if (newer < 0 || (newer == 0 && !allowed))
		return;
	if (!allowed) {
		/* Whom it was with stays known: decide_again. */
		current |= CT_DENIED | (seen & CT_PROXIED);
	} else if (unlikely(listener)) {
		WRITE_ONCE(((__u16 *)&e->flags)[1], listener);
		current |= CT_PROXIED;
	}
	__sync_val_compare_and_swap(&e->word, seen, current);
}

/* A flow that goes on though its time was over. */
static __always_inline void ct_revive(struct ct_value *e)
{
	WRITE_ONCE(e->last_seen, now_ticks());
	WRITE_ONCE(e->stamp, now_stamp());
}

#endif
