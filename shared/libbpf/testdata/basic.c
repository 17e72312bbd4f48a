// Exercises what loadObject offers: .rodata, reused maps, a map in a map, a ring buffer.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

const volatile __u32 answer = 7;
const volatile __u64 salt = 1;

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 64);
  __type(key, __u32);
  __type(value, __u64);
} counters SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64[2]);
} totals SEC(".maps");

struct trie_key {
  __u32 prefixlen;
  __u8 address[4];
};

struct trie {
  __uint(type, BPF_MAP_TYPE_LPM_TRIE);
  __uint(max_entries, 128);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  // Sizes, not types: clang leaves only a forward declaration of a struct that is named behind a template.
  __uint(key_size, sizeof(struct trie_key));
  __uint(value_size, sizeof(__u32));
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 4);
  __type(key, __u32);
  __array(values, struct trie);
} tries SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
} events SEC(".maps");

SEC("tc")
int give_answer(struct __sk_buff *skb) {
  __u32 key = skb->mark;
  __u64 *seen = bpf_map_lookup_elem(&counters, &key);
  if (seen)
    __sync_fetch_and_add(seen, salt);
  __u32 zero = 0;
  __u64 *total = bpf_map_lookup_elem(&totals, &zero);
  if (total) {
    total[0] += 1;
    total[1] += skb->len;
  }
  return answer;
}

// The longest match of 10.1.2.3 in the trie whose index is the mark; 255 without one.
SEC("tc")
int match(struct __sk_buff *skb) {
  __u32 key = skb->mark;
  void *inner = bpf_map_lookup_elem(&tries, &key);
  if (!inner)
    return 255;
  struct trie_key address = {.prefixlen = 32, .address = {10, 1, 2, 3}};
  __u32 *found = bpf_map_lookup_elem(inner, &address);
  return found ? *found : 255;
}

// One record a run: a running number, then padding of the length in the mark. 1 when the ring was full.
__u64 sequence = 0;

SEC("tc")
int emit(struct __sk_buff *skb) {
  struct {
    __u64 number;
    __u8 fill[56];
  } record = {};
  record.number = __sync_fetch_and_add(&sequence, 1);
  __u32 length = skb->mark ? 64 : 12;
  return bpf_ringbuf_output(&events, &record, length, 0) ? 1 : 0;
}

// Reserves and throws away: readers must skip it.
SEC("tc")
int discard(struct __sk_buff *skb) {
  void *record = bpf_ringbuf_reserve(&events, 24, 0);
  if (!record)
    return 1;
  bpf_ringbuf_discard(record, 0);
  return 0;
}

char LICENSE[] SEC("license") = "GPL";
