/*
 * Runs `penstock ui` in the test, with a simulated browser that keeps its cookie.
 *
 *	struct page p;
 *
 *	page_begin(&p, &(struct ui_options){0});
 *	r = page_ask(&p, "GET", "/api/runs");
 *	assert_int_equal(200, r->status);
 *	page_end(&p);
 *
 * For each verb, the page executes this test program with the verb as an argument; main() then
 * calls play_verb().
 */
#ifndef TEST_PAGE_FIXTURE_H
#define TEST_PAGE_FIXTURE_H

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "ui/ui.h"

#include <penstock/error.h>

#define RUN "3f2a91c05d7e"

struct page_reply {
	unsigned status;
	struct buf text; /* head and body */
	const char *body; /* NUL-terminated */
	size_t len;
};

struct page {
	struct ui *ui;
	char home[32];
	char origin[64]; /* "127.0.0.1:PORT" */
	uint16_t port;
	char cookie[128];
	struct page_reply reply; /* the last reply */
};

/* Sends a request unchanged, and reads the reply to its end. */
static inline struct page_reply *page_send(
	struct page *p, const char *head, const void *body, size_t len)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(p->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct page_reply *r = &p->reply;
	const char *end;
	ssize_t n;

	assert_int_equal(0, connect(fd, (struct sockaddr *)&to, sizeof(to)));
	assert_int_equal(0, fs_write_all(fd, head, strlen(head)));
	assert_int_equal(0, fs_write_all(fd, body, len));
	buf_release(&r->text);
	*r = (struct page_reply){.text = BUF_INIT(LIMIT_UI_REPLY)};
	for (char *room; (room = buf_reserve(&r->text, 65536));) {
		n = read(fd, room, 65536);
		if (n <= 0)
			break;
		buf_grown(&r->text, (size_t)n);
	}
	assert_int_equal(1, sscanf(buf_str(&r->text), "HTTP/1.1 %u", &r->status));
	end = strstr(buf_str(&r->text), "\r\n\r\n");
	assert_non_null(end);
	r->body = end + 4;
	r->len = r->text.len - (size_t)(r->body - buf_str(&r->text));
	return r;
}

/* Sends a request with a body, as the page's script does. */
static inline struct page_reply *page_put(
	struct page *p, const char *method, const char *target, const void *body, size_t len)
{
	_cleanup_free_ char *head = str_printf(
		"%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nCookie: %s\r\n"
		"Origin: http://%s\r\nSec-Fetch-Site: same-origin\r\nX-Penstock: 1\r\n"
		"Content-Length: %zu\r\n\r\n",
		method, target, p->origin, p->cookie, p->origin, len);

	return page_send(p, head, body, len);
}

static inline struct page_reply *page_ask(struct page *p, const char *method, const char *target)
{
	return page_put(p, method, target, "", 0);
}

/* Sends a request whose reply must be 200 with JSON. Returns the value, which the caller has to
 * release. */
static inline json_t *page_json(struct page *p, const char *method, const char *target)
{
	struct page_reply *r = page_ask(p, method, target);
	json_t *value = json_loadb(r->body, r->len, JSON_DECODE_ANY, NULL);

	if (r->status != 200 || !value)
		fail_msg("%s %s: %s", method, target, buf_str(&r->text));
	return value;
}

/* Opens the link that logs the browser in. */
static inline void page_log_in(struct page *p)
{
	const char *url = ui_url(p->ui), *cookie;
	_cleanup_free_ char *head = NULL;
	struct page_reply *r;

	assert_int_equal(1, sscanf(url, "http://127.0.0.1:%hu/", &p->port));
	snprintf(p->origin, sizeof(p->origin), "127.0.0.1:%u", p->port);
	head = str_printf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
		strstr(url, "/?token="), p->origin);
	r = page_send(p, head, "", 0);
	assert_int_equal(303, r->status);
	cookie = strstr(buf_str(&r->text), "Set-Cookie: ");
	assert_non_null(cookie);
	assert_int_equal(1, sscanf(cookie, "Set-Cookie: %127[^;]", p->cookie));
}

static inline void page_begin(struct page *p, const struct ui_options *options)
{
	struct ui_options o = *options;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	*p = (struct page){.reply.text = BUF_INIT(LIMIT_UI_REPLY)};
	snprintf(p->home, sizeof(p->home), "/tmp/page-XXXXXX");
	assert_non_null(mkdtemp(p->home));
	o.home = p->home;
	o.address = "127.0.0.1";
	if (ui_start(&p->ui, &o, &err) < 0)
		fail_msg("%s", err.message);
	page_log_in(p);
}

static inline void page_end(struct page *p)
{
	ui_stop(p->ui);
	buf_release(&p->reply.text);
	assert_int_equal(0, fs_remove_tree(p->home, NULL));
}

/* ---- the program that the page runs ---- */

/* Prints the words as a JSON list, unless the last word selects a failure. */
static inline int play_verb(int n, char **words)
{
	const char *last = words[n - 1];
	json_auto_t *list = json_array();

	if (strcmp(last, "missing") == 0) {
		fputs("penstock show: warning: x\npenstock show: cannot find the run 'missing'\n",
			stderr);
		return 66;
	}
	if (strcmp(last, "killed") == 0)
		raise(SIGKILL);
	while (strcmp(last, "endless") == 0)
		pause();
	if (strcmp(last, "s3://b/half") == 0) {
		fputs("the first half", stdout);
		return 69;
	}
	if (strcmp(last, "s3://b/text") == 0) {
		puts("no JSON");
		return 0;
	}
	if (strcmp(last, "warned") == 0)
		fputs("penstock: first\npenstock: the disk: 9\u00a0%\n", stderr);
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_string(words[i]));
	json_dumpf(list, stdout, JSON_COMPACT);
	putchar('\n');
	return 0;
}

#endif
