/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps. max_entries are defaults that the loader may change, except inside the templates of the slot maps. */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#include "common.h"
#include "layout.h"

/*
 * An endpoint is in one of two maps: in its cell of the array (ENDPOINT_CELL), which a lookup without a call finds, or,
 * when another endpoint has that cell, in the hash. Only user space writes them, the array through mmap.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ENDPOINT_CELLS);
	__type(key, __u32);
	__type(value, struct endpoint_value);
} endpoint_array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct endpoint_value);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 512000);
	__type(key, struct ipcache_key);
	__type(value, struct ipcache_value);
} ipcache SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct name_key);
	__type(value, struct name_value);
} names SEC(".maps");

struct slot_classes {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct class_key));
	__uint(value_size, sizeof(struct class_value));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__array(values, struct slot_classes);
} policy_classes SEC(".maps");

struct slot_verdicts {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct verdict_key));
	__uint(value_size, sizeof(struct verdict_value));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__array(values, struct slot_verdicts);
} policy_verdicts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(key_size, CT4_KEY_BYTES);
	__uint(value_size, sizeof(struct ct_value));
} ct4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct ct_key);
	__type(value, struct ct_value);
} ct6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CT_SEED + 1);
	__type(key, __u32);
	__type(value, struct ct_share);
} ct_shares SEC(".maps");

/* By the cells of endpoints: of IPv6 behind those of IPv4. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * CT_SHARES);
	__type(key, __u32);
	__type(value, struct ct_recent);
} ct_recent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384); /* whole budgets of 256 endpoints */
	__type(key, struct fragment_key);
	__type(value, struct fragment_value);
} frags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Those of endpoints, by the last bits of their ids, then the one that all share. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENT_BUDGETS + 1);
	__type(key, __u32);
	__type(value, struct event_budget);
} event_budgets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASON_LIMIT * 2);
	__type(key, __u32);
	__type(value, struct metric);
} metrics SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROXY_BUDGETS);
	__type(key, __u32);
	__type(value, __u64);
} proxy_budgets SEC(".maps");

/*
 * Key 0: bit 0 = events for allowed new flows. Key 1: the tick at which connections were last collected. Key 2: the port of the DNS proxy; 0: there is none.
 * Key 3: packets that an endpoint may send to proxies in a second; 0: PROXY_RATE.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} settings SEC(".maps");

/*
 * Programs of parts, which run before what a pod sends is judged or after what it gets was (stage.h), and the program that judges, for the former to
 * go on with. An empty element is a stage without a program.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, STAGES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} stages SEC(".maps");

#define SETTING_COLLECTED 1
#define SETTING_PROXY_PORT 2
#define SETTING_PROXY_RATE 3
#define SETTING_ALLOW_EVENTS 1

#endif
