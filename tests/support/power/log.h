/*
 * The write log of a program: every change it makes to the files below one directory, every sync,
 * and the moment each reply goes out, in one order. recorder.c writes it from inside the program
 * (LD_PRELOAD), replay.c builds from it what a power loss may leave.
 *
 * Environment of the recorded program:
 *	POWER_ROOT	the directory; symbolic links resolved
 *	POWER_LOG	file that the log is appended to; several processes, one after the other
 *	POWER_FAULTS	file with a struct power_faults, which may be changed while the program runs
 */
#ifndef POWER_LOG_H
#define POWER_LOG_H

#include <stdint.h>

enum record_type {
	RECORD_ROOT = 1, /* a process starts; `ino` is the directory's */
	RECORD_CREATE, /* name in directory `ino` is the new file `other` */
	RECORD_MKDIR, /* likewise a directory */
	RECORD_LINK, /* name in directory `ino` is the file `other`, too */
	RECORD_UNLINK, /* name in directory `ino` is gone, file or directory */
	RECORD_RENAME, /* name in directory `ino` becomes the second name in `other` */
	RECORD_WRITE, /* data at `offset` of file `ino` */
	RECORD_TRUNCATE, /* file `ino` has `offset` bytes */
	RECORD_EXTEND, /* file `ino` has at least `offset` bytes */
	RECORD_SYNC_BEGIN, /* file or directory `ino` (0: everything), number `other` */
	RECORD_SYNC_END, /* the sync returned without an error */
	RECORD_REPLY, /* name is the request's id, or "exit-PID" if the process PID ends */
	RECORD_UNKNOWN, /* name is a way to write that is not recorded: the log is useless */
};

/* Each record begins at a multiple of this. */
#define RECORD_ALIGN 8

struct record {
	uint32_t type;
	uint32_t name_len; /* after the record; of a rename two names with a NUL between */
	uint32_t data_len; /* after the name */
	uint32_t process;
	uint64_t ino;
	uint64_t other;
	uint64_t offset;
};

enum fault_op { FAULT_WRITE = 1, FAULT_SYNC = 2, FAULT_CREATE = 4, FAULT_READ = 8 };
/* Files by where they lie: data/…, *-wal, meta.db, everything else; and directories. */
enum fault_class {
	FAULT_DATA = 1,
	FAULT_WAL = 2,
	FAULT_DATABASE = 4,
	FAULT_OTHER = 8,
	FAULT_DIRECTORY = 16
};

struct power_faults {
	uint32_t ops; /* 0: none */
	uint32_t classes; /* classes of files that fail */
	int32_t error; /* errno */
	uint32_t hits; /* counted by the recorder */
	int64_t allow_bytes; /* bytes that still succeed; counted down by the recorder */
};

#endif
