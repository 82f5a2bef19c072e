/*
 * Build-time program: generates the tables of CRC-64/NVME (crc.c) from its polynomial.
 *
 * Everything is in reflected order: bit 0 of a 64-bit value is the coefficient of x^63.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#define POLYNOMIAL UINT64_C(0x9a6c9329ac4bc9b5) /* 0xad93d23594c93659, reflected */

/* v * x mod P */
static uint64_t times_x(uint64_t v)
{
	return v & 1 ? v >> 1 ^ POLYNOMIAL : v >> 1;
}

static uint64_t x_to_the(unsigned n)
{
	uint64_t v = UINT64_C(1) << 63;

	while (n-- > 0)
		v = times_x(v);
	return v;
}

int main(void)
{
	uint64_t table[256];

	for (unsigned i = 0; i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = times_x(table[i]);
	}
	printf("/* Made by crc64_tables.c; table[k][b] is byte b followed by k zero bytes. */\n");
	printf("static const uint64_t crc64_table[8][256] = {\n");
	for (int k = 0; k < 8; k++) {
		printf("{");
		for (int i = 0; i < 256; i++) {
			uint64_t v = table[i];

			for (int zeros = 0; zeros < k; zeros++)
				v = table[v & 0xff] ^ v >> 8;
			printf("0x%016" PRIx64 ",%s", v, i % 4 == 3 ? "\n" : " ");
		}
		printf("},\n");
	}
	printf("};\n");
	/* A carry-less product of reflected values is one bit too low, hence the -1. */
	for (unsigned distance = 128; distance <= 512; distance *= 4) {
		printf("#define CRC64_FOLD_%u_LOW UINT64_C(0x%016" PRIx64 ")\n", distance,
			x_to_the(distance + 64 - 1));
		printf("#define CRC64_FOLD_%u_HIGH UINT64_C(0x%016" PRIx64 ")\n", distance,
			x_to_the(distance - 1));
	}
	return 0;
}
