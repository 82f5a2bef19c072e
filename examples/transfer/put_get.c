/* put_get FILE s3://BUCKET/KEY COPY: stores a file, reads it back.  cc put_get.c $(pkg-config
 * --cflags --libs penstock) */
#include <stdio.h>
#include <penstock/transfer.h>

int main(int argc, char **argv)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_object object = PENSTOCK_OBJECT_INIT;
	struct penstock_transfer *t = NULL;
	int failed = 1;

	if (argc != 4 || penstock_transfer_new(&t, NULL, &err) < 0 ||
		penstock_put_file(t, argv[2], argv[1], NULL, &object, &err) < 0 ||
		penstock_get_file(t, argv[2], argv[3], NULL, NULL, &err) < 0)
		fprintf(stderr, "put_get: %s\n", err.code ? err.message : "FILE URL COPY");
	else
		failed = printf("%llu bytes, ETag %s\n", (unsigned long long)object.size,
				 object.etag) < 0;
	penstock_object_release(&object);
	penstock_error_release(&err);
	penstock_transfer_free(t);
	return failed;
}
