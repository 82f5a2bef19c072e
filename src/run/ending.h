/*
 * The end of a run in words: a part of it that takes long is reported once.
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

/* `*out` is NULL if there is no thread for it, which the others accept. */
void ending_begin(struct ending **out, const struct run_voice *voice);
/* `text` is a literal. */
void ending_part(struct ending *ending, const char *text);
void ending_end(struct ending *ending);

#endif
