/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef WEIR_TRACK_H
#define WEIR_TRACK_H

#include "conntrack.h"
#include "parse.h"

/* What conntrack says of a packet. */
enum state {
	STATE_CURRENT, /* of a flow that this revision allowed */
	STATE_UNDECIDED, /* of a flow that is denied or was decided by another revision */
	STATE_REPLY_UNDECIDED, /* a reply of such a flow */
	STATE_ALONE, /* judged as it stands, and begins nothing: its flow is over */
	STATE_NEW,
};

/*
 * A bare SYN on a finished flow opens a new one. A bare SYN from the responder is its own flow too,
 * except while the flow is unanswered: a simultaneous open. (tcp_flags are 0 for other protocols and later fragments.)
 */
static __always_inline enum state track(struct packet *p, __u32 bytes, const __u32 family)
{
	enum ct_status own = CT_MISS, status;
	__u32 stamp = now_stamp();
	bool anew = false;
	struct ct_value *e;

	if (likely(p->track & TRACK_FORWARD)) {
		e = ct_find(&p->key, family);
		if (e) {
			p->current = ct_current(&p->key, family, p->ep.word, p->local);
			own = ct_look(e, ct_protocol(p->key.rest), p->current, stamp, true, &p->seen);
			anew = unlikely(tcp_opens(p->tcp_flags)) && ct_closing(READ_ONCE(e->flags));
			if (likely(own == CT_CURRENT && !anew)) {
				ct_touch(e, p, false, bytes);
				return STATE_CURRENT;
			}
		}
	}
	packet_reply(p, family);
	if (own == CT_CURRENT || own == CT_UNDECIDED)
		return anew ? STATE_NEW : STATE_UNDECIDED;
	/* It begins anew. */
	p->over = own == CT_EXPIRED;
	if (p->track & TRACK_REPLY) {
		e = ct_find(&p->reply, family);
		if (e) {
			/* The entry says who opened the flow. */
			p->current = ct_current(&p->reply, family, p->ep.word, READ_ONCE(e->word) & CT_LOCAL);
			status = ct_look(e, ct_protocol(p->key.rest), p->current, stamp, true, &p->seen);
			if (unlikely(status == CT_EXPIRED)) {
				ct_remember(e);
				return STATE_ALONE;
			}
			if (status != CT_MISS) {
				__u32 flags = READ_ONCE(e->flags);

				if (unlikely(tcp_opens(p->tcp_flags)) && ((flags & CT_REPLIED) || ct_closing(flags)))
					return STATE_NEW;
				if (unlikely(status == CT_UNDECIDED))
					return STATE_REPLY_UNDECIDED;
				ct_touch(e, p, true, bytes);
				return STATE_CURRENT;
			}
		}
	}
	return STATE_NEW;
}

#endif
