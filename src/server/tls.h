/* The certificate and the key of `penstock serve --tls-cert FILE --tls-key FILE`. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

struct penstock_error;

/* The state of both files, from stat(). The members of a missing file are 0. */
struct tls_files {
	struct tls_file {
		ino_t ino;
		off_t size;
		struct timespec modified;
	} cert, key;
};

struct tls {
	char *cert, *key; /* owned; in PEM */
	/* State of the files before they were last read: a change during the read is noticed the
	 * next time. */
	struct tls_files files;
};
/* Reads both files. Warns if other users may read the key. */
int tls_load(struct tls **out, const char *cert, const char *key, struct penstock_error *err);
/* Wipes the key. `tls` may be NULL. */
void tls_free(struct tls *tls);
bool tls_equal(const struct tls *a, const struct tls *b);

struct tls_files tls_look(const char *cert, const char *key);
bool tls_files_equal(const struct tls_files *a, const struct tls_files *b);

#endif
