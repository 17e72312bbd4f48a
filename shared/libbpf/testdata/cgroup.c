// Programs of cgroups: one refuses connections to port 4444, one lets them pass.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("cgroup/connect4")
int refuse(struct bpf_sock_addr *ctx) {
  return ctx->user_port != bpf_htons(4444);
}

SEC("cgroup/connect4")
int allow(struct bpf_sock_addr *ctx) {
  return 1;
}
