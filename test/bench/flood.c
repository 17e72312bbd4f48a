// SPDX-License-Identifier: Apache-2.0
// flood ADDRESS PORT SECONDS PORTS: sends 64-byte UDP datagrams as fast as one thread can, to PORTS consecutive destination ports in
// turn (1 = one flow), and prints {"packets", "cpu_seconds"} (user and system time of this process, softirq work included).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: flood ADDRESS PORT SECONDS PORTS\n");
		return 2;
	}
	struct sockaddr_in to = { .sin_family = AF_INET };
	if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "flood: \"%s\" is no IPv4 address\n", argv[1]);
		return 2;
	}
	int first = atoi(argv[2]), ports = atoi(argv[4]);
	double limit = atof(argv[3]);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || ports < 1 || first < 1 || first + ports > 65536) {
		fprintf(stderr, "flood: socket or ports: %s\n", strerror(errno));
		return 1;
	}
	char data[22];
	memset(data, 'w', sizeof data);
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	unsigned long sent = 0, tried = 0;
	for (;; tried++) {
		if (tried % 256 == 0) {
			clock_gettime(CLOCK_MONOTONIC, &now);
			if ((double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9 >= limit)
				break;
		}
		to.sin_port = htons((unsigned short)(first + (int)(tried % (unsigned long)ports)));
		if (sendto(fd, data, sizeof data, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)sizeof data)
			sent++;
	}
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("{\"packets\":%lu,\"cpu_seconds\":%.6f}\n", sent, seconds(usage.ru_utime) + seconds(usage.ru_stime));
	return 0;
}
