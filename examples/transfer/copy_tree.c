/* copy_tree FROM TO: copies a tree between a directory and s3://BUCKET/PREFIX, or two prefixes.
 * cc copy_tree.c $(pkg-config --cflags --libs penstock) */
#include <stdio.h>
#include <penstock/transfer.h>

static void print(void *cookie, const char *from, const char *to, uint64_t size,
	const struct penstock_error *error)
{
	(void)cookie;
	if (error)
		fprintf(stderr, "copy_tree: %s\n", error->message);
	else
		printf("%s -> %s, %llu bytes\n", from, to ? to : "(removed)",
			(unsigned long long)size);
}

int main(int argc, char **argv)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_tree_options options = PENSTOCK_TREE_OPTIONS_INIT;
	struct penstock_tree_result result = PENSTOCK_TREE_RESULT_INIT;
	struct penstock_transfer *t = NULL;
	int failed = 0;

	options.update = true;
	options.each = print;
	if (argc != 3 || penstock_transfer_new(&t, NULL, &err) < 0 ||
		penstock_copy_tree(t, argv[1], argv[2], &options, &result, &err) < 0) {
		fprintf(stderr, "copy_tree: %s\n", err.code ? err.message : "FROM TO");
		failed = 1;
	}
	printf("%llu copied, %llu unchanged, %llu failed\n", (unsigned long long)result.copied,
		(unsigned long long)result.same, (unsigned long long)result.failed);
	penstock_error_release(&err);
	penstock_transfer_free(t);
	return failed;
}
