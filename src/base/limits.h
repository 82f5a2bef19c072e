/*
 * Every bound of penstock in one place, with its unit and its reason. A buffer, queue or count
 * without an entry here is a defect. docs/ARCHITECTURE.md says what happens at each bound.
 */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* The tables are aligned by hand, block by block. */
/* clang-format off */

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* The protocol's own limits (Amazon S3 User Guide, "Amazon S3 multipart upload limits"). */
#define LIMIT_S3_PARTS	    10000		/* parts of one multipart upload */
#define LIMIT_S3_PART_MIN   (5 * MIB)		/* bytes; the last part may be smaller */
#define LIMIT_S3_PART_MAX   (5 * GIB)		/* bytes */
#define LIMIT_S3_PUT_MAX    (5 * GIB)		/* bytes of one PUT or CopyObject */
#define LIMIT_S3_OBJECT_MAX ((uint64_t)5 << 40) /* bytes */
#define LIMIT_S3_KEY	    1024		/* bytes of UTF-8 */
#define LIMIT_S3_METADATA   2048		/* bytes of all x-amz-meta- names and values */
#define LIMIT_S3_EMPTY_PAGES 1000 /* pages of a listing in a row without a key; a store may filter */
#define LIMIT_S3_LIST_KEYS  1000		/* keys of one list reply, or of one multi-delete */

/* Our own choices within them. */
#define LIMIT_S3_PART_DEFAULT (8 * MIB) /* bytes: as the SDKs; large enough to hide a round trip */
#define LIMIT_SIGV4_PARAMETERS 128	/* headers or query parameters of one signed request */
#define LIMIT_SIGV4_TEXT       (192 * KIB) /* bytes: all headers and the query, encoded threefold */
#define LIMIT_CHUNKED_LINE     8192	   /* bytes of one line between chunks, or of one trailer */
#define LIMIT_CHUNKED_TRAILERS 16	   /* trailer headers of one request; SDKs send 1 or 2 */
#define LIMIT_CHUNKED_CHUNK    (5 * GIB)   /* bytes of one chunk; streamed, so only arithmetic */

/* Text that comes from others. */
#define LIMIT_HTTP_HEADERS     (64 * KIB) /* bytes of one reply's or request's headers */
#define LIMIT_HTTP_ERROR_BODY  (64 * KIB) /* bytes kept of an error reply */
#define LIMIT_XML_BODY	       (8 * MIB)  /* bytes: 1,000 keys of 1,024 bytes, escaped */
#define LIMIT_XML_DEPTH	       16	  /* elements; S3 uses 5 */
#define LIMIT_CREDENTIALS_FILE (1 * MIB)  /* bytes of a shared config or credentials file */
#define LIMIT_METADATA_REPLY   (64 * KIB) /* bytes that a credential source may answer */
#define LIMIT_LIBRARY_STRUCT   4096	  /* bytes that a struct of a caller of the library may say to have */
#define LIMIT_GOOGLE_KEY       (64 * KIB) /* bytes of a Google key file, or of a request for a token; usual are 3 kB */
#define LIMIT_TOKEN_LIFE_S     (7 * 24 * 3600) /* seconds that an access token may live; usual is an hour */
#define LIMIT_COMMIT	       (32 * MIB) /* bytes of a checkpoint's COMMIT.json: 200,000 files */
#define LIMIT_CHECKPOINT_FILES 200000	  /* of one checkpoint; 10,000 ranks of 20 */
#define LIMIT_CHECKPOINT_NAME  768	  /* bytes of a file's name in it: a key of S3 has 1,024 */
#define LIMIT_CHECKPOINT_METRICS 1000	  /* of one checkpoint */
#define LIMIT_CHECKPOINT_RANKS 100000	  /* that save one together; each has a file meanwhile */
#define LIMIT_CHECKPOINT_LIST (4 * MIB)	  /* bytes of the names of those that are being removed */
#define LIMIT_CHECKPOINTS      100000	  /* in one directory */
#define LIMIT_JSON_DOCUMENT    (64 * MIB) /* bytes: a manifest of 200,000 files */

/* Archives; the total size is limited by the free space. */
#define LIMIT_ARCHIVE_MEMBERS 10000000	 /* members of one archive */
#define LIMIT_ARCHIVE_DEPTH   128	 /* directories above a member */
#define LIMIT_ARCHIVE_RATIO   500	 /* unpacked bytes for each of the archive's, ... */
#define LIMIT_ARCHIVE_RATIO_FROM (256 * MIB) /* ... once so many are unpacked: bombs have more, data sets less */
#define LIMIT_ARCHIVE_QUEUE   (4 * MIB)	 /* bytes between two threads of an unpacker */
#define LIMIT_ARCHIVE_DIRS    (16 * MIB) /* bytes of directory names whose times are restored */

