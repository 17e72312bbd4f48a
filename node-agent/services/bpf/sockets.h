/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Services at sockets: a process that connects or sends to a frontend gets a backend, and sees the frontend all the same (recvmsg, getpeername). Nothing is
 * translated per packet, so that policy judges the backend.
 */
#ifndef WEIR_SOCKETS_H
#define WEIR_SOCKETS_H

#include <bpf/bpf_core_read.h>

#include "services.h"

#define GO_ON 1
#define REFUSED 0
#define ECONNREFUSED 111

enum translation {
	NO_SERVICE,
	TRANSLATED, /* peer and port are a backend's now */
	NO_BACKEND,
};

static __always_inline enum translation translate(struct bpf_sock_addr *ctx, struct svc_address *peer, __be16 *port)
{
	struct svc_original original = {.address = *peer, .port = *port};
	__u8 protocol = ctx->protocol;
	struct svc_socket_key socket = {};
	struct svc_address client = {};
	struct svc_frontend *frontend;
	struct svc_backend *backend;
	__u64 netns;
	__u32 node, picked;

	frontend = find_frontend(peer, *port, protocol, SCOPE_CLUSTER, &node);
	/* Who sends is known only at the interface. */
	if (!frontend || frontend->flags & SVC_SOURCES)
		return NO_SERVICE;
	if (node & SVC_NODE_LOOPBACK && bpf_get_netns_cookie(ctx) != bpf_get_netns_cookie(NULL))
		return NO_SERVICE;
	netns = bpf_get_netns_cookie(ctx);
	client.words[0] = netns;
	client.words[1] = netns >> 32;
	backend = pick_backend(frontend, &client, bpf_get_prandom_u32(), &picked);
	if (!backend)
		return NO_BACKEND;
	original.service = frontend->service;
	socket.cookie = bpf_get_socket_cookie(ctx);
	socket.backend = backend->address;
	socket.port = backend->port;
	socket.protocol = protocol;
	bpf_map_update_elem(&svc_sockets, &socket, &original, BPF_ANY);
	*peer = backend->address;
	*port = backend->port;
	return TRANSLATED;
}

/* Whom the process asked for, where that was a frontend. */
static __always_inline struct svc_original *original_of(struct bpf_sock_addr *ctx, const struct svc_address *peer,
							__be16 port)
{
	struct svc_socket_key key = {
		.cookie = bpf_get_socket_cookie(ctx),
		.backend = *peer,
		.port = port,
		.protocol = ctx->protocol,
	};

	return bpf_map_lookup_elem(&svc_sockets, &key);
}

/* Before Linux 5.18 the process is told EPERM: a call that a kernel does not have would keep the whole program out. */
static __always_inline int refuse(void)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_set_retval))
		bpf_set_retval(-ECONNREFUSED);
	return REFUSED;
}

static __always_inline int forward4(struct bpf_sock_addr *ctx)
{
	__be16 port = ctx->user_port;
	struct svc_address peer;

	address_v4(&peer, ctx->user_ip4);
	switch (translate(ctx, &peer, &port)) {
	case NO_BACKEND:
		return refuse();
	case TRANSLATED:
		ctx->user_ip4 = peer.words[3];
		ctx->user_port = port;
		return GO_ON;
	default:
		return GO_ON;
	}
}

static __always_inline void read6(const struct bpf_sock_addr *ctx, struct svc_address *peer)
{
	peer->words[0] = ctx->user_ip6[0];
	peer->words[1] = ctx->user_ip6[1];
	peer->words[2] = ctx->user_ip6[2];
	peer->words[3] = ctx->user_ip6[3];
}

static __always_inline void write6(struct bpf_sock_addr *ctx, const struct svc_address *peer)
{
	ctx->user_ip6[0] = peer->words[0];
	ctx->user_ip6[1] = peer->words[1];
	ctx->user_ip6[2] = peer->words[2];
	ctx->user_ip6[3] = peer->words[3];
}

/* IPv4 addresses come here, too, as ::ffff:a.b.c.d, and are those of svc_address. */
static __always_inline int forward6(struct bpf_sock_addr *ctx)
{
	__be16 port = ctx->user_port;
	struct svc_address peer;

	read6(ctx, &peer);
	switch (translate(ctx, &peer, &port)) {
	case NO_BACKEND:
		return refuse();
	case TRANSLATED:
		write6(ctx, &peer);
		ctx->user_port = port;
		return GO_ON;
	default:
		return GO_ON;
	}
}

static __always_inline int back4(struct bpf_sock_addr *ctx)
{
	struct svc_original *original;
	struct svc_address peer;

	address_v4(&peer, ctx->user_ip4);
	original = original_of(ctx, &peer, ctx->user_port);
	if (original) {
		ctx->user_ip4 = original->address.words[3];
		ctx->user_port = original->port;
	}
	return GO_ON;
}

static __always_inline int back6(struct bpf_sock_addr *ctx)
{
	struct svc_original *original;
	struct svc_address peer;

	read6(ctx, &peer);
	original = original_of(ctx, &peer, ctx->user_port);
	if (original) {
		write6(ctx, &original->address);
		ctx->user_port = original->port;
	}
	return GO_ON;
}

#endif
