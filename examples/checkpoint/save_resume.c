/* save_resume DIR STEPS: counts to STEPS, saves every tenth step, and resumes from the newest
 * complete checkpoint. cc save_resume.c $(pkg-config --cflags --libs penstock) */
#include <stdio.h>
#include <stdlib.h>
#include <penstock/checkpoint.h>

static void passed_over(void *cookie, const char *path, const char *why)
{
	(void)cookie;
	(void)path;
	fprintf(stderr, "save_resume: skipped a checkpoint: %s\n", why);
}

/* The last saved step; 0 if there is no checkpoint. */
static unsigned long long resume(const char *dir, struct penstock_error *err)
{
	struct penstock_commit *commit = NULL;
	unsigned long long step = 0;

	if (penstock_checkpoint_latest(&commit, dir, passed_over, NULL, err) == 0) {
		step = penstock_commit_step(commit);
		printf("resuming from %s\n", penstock_commit_path(commit));
	} else if (err->code == PENSTOCK_E_NOT_FOUND) {
		penstock_error_release(err);
	}
	penstock_commit_free(commit);
	return step;
}

static int save(const char *dir, unsigned long long step, struct penstock_error *err)
{
	struct penstock_checkpoint *c = NULL;
	int r = penstock_checkpoint_begin(&c, dir, step, NULL, err);

	if (r == 0)
		r = penstock_checkpoint_write(c, "state.bin", &step, sizeof(step), err);
	if (r == 0)
		r = penstock_checkpoint_metric(c, "loss", 1.0 / (double)step, err);
	if (r == 0)
		r = penstock_checkpoint_commit(c, err);
	penstock_checkpoint_free(c);
	return r;
}

int main(int argc, char **argv)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	unsigned long long step, end;
	int failed;

	if (argc != 3) {
		fprintf(stderr, "save_resume DIR STEPS\n");
		return 64;
	}
	end = strtoull(argv[2], NULL, 10);
	for (step = resume(argv[1], &err); !err.code && step < end;)
		if (++step % 10 == 0)
			save(argv[1], step, &err);
	failed = err.code != 0;
	if (failed)
		fprintf(stderr, "save_resume: %s\n", err.message);
	else
		printf("at step %llu\n", step);
	penstock_error_release(&err);
	return failed;
}
