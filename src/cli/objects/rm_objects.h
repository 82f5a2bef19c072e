/* `penstock rm s3://…`: the operands that are objects, not runs. */
#ifndef CLI_OBJECTS_RM_OBJECTS_H
#define CLI_OBJECTS_RM_OBJECTS_H

struct cli;

/* Removes what every operand means, each of which begins with s3://. The exit code. */
int rm_objects(const struct cli *cli);

#endif
