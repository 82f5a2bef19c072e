/*
 * MD5 of several messages at a time. One MD5 is a chain of dependent additions; eight of them in
 * parallel take little longer than one.
 *
 *	struct md5_lane lanes[MD5_LANES];
 *
 *	md5_lane_begin(&lanes[0]);
 *	md5_lanes_update(lanes, n, data, len);	// len bytes of each, whole blocks of MD5_BLOCK
 *	md5_lane_end(&lanes[0], tail, len, digest);	// the last bytes, of any length
 */
#ifndef S3_SUM_MD5_LANES_H
#define S3_SUM_MD5_LANES_H

#include <stddef.h>
#include <stdint.h>

#define MD5_LANES 8
#define MD5_BLOCK 64

struct md5_lane {
	uint32_t state[4];
	uint64_t length; /* bytes so far */
};

void md5_lane_begin(struct md5_lane *lane);
/* Processes the next `len` bytes, at data[i], of the first n lanes, n <= MD5_LANES; `len` is a
 * multiple of MD5_BLOCK. */
void md5_lanes_update(
	struct md5_lane *lanes, size_t n, const unsigned char *const data[], size_t len);
void md5_lane_end(
	struct md5_lane *lane, const unsigned char *data, size_t len, uint8_t digest[static 16]);

#endif