/* Clusters. */
#define LIMIT_HOSTLIST	     16384     /* hosts that one list may name; the largest clusters have 10,000 */
#define LIMIT_HOST_NAME	     255       /* bytes of a host's name, as DNS */
#define LIMIT_SLURM_REPLY    (4 * MIB) /* bytes that a command of Slurm may print; 10,000 nodes are 1 MB */
#define LIMIT_SLURM_JOB	     (1 * MIB) /* bytes of the record of a batch job */
#define LIMIT_MPI_TASK	     (120 * KIB) /* bytes of the same for a rank in a container; Linux takes 128 KiB in a variable */
#define LIMIT_SLURM_TASK     (8 * MIB) /* bytes that a task on another node is described by; an environment is the most */

/* Images of containers. */
#define LIMIT_IMAGE_DOCUMENT (4 * MIB) /* bytes of a manifest or configuration; what registries take, too */
#define LIMIT_IMAGE_LAYERS   120       /* of one image: overlayfs takes so many in one page of options; Docker makes 127 */
#define LIMIT_IMAGE_WORDS    4096      /* of an entry point, or variables, of an image */
#define LIMIT_IMAGE_LOGIN    (64 * KIB) /* bytes of a user, password or token */
#define LIMIT_IMAGE_PARALLEL 6	       /* layers that are brought at a time, two threads each */
#define LIMIT_IMAGE_QUEUE    (1 * MIB) /* bytes of a layer between the network and its unpacking */
#define LIMIT_IMAGE_BLOCK    (128 * KIB) /* bytes of a layer decompressed at a time */

/* Staging. */
#define LIMIT_STAGE_PARALLEL 4	    /* inputs at a time; each fetches several ranges or objects */
#define LIMIT_CONTEXT_DIFF   (4 * MIB) /* bytes kept of what a context differs by from its commit; a patch, not data */
#define LIMIT_STAGE_UNPACK   100000 /* objects or files of one input that are unpacked each */

/* What steps write for penstock. */
#define LIMIT_ENV_FILE (1 * MIB) /* bytes of the file behind $DEEPSQUARE_ENV; exec allows 2 MiB in all */

#define LIMIT_STATE_OBJECT (64 * KIB) /* bytes of the state that a run keeps beside its output */
#define LIMIT_RUN_PARALLEL 256 /* iterations of one loop at a time; each has a process and descriptors */
#define LIMIT_RUN_PROGRESS (256 * MIB) /* bytes of the list of finished steps and iterations */
#define LIMIT_RUN_RESERVE (1 * MIB) /* bytes of disk kept for the records of a run's end and its log */
#define LIMIT_LOG_WAITING (64 * KIB) /* bytes of a run's log held while its disk is full: its end */
#define LIMIT_OUTPUT_CHUNK (128 * KIB) /* bytes of step output held while secrets are masked */

/* The HTTP engine. */
#define LIMIT_HTTP_CONNECTIONS	    128		/* at a time; each has the buffers below */
#define LIMIT_HTTP_HOST_CONNECTIONS 64		/* at a time to one host: what S3 front ends like */
#define LIMIT_HTTP_IDLE_HANDLES	    32		/* kept for reuse with their buffers */
#define LIMIT_HTTP_HOSTS	    64		/* remembered without a request under way */
#define LIMIT_HTTP_BUFFER	    (256 * KIB) /* bytes per connection that receives or sends, ... */
#define LIMIT_HTTP_RUN_BUFFER	    (128 * KIB) /* ... of a run, whose supervisor so stays below 32 MiB with 48 of them, and of verbs that look at its output */
#define LIMIT_HTTP_REPLY_BUFFER	    (16 * KIB)	/* ... beside those that send, for the reply */
#define LIMIT_HTTP_BULK_CONNECTIONS 48 /* of a host's, that move bulk data; the others are left for quick requests */
#define LIMIT_HTTP_RETRY_AFTER	    60		/* seconds a server may make us wait at a time */
#define LIMIT_HTTP_PROGRESS	    (64 * KIB)	/* bytes of a cut reply that count as getting on */

