/*
 * The write log of a program has, in order, every change of the program to the files below one
 * directory, every sync, and the moment at which each reply is sent. recorder.c, which is preloaded
 * into the program, writes the log. replay.c builds the states that a power loss may leave.
 *
 * Environment of the recorded program:
 *	POWER_ROOT	the directory; symbolic links resolved
 *	POWER_LOG	file to which the processes, which run one after another, append the log
 *	POWER_FAULTS	file with a struct power_faults, which may be changed while the program runs
 */
#ifndef POWER_LOG_H
#define POWER_LOG_H

#include <stdint.h>

enum record_type {
	RECORD_ROOT = 1, /* a process starts; `ino` is the root directory */
	RECORD_CREATE, /* the new file `other` gets a name in directory `ino` */
	RECORD_MKDIR, /* as RECORD_CREATE, for a directory */
	RECORD_LINK, /* the file `other` gets another name in directory `ino` */
	RECORD_UNLINK, /* a name, of a file or directory, is removed from directory `ino` */
	RECORD_RENAME, /* a name in directory `ino` becomes the second name in `other` */
	RECORD_WRITE, /* data at `offset` of file `ino` */
	RECORD_TRUNCATE, /* the size of file `ino` becomes `offset` bytes */
	RECORD_EXTEND, /* the size of file `ino` becomes at least `offset` bytes */
	RECORD_SYNC_BEGIN, /* file or directory `ino`, all if 0; `other` is the sync's number */
	RECORD_SYNC_END, /* the sync returned without an error */
	RECORD_REPLY, /* the name is the request's id, or "exit-PID" when a process ends */
	RECORD_UNKNOWN, /* the name is an unsupported way to write; the log is invalid */
};

/* Each record begins at a multiple of this number of bytes. */
#define RECORD_ALIGN 8

struct record {
	uint32_t type;
	uint32_t name_len; /* the name follows the record; a rename has two, with a NUL between */
	uint32_t data_len; /* the data follows the name */
	uint32_t process;
	uint64_t ino;
	uint64_t other;
	uint64_t offset;
};

enum fault_op { FAULT_WRITE = 1, FAULT_SYNC = 2, FAULT_CREATE = 4, FAULT_READ = 8 };
/* Classes of files by their path: data/…, *-wal, meta.db, all other files; and directories. */
enum fault_class {
	FAULT_DATA = 1,
	FAULT_WAL = 2,
	FAULT_DATABASE = 4,
	FAULT_OTHER = 8,
	FAULT_DIRECTORY = 16
};

struct power_faults {
	uint32_t ops; /* bits of enum fault_op: the operations that fail; 0 if none */
	uint32_t classes; /* bits of enum fault_class: the files whose operations fail */
	int32_t error; /* the errno of a fault */
	uint32_t hits; /* counted by the recorder */
	int64_t allow_bytes; /* bytes that still succeed; counted down by the recorder */
};

#endif
