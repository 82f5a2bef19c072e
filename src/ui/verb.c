#include "ui/verb.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "transfer/location.h"

#define PROGRAM	      "/proc/self/exe"
#define KILL_AFTER_MS 2000 /* time between SIGTERM and SIGKILL */
#define POLL_MS	      50 /* time between checks of `cancel` */

struct verb {
	struct process process;
	int out; /* the read end of a pipe from the verb's stdout */
	int err; /* a file in memory that is the verb's stderr */
	const atomic_int *cancel;
};

void verb_result_release(struct verb_result *result)
{
	buf_release(&result->out);
	buf_release(&result->message);
}

bool verb_is_object(const char *url)
{
	return url && location_is_object(url);
}

int verb_add_store(struct strlist *words, const char *store)
{
	if (!store || !*store || strcmp(store, "default") == 0)
		return 0;
	if (strcmp(store, "embedded") == 0)
		return strlist_add(words, "--endpoint-url=embedded");
	return strlist_addf(words, "--profile=%s", store);
}

const char *verb_place_url(const char *place)
{
	static const char *const begins[] = {":s3://", ":gs://"};

	if (verb_is_object(place))
		return place;
	for (size_t i = 0; place && i < ARRAY_SIZE(begins); i++) {
		const char *colon = strstr(place, begins[i]);

		if (colon && colon > place)
			return colon + 1;
	}
	return NULL;
}

int verb_add_place_store(struct strlist *words, const char *place)
{
	size_t n = (size_t)(verb_place_url(place) - place);
	_cleanup_free_ char *store = n ? strndup(place, n - 1) : NULL;

	return n && !store ? -1 : verb_add_store(words, store);
}

int verb_add_place(struct strlist *words, const char *place)
{
	return verb_add_place_store(words, place) < 0
		       ? -1
		       : verb_add(words, "--", verb_place_url(place), NULL);
}

int verb_add(struct strlist *words, ...)
{
	const char *word;
	va_list ap;
	int r = 0;

	va_start(ap, words);
	while (r == 0 && (word = va_arg(ap, const char *)))
		r = strlist_add(words, word);
	va_end(ap);
	return r;
}

/* Returns the command, whose strings are borrowed; NULL if out of memory. */
static const char **command(const struct strlist *words)
{
	const char **argv = calloc(words->n + 2, sizeof(*argv));

	if (!argv)
		return NULL;
	argv[0] = PROGRAM;
	for (size_t i = 0; i < words->n; i++)
		argv[i + 1] = words->items[i];
	return argv;
}

/* A verb may start runs, which need the whole environment. */
static struct process_spec spec_of(const char **argv)
{
	return (struct process_spec){.argv = argv,
		.envp = (const char *const *)environ,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.new_session = true};
}

static int exit_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Reduces stderr to its last line, without the prefix of the program and the verb. Adds a message
 * if the command was killed and has printed nothing. */
static void keep_message(struct buf *text, int status)
{
	const char *begin, *colon;

	while (text->len && text->data[text->len - 1] == '\n')
		buf_truncate(text, text->len - 1);
	begin = strrchr(buf_str(text), '\n');
	begin = begin ? begin + 1 : buf_str(text);
	colon = str_starts(begin, "penstock") ? strstr(begin, ": ") : NULL;
	if (colon)
		begin = colon + 2;
	buf_consume(text, (size_t)(begin - buf_str(text)));
	if (WIFSIGNALED(status) && text->len == 0)
		buf_printf(text, "the command was killed by signal %d", WTERMSIG(status));
}

int verb_run(const struct strlist *words, int timeout_ms, const atomic_int *cancel,
	struct verb_result *result, struct penstock_error *err)
{
	_cleanup_free_ const char **argv = command(words);
	struct process_spec spec = spec_of(argv);
	int status = 0, r;

	if (!argv)
		return error_memory(err);
	r = process_run(&spec,
		&(struct process_run_options){.name = words->items[0],
			.timeout_ms = timeout_ms,
			.cancel = cancel,
			.out.text = &result->out,
			.err.text = &result->message},
		&status, err);
	if (r < 0)
		return r;
	result->code = exit_code(status);
	keep_message(&result->message, status);
	return 0;
}

int verb_open(struct verb **out, const struct strlist *words, const atomic_int *cancel,
	struct penstock_error *err)
{
	_cleanup_free_ const char **argv = command(words);
	struct process_spec spec = spec_of(argv);
	_cleanup_close_ int write_end = -1;
	struct verb *verb = calloc(1, sizeof(*verb));
	int ends[2], r;

	if (!argv || !verb) {
		free(verb);
		return error_memory(err);
	}
	*verb = (struct verb){.process = PROCESS_INIT, .out = -1, .err = -1, .cancel = cancel};
	if (pipe2(ends, O_CLOEXEC) < 0) {
		r = error_errno(err, errno, "cannot create a pipe");
		verb_close(verb);
		return r;
	}
	verb->out = ends[0];
	write_end = ends[1];
	verb->err = memfd_create("penstock-ui", MFD_CLOEXEC);
	spec.stdout_fd = write_end;
	spec.stderr_fd = verb->err;
	r = process_spawn(&verb->process, &spec, err);
	if (r < 0) {
		verb_close(verb);
		return r;
	}
	*out = verb;
	return 0;
}

ssize_t verb_read(struct verb *verb, char *data, size_t len)
{
	struct pollfd ready = {verb->out, POLLIN, 0};

	while (!atomic_load(verb->cancel)) {
		ssize_t n = poll(&ready, 1, POLL_MS) > 0 ? read(verb->out, data, len) : -1;

		if (n >= 0 || (ready.revents && errno != EINTR))
			return n;
	}
	return -1;
}

int verb_wait(struct verb *verb, struct buf *message)
{
	int status = 0;
	size_t len;
	char *data;
	off_t end;

	process_wait(&verb->process, -1, &status);
	end = lseek(verb->err, 0, SEEK_END);
	len = end < 0 ? 0 : (size_t)end < message->limit / 2 ? (size_t)end : message->limit / 2;
	data = len ? buf_reserve(message, len) : NULL;
	if (data && fs_pread_all(verb->err, data, len, end - (off_t)len) == (ssize_t)len)
		buf_grown(message, len);
	keep_message(message, status);
	return exit_code(status);
}

void verb_close(struct verb *verb)
{
	int status;

	if (!verb)
		return;
	if (verb->out >= 0)
		close(verb->out);
	if (verb->process.pid)
		process_end(&verb->process, KILL_AFTER_MS, &status);
	process_release(&verb->process);
	if (verb->err >= 0)
		close(verb->err);
	free(verb);
}
