#include "run/step_life.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "run/live.h"
#include "run/run_internal.h"
#include "base/banned.h"

/* Other machines of a cluster look for it, too, which see a file that is open here as late as their file system likes. */
static int write_alone(struct step_life *life, const struct run *run, const struct live_step *step,
	struct penstock_error *err)
{
	int r = live_write(run->layout.dir, step, err);

	if (r == 0)
		life->alone = step->serial;
	return r;
}

void step_life_begin(struct step_life *life, struct run *run, const struct live_step *step)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = 0;

	if (step->cluster)
		r = write_alone(life, run, step, &err);
	else if (!run->live)
		r = live_files_new(&run->live, run->layout.dir, &err);
	if (r == 0 && !step->cluster)
		r = live_begin(run->live, step, &life->file, &err);
	if (r < 0)
		log_warn("what lives of '%s' is not on record: %s", step->name, err.message);
}

void step_life_started(struct step_life *life, struct run *run, const struct live_step *step)
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

void step_life_over(struct step_life *life, struct run *run)
{
	if (life->alone)
		live_remove(run->layout.dir, life->alone);
	if (life->file)
		live_over(run->live, life->file);
	*life = (struct step_life){0};
}

void run_life_end(struct run *run)
{
	live_files_free(take_pointer(run->live));
}
