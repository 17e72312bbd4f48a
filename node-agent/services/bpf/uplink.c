/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The programs of Services at the interfaces of the node that lead out. */
/* Much of the datapath's headers is not used here. */
#pragma clang diagnostic ignored "-Wunused-function"
#include "uplink.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int svc_from_outside(struct __sk_buff *skb)
{
	return from_outside(skb);
}

SEC("tc")
int svc_to_outside(struct __sk_buff *skb)
{
	return to_outside(skb);
}
