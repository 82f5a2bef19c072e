/* The certificate and the key of `penstock serve --tls-cert FILE --tls-key FILE`. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

struct penstock_error;

/* Both files in PEM. */
struct tls {
	char *cert, *key; /* owned */
	struct tls_stamp {
		ino_t ino;
		off_t size;
		struct timespec modified;
	} cert_stamp, key_stamp;
};
/* Reads them. Warns of a key that others may read. */
int tls_load(struct tls **out, const char *cert, const char *key, struct penstock_error *err);
/* Wipes the key. NULL is allowed. */
void tls_free(struct tls *tls);
/* Takes the files as they are now for those that were read: they are invalid. */
void tls_note(struct tls *tls, const char *cert, const char *key);
/* Returns true if one of the files is another one than the one that was read. */
bool tls_changed(const struct tls *tls, const char *cert, const char *key);

#endif
