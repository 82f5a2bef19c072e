#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/near_socket.h"

/* Returns a user id that has no account, and that no other test uses at the same time. */
static uid_t other_user(void)
{
	return 1000000 + (uid_t)getpid();
}

/* Creates a TCP socket that holds a free port of `host`. */
static int take_port(const char *host, struct sockaddr_in *address)
{
	socklen_t len = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*address = (struct sockaddr_in){.sin_family = AF_INET};
	assert_int_equal(inet_pton(AF_INET, host, &address->sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)address, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)address, &len), 0);
	return fd;
}

static bool is_there(const struct sockaddr_in *address)
{
	struct sockaddr_un name;

	return near_find((const struct sockaddr *)address, &name);
}

/* near_find() for the port finds the socket, and data arrives through it; after near_unlink() the
 * socket is not found. */
static void a_socket_is_found_until_it_is_unlinked(void **state)
{
	struct sockaddr_in address;
	struct sockaddr_un name, found;
	int tcp = take_port("127.0.0.1", &address), server, client, accepted;
	char byte = 0;

	(void)state;
	assert_false(is_there(&address));
	server = near_listen((struct sockaddr *)&address, &name);
	assert_true(server >= 0);
	assert_true(near_find((struct sockaddr *)&address, &found));
	assert_string_equal(found.sun_path, name.sun_path);
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	near_tune(client);
	assert_int_equal(connect(client, (struct sockaddr *)&found, sizeof(found)), 0);
	/* Accept the connection that near_find() made, too. */
	close(accept4(server, NULL, NULL, SOCK_CLOEXEC));
	accepted = accept4(server, NULL, NULL, SOCK_CLOEXEC);
	assert_int_equal(send(client, "x", 1, 0), 1);
	assert_int_equal(recv(accepted, &byte, 1, 0), 1);
	assert_int_equal(byte, 'x');
	near_unlink(&name);
	assert_false(is_there(&address));
	close(accepted);
	close(client);
	close(server);
	close(tcp);
}

/* A killed process leaves the name of its socket. near_find() finds no server there, and the next
 * process that listens on any port removes the name. */
static void what_a_killed_server_left_is_no_server(void **state)
{
	struct sockaddr_in dead, alive;
	struct sockaddr_un name, other, again;
	int tcp = take_port("127.0.0.1", &dead), more = take_port("127.0.0.1", &alive);
	int server = near_listen((struct sockaddr *)&dead, &name), next;

	(void)state;
	assert_true(server >= 0);
	close(server);
	assert_false(is_there(&dead));
	next = near_listen((struct sockaddr *)&alive, &other);
	assert_true(next >= 0);
	assert_int_not_equal(access(name.sun_path, F_OK), 0);
	assert_true(is_there(&alive));
	/* A listener on the same port takes over the old name and does not touch the names of live
	 * servers. */
	close(next);
	next = near_listen((struct sockaddr *)&alive, &other);
	server = near_listen((struct sockaddr *)&dead, &again);
	assert_true(next >= 0 && server >= 0);
	assert_true(is_there(&alive) && is_there(&dead));
	near_unlink(&other);
	near_unlink(&again);
	close(next);
	close(server);
	close(more);
	close(tcp);
}

/* A name belongs to one loopback address: a search for another address or for 0.0.0.0 does not find
 * it. */
static void only_the_same_loopback_address_is_found(void **state)
{
	struct sockaddr_in address, other, any;
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_un name, name6;
	int tcp = take_port("127.0.0.1", &address);
	int server = near_listen((struct sockaddr *)&address, &name), server6;

	(void)state;
	assert_true(server >= 0);
	other = any = address;
	inet_pton(AF_INET, "127.0.0.2", &other.sin_addr);
	inet_pton(AF_INET, "0.0.0.0", &any.sin_addr);
	v6.sin6_port = address.sin_port;
	assert_false(is_there(&other));
	assert_false(is_there(&any));
	assert_false(near_find((struct sockaddr *)&v6, &name6));
	assert_int_equal(near_listen((struct sockaddr *)&any, &name6), -1);
	server6 = near_listen((struct sockaddr *)&v6, &name6);
	assert_true(server6 >= 0);
	assert_true(near_find((struct sockaddr *)&v6, &name6));
	near_unlink(&name6);
	near_unlink(&name);
	close(server6);
	close(server);
	close(tcp);
}

