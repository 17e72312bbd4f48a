/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef WEIR_METRICS_H
#define WEIR_METRICS_H

#include "maps.h"

static __always_inline void metric_count(__u32 reason, __u32 direction, __u32 bytes)
{
	__u32 index = reason * 2 + direction;
	struct metric *m = bpf_map_lookup_elem(&metrics, &index);

	if (m) {
		m->packets += 1;
		m->bytes += bytes;
	}
}

#endif
