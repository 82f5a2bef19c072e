#include "run/process/life.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "run/process/live.h"
#include "base/banned.h"

/* Other machines of a cluster read the file too, and may see a file that is open here late. It is
 * written and closed instead. */
static int write_alone(struct step_life *life, const struct run_life *run,
	const struct live_step *step, struct penstock_error *err)
{
	int r = live_write(run->dir, step, err);

	if (r == 0)
		life->alone = step->serial;
	return r;
}

void step_life_begin(struct step_life *life, struct run_life *run, const struct live_step *step)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = 0;

	if (step->cluster)
		r = write_alone(life, run, step, &err);
	else if (!run->files)
		r = live_files_new(&run->files, run->dir, &err);
	if (r == 0 && !step->cluster)
		r = live_begin(run->files, step, &life->file, &err);
	if (r < 0)
		log_warn("cannot record the processes of '%s': %s", step->name, err.message);
}

void step_life_started(struct step_life *life, struct run_life *run, const struct live_step *step)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = 0;

	if (step->cluster)
		r = write_alone(life, run, step, &err);
	else if (life->file)
		r = live_started(life->file, step, &err);
	if (r < 0)
		log_debug("%s", err.message);
}

void step_life_end(struct step_life *life, struct run_life *run)
{
	if (life->alone)
		live_remove(run->dir, life->alone);
	if (life->file)
		live_over(run->files, life->file);
	*life = (struct step_life){0};
}

void run_life_end(struct run_life *run)
{
	live_files_free(take_pointer(run->files));
}
