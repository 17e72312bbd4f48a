// SPDX-License-Identifier: Apache-2.0
// connect ADDRESS PORT COUNT: waits for a line on standard input, then connects one UDP socket so often and prints nanoseconds a call.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct timespec begin, end;
	char line[16];

	if (argc != 4 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: connect ADDRESS PORT COUNT\n");
		return 2;
	}
	to.sin_port = htons(atoi(argv[2]));
	int count = atoi(argv[3]);
	if (count < 1 || !fgets(line, sizeof(line), stdin))
		return 2;
	/* A socket keeps the cgroup in which it was made. */
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0)
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 0; i < count; i++) {
		if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
			perror("connect");
			return 1;
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%f\n", ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / count);
	return 0;
}
