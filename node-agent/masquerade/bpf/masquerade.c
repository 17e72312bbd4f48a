/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The programs of part `masquerade`: at the interfaces of the node that lead out. */
/* Much of the datapath's headers is not used here. */
#pragma clang diagnostic ignored "-Wunused-function"
#include "masquerade.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int masq_out(struct __sk_buff *skb)
{
	return masquerade_out(skb);
}

SEC("tc")
int masq_in(struct __sk_buff *skb)
{
	return masquerade_in(skb);
}
