/*
 * A binary tree with a set in each leaf deals the positions. A node whose children have the weights
 * l and r sends m * l / (l + r) of its first m positions, rounded to the nearest integer, to the
 * left child. So one descent from the root finds the set at a position, and the weights on the path
 * to a set give the number of earlier positions that reached the set.
 *
 * The rounding at a node adds an error of at most 1/2 to each child. The error of a set is the
 * error that its parent adds to it plus, for each node above the set up to a child of the root, the
 * error that was added to the node times the set's share of the weight of the node. In a Huffman
 * tree a node weighs at least as much as the two nodes below it on the path together. So the
 * weights on a path grow at least like Fibonacci numbers, and the error is less than (1 + 1 + 1/2 +
 * 1/3 + 1/5 + 1/8 + ...) / 2 < 1.68.
 *
 * After sum(weights) positions each set has been chosen exactly as often as its weight says, and
 * the order of the sets repeats.
 */
#include "dataset/order/mix.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "dataset/order/key.h"

/* The first nodes are the sets, the last node is the root. */
struct node {
	uint64_t weight;
	uint32_t parent;
	uint32_t left, right; /* children of a node that is not a set */
};

struct mix {
	enum mix_end end;
	uint64_t length;
	uint64_t epoch;
	uint32_t n_sets;
	struct mix_set *sets;
	uint64_t *taken; /* for MIX_REPEATS: samples of each set in earlier epochs */
	uint32_t root;
	struct node *nodes;
};

void mix_free(struct mix *m)
{
	if (!m)
		return;
	free(m->sets);
	free(m->taken);
	free(m->nodes);
	free(m);
}

/* ---- the deal ---- */

/* Returns the lightest node without a parent among the first `n` nodes; the first of them if
 * several have the same weight. */
static uint32_t lightest(const struct node *nodes, uint32_t n)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < n; i++) {
		if (nodes[i].parent == UINT32_MAX &&
			(best == UINT32_MAX || nodes[i].weight < nodes[best].weight))
			best = i;
	}
	return best;
}

static void build_tree(struct mix *m)
{
	for (uint32_t i = 0; i < m->n_sets; i++)
		m->nodes[i] = (struct node){.weight = m->sets[i].weight, .parent = UINT32_MAX};
	m->root = 2 * m->n_sets - 2;
	for (uint32_t i = m->n_sets; i <= m->root; i++) {
		uint32_t left = lightest(m->nodes, i), right;

		m->nodes[left].parent = i;
		right = lightest(m->nodes, i);
		m->nodes[right].parent = i;
		m->nodes[i] = (struct node){
			.weight = m->nodes[left].weight + m->nodes[right].weight,
			.parent = UINT32_MAX,
			.left = left,
			.right = right,
		};
	}
}

/* Returns the number of its first `n` positions that `node` sends to the left child. `n` is at most
 * the weight of the node, so that the product fits into 64 bits. Sets `*goes_left` for the next
 * position. */
static uint64_t lefts(const struct mix *m, const struct node *node, uint64_t n, bool *goes_left)
{
	uint64_t left = m->nodes[node->left].weight;
	uint64_t sum = n * left + node->weight / 2;

	*goes_left = sum % node->weight >= node->weight - left;
	return sum / node->weight;
}

/* Returns how many of the first `p` positions reach node `i`. `p` is at most the weight of the
 * root. */
static uint64_t reached(const struct mix *m, uint32_t i, uint64_t p)
{
	const struct node *parent;
	uint64_t above, n;
	bool unused;

	if (i == m->root)
		return p;
	parent = &m->nodes[m->nodes[i].parent];
	above = reached(m, m->nodes[i].parent, p);
	n = lefts(m, parent, above, &unused);
	return i == parent->left ? n : above - n;
}

uint64_t mix_count(const struct mix *m, uint32_t set, uint64_t p)
{
	uint64_t period = m->nodes[m->root].weight;

	MUST(set < m->n_sets);
	return p / period * m->sets[set].weight + reached(m, set, p % period);
}

/* Finds the set at position `p`. Returns the number of earlier positions at which that set was
 * chosen. */
static uint64_t find_set(const struct mix *m, uint64_t p, uint32_t *set)
{
	uint64_t period = m->nodes[m->root].weight;
	uint64_t n = p % period;
	uint32_t i = m->root;

	while (i >= m->n_sets) {
		bool goes_left;
		uint64_t left = lefts(m, &m->nodes[i], n, &goes_left);

		n = goes_left ? left : n - left;
		i = goes_left ? m->nodes[i].left : m->nodes[i].right;
	}
	*set = i;
	return p / period * m->sets[i].weight + n;
}

/* ---- the length ---- */

static bool any_exceeds(const struct mix *m, uint64_t p)
{
	for (uint32_t k = 0; k < m->n_sets; k++) {
		if (mix_count(m, k, p) > m->sets[k].n)
			return true;
	}
	return false;
}

static bool all_are_taken(const struct mix *m, uint64_t p)
{
	for (uint32_t k = 0; k < m->n_sets; k++) {
		if (mix_count(m, k, p) < m->sets[k].n)
			return false;
	}
	return true;
}