/* Transfers. */
#define LIMIT_PUT_SINGLE (64 * MIB) /* bytes; larger files go up in parts */
#define LIMIT_GET_SINGLE (32 * MIB) /* bytes; larger objects come down in ranges */
#define LIMIT_GET_RANGE	 (8 * MIB) /* bytes of one such range */
#define LIMIT_GET_GATHER (128 * KIB) /* bytes of a range in memory until they are written; divides GET_BLOCK_MAX */
#define LIMIT_GET_WRITE_AHEAD 16 /* such pieces of one download that wait for being written */
#define LIMIT_GET_LINGER_MS 50 /* and so long one waits for others at most */
#define LIMIT_TRANSFER_AHEAD 48 /* requests of one transfer that run or wait in the engine, some 10 KiB each */
#define LIMIT_STREAM_MEMORY (40 * MIB) /* bytes that all streams of a process hold: below 64 MB with all else */
#define LIMIT_STREAM_RANGE (4 * MIB) /* bytes of one piece of an object that is handed over in order */
#define LIMIT_FETCH_CHUNK (8 * MIB)  /* bytes of one range of an HTTP input */
#define LIMIT_FETCH_CHUNK_MIN (4 * KIB)
#define LIMIT_FETCH_BLOCK (256 * KIB) /* bytes read back and handed over at a time */
#define LIMIT_TRANSFER_KEPT (16 * MIB) /* bytes of freed memory that the verbs do not give back at once ... */
#define LIMIT_TRANSFER_KEPT_BLOCK (1 * MIB) /* ... but for blocks of more than this */
#define LIMIT_TRANSFER_ARENAS 2 /* heaps that threads of the verbs share: what one gave back in one of 16 helps no other */
#define LIMIT_BULK_MEMORY (12 * MIB) /* bytes of items that are under way or wait, with their small bodies */
#define LIMIT_BULK_HELD (64 * KIB) /* bytes of a body that is held whole in memory */
#define LIMIT_BULK_SMALL (8 * MIB) /* bytes; larger ones are a thread's work */
#define LIMIT_BULK_FLIGHTS 64 /* requests for small ones at a time */
#define LIMIT_BULK_WORKERS 8 /* threads, one blocking call each */
#define LIMIT_BATCH_JOBS  32 /* lines of a batch that run at a time, at most */
#define LIMIT_BATCH_AHEAD 64 /* lines of a batch that are read and not over */
#define LIMIT_BATCH_HELD (64 * KIB) /* bytes of what such a line prints, until its turn has come */
#define LIMIT_TREE_OBJECTS 10000000	   /* objects of one prefix download, some 150 bytes each */
#define LIMIT_TREE_JOURNAL (2 * GIB)	   /* bytes: a line for each of them */
#define LIMIT_DELTA_MIN	 (16 * MIB) /* bytes; smaller objects are sent whole: two more requests cost as much */
#define LIMIT_DELTA_DAYS 30 /* that is remembered what was sent of an object, some 64 bytes per MiB, 500 KiB at most */
#define LIMIT_UPLOAD_JOURNAL_DAYS 7 /* without a new part; then the upload is ended: its parts cost money */
#define LIMIT_TRANSFER_JOURNAL (32 * MIB) /* bytes: a line of 50 for each block of the largest object */
#define LIMIT_LIST_AHEAD (16 * MIB) /* bytes of pages of a listing that wait to be read, or are under way */
#define LIMIT_WALK_PATH (4 * KIB - 1) /* bytes of a path below a walked directory: what the kernel opens */
#define LIMIT_WALK_NAMES (8 * MIB)  /* bytes of one directory's names in memory; the others in a file */
#define LIMIT_WALK_MEMORY (8 * MIB) /* bytes of names left in the directories above */

