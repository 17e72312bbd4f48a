/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows of pods that are translated packet by packet, for their next packets and the way back. Each pod has flows of its own: of a set that is full the
 * one that was silent the longest is forgotten, so that a pod that sends to many Services forgets only its own. Elements are written in place by several
 * CPUs at once: what is read torn misleads a packet of that pod alone, and policy judges what comes of it.
 */
#ifndef WEIR_SVC_FLOWS_H
#define WEIR_SVC_FLOWS_H

#include "services.h"

#define SVC_FLOW_SETS 128
#define SVC_FLOW_WAYS 8
/* A flow that was silent for so long begins anew, as TCP's does with a SYN. */
#define SVC_FLOW_SECONDS 60

/* Both ways of a flow have the pod's port, which therefore says the set. */
struct svc_flow_key {
	__u32 ifindex; /* of the pod's interface on the node */
	__u32 set;
};

struct svc_flow {
	__be32 frontend;
	__be32 backend;
	__be16 frontend_port;
	__be16 backend_port;
	__be16 pod_port;
	__u8 protocol; /* 0: the place is free */
	__u8 pad;
	__u32 backend_id;
	__u32 seen; /* ticks */
};

struct svc_flow_set {
	struct svc_flow ways[SVC_FLOW_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384); /* all sets of 128 pods */
	__type(key, struct svc_flow_key);
	__type(value, struct svc_flow_set);
} svc_flows SEC(".maps");

/* By the last bits of a pod's interface: whether it, or another with the same bits, has had flows. Most pods have none, as hooks see their sockets. */
#define SVC_FLOWING 4096

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SVC_FLOWING);
	__type(key, __u32);
	__type(value, __u8);
} svc_flowing SEC(".maps");

static __always_inline bool has_flows(__u32 ifindex)
{
	__u32 bits = ifindex % SVC_FLOWING;
	__u8 *flowing = bpf_map_lookup_elem(&svc_flowing, &bits);

	return flowing && READ_ONCE(*flowing);
}

_Static_assert(sizeof(struct svc_flow) == 24, "svc_flow");

static __always_inline struct svc_flow_set *flow_set(__u32 ifindex, __be16 pod_port)
{
	struct svc_flow_key key = {.ifindex = ifindex, .set = bpf_ntohs(pod_port) % SVC_FLOW_SETS};

	return bpf_map_lookup_elem(&svc_flows, &key);
}

static __always_inline struct svc_flow *flow_in(struct svc_flow_set *set, const struct svc_flow *like, bool by_backend)
{
	int way;

	if (!set)
		return NULL;
#pragma unroll
	for (way = 0; way < SVC_FLOW_WAYS; way++) {
		struct svc_flow *f = &set->ways[way];

		if (f->pod_port != like->pod_port || f->protocol != like->protocol)
			continue;
		if (by_backend ? f->backend == like->backend && f->backend_port == like->backend_port :
				 f->frontend == like->frontend && f->frontend_port == like->frontend_port)
			return f;
	}
	return NULL;
}

/* The flow of a pod's port to a frontend. */
static __always_inline struct svc_flow *flow_sent(__u32 ifindex, __u8 protocol, __be16 pod_port, __be32 frontend, __be16 port)
{
	struct svc_flow like = {.protocol = protocol, .pod_port = pod_port, .frontend = frontend, .frontend_port = port};

	return flow_in(flow_set(ifindex, pod_port), &like, false);
}

/* The flow whose backend this is. */
static __always_inline struct svc_flow *flow_answered(__u32 ifindex, __u8 protocol, __be16 pod_port, __be32 backend,
						      __be16 port)
{
	struct svc_flow like = {.protocol = protocol, .pod_port = pod_port, .backend = backend, .backend_port = port};

	return flow_in(flow_set(ifindex, pod_port), &like, true);
}

static __noinline int flow_remember(__u32 ifindex, const struct svc_flow *flow)
{
	struct svc_flow_key key = {.ifindex = ifindex};
	struct svc_flow_set *set;
	struct svc_flow *place;
	__u32 oldest = 0;
	int way;

	if (!flow)
		return 0;
	key.set = bpf_ntohs(flow->pod_port) % SVC_FLOW_SETS;
	set = bpf_map_lookup_elem(&svc_flows, &key);
	if (!set) {
		struct svc_flow_set empty = {};
		__u32 bits = ifindex % SVC_FLOWING;
		__u8 yes = 1;

		bpf_map_update_elem(&svc_flowing, &bits, &yes, BPF_ANY);
		bpf_map_update_elem(&svc_flows, &key, &empty, BPF_NOEXIST);
		set = bpf_map_lookup_elem(&svc_flows, &key);
		if (!set)
			return 0;
	}
	place = flow_in(set, flow, false);
	if (!place) {
		place = &set->ways[0];
#pragma unroll
		for (way = 0; way < SVC_FLOW_WAYS; way++) {
			struct svc_flow *f = &set->ways[way];
			__u32 age = f->protocol ? flow->seen - f->seen : ~0U;

			if (age > oldest) {
				oldest = age;
				place = f;
			}
		}
	}
	*place = *flow;
	return 1;
}

#endif