/* Returns the smallest number of positions for which `holds` is true, or LIMIT_DATASET_SAMPLES + 1
 * if there is no such number. If `holds` is true for a number, it must be true for all greater
 * numbers. */
static uint64_t first_where(const struct mix *m, bool (*holds)(const struct mix *, uint64_t))
{
	uint64_t low = 0, high = LIMIT_DATASET_SAMPLES + 1;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (holds(m, middle))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int too_long(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_LIMIT,
		"cannot mix the data sets: an epoch would have more than %" PRIu64
		" samples; set a length",
		LIMIT_DATASET_SAMPLES);
}

static int find_length(struct mix *m, uint64_t given, struct penstock_error *err)
{
	uint64_t end;

	m->length = given;
	if (given && m->end == MIX_REPEATS)
		return 0;
	if (given && any_exceeds(m, given))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot take %" PRIu64 " samples of the mix: a data set ends after %" PRIu64
			"; take at most that many, or let data sets repeat",
			given, first_where(m, any_exceeds) - 1);
	if (given)
		return 0;
	end = first_where(m, m->end == MIX_REPEATS ? all_are_taken : any_exceeds);
	if (end > LIMIT_DATASET_SAMPLES)
		return too_long(err);
	m->length = m->end == MIX_REPEATS ? end : end - 1;
	return 0;
}

/* Computes the position in each set at which the epoch begins. */
static int find_taken(struct mix *m, struct penstock_error *err)
{
	for (uint32_t k = 0; k < m->n_sets; k++) {
		uint64_t each = mix_count(m, k, m->length), all;

		if (m->end == MIX_ENDS)
			continue;
		if (__builtin_mul_overflow(each, m->epoch, &m->taken[k]) ||
			__builtin_add_overflow(m->taken[k], each, &all) || all > INT64_MAX)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot mix the data sets: in epoch %" PRIu64 " more than %" PRId64
				" samples of one data set have been taken",
				m->epoch, INT64_MAX);
	}
	return 0;
}

/* ---- creating and freeing ---- */

static int check(const struct mix_options *o, struct penstock_error *err)
{
	uint64_t sum = 0;

	if (o->n_sets == 0 || o->n_sets > LIMIT_DATASET_SETS)
		return error_set(err, PENSTOCK_E_INVALID, "cannot mix %zu data sets; use 1 to %d",
			o->n_sets, LIMIT_DATASET_SETS);
	if (o->length > LIMIT_DATASET_SAMPLES || o->epoch > INT64_MAX)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot mix the data sets in epoch %" PRIu64 " of %" PRIu64
			" samples: the limit of both is %" PRIu64,
			o->epoch, o->length, LIMIT_DATASET_SAMPLES);
	for (size_t k = 0; k < o->n_sets; k++) {
		const struct mix_set *set = &o->sets[k];

		if (set->n == 0 || set->n > LIMIT_DATASET_SAMPLES)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot mix data set %zu: it has %" PRIu64
				" samples; leave out the data set, or use 1 to %" PRIu64,
				k, set->n, LIMIT_DATASET_SAMPLES);
		if (set->weight == 0 || set->weight > LIMIT_DATASET_WEIGHTS - sum)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot mix data set %zu with weight %" PRIu64
				"; use weights from 1, with a sum of at most %" PRIu64,
				k, set->weight, LIMIT_DATASET_WEIGHTS);
		sum += set->weight;
	}
	return 0;
}

int mix_new(struct mix **out, const struct mix_options *o, struct penstock_error *err)
{
	_cleanup_(mix_freep) struct mix *m = NULL;
	int r = check(o, err);

	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m)
		return error_memory(err);
	m->end = o->end;
	m->epoch = o->epoch;
	m->n_sets = (uint32_t)o->n_sets;
	m->sets = calloc(o->n_sets, sizeof(*m->sets));
	m->taken = calloc(o->n_sets, sizeof(*m->taken));
	m->nodes = calloc(2 * o->n_sets - 1, sizeof(*m->nodes));
	if (!m->sets || !m->taken || !m->nodes)
		return error_memory(err);
	for (size_t k = 0; k < o->n_sets; k++)
		m->sets[k] = o->sets[k];
	build_tree(m);
	r = find_length(m, o->length, err);
	if (r == 0)
		r = find_taken(m, err);
	if (r == 0)
		*out = take_pointer(m);
	return r;
}

uint64_t mix_length(const struct mix *m)
{
	return m->length;
}

void mix_batch(const struct mix *m, uint64_t first, size_t count, struct mix_pick *picks)
{
	for (size_t i = 0; i < count; i++) {
		struct mix_pick *pick = &picks[i];
		uint64_t n = find_set(m, (first + i) % m->length, &pick->set);
		uint64_t size = m->sets[pick->set].n;

		n += m->taken[pick->set];
		pick->pass = m->end == MIX_ENDS ? m->epoch : n / size;
		pick->position = m->end == MIX_ENDS ? n : n % size;
	}
}

uint64_t mix_id(const struct mix *m, uint64_t order)
{
	uint64_t id = key_more(key_of(order, m->end, m->n_sets, KEY_MIX), m->length);

	for (uint32_t k = 0; k < m->n_sets; k++)
		id = key_more(key_more(id, m->sets[k].n), m->sets[k].weight);
	return id;
}
