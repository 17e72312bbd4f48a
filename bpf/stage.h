/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For the programs of parts that run at a pod's interface. One of stage STAGE_FROM_POD ends by `judge_sent`: the packet is then judged as the program
 * left it. One of STAGE_TO_POD gets packets that were judged and may pass; it returns TC_ACT_UNSPEC, or TC_ACT_SHOT. Each has a stack of its own.
 */
#ifndef WEIR_STAGE_H
#define WEIR_STAGE_H

#include <linux/pkt_cls.h>

#include "metrics.h"

/* In cb[0], beside a reason: whether or not the pod's egress is enforced. */
#define SENT_DROP_ALWAYS 0x10000

static __always_inline int go_on(struct __sk_buff *skb, __u32 drop)
{
	skb->cb[0] = drop;
	bpf_tail_call(skb, &stages, STAGE_JUDGE_SENT);
	metric_count(REASON_NO_JUDGE, WEIR_EGRESS, skb->len);
	return TC_ACT_SHOT;
}

/* Does not return where the packet can be judged. What cannot be is dropped. */
static __always_inline int judge_sent(struct __sk_buff *skb)
{
	return go_on(skb, REASON_NONE);
}

/* The same; the packet is dropped for `reason` once it is found to be a packet of the pod, where egress is enforced or `always`. */
static __always_inline int drop_sent(struct __sk_buff *skb, __u32 reason, bool always)
{
	return go_on(skb, reason | (always ? SENT_DROP_ALWAYS : 0));
}

#endif
