/*
 * The concurrency of a host: it grows while more requests move more data, and is halved when the
 * server asks to slow down.
 */
#include "net/pace/pace.h"

#define WINDOW_MIN_MS 150 /* long enough for some dozens of reads, short compared with a transfer */
#define WINDOW_MAX_MS 2000
/* a window lasts this many typical waits, so that new connections show their effect */
#define WINDOW_WAITS 3
#define HOLD_WINDOWS 20
/* A step helps if the rate is at least this many times the rate before the step. The three values
 * are for steps that double the limit, raise it by a quarter, and lower it by a quarter. */
#define GAIN_DOUBLED 1.15
#define GAIN_QUARTER 1.05
#define LOSS_QUARTER 0.98

void pace_init(struct pace *pace, unsigned max)
{
	*pace = (struct pace){.max = max ? max : 1};
	waits_init(&pace->waits[PACE_GET]);
	waits_init(&pace->waits[PACE_PUT]);
	pace->limit = pace->max < PACE_START ? pace->max : PACE_START;
}

void pace_moved(struct pace *pace, uint64_t bytes)
{
	pace->moved += bytes;
}

static int64_t window_length(const struct pace *pace)
{
	int64_t get = waits_quantile(&pace->waits[PACE_GET], 5);
	int64_t put = waits_quantile(&pace->waits[PACE_PUT], 5);
	int64_t length = WINDOW_WAITS * (get > put ? get : put);

	if (length < WINDOW_MIN_MS)
		return WINDOW_MIN_MS;
	return length > WINDOW_MAX_MS ? WINDOW_MAX_MS : length;
}

static void window_begin(struct pace *pace, int64_t now)
{
	pace->window_ms = now;
	pace->moved = 0;
	pace->starved = false;
	pace->refused = false;
}

static void hold(struct pace *pace, unsigned limit)
{
	pace->phase = PACE_HOLD;
	pace->limit = limit;
	pace->held = 0;
}

static void step_to(struct pace *pace, enum pace_phase phase, unsigned limit, double rate)
{
	pace->phase = phase;
	pace->rate = rate;
	pace->before = pace->limit;
	pace->limit = limit > pace->max ? pace->max : limit;
	if (pace->limit == pace->before)
		hold(pace, pace->limit);
}

static unsigned quarter(unsigned limit)
{
	return limit >= 4 ? limit / 4 : 1;
}

/* The previous step helped: do the same again. */
static void step_again(struct pace *pace, double rate)
{
	unsigned by = pace->phase == PACE_CLIMB ? pace->limit : quarter(pace->limit);

	if (pace->phase != PACE_DOWN)
		step_to(pace, pace->phase, pace->limit + by, rate);
	else if (pace->limit >= PACE_FLOOR + by)
		step_to(pace, PACE_DOWN, pace->limit - by, rate);
	else
		hold(pace, pace->limit);
}

/* After HOLD_WINDOWS windows at the same limit, tries a quarter more or a quarter less. */
static void try_something(struct pace *pace, double rate)
{
	unsigned by = quarter(pace->limit);
	bool down = pace->try_down && pace->limit >= PACE_FLOOR + by;

	if (++pace->held < HOLD_WINDOWS)
		return;
	pace->try_down = !pace->try_down;
	step_to(pace, down ? PACE_DOWN : PACE_UP, down ? pace->limit - by : pace->limit + by, rate);
}

static void window_end(struct pace *pace, double rate)
{
	double wanted = pace->phase == PACE_CLIMB ? GAIN_DOUBLED
			: pace->phase == PACE_UP  ? GAIN_QUARTER
						  : LOSS_QUARTER;

	switch (pace->phase) {
	case PACE_CLIMB:
	case PACE_UP:
	case PACE_DOWN:
		if (!pace->before || rate >= pace->rate * wanted)
			step_again(pace, rate);
		else
			hold(pace, pace->before);
		break;
	case PACE_HOLD:
		try_something(pace, rate);
		break;
	case PACE_AVOID:
		if (pace->limit + 1 >= pace->ceiling)
			hold(pace, pace->limit);
		else
			pace->limit++;
		break;
	}
}

void pace_tick(struct pace *pace, int64_t now, bool starved)
{
	bool measured;

	if (!pace->window_ms)
		window_begin(pace, now);
	/* Running below the limit says nothing about a higher limit. */
	pace->starved = pace->starved || starved;
	if (now - pace->window_ms < window_length(pace))
		return;
	/* A window without data says nothing about the limit, either. */
	measured = !pace->refused &&
		   (pace->phase == PACE_AVOID || (!pace->starved && pace->moved > 0));
	if (measured)
		window_end(pace, (double)pace->moved / (double)(now - pace->window_ms));
	window_begin(pace, now);
}

void pace_refused(struct pace *pace, int64_t now, unsigned active)
{
	/* Halve once per window: the other requests were sent before the first refusal. */
	if (pace->refused && pace->phase == PACE_AVOID)
		return;
	pace->ceiling = active && active < pace->limit ? active : pace->limit;
	pace->limit = pace->ceiling > 1 ? pace->ceiling / 2 : 1;
	pace->phase = PACE_AVOID;
	window_begin(pace, now);
	pace->refused = true;
}
