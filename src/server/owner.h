/* The one account, as replies name it. */
#ifndef SERVER_OWNER_H
#define SERVER_OWNER_H

#define OWNER_ID   "70656e73746f636b00000000000000000000000000000000000000000000000000"
#define OWNER_NAME "penstock"

#endif
