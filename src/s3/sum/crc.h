/* Shared by crc.c, checksum.c and their tests. */
#ifndef S3_SUM_CRC_H
#define S3_SUM_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The variant for processors without carry-less multiplication. */
uint64_t crc64nvme_update_portable(uint64_t crc, const void *data, size_t len);

#define CRC32_POLYNOMIAL     UINT64_C(0xedb88320)
#define CRC32C_POLYNOMIAL    UINT64_C(0x82f63b78)
#define CRC64NVME_POLYNOMIAL UINT64_C(0x9a6c9329ac4bc9b5)
/* Returns the CRC of A followed by B; the polynomial is reflected, width is 32 or 64. */
uint64_t crc_combine(
	uint64_t polynomial, int width, uint64_t crc_a, uint64_t crc_b, uint64_t b_len);

#endif
