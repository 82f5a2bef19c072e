/* What a file is, as HTTP has it, from the end of its name; NULL: nobody knows. */
#ifndef CLI_CONTENT_TYPE_H
#define CLI_CONTENT_TYPE_H

const char *content_type_of(const char *name);

#endif
