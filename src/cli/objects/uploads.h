/*
 * `penstock ls --uploads` and `rm --uploads`: uploads in parts that were neither completed nor
 * ended.
 */
#ifndef CLI_OBJECTS_UPLOADS_H
#define CLI_OBJECTS_UPLOADS_H

struct cli;

/* Those of every operand, s3://BUCKET[/PREFIX]. The exit code. */
int uploads_list(const struct cli *cli);
/* Ends those that are as old as --older-than says. */
int uploads_end(const struct cli *cli);

#endif