/* A workflow. */
#define LIMIT_WORKFLOW_FILE (4 * MIB) /* bytes */
#define LIMIT_WORKFLOW_RECORD (8 * MIB) /* bytes of the copy that a run keeps: indented */
#define LIMIT_WORKFLOW_CANONICAL (64 * MIB) /* bytes of it written out, aliases repeated */
#define LIMIT_WORKFLOW_DEPTH 64 /* nested maps and lists */
#define LIMIT_WORKFLOW_NODES 200000 /* values; stops alias bombs */
#define LIMIT_WORKFLOW_ANCHORS 1000 /* YAML anchors; each alias looks through them */
#define LIMIT_WORKFLOW_STRAY_COMMAS 8 /* lines that end with one too many; the file is read again for each */
#define LIMIT_WORKFLOW_NAME 64 /* bytes of a run's name; it is part of paths */
#define LIMIT_RETRY_PAUSE_MS (10 * 60 * 1000) /* to which back-off grows: what takes longer to pass needs a person */
#define LIMIT_WORKFLOW_RETRIES 1000 /* attempts after failures; more of them is a loop that nobody looks at */
#define LIMIT_WORKFLOW_PORTS 64 /* free ports that a run is given; each is a variable of its steps */
#define LIMIT_NOTICE_SOURCES 16 /* of notices of one run; each has a thread */
#define LIMIT_STEP_PROCESSES 4096 /* and threads of a step that says no number; stops fork bombs */
#define LIMIT_STEP_PROCESSES_PER_CPU 512 /* likewise, where it has many CPUs: loaders of data have threads */
#define LIMIT_WORKFLOW_PREFIX 512 /* bytes of an S3 path; leaves half a key for file names */
#define LIMIT_WORKFLOW_ITERATIONS 1000000 /* of one loop; more is a program's own business */
#define LIMIT_WORKFLOW_ERRORS 100 /* mistakes reported in one go */
/* Claims on the machine's resources; other users write these files, too. */
#define LIMIT_CLAIM_FILE  (64 * KIB) /* bytes of one: 1,024 CPU numbers take 5 KiB */
#define LIMIT_CLAIM_NAME  128	     /* bytes shown of a run's name or id that another user wrote */
#define LIMIT_CLAIM_FILES 4096	     /* runs that hold or wait, on one machine */

/* The object store and its server. */
#define LIMIT_STORE_CACHE_BYTES (128 * MIB) /* of metadata and inline bodies kept for GET */
#define LIMIT_STORE_CACHE_ENTRIES 32768 /* objects; each may hold one of 65,530 mappings */
#define LIMIT_STORE_UPLOAD_DAYS 7 /* that an unfinished multipart upload is kept without a new part */
#define LIMIT_STORE_LAYOUT (4 * MIB) /* bytes: 10,000 parts of a few pieces each */
#define LIMIT_LIST_REPLY (16 * MIB) /* bytes: 1,000 keys of 1,024 bytes, escaped, with ETags */
#define LIMIT_SERVER_WORKERS 16 /* threads that wait for the disk */
/* Of TCP and of the Unix socket each: */
#define LIMIT_SERVER_LOOPS 8 /* event loops; one per processor up to this */
#define LIMIT_SERVER_CONNECTIONS 4096 /* open at once */
#define LIMIT_SERVER_CONNECTION (64 * KIB) /* bytes of a connection's buffers; headers must fit; cleared each time */
#define LIMIT_SERVER_IDLE_SECONDS 60 /* of a connection that neither sends nor receives */
#define LIMIT_SERVER_DISCARD (16 * MIB) /* bytes of a refused body that are still read */
#define LIMIT_STORE_HELD (512 * KIB) /* bytes of a body that is held until it is complete, and written in one go; */
#define LIMIT_STORE_HELD_BODIES 32 /* so many at a time, others are written as they come */
#define LIMIT_SERVER_LATE_HASH (1 * MIB) /* bytes of a body that is hashed when it is complete */
#define LIMIT_SERVER_LATE_HASH_PART (32 * MIB) /* bytes of a part, which comes with others */
#define LIMIT_SERVER_IGNORED_BODY (64 * KIB) /* bytes of a body where none is needed */

/* Strings made by penstock. */
#define LIMIT_SECRETS  (1 * MIB)  /* bytes of the file of all secrets of a user */
#define LIMIT_STRING   (1 * MIB)  /* bytes of one command, path, message or URL */
#define LIMIT_EXEC_WORDS (4 * MIB) /* bytes of a command line; the kernel takes 2 MiB unless it was told otherwise */
#define LIMIT_LOG_LINE (16 * KIB) /* bytes; longer lines are cut with a mark */

/* Continuous sync. */
#define LIMIT_SYNC_NAME		   (16 * KIB) /* bytes of a relative path, percent-encoded */
#define LIMIT_SYNC_JOURNAL_PENDING (4 * MIB)  /* bytes not written yet, on a full disk */
#define LIMIT_SYNC_LINE		   (64 * KIB) /* bytes of one line of a manifest */
#define LIMIT_SYNC_PROCS	   1024	      /* writers watched at a time, one descriptor each */

#endif
