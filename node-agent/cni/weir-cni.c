// SPDX-License-Identifier: Apache-2.0
/*
 * weir-cni: what a container runtime executes. It hands the CNI request (environment and stdin) to the agent's unix socket and prints
 * the answer; all logic is in the agent. Static, because hosts have neither Node nor a known libc.
 *
 * Guarantees: it always ends (bounded by STDIN_MS and DEADLINE_MS), and every failure prints a CNI error object on stdout and exits with 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/var/run/weir/weir.sock"
#define DEADLINE_MS 90000
/* Runtimes write the configuration at once. */
#ifndef STDIN_MS
#define STDIN_MS 10000
#endif
#define MAX_INPUT (1 << 20)
#define MAX_ANSWER (4 << 20)
#define FALLBACK_VERSION "1.0.0"

enum cni_code { CNI_ENVIRONMENT = 4, CNI_IO = 5, CNI_DECODE = 6, CNI_TRY_LATER = 11 };

struct text {
	char *data;
	size_t length;
	size_t capacity;
};

static char cni_version[32] = FALLBACK_VERSION;

static void append(struct text *text, const char *data, size_t length)
{
	if (text->length + length + 1 > text->capacity) {
		size_t capacity = text->capacity ? text->capacity : 4096;

		while (capacity < text->length + length + 1)
			capacity *= 2;
		text->data = realloc(text->data, capacity);
		if (!text->data) {
			puts("{\"cniVersion\":\"1.0.0\",\"code\":5,\"msg\":\"weir-cni: out of memory\"}");
			exit(1);
		}
		text->capacity = capacity;
	}
	memcpy(text->data + text->length, data, length);
	text->length += length;
	text->data[text->length] = '\0';
}

static void append_string(struct text *text, const char *string)
{
	append(text, string, strlen(string));
}

/* Length of the well-formed UTF-8 sequence at `at` (no overlong forms, no surrogates, at most U+10FFFF); 0 when there is none. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t length, i;

	if (at[0] < 0x80)
		return 1;
	if (at[0] >= 0xc2 && at[0] <= 0xdf) {
		length = 2;
	} else if (at[0] >= 0xe0 && at[0] <= 0xef) {
		length = 3;
		if (at[0] == 0xe0)
			low = 0xa0;
		if (at[0] == 0xed)
			high = 0x9f;
	} else if (at[0] >= 0xf0 && at[0] <= 0xf4) {
		length = 4;
		if (at[0] == 0xf0)
			low = 0x90;
		if (at[0] == 0xf4)
			high = 0x8f;
	} else {
		return 0;
	}
	if (length > left || at[1] < low || at[1] > high)
		return 0;
	for (i = 2; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

/* A JSON string with quotes; bytes that are not UTF-8 become U+FFFD, so that the request is always valid JSON. */
static void append_json(struct text *text, const char *data, size_t length)
{
	size_t at = 0;

	append(text, "\"", 1);
	while (at < length) {
		unsigned char byte = (unsigned char)data[at];
		size_t run = utf8_length((const unsigned char *)data + at, length - at);
		char escape[8];

		if (run == 0) {
			append_string(text, "\\ufffd");
			at++;
			continue;
		}
		if (byte == '"' || byte == '\\') {
			escape[0] = '\\';
			escape[1] = (char)byte;
			append(text, escape, 2);
		} else if (byte < 0x20 || byte == 0x7f) {
			snprintf(escape, sizeof(escape), "\\u%04x", byte);
			append(text, escape, 6);
		} else {
			append(text, data + at, run);
		}
		at += run;
	}
	append(text, "\"", 1);
}

static void __attribute__((noreturn, format(printf, 2, 3))) fail(enum cni_code code, const char *format, ...)
{
	struct text out = {0};
	char message[1024], number[32];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	append_string(&out, "{\"cniVersion\":");
	append_json(&out, cni_version, strlen(cni_version));
	snprintf(number, sizeof(number), ",\"code\":%d,\"msg\":", (int)code);
	append_string(&out, number);
	append_json(&out, message, strlen(message));
	append_string(&out, "}\n");
	fputs(out.data, stdout);
	fflush(stdout);
	exit(1);
}

/* The end of the JSON string that starts (with its quote) at `at`: the index after the closing quote, or 0 when it is not closed. */
static size_t string_end(const char *json, size_t length, size_t at)
{
	for (at++; at < length; at++) {
		if (json[at] == '\\')
			at++;
		else if (json[at] == '"')
			return at + 1;
	}
	return 0;
}

