/* OpenSSL's digests, fetched once per process. Internal to src/s3. */
#ifndef S3_SUM_DIGEST_H
#define S3_SUM_DIGEST_H

#include <openssl/evp.h>

#include "s3/sum/checksum.h"

/* Returns OpenSSL's implementation of a kind, or NULL if the kind is not one of OpenSSL's hashes or
 * the library does not have it. Thread-safe. */
const EVP_MD *digest_md(enum checksum_kind kind);

#endif
