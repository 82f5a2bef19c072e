/* OpenSSL's digests, looked up once per process. Internal to src/s3. */
#ifndef S3_DIGEST_H
#define S3_DIGEST_H

#include <openssl/evp.h>

#include "s3/checksum.h"

/* NULL: not a hash, or the library does not offer it. Thread-safe. */
const EVP_MD *digest_md(enum checksum_kind kind);

#endif
