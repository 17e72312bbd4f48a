/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef WEIR_COMMON_H
#define WEIR_COMMON_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* For functions of headers that not every object calls. */
#define __maybe_unused __attribute__((unused))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* One load or store that the compiler neither splits, repeats nor moves across another one. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

/* In every network namespace. */
#define LOOPBACK_IFINDEX 1

#define NS_PER_SECOND 1000000000ULL

/* Ticks of 2^30 ns (1.07 s): a shift in the fast path instead of a division. */
#define TICK_SHIFT 30
#define TICKS(seconds) ((__u32)((seconds) * 1000000000ULL >> TICK_SHIFT))

/*
 * A clock that costs no call: 128 jiffies, 0.1 to 1.3 s as the kernel is configured. Good for "since the last look", not
 * for durations.
 */
static __always_inline __u32 now_stamp(void)
{
	return (__u32)(bpf_jiffies64() >> 7);
}

static __always_inline __u32 now_ticks(void)
{
	return (__u32)(bpf_ktime_get_coarse_ns() >> TICK_SHIFT);
}

#endif
