/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ICMP and ICMPv6: queries are flows, errors are about flows, the rest is judged as it stands. */
#ifndef WEIR_ICMP_H
#define WEIR_ICMP_H

#include <linux/in.h>
#include <linux/in6.h>

#include "common.h"
#include "packet.h"

static __always_inline bool is_icmp(__u8 protocol)
{
	return protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6;
}

/* Of the other family it is a protocol like any. */
static __always_inline __u8 icmp_of(__u32 family)
{
	return family == 6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
}

/* The ICMP query that `type` belongs to (its request type), or -1. */
static __always_inline int icmp_query(__u8 type, __u32 family)
{
	if (family == 6) {
		switch (type) {
		case 128: /* echo */
		case 139: /* node information */
		case 160: /* extended echo */
			return type;
		case 129:
		case 140:
		case 161:
			return type - 1;
		default:
			return -1;
		}
	}
	switch (type) {
	case 8: /* echo */
	case 13: /* timestamp */
	case 15: /* information */
	case 17: /* address mask */
	case 42: /* extended echo */
		return type;
	case 0:
		return 8;
	case 14:
	case 16:
	case 18:
	case 43:
		return type - 1;
	default:
		return -1;
	}
}

/* Errors that quote the packet they are about. A redirect (5) is not one: it asks the host to change its routes. */
static __always_inline bool icmp_error(__u8 type, __u32 family)
{
	if (family == 6)
		return type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMETERPROB;
	return type == ICMP_DEST_UNREACH || type == ICMP_SOURCE_QUENCH || type == ICMP_TIME_EXCEEDED ||
	       type == ICMP_PARAMETERPROB;
}

#endif
