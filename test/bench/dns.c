// SPDX-License-Identifier: Apache-2.0
// The two ends of the suite `dns`, in IPv4: a resolver that answers every name, and a pod that asks. Both are cheap, so that a machine of two cores has one
// for the proxy.
//
// dns serve ADDRESS PORT...: prints "ready". Answers name n<I> below example.com with address I of 10/8, and m<I> with addresses 10*I to 10*I+9.
// dns ask FROM FIRST-PORT PORTS TO PORT COUNT IN-FLIGHT RATE PREFIX FIRST NAMES: asks names PREFIX<FIRST> to PREFIX<FIRST+NAMES-1> in turn, each question by a
//   socket and a port of its own, as glibc, musl and Go do; with PORTS = IN-FLIGHT each socket asks again. RATE: questions a second;
//   0: as soon as there is room. Prints quantiles of microseconds.
// dns row FROM FIRST-PORT TO COUNT FIRST MAP: asks names n<FIRST> on, and looks for each one's row in the pinned map `names`. Prints quantiles of the
//   microseconds from the row to the answer; "early": answers that came before their row.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HEADER 12
#define GIVE_UP_US 1000000.0

static double microseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void die(const char *what)
{
	fprintf(stderr, "dns: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr_in place(const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };

	if (inet_pton(AF_INET, address, &at.sin_addr) != 1) {
		fprintf(stderr, "dns: \"%s\" is no IPv4 address\n", address);
		exit(2);
	}
	return at;
}

static int open_socket(struct sockaddr_in at)
{
	int size = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	if (bind(fd, (struct sockaddr *)&at, sizeof at))
		die("bind");
	return fd;
}

static size_t answer(unsigned char *message, size_t length)
{
	unsigned first = (unsigned)atoi((char *)message + HEADER + 2), count = message[HEADER + 1] == 'm' ? 10 : 1;

	if (count > 1)
		first *= count;
	message[2] = 0x81;
	message[3] = 0x80;
	message[7] = (unsigned char)count;
	for (unsigned at = first; at < first + count; at++) {
		unsigned char record[16] = { 0xc0, HEADER, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4, 10, at >> 16, at >> 8, at };

		memcpy(message + length, record, sizeof record);
		length += sizeof record;
	}
	return length;
}

static int serve(int argc, char **argv)
{
	struct pollfd polled[8];
	int sockets = argc - 3;

	if (sockets < 1 || sockets > 8)
		return 2;
	for (int at = 0; at < sockets; at++) {
		polled[at].fd = open_socket(place(argv[2], atoi(argv[3 + at])));
		polled[at].events = POLLIN;
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		poll(polled, (nfds_t)sockets, -1);
		for (int at = 0; at < sockets; at++) {
			for (int turn = 0; turn < 16; turn++) {
				unsigned char message[1024];
				struct sockaddr_in from;
				socklen_t size = sizeof from;
				ssize_t length = recvfrom(polled[at].fd, message, 512, 0, (struct sockaddr *)&from, &size);

				if (length < HEADER + 5)
					break;
				sendto(polled[at].fd, message, answer(message, (size_t)length), 0, (struct sockaddr *)&from, size);
			}
		}
	}
}

static size_t question(unsigned char *message, unsigned id, const char *prefix, int name)
{
	unsigned char header[HEADER] = { id >> 8, id, 1, 0, 0, 1 };
	unsigned char *label = message + HEADER;

	memcpy(message, header, sizeof header);
	label[0] = (unsigned char)sprintf((char *)label + 1, "%s%d", prefix, name);
	unsigned char *rest = label + 1 + label[0];
	memcpy(rest, "\7example\3com\0\0\1\0\1", 17);
	return (size_t)(rest + 17 - message);
}

static int ascending(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static void print(double *samples, int count, double seconds, int lost, int early)
{
	qsort(samples, (size_t)count, sizeof *samples, ascending);
	printf("{\"count\":%d,\"seconds\":%.6f,\"lost\":%d,\"early\":%d,\"least\":%.1f,\"p50\":%.1f,\"p99\":%.1f}\n", count, seconds, lost, early,
	       count ? samples[0] : 0, count ? samples[count / 2] : 0, count ? samples[(int)(count * 0.99)] : 0);
}

struct slot {
	int fd;
	int id;
	double sent;
};

static int ask(char **argv)
{
	const char *from = argv[2], *prefix = argv[10];
	int first_port = atoi(argv[3]), ports = atoi(argv[4]), count = atoi(argv[7]), in_flight = atoi(argv[8]), rate = atoi(argv[9]),
	    first = atoi(argv[11]), names = atoi(argv[12]);
	struct sockaddr_in to = place(argv[5], atoi(argv[6]));
	struct slot *slots = calloc((size_t)in_flight, sizeof *slots);
	double *samples = calloc((size_t)count, sizeof *samples);
	int epoll = epoll_create1(0), asked = 0, got = 0, lost = 0, port = 0;
	bool keeps = ports == in_flight;
	double began = microseconds();

	prctl(PR_SET_TIMERSLACK, 1);
	for (int at = 0; at < in_flight; at++)
		slots[at].fd = -1;
	while (got + lost < count) {
		double due = rate ? began + asked * 1e6 / rate : 0;

		/* Each slot that is free asks. */
		for (int each = 0; each < in_flight && asked < count; each++) {
			struct slot *slot = &slots[each];
			unsigned char message[256];

			if (slot->sent != 0)
				continue;
			if (microseconds() < due)
				break;
			if (slot->fd < 0) {
				struct epoll_event event = { .events = EPOLLIN, .data.u32 = (unsigned)each };

				slot->fd = open_socket(place(from, first_port + port++ % ports));
				if (connect(slot->fd, (struct sockaddr *)&to, sizeof to))
					die("connect");
				epoll_ctl(epoll, EPOLL_CTL_ADD, slot->fd, &event);
			}
			slot->id = asked & 0xffff;
			size_t length = question(message, (unsigned)slot->id, prefix, first + asked++ % names);
			slot->sent = microseconds();
			if (send(slot->fd, message, length, 0) < 0)
				die("send");
			due += rate ? 1e6 / rate : 0;
		}
		struct epoll_event events[64];
		double left = rate && asked < count ? due - microseconds() : 200000;
		struct timespec timeout = { 0, left > 0 ? (long)(left * 1e3) : 0 };
		int ready = epoll_pwait2(epoll, events, 64, &timeout, NULL);
		for (int at = 0; at < ready; at++) {
			struct slot *slot = &slots[events[at].data.u32];
			unsigned char message[1024];
			ssize_t length = recv(slot->fd, message, sizeof message, 0);

			if (length < HEADER || (message[0] << 8 | message[1]) != slot->id || (message[3] & 15) != 0 || message[7] == 0)
				continue;
			samples[got++] = microseconds() - slot->sent;
			slot->sent = 0;
			if (!keeps) {
				close(slot->fd);
				slot->fd = -1;
			}
		}
		if (ready > 0)
			continue;
		for (int each = 0; each < in_flight; each++) {
			struct slot *slot = &slots[each];

			if (slot->sent == 0 || microseconds() - slot->sent < GIVE_UP_US)
				continue;
			lost++;
			slot->sent = 0;
			close(slot->fd);
			slot->fd = -1;
		}
	}
	print(samples, got, (microseconds() - began) / 1e6, lost, 0);
	return 0;
}

static bool has_row(int map, unsigned name)
{
	unsigned char key[24] = { 4, 0, 0, 0, 0, 0, 0, 0, 10, name >> 16, name >> 8, name };
	unsigned identity = 0;
	union bpf_attr attr = {};

	attr.map_fd = (unsigned)map;
	attr.key = (unsigned long)key;
	attr.value = (unsigned long)&identity;
	return syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attr, sizeof attr) == 0;
}

static int row(char **argv)
{
	int first_port = atoi(argv[3]), count = atoi(argv[5]), first = atoi(argv[6]), got = 0, lost = 0, early = 0;
	struct sockaddr_in to = place(argv[4], 53);
	double *samples = calloc((size_t)count, sizeof *samples);
	union bpf_attr attr = {};

	attr.pathname = (unsigned long)argv[7];
	int map = (int)syscall(SYS_bpf, BPF_OBJ_GET, &attr, sizeof attr);
	if (map < 0)
		die(argv[7]);
	double began = microseconds();
	for (int at = 0; at < count; at++) {
		unsigned char message[1024];
		int fd = open_socket(place(argv[2], first_port + at));
		double start = microseconds(), there = 0;

		if (has_row(map, (unsigned)(first + at))) {
			fprintf(stderr, "dns: the row of n%d is there before it was asked for\n", first + at);
			return 1;
		}
		if (sendto(fd, message, question(message, (unsigned)at & 0xffff, "n", first + at), 0, (struct sockaddr *)&to, sizeof to) < 0)
			die("sendto");
		for (;;) {
			/* First the row: one that was written before the answer was sent is seen before the answer is. */
			double now = microseconds();

			if (there == 0 && has_row(map, (unsigned)(first + at)))
				there = now;
			if (recv(fd, message, sizeof message, 0) > 0) {
				if (there == 0 && !has_row(map, (unsigned)(first + at)))
					early++;
				samples[got++] = there == 0 ? 0 : microseconds() - there;
				break;
			}
			if (now - start > GIVE_UP_US) {
				lost++;
				break;
			}
		}
		close(fd);
	}
	print(samples, got, (microseconds() - began) / 1e6, lost, early);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 3 && strcmp(argv[1], "serve") == 0)
		return serve(argc, argv);
	if (argc == 13 && strcmp(argv[1], "ask") == 0)
		return ask(argv);
	if (argc == 8 && strcmp(argv[1], "row") == 0)
		return row(argv);
	fputs("usage: dns serve ADDRESS PORT... | ask FROM FIRST-PORT PORTS TO PORT COUNT IN-FLIGHT RATE PREFIX FIRST NAMES | row FROM FIRST-PORT TO COUNT FIRST MAP\n", stderr);
	return 2;
}