/* Runs `look` in a child as another user. The exit code is 0 if its assertions held. */
static int as_other_user(int (*look)(const struct sockaddr_in *), const struct sockaddr_in *address)
{
	uid_t user = other_user();
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		if (setresgid(user, user, user) < 0 || setresuid(user, user, user) < 0)
			_exit(99);
		_exit(look(address));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int find_here(const struct sockaddr_in *address)
{
	return is_there(address);
}

static int listen_here(const struct sockaddr_in *address)
{
	struct sockaddr_un name;

	if (near_listen((const struct sockaddr *)address, &name) < 0)
		return 0;
	near_unlink(&name);
	return 1;
}

/* Each user has separate sockets, in a directory that only this user can have created and can
 * enter. */
static void users_do_not_meet(void **state)
{
	char path[64];
	struct sockaddr_in address;
	struct sockaddr_un name;
	int tcp, server;

	(void)state;
	if (geteuid() != 0)
		skip();
	snprintf(path, sizeof(path), "/tmp/penstock-%u", (unsigned)other_user());
	tcp = take_port("127.0.0.1", &address);
	server = near_listen((struct sockaddr *)&address, &name);
	assert_true(server >= 0);
	assert_int_equal(as_other_user(find_here, &address), 0);
	assert_int_equal(as_other_user(listen_here, &address), 1);
	assert_int_equal(chmod(path, 0770), 0);
	assert_int_equal(as_other_user(listen_here, &address), 0);
	assert_int_equal(chmod(path, 0700), 0);
	assert_int_equal(as_other_user(listen_here, &address), 1);
	assert_int_equal(chown(path, 0, 0), 0);
	assert_int_equal(as_other_user(listen_here, &address), 0);
	assert_int_equal(rmdir(path), 0);
	/* The link of another user to a directory of this user is not used. */
	assert_int_equal(symlink("/tmp", path), 0);
	assert_int_equal(as_other_user(listen_here, &address), 0);
	assert_int_equal(unlink(path), 0);
	near_unlink(&name);
	close(server);
	close(tcp);
}

static int make_run_user(const struct sockaddr_in *address)
{
	(void)address;
	umask(0);
	return mkdir("/run/user", 0755) == 0 && mkdir("/run/user/0", 0777) == 0 ? 0 : 1;
}

/* Runs in a mount namespace in which other users may write to /run. Returns 0 if the socket is in a
 * directory in which only root can replace entries. */
static int listen_with_foreign_run(const struct sockaddr_in *address)
{
	struct sockaddr_un name;
	bool safe;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/run", "tmpfs", 0, "mode=1777") < 0)
		return 77;
	if (as_other_user(make_run_user, address) != 0 ||
		near_listen((const struct sockaddr *)address, &name) < 0)
		return 2;
	safe = strncmp(name.sun_path, "/tmp/", 5) == 0;
	near_unlink(&name);
	return safe && !is_there(address) ? 0 : 1;
}

/* All users may write to /run, as in a container with a tmpfs on /run. */
static void a_directory_of_runtime_files_that_others_made_is_not_used(void **state)
{
	struct sockaddr_in address;
	int tcp, status = -1;
	pid_t child;

	(void)state;
	if (geteuid() != 0)
		skip();
	tcp = take_port("127.0.0.1", &address);
	child = fork();
	if (child == 0)
		_exit(listen_with_foreign_run(&address));
	assert_int_equal(waitpid(child, &status, 0), child);
	close(tcp);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_socket_is_found_until_it_is_unlinked),
		cmocka_unit_test(what_a_killed_server_left_is_no_server),
		cmocka_unit_test(only_the_same_loopback_address_is_found),
		cmocka_unit_test(users_do_not_meet),
		cmocka_unit_test(a_directory_of_runtime_files_that_others_made_is_not_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