static size_t skip_blank(const char *json, size_t length, size_t at)
{
	while (at < length && (json[at] == ' ' || json[at] == '\t' || json[at] == '\n' || json[at] == '\r'))
		at++;
	return at;
}

/*
 * Copies the string value of a member of the top-level object. False when there is none, when it is no plain string (an escape) or
 * when it does not fit. It only looks for the two members that this program needs; the agent parses the document properly.
 */
static bool top_level_string(const char *json, size_t length, const char *key, char *out, size_t size)
{
	size_t at = 0, key_length = strlen(key);
	int depth = 0;

	while (at < length) {
		char byte = json[at];

		if (byte == '{' || byte == '[') {
			depth++;
		} else if (byte == '}' || byte == ']') {
			depth--;
		} else if (byte == '"') {
			size_t end = string_end(json, length, at), value, value_end;

			if (!end)
				return false;
			value = skip_blank(json, length, end);
			if (depth == 1 && end - at - 2 == key_length && !memcmp(json + at + 1, key, key_length) && value < length &&
			    json[value] == ':') {
				value = skip_blank(json, length, value + 1);
				if (value >= length || json[value] != '"')
					return false;
				value_end = string_end(json, length, value);
				if (!value_end || value_end - value - 2 >= size ||
				    memchr(json + value, '\\', value_end - value))
					return false;
				memcpy(out, json + value + 1, value_end - value - 2);
				out[value_end - value - 2] = '\0';
				return true;
			}
			at = end;
			continue;
		}
		at++;
	}
	return false;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

static void read_input(struct text *input)
{
	long deadline = now_ms() + STDIN_MS;
	char chunk[16384];

	append(input, "", 0);
	for (;;) {
		struct pollfd poller = {.fd = STDIN_FILENO, .events = POLLIN};
		long left = deadline - now_ms();
		ssize_t count;

		if (left <= 0 || poll(&poller, 1, (int)left) == 0)
			fail(CNI_IO, "weir-cni: stdin did not end within %d ms; the runtime must write the network configuration and close it",
			     STDIN_MS);
		count = read(STDIN_FILENO, chunk, sizeof(chunk));
		if (count == 0)
			return;
		if (count < 0) {
			if (errno == EINTR)
				continue;
			fail(CNI_IO, "weir-cni: cannot read stdin: %s", strerror(errno));
		}
		append(input, chunk, (size_t)count);
		if (input->length > MAX_INPUT)
			fail(CNI_DECODE, "weir-cni: the network configuration on stdin is larger than %d bytes", MAX_INPUT);
	}
}

static void wait_ready(int fd, short events, long deadline, const char *path)
{
	for (;;) {
		struct pollfd poller = {.fd = fd, .events = events};
		long left = deadline - now_ms();
		int ready;

		if (left <= 0)
			fail(CNI_TRY_LATER, "weir-cni: the Weir agent at %s did not answer within %d s; see the agent's log", path,
			     DEADLINE_MS / 1000);
		ready = poll(&poller, 1, (int)left);
		if (ready > 0)
			return;
		if (ready < 0 && errno != EINTR)
			fail(CNI_IO, "weir-cni: poll: %s", strerror(errno));
	}
}

static int open_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		fail(CNI_ENVIRONMENT, "weir-cni: the socket path %s is longer than %zu bytes; set \"socket\" in the network configuration", path,
		     sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		fail(CNI_IO, "weir-cni: socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		fail(CNI_TRY_LATER,
		     "weir-cni: the Weir agent is not reachable at %s (%s); is the weir agent pod of this node running? \"socket\" in the "
		     "network configuration must be the agent's --socket",
		     path, strerror(errno));
	return fd;
}

static void send_request(int fd, const struct text *request, long deadline, const char *path)
{
	size_t sent = 0;

	while (sent < request->length) {
		ssize_t count = send(fd, request->data + sent, request->length - sent, MSG_NOSIGNAL);

		if (count >= 0) {
			sent += (size_t)count;
		} else if (errno == EAGAIN) {
			wait_ready(fd, POLLOUT, deadline, path);
		} else if (errno != EINTR) {
			fail(CNI_TRY_LATER, "weir-cni: the Weir agent at %s closed the connection: %s", path, strerror(errno));
		}
	}
}

static void receive_answer(int fd, struct text *answer, long deadline, const char *path)
{
	char chunk[16384];

	append(answer, "", 0);
	for (;;) {
		ssize_t count = recv(fd, chunk, sizeof(chunk), 0);

		if (count == 0)
			return;
		if (count > 0) {
			append(answer, chunk, (size_t)count);
			if (answer->length > MAX_ANSWER)
				fail(CNI_IO, "weir-cni: the answer of the agent at %s is larger than %d bytes", path, MAX_ANSWER);
		} else if (errno == EAGAIN) {
			wait_ready(fd, POLLIN, deadline, path);
		} else if (errno != EINTR) {
			fail(CNI_TRY_LATER, "weir-cni: the Weir agent at %s closed the connection: %s", path, strerror(errno));
		}
	}
}

/* Prints the body of the agent's HTTP answer and returns the exit code. */
static int print_answer(const struct text *answer, const char *path)
{
	const char *end = strstr(answer->data, "\r\n\r\n"), *body, *header;
	size_t body_length;
	int status = 0;

	if (!end || sscanf(answer->data, "HTTP/1.%*d %d", &status) != 1)
		fail(CNI_TRY_LATER, "weir-cni: the Weir agent at %s ended before it answered; see the agent's log", path);
	body = end + 4;
	body_length = answer->length - (size_t)(body - answer->data);
	for (header = strstr(answer->data, "\r\n"); header && header < end; header = strstr(header + 2, "\r\n")) {
		if (!strncasecmp(header + 2, "content-length:", 15) && strtoull(header + 17, NULL, 10) != body_length)
			fail(CNI_TRY_LATER, "weir-cni: the answer of the Weir agent at %s is cut off; see the agent's log", path);
	}
	if (status == 204 || (status == 200 && body_length == 0))
		return 0;
	if (status == 200 || body[0] == '{') {
		fwrite(body, 1, body_length, stdout);
		putchar('\n');
		return status == 200 ? 0 : 1;
	}
	fail(CNI_IO, "weir-cni: the Weir agent at %s answered %d: %.*s", path, status, body_length > 512 ? 512 : (int)body_length, body);
}

int main(void)
{
	static const char *const names[] = {"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH",
					    "CNI_NETNS_OVERRIDE"};
	struct text input = {0}, body = {0}, request = {0}, answer = {0};
	const char *command = getenv("CNI_COMMAND"), *separator = "";
	char path[512] = DEFAULT_SOCKET, header[256];
	long deadline = now_ms() + DEADLINE_MS;
	size_t i;
	int fd;

	if (!command || !*command)
		fail(CNI_ENVIRONMENT, "weir-cni: CNI_COMMAND is not set; this is a CNI plugin, run by a container runtime");
	read_input(&input);
	if (!top_level_string(input.data, input.length, "cniVersion", cni_version, sizeof(cni_version)))
		strcpy(cni_version, FALLBACK_VERSION);
	if (!strcmp(command, "VERSION")) {
		struct text out = {0};

		append_string(&out, "{\"cniVersion\":");
		append_json(&out, cni_version, strlen(cni_version));
		append_string(&out, ",\"supportedVersions\":[\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n");
		fputs(out.data, stdout);
		return fflush(stdout) ? 1 : 0;
	}
	if (skip_blank(input.data, input.length, 0) == input.length || input.data[skip_blank(input.data, input.length, 0)] != '{')
		fail(CNI_DECODE, "weir-cni: the network configuration on stdin is not a JSON object");
	top_level_string(input.data, input.length, "socket", path, sizeof(path));

	append_string(&body, "{\"env\":{");
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);

		if (!value)
			continue;
		append_string(&body, separator);
		append_json(&body, names[i], strlen(names[i]));
		append_string(&body, ":");
		append_json(&body, value, strlen(value));
		separator = ",";
	}
	append_string(&body, "},\"stdin\":");
	append_json(&body, input.data, input.length);
	append_string(&body, "}");

	/* HTTP/1.0: the answer is not chunked and the connection ends with it. */
	snprintf(header, sizeof(header),
		 "POST /v1/cni HTTP/1.0\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body.length);
	append_string(&request, header);
	append(&request, body.data, body.length);

	fd = open_socket(path);
	send_request(fd, &request, deadline, path);
	receive_answer(fd, &answer, deadline, path);
	close(fd);
	i = (size_t)print_answer(&answer, path);
	return fflush(stdout) ? 1 : (int)i;
}
