/* Prints the IPv4 addresses of a name, as the C library finds them. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int error = argc == 2 ? getaddrinfo(argv[1], NULL, &hints, &found) : EAI_NONAME;

	if (error) {
		fprintf(stderr, "%s\n", gai_strerror(error));
		return 1;
	}
	for (; found; found = found->ai_next) {
		char text[INET_ADDRSTRLEN];

		puts(inet_ntop(AF_INET, &((struct sockaddr_in *)found->ai_addr)->sin_addr, text, sizeof(text)));
	}
	return 0;
}
