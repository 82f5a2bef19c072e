/*
 * Progress of the end of a run. Each part of the end that takes long is reported once.
 *
 *	ending_begin(&ending, &voice);
 *	ending_part(ending, "uploading the output");
 *	...
 *	ending_end(ending);
 */
#ifndef RUN_ENDING_H
#define RUN_ENDING_H

struct ending;
struct run_voice;

/* Sets `*out` to NULL on failure, for example if no thread can be started; the other functions
 * accept NULL. */
void ending_begin(struct ending **out, const struct run_voice *voice);
/* `text` is a string literal. */
void ending_part(struct ending *ending, const char *text);
void ending_end(struct ending *ending);

#endif
