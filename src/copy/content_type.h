/* Returns the media type of a file by the ending of its name; NULL if the ending is unknown. */
#ifndef COPY_CONTENT_TYPE_H
#define COPY_CONTENT_TYPE_H

const char *content_type_of(const char *name);

#endif
