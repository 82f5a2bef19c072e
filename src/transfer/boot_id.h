/* Which start of the machine this is: what was written but not synced before it is worth nothing. */
#ifndef TRANSFER_BOOT_ID_H
#define TRANSFER_BOOT_ID_H

#define BOOT_ID_SIZE 40
/* "none" where the system does not tell. */
void boot_id_read(char out[static BOOT_ID_SIZE]);

#endif
