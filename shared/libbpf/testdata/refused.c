// The verifier refuses this: the packet is read with no check of its length.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int unchecked(struct __sk_buff *skb) {
  char *data = (char *)(long)skb->data;
  return data[20];
}

char LICENSE[] SEC("license") = "GPL";
