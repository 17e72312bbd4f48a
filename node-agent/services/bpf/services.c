/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The programs of part `services`. */
#include "sockets.h"
#include "veth.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("cgroup/connect4")
int svc_connect4(struct bpf_sock_addr *ctx)
{
	return forward4(ctx);
}

SEC("cgroup/connect6")
int svc_connect6(struct bpf_sock_addr *ctx)
{
	return forward6(ctx);
}

SEC("cgroup/sendmsg4")
int svc_sendmsg4(struct bpf_sock_addr *ctx)
{
	return forward4(ctx);
}

SEC("cgroup/sendmsg6")
int svc_sendmsg6(struct bpf_sock_addr *ctx)
{
	return forward6(ctx);
}

SEC("cgroup/recvmsg4")
int svc_recvmsg4(struct bpf_sock_addr *ctx)
{
	return back4(ctx);
}

SEC("cgroup/recvmsg6")
int svc_recvmsg6(struct bpf_sock_addr *ctx)
{
	return back6(ctx);
}

SEC("cgroup/getpeername4")
int svc_peername4(struct bpf_sock_addr *ctx)
{
	return back4(ctx);
}

SEC("cgroup/getpeername6")
int svc_peername6(struct bpf_sock_addr *ctx)
{
	return back6(ctx);
}

SEC("tc")
int svc_from_pod(struct __sk_buff *skb)
{
	return from_pod(skb);
}

SEC("tc")
int svc_to_pod(struct __sk_buff *skb)
{
	return to_pod(skb);
}
