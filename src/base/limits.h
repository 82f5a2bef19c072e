/*
 * All limits of penstock in one place, each with its unit and its reason. Every buffer, queue or
 * count must have a limit, either here or next to its only user. docs/ARCHITECTURE.md says what
 * happens when a limit is reached.
 */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* The tables are aligned by hand, block by block. */
/* clang-format off */

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* Limits of the protocol (Amazon S3 User Guide, "Amazon S3 multipart upload limits"). */
#define LIMIT_S3_PARTS	    10000 /* parts of one multipart upload */
#define LIMIT_S3_PART_MIN   (5 * MIB) /* bytes; the last part may be smaller */
#define LIMIT_S3_PART_MAX   (5 * GIB) /* bytes */
#define LIMIT_S3_PUT_MAX    (5 * GIB) /* bytes of one PUT or CopyObject */
#define LIMIT_S3_OBJECT_MAX ((uint64_t)5 << 40) /* bytes */
#define LIMIT_S3_KEY	    1024 /* bytes of UTF-8 */
#define LIMIT_S3_METADATA   2048 /* bytes of all x-amz-meta- names and values */
#define LIMIT_S3_PUT_HEADERS (8 * KIB) /* bytes of all headers of an object, metadata included */
/* consecutive pages of a listing without a key; a store that filters its keys may send some */
#define LIMIT_S3_EMPTY_PAGES 1000
#define LIMIT_S3_CORS_RULES 100 /* rules of a bucket */
#define LIMIT_S3_CORS	    (64 * KIB) /* bytes of the document with the CORS rules */
#define LIMIT_S3_CORS_EXPOSED (8 * KIB) /* bytes of the headers that a rule exposes */
#define LIMIT_S3_LIFECYCLE_RULES 1000 /* rules of a bucket */
#define LIMIT_S3_REPLICATION_RULES 1000 /* rules of a bucket, as AWS documents it */
/* bytes of the document with the lifecycle, notification or replication rules of a bucket; AWS
 * documents this maximum for replication rules */
#define LIMIT_S3_RULES	    (2 * MIB)
#define LIMIT_S3_CORS_NAMES 200 /* headers that a preflight asks for */
#define LIMIT_S3_CORS_REQUEST (8 * KIB) /* bytes of the header names in a preflight */
#define LIMIT_S3_LIST_KEYS  1000 /* keys of one list reply, or of one multi-delete */

/* Our own choices within these limits. */
/* bytes, as in the SDKs; large enough to hide a round trip */
#define LIMIT_S3_PART_DEFAULT (8 * MIB)
#define LIMIT_SIGV4_PARAMETERS 128 /* headers or query parameters of one signed request */
/* bytes of the list of signed headers: 2 KiB of metadata whose names begin with x-amz-meta- */
#define LIMIT_SIGV4_NAMES      (4 * KIB)
/* bytes of all headers and the query, percent-encoded (up to three times as long) */
#define LIMIT_SIGV4_TEXT       (192 * KIB)
#define LIMIT_CHUNKED_LINE     8192 /* bytes of one line between chunks, or of one trailer */
#define LIMIT_CHUNKED_TRAILERS 16 /* trailer headers of one request; SDKs send 1 or 2 */
#define LIMIT_CHUNKED_CHUNK    (5 * GIB) /* bytes of one chunk; chunks are streamed, not buffered */

/* Text from outside. */
#define LIMIT_HTTP_HEADERS     (64 * KIB) /* bytes of one reply's or request's headers */
#define LIMIT_HTTP_ERROR_BODY  (64 * KIB) /* bytes of an error reply that are kept */
#define LIMIT_XML_BODY	       (8 * MIB) /* bytes: 1,000 keys of 1,024 bytes, escaped */
/* bytes of the XML of tags, a retention, a legal hold or 100 grants; 10 tags have 384 characters
 * each, escaped */
#define LIMIT_XML_NOTE	       (64 * KIB)
#define LIMIT_XML_DEPTH	       16 /* nested elements; S3 uses 5 */
#define LIMIT_CREDENTIALS_FILE (1 * MIB) /* bytes of a shared config or credentials file */
#define LIMIT_METADATA_REPLY   (64 * KIB) /* bytes of a reply from a credential source */
/* bytes: the largest struct size that a caller of the library may state */
#define LIMIT_LIBRARY_STRUCT   4096
/* bytes of a Google key file, or of a token reply; usually 3 kB */
#define LIMIT_GOOGLE_KEY       (64 * KIB)
/* seconds of an access token's lifetime; usually an hour */
#define LIMIT_TOKEN_LIFE_S     (7 * 24 * 3600)
#define LIMIT_COMMIT	       (32 * MIB) /* bytes of a checkpoint's COMMIT.json: 200,000 files */
#define LIMIT_CHECKPOINT_FILES 200000 /* files of one checkpoint; 10,000 ranks with 20 each */
#define LIMIT_CHECKPOINT_NAME  768 /* bytes of a file name in a checkpoint; an S3 key has 1,024 */
#define LIMIT_CHECKPOINT_METRICS 1000 /* metrics of one checkpoint */
/* ranks that save together; each has a file until the checkpoint is complete */
#define LIMIT_CHECKPOINT_RANKS 100000
#define LIMIT_CHECKPOINT_LIST (4 * MIB) /* bytes of the names of checkpoints being removed */
#define LIMIT_CHECKPOINTS      100000 /* checkpoints in one directory */
/* bytes of a JSON document that is read whole; the parsed document takes several times as much
 * memory */
#define LIMIT_JSON_DOCUMENT    (64 * MIB)

/* Archives; the total size is limited by the free space. */
#define LIMIT_ARCHIVE_MEMBERS 10000000 /* members of one archive */
#define LIMIT_ARCHIVE_DEPTH   128 /* directories above a member */
#define LIMIT_ARCHIVE_RATIO   500 /* unpacked bytes per byte of the archive */
/* unpacked bytes below which the ratio is not checked: zip bombs exceed both limits, data sets do
 * not */
#define LIMIT_ARCHIVE_RATIO_FROM (256 * MIB)
#define LIMIT_ARCHIVE_QUEUE   (4 * MIB) /* bytes queued between two threads of an unpacker */
#define LIMIT_ARCHIVE_DIRS    (16 * MIB) /* bytes of directory names whose times are restored */

/* Clusters. */
/* hosts in one host list; the largest clusters have 10,000 */
#define LIMIT_HOSTLIST	     16384
#define LIMIT_HOST_NAME	     255 /* bytes of a host name, as in DNS */
/* bytes of output of a Slurm command; 10,000 nodes are 1 MB */
#define LIMIT_SLURM_REPLY    (4 * MIB)
#define LIMIT_SLURM_JOB	     (1 * MIB) /* bytes of the record of a batch job */
/* bytes that describe a rank in a container, in one variable; Linux allows 128 KiB per variable */
#define LIMIT_MPI_TASK	     (120 * KIB)
/* bytes that describe a task on another node; mostly its environment */
#define LIMIT_SLURM_TASK     (8 * MIB)

/* Container images. */
/* bytes of a manifest or configuration; registries have the same limit */
#define LIMIT_IMAGE_DOCUMENT (4 * MIB)
/* layers of one image: as many as overlayfs accepts in one page of options; Docker's limit is
 * 127 */
#define LIMIT_IMAGE_LAYERS   120
#define LIMIT_IMAGE_WORDS    4096 /* words of an entry point, or variables, of an image */
#define LIMIT_IMAGE_LOGIN    (64 * KIB) /* bytes of a user, password or token */
#define LIMIT_IMAGE_PARALLEL 6 /* layers pulled at a time, two threads each */
/* bytes of a layer queued between the network and the unpacker */
#define LIMIT_IMAGE_QUEUE    (1 * MIB)
#define LIMIT_IMAGE_BLOCK    (128 * KIB) /* bytes of a layer decompressed at a time */

/* Staging. */
#define LIMIT_STAGE_PARALLEL 4 /* inputs staged at a time; each fetches several ranges or objects */
/* bytes of the recorded diff between a context and its commit; a patch, not data */
#define LIMIT_CONTEXT_DIFF   (4 * MIB)
/* bytes of the list of a context's files; enough for about four million files */
#define LIMIT_CONTEXT_LIST   (1024 * MIB)
/* bytes of a context that is published for other machines */
#define LIMIT_CONTEXT_PUBLISHED (256 * MIB)
/* objects or files of one input that are unpacked individually */
#define LIMIT_STAGE_UNPACK   100000

/* Output of steps that penstock reads. */
/* bytes of the file named by $DEEPSQUARE_ENV; exec allows 2 MiB in all */
#define LIMIT_ENV_FILE (1 * MIB)

#define LIMIT_MODEL_FILES  100000 /* objects below the prefix of a deployment */
#define LIMIT_DEPLOY_STATE (4 * MIB) /* bytes of the state of a deployment's replicas */
#define LIMIT_STATE_OBJECT (64 * KIB) /* bytes of the state that a run keeps next to its output */
/* concurrent iterations of one loop; each has a process and descriptors */
#define LIMIT_RUN_PARALLEL 256
#define LIMIT_RUN_PROGRESS (256 * MIB) /* bytes of the list of finished steps and iterations */
/* bytes of disk reserved for a run's final records and its log */
#define LIMIT_RUN_RESERVE (1 * MIB)
#define LIMIT_SCREEN	  (256 * KIB) /* bytes of output that wait for a slow terminal */
#define LIMIT_LOG_WAITING (64 * KIB) /* bytes of a run's log held while the disk is full */
#define LIMIT_OUTPUT_CHUNK (128 * KIB) /* bytes of step output held while secrets are masked */

/* The HTTP engine. */
#define LIMIT_HTTP_CONNECTIONS	    128 /* connections at a time; each has the buffers below */
/* connections at a time to one host; S3 front ends accept as many */
#define LIMIT_HTTP_HOST_CONNECTIONS 64
#define LIMIT_HTTP_IDLE_HANDLES	    32 /* idle handles kept for reuse with their buffers */
#define LIMIT_HTTP_HOSTS	    64 /* hosts remembered without a request in progress */
/* bytes of the buffer of a connection for the direction with the data */
#define LIMIT_HTTP_BUFFER	    (256 * KIB)
/* like LIMIT_HTTP_BUFFER, for a run and for verbs that read the output of a run: a supervisor with
 * 48 connections stays below 32 MiB */
#define LIMIT_HTTP_RUN_BUFFER	    (128 * KIB)
/* bytes of the buffer for the reply to a request that sends data */
#define LIMIT_HTTP_REPLY_BUFFER	    (16 * KIB)
/* connections of a host that move bulk data; other connections are left for short requests */
#define LIMIT_HTTP_BULK_CONNECTIONS 48
/* bytes per second: the lowest --limit-rate */
#define LIMIT_RATE_MIN		    (4 * KIB)
/* bytes per second of --limit-rate for each parallel request */
#define LIMIT_RATE_EACH		    (64 * KIB)
#define LIMIT_HTTP_RETRY_AFTER	    60 /* seconds of a server's Retry-After that are honoured */
/* bytes of an interrupted reply that count as progress */
#define LIMIT_HTTP_PROGRESS	    (64 * KIB)
/* ms beyond the mean wait for a reply after which a request is sent again */
#define LIMIT_HTTP_RESEND_MS	    700
/* ms beyond the mean wait after which a read of samples is sent again: a batch waits for the read,
 * and the repetition costs little */
#define LIMIT_READS_RESEND_MS	    100
/* connections of one thread that reads samples over plain HTTP */
#define LIMIT_PLAIN_CONNECTIONS	    64
/* bytes of the buffer for the head of a reply over plain HTTP, and for the bytes of the body that
 * arrive with the head */
#define LIMIT_PLAIN_HEAD	    (16 * KIB)
/* bytes of a reply or a file that are copied at a time to several places: small enough to stay in
 * the CPU's cache */
#define LIMIT_PLAIN_CHUNK	    (256 * KIB)
/* reads in one request to penstock's store */
#define LIMIT_READ_MANY		    4096
/* bytes of the objects in the reply to a request with several reads; reads beyond the limit use
 * GET, which occupies no worker of the server while the reply is sent */
#define LIMIT_READ_MANY_BYTES	    (8 * MIB)
#define LIMIT_READS		    4096 /* reads of objects in one call of reads_run() */
/* bytes of the request heads of LIMIT_READS reads, with long keys and a session token */
#define LIMIT_READS_HEADS	    (64 * MIB)
/* ms for which a reader of samples waits for an unavailable store: a failed training run costs
 * more */
#define LIMIT_READS_PATIENCE_MS	    (5 * 60 * 1000)
/* ms for which opening a data set or a web resource waits for an unavailable server, whose address
 * may be wrong */
#define LIMIT_OPEN_PATIENCE_MS	    (30 * 1000)

/* Transfers. */
#define LIMIT_TIDY_MS	 10000 /* ms to delete many objects after a cancelled call */
#define LIMIT_PUT_SINGLE (64 * MIB) /* bytes; larger files are uploaded in parts */
#define LIMIT_GET_SINGLE (32 * MIB) /* bytes; larger objects are downloaded in ranges */
#define LIMIT_GET_RANGE	 (8 * MIB) /* bytes of one range of a download */
/* bytes of a range held in memory before they are written; divides GET_BLOCK_MAX */
#define LIMIT_GET_GATHER (128 * KIB)
#define LIMIT_GET_WRITE_AHEAD 16 /* gathered pieces of one download that wait to be written */
#define LIMIT_GET_LINGER_MS 50 /* maximum ms that a gathered piece waits for further pieces */
/* requests of one transfer that run or wait in the engine, about 10 KiB each */
#define LIMIT_TRANSFER_AHEAD 48
/* bytes held by all streams of a process, so that the process stays below 64 MB */
#define LIMIT_STREAM_MEMORY (40 * MIB)
/* bytes of one piece of an object that is delivered in order */
#define LIMIT_STREAM_RANGE (4 * MIB)
/* Files that a program reads at any offset. */
#define LIMIT_FILE_AHEAD (32 * MIB) /* bytes read ahead, if the program does not choose */
#define LIMIT_FILE_AHEAD_MAX (1 * GIB) /* bytes read ahead */
/* maximum and minimum of the bytes of a request that reads ahead */
#define LIMIT_FILE_BLOCK (4 * MIB)
#define LIMIT_FILE_BLOCK_MIN (128 * KIB)
/* bytes before the position that are kept, for a program that seeks back a little */
#define LIMIT_FILE_BEHIND (256 * KIB)
/* maximum and minimum of the bytes of one of the requests for a large read */
#define LIMIT_FILE_PIECE (8 * MIB)
#define LIMIT_FILE_PIECE_MIN (2 * MIB)
/* threads that read for all files of a handle; each has its connections */
#define LIMIT_FILE_THREADS 12
/* threads of LIMIT_FILE_THREADS that may read ahead; the others serve reads that a program waits
 * for */
#define LIMIT_FILE_THREADS_AHEAD 8
#define LIMIT_FILE_READERS 16 /* sets of connections kept between reads */
#define LIMIT_FETCH_CHUNK (8 * MIB) /* bytes of one range of an HTTP input */
#define LIMIT_FETCH_CHUNK_MIN (4 * KIB)
#define LIMIT_FETCH_BLOCK (256 * KIB) /* bytes of a download read back and delivered at a time */
/* bytes of freed memory that the verbs keep instead of returning it to the kernel */
#define LIMIT_TRANSFER_KEPT (16 * MIB)
#define LIMIT_TRANSFER_KEPT_BLOCK (1 * MIB) /* bytes; larger freed blocks are returned at once */
/* heaps that the threads of the verbs share: memory that was freed in one heap is not reused by
 * another heap */
#define LIMIT_TRANSFER_ARENAS 2
/* bytes of items in flight or waiting, with their small bodies */
#define LIMIT_BULK_MEMORY (12 * MIB)
#define LIMIT_BULK_HELD (64 * KIB) /* bytes of a body that is held in memory whole */
#define LIMIT_BULK_SMALL (8 * MIB) /* bytes; larger items get a thread */
#define LIMIT_BULK_FLIGHTS 64 /* concurrent requests for small items */
#define LIMIT_BULK_WORKERS 8 /* threads, one blocking call each */
#define LIMIT_BATCH_JOBS  32 /* maximum number of lines of a batch that run at the same time */
#define LIMIT_BATCH_AHEAD 64 /* lines of a batch that are read and not finished */
#define LIMIT_BATCH_HELD (64 * KIB) /* bytes of a line's output, held until all earlier lines end */
/* bytes; smaller objects are sent whole, because a delta needs two more requests, which cost as
 * much */
#define LIMIT_DELTA_MIN	 (16 * MIB)
/* days for which the sent version of an object is remembered; the record has 128 bytes per MiB of
 * the object, at most 1 MiB */
#define LIMIT_DELTA_DAYS 30
/* days without a new part before the upload is aborted, because its parts cost money */
#define LIMIT_UPLOAD_JOURNAL_DAYS 7
/* bytes: a line of 50 bytes for each block of the largest object */
#define LIMIT_TRANSFER_JOURNAL (32 * MIB)
/* bytes of listing pages that wait to be read or are in flight */
#define LIMIT_LIST_AHEAD (16 * MIB)
/* bytes of a path below a walked directory: the kernel's limit */
#define LIMIT_WALK_PATH (4 * KIB - 1)
/* bytes of one directory's names in memory; further names go to a file */
#define LIMIT_WALK_NAMES (8 * MIB)
#define LIMIT_WALK_MEMORY (8 * MIB) /* bytes of pending names in the parent directories */

/* Metrics of a training run. */
#define LIMIT_METRICS_SERIES 10000
#define LIMIT_METRICS_REPEATS 256 /* times that a resumed run repeated steps, for one metric */
#define LIMIT_METRICS_POINTS (1 << 20) /* points of one series; at the limit, half are dropped */
#define LIMIT_METRICS_RECORD (1 * MIB) /* bytes; larger records (pictures, graphs) are skipped */
#define LIMIT_METRICS_PENDING (64 * MIB) /* bytes of a record and the block that completes it */
#define LIMIT_METRICS_DATABASE (62 * MIB) /* bytes of a database; some 300,000 points */
#define LIMIT_METRICS_COLUMNS 4096 /* columns of a table */
#define LIMIT_METRICS_DEPTH 4 /* levels of nested objects in a line */
#define LIMIT_METRICS_NAME 1024 /* bytes of a name that are kept */

/* Data sets. */
#define LIMIT_DATASET_SHARDS  50000000 /* objects or files; 100 bytes of memory each */
/* shards of a data set on the web without an index: opening the data set takes a request for each
 * shard */
#define LIMIT_DATASET_WEB	  100000
#define LIMIT_DATASET_NAMES   (8 * GIB) /* bytes of the names and ETags of the shards */
#define LIMIT_DATASET_INDEX   (16 * GIB) /* bytes of the index of a data set */
/* ms; the result of a scan that took longer is kept in the home */
#define LIMIT_DATASET_SCAN_MS 100
#define LIMIT_DATASET_KEPT_DAYS 30 /* days that the result of a scan is kept after its last use */
/* bytes; the shards of a larger data set are scanned by one process at a time */
#define LIMIT_DATASET_SCAN_MIN (64 * MIB)
/* ms for which other processes wait for the scanning process, which may be stopped */
#define LIMIT_DATASET_CLAIM_MS 60000
#define LIMIT_DATASET_BYTES   (4 * GIB) /* bytes of a batch */
#define LIMIT_DATASET_FILES   32 /* files that a reader keeps open */
#define LIMIT_DATASET_READERS 32 /* readers kept between calls; each has its connections */
#define LIMIT_DATASET_THREADS 64 /* threads that read batches ahead */
#define LIMIT_DATASET_SCANS   16 /* shards scanned for samples at a time */
/* blocks of 256 KiB that a reader fetches into the cache at a time */
#define LIMIT_DATASET_FETCH   64
/* ms for which a reader waits for a block that another process fetches: that process may be
 * stopped */
#define LIMIT_DATASET_WAIT_MS 30000
/* files of the cache that are sorted to remove the oldest; 32 bytes of memory each */
#define LIMIT_DATASET_CACHE_FILES 4000000
/* bytes of a compressed shard, and bytes of its content; writers usually make shards of 64 MiB */
#define LIMIT_DATASET_PACKED  (1 * GIB)
/* bytes of unpacked shards of a data set in memory: 32 usual shards, or two of the largest */
#define LIMIT_DATASET_UNPACKED (2 * LIMIT_DATASET_PACKED)
#define LIMIT_DATASET_GAP     (64 * KIB) /* bytes between two samples that share a request */
#define LIMIT_DATASET_JOIN    (2 * MIB) /* bytes of a request that several samples share */

/* JPEG images that are decoded. */
/* pixels: 8192 x 8192, for which a progressive image takes 400 MB of coefficients */
#define LIMIT_JPEG_PIXELS (64U << 20)
#define LIMIT_JPEG_SCANS  100 /* scans of a progressive image; encoders make 10 */
#define LIMIT_JPEG_SIDE	  8192U /* pixels of a side of the result */

/* Formats of data sets. */
/* fields of one sample; tables of features have 40, other samples fewer than 10 */
#define LIMIT_FORMAT_FIELDS 256
#define LIMIT_FORMAT_DIMS   8 /* dimensions of an array; video batches have 5 */
#define LIMIT_FORMAT_NAME   1024 /* bytes of a field's name, or of a shard's */
#define LIMIT_SAMPLE	    (2 * GIB) /* bytes of one sample; volumes of a scanner have 1 GiB */
/* bytes of an index.json of MosaicML or litData: 250,000 shards */
#define LIMIT_FORMAT_INDEX  (128 * MIB)
/* maximum number of bytes that a scan reads at a time: large enough to hide a round trip */
#define LIMIT_SCAN_PIECE    (4 * MIB)
/* bytes between two headers that a scan reads through; it skips larger gaps */
#define LIMIT_SCAN_SKIP	    (256 * KIB)
#define LIMIT_TAR_NAME	    (4 * KIB) /* bytes of a member's name; the kernel's limit of a path */
#define LIMIT_TAR_HEADERS   (64 * KIB) /* bytes of extended headers of one member; usually 1,024 */
/* bytes of the index of a tar: four million members with short names */
#define LIMIT_TAR_INDEX	    (256 * MIB)
#define LIMIT_NPY_HEADER    (64 * KIB) /* bytes of the description in a .npy; usually 128 */

/* A workflow. */
#define LIMIT_WORKFLOW_FILE (4 * MIB) /* bytes */
#define LIMIT_WORKFLOW_RECORD (8 * MIB) /* bytes of the indented copy that a run keeps */
#define LIMIT_WORKFLOW_CANONICAL (64 * MIB) /* bytes of a workflow with all aliases expanded */
/* bytes that the templates of all modules of a workflow read and produce; the produced bytes are
 * part of LIMIT_WORKFLOW_RECORD */
#define LIMIT_WORKFLOW_TEMPLATES (16 * MIB)
#define LIMIT_WORKFLOW_DEPTH 64 /* nested maps and lists */
#define LIMIT_WORKFLOW_NODES 200000 /* values; stops alias bombs */
#define LIMIT_WORKFLOW_ANCHORS 1000 /* YAML anchors; each alias searches them */
/* lines with a stray comma at the end; the file is read again for each of these lines */
#define LIMIT_WORKFLOW_STRAY_COMMAS 8
#define LIMIT_WORKFLOW_NAME 64 /* bytes of a run's name; it is part of paths */
#define LIMIT_WORKFLOW_PRICE 12 /* characters of the price of an hour */
#define LIMIT_TRACKING_NAME 250 /* bytes of the name of an experiment */
/* bytes of a reply of MLflow, which lists every metric and parameter of a run */
#define LIMIT_TRACKING_REPLY (16 * MIB)
/* bytes of the copy of a run's metrics at MLflow: some million points */
#define LIMIT_TRACKING_MIRROR (256 * MIB)
/* ms: upper bound of the back-off, unless the first pause is longer; longer outages need a
 * person */
#define LIMIT_RETRY_PAUSE_MS (10 * 60 * 1000)
/* seconds of a wait or grace period that the environment sets */
#define LIMIT_WAIT_S (7 * 24 * 3600)
/* attempts after failures; more would be an unattended loop */
#define LIMIT_WORKFLOW_RETRIES 1000
/* free ports allocated to a run; each is a variable of its steps */
#define LIMIT_WORKFLOW_PORTS 64
#define LIMIT_WORKFLOW_DURATION (366LL * 24 * 3600 * 1000) /* ms of a time limit */
#define LIMIT_NOTICE_SOURCES 16 /* notice sources of one run; each has a thread */
/* processes and threads of a step without `maxProcesses`; stops fork bombs */
#define LIMIT_STEP_PROCESSES 4096
/* processes and threads for each CPU of a step without `maxProcesses`, if the product is larger
 * than LIMIT_STEP_PROCESSES: data loaders have threads */
#define LIMIT_STEP_PROCESSES_PER_CPU 512
#define LIMIT_WORKFLOW_PREFIX 512 /* bytes of an S3 path; leaves half a key for file names */
/* iterations of one loop; a program with more should loop by itself */
#define LIMIT_WORKFLOW_ITERATIONS 1000000
#define LIMIT_WORKFLOW_ERRORS 100 /* mistakes reported at a time */
/* Claims on the machine's resources; other users write these files, too. */
#define LIMIT_CLAIM_FILE  (64 * KIB) /* bytes of one claim: 1,024 CPU numbers take 5 KiB */
#define LIMIT_CLAIM_NAME  128 /* bytes shown of a run's name or id written by another user */
#define LIMIT_CLAIM_FILES 4096 /* runs of a machine that hold or wait for a claim */

/* The object store and its server. */
#define LIMIT_STORE_CACHE_BYTES (128 * MIB) /* bytes of metadata and inline bodies kept for GET */
/* objects; each may hold a mapping, of which Linux allows 65,530 */
#define LIMIT_STORE_CACHE_ENTRIES 32768
/* bytes of snapshots of objects with hundreds of parts or more. The snapshots of an account may
 * take at most as many bytes as they leave free: 140 snapshots of an object with 10,000 parts. */
#define LIMIT_STORE_SNAPSHOTS (512 * MIB)
/* days for which an unfinished multipart upload without a new part is kept */
#define LIMIT_STORE_UPLOAD_DAYS 7
/* Bytes of a disk that only deletions may use, including the size of the database's log, which can
 * grow to 16.5 MB. */
#define LIMIT_STORE_RESERVE (20 * MIB)
/* bytes of a value that a policy compares with a pattern; the comparison of a longer value could
 * take seconds */
#define LIMIT_POLICY_VALUE 2048
/* steps, such as the comparison of a character, of all policy decisions of a request; 4 million
 * steps take about 5 ms, during which the event loop serves no other client */
#define LIMIT_POLICY_STEPS (4 * MIB)
/* further steps for each decision: a request may delete or read thousands of keys */
#define LIMIT_POLICY_STEPS_KEY (32 * KIB)
/* bytes of the texts of all parsed policies of users and sessions; parsed, they take up to eight
 * times as much memory */
#define LIMIT_SERVER_POLICIES (8 * MIB)
/* bytes of the configurations of all buckets, for each kind that the server keeps parsed in memory;
 * parsed, they take up to five times as much. The configurations of an account may take at most as
 * many bytes as they leave free. */
#define LIMIT_SERVER_RULES (64 * MIB)
/* bytes that a configuration counts in LIMIT_SERVER_RULES, in addition to its text */
#define LIMIT_SERVER_RULES_EACH (1 * KIB)
/* bytes of access logs of all buckets that wait in memory to be delivered; the logs of an account
 * may take at most as many bytes as they leave free */
#define LIMIT_SERVER_LOG (32 * MIB)
/* bytes of new lines after which logs are delivered early: half of the maximum of one account */
#define LIMIT_SERVER_LOG_FRESH (LIMIT_SERVER_LOG / 4)
/* bytes of one log object */
#define LIMIT_SERVER_LOG_OBJECT (1 * MIB)
#define LIMIT_S3_NOTIFICATION_RULES 100 /* rules of a bucket, as AWS documents it */
/* pending events of all webhooks, each of which has an equal share; later events are dropped, and
 * counted */
#define LIMIT_NOTIFY_EVENTS 100000
/* versions that are sent to a destination at a time; versions of the same key are sent one after
 * the other. Stored events contain a lane number below this limit, so never lower the limit. */
#define LIMIT_REPLICATION_LANES 16
/* refusals of one version by a reachable destination after which the version is given up */
#define LIMIT_REPLICATION_REFUSALS 10
/* deliveries of one event that its webhook refuses before the event is dropped */
#define LIMIT_NOTIFY_REFUSALS 10
/* versions that one step of the lifecycle reads, and may delete in one transaction */
#define LIMIT_LIFECYCLE_STEP 100
#define LIMIT_STORE_KEY_FILE (64 * KIB) /* bytes of the file of master keys */
#define LIMIT_STORE_MASTER_KEYS 16 /* master keys: the current key and older keys */
#define LIMIT_STORE_LAYOUT (4 * MIB) /* bytes: 10,000 parts of a few pieces each */
/* buckets of one page, as AWS documents it */
#define LIMIT_S3_LIST_BUCKETS 10000
#define LIMIT_LIST_REPLY (16 * MIB) /* bytes: 1,000 keys of 1,024 bytes, escaped, with ETags */
#define LIMIT_SERVER_WORKERS 16 /* threads that wait for the disk */
/* workers that may read the bytes of long copies at the same time: a copy of 5 GiB takes half a
 * minute */
#define LIMIT_SERVER_LONG_JOBS 8
/* bytes that a copy reads without a slot for long jobs; a few milliseconds */
#define LIMIT_SERVER_SHORT_COPY (1 * MIB)
/* The next two limits are for each daemon: one daemon serves TCP, another one the Unix socket. */
#define LIMIT_SERVER_LOOPS 8 /* event loops; one per processor, at least 2 */
/* open connections; three quarters of the descriptors of the process if that number is lower */
#define LIMIT_SERVER_CONNECTIONS 32768
/* connections kept free for clients with valid keys, at most a quarter of all; our own client opens
 * 64 connections to one host */
#define LIMIT_SERVER_ROOM 64
/* A TCP connection without a valid signature in a header is closed if it neither begins a request
 * nor moves these bytes within these seconds. The head of a request has fewer bytes, so a client
 * that sends a head slowly is disconnected. */
#define LIMIT_SERVER_STRANGER_SECONDS 30
#define LIMIT_SERVER_STRANGER_BYTES   (64 * KIB)
/* bytes of the buffers of a connection, which must hold all headers of a request, and which are
 * cleared for each request */
#define LIMIT_SERVER_CONNECTION (64 * KIB)
/* bytes in memory of documents and replies that are longer than LIMIT_SERVER_CONNECTION; half of
 * the limit, the maximum of one account, holds 1,500 lists of 1,000 keys */
#define LIMIT_SERVER_HELD (1 * GIB)
#define LIMIT_SERVER_IDLE_SECONDS 60 /* seconds without a byte received or sent on a connection */
/* connections of clients that read the metrics. One address may have a quarter of them. While more
 * than half are open, the oldest connection is closed early. */
#define LIMIT_MONITOR_CONNECTIONS 64
/* seconds in which a client that reads the metrics must begin a request or move
 * LIMIT_SERVER_STRANGER_BYTES */
#define LIMIT_MONITOR_SECONDS 10
#define LIMIT_UI_CONNECTIONS 64 /* connections of browsers; each has a thread */
#define LIMIT_UI_VISITOR 48 /* connections of one address; leaves some for other addresses */
#define LIMIT_UI_SECONDS 60 /* seconds without a byte on the connection of a browser */
#define LIMIT_UI_REPLY (64 * MIB) /* bytes of JSON */
#define LIMIT_UI_ROWS 10000 /* objects of a list in a reply */
/* earlier lists of runs that are remembered: one for each page that polls, and some spare */
#define LIMIT_UI_LISTS 16
#define LIMIT_UI_PIECE (1 * MIB) /* bytes of a log in a reply */
#define LIMIT_UI_PART (8 * MIB) /* bytes of a file that a browser sends in one request */
#define LIMIT_SERVER_DISCARD (16 * MIB) /* bytes of a rejected body that are still read */
/* bytes of a body that is held in memory until it is complete, and then written in one piece */
#define LIMIT_STORE_HELD (512 * KIB)
/* bodies held until they are complete; further bodies are written as they arrive */
#define LIMIT_STORE_HELD_BODIES 32
/* files that wait to be unlinked; at the limit, a thread that adds a file unlinks some of them */
#define LIMIT_STORE_UNLINKS 4096
/* bytes of a body that is hashed, together with other bodies, once the body is complete */
#define LIMIT_SERVER_LATE_HASH (32 * MIB)
/* bytes of a body whose bucket is looked up only when the body is stored */
#define LIMIT_SERVER_LATE_BUCKET (1 * MIB)
/* bytes of a browser's form before its file, or after the file; AWS allows 20 kB of fields */
#define LIMIT_FORM (32 * KIB)
#define LIMIT_FORM_FIELDS 100 /* fields before the file; forms have about 15 */
#define LIMIT_SERVER_IGNORED_BODY (64 * KIB) /* bytes of a body where none is expected */

/* Strings made by penstock. */
#define LIMIT_SECRETS  (1 * MIB) /* bytes of the file with all secrets of a user */
#define LIMIT_STRING   (1 * MIB) /* bytes of one command, path, message or URL */
/* bytes of a command line; the kernel's default limit is 2 MiB */
#define LIMIT_EXEC_WORDS (4 * MIB)
#define LIMIT_LOG_LINE (16 * KIB) /* bytes; a longer line is replaced by a notice */

/* Continuous sync. */
#define LIMIT_SYNC_NAME		   (16 * KIB) /* bytes of a relative path, percent-encoded */
#define LIMIT_SYNC_JOURNAL_PENDING (4 * MIB) /* bytes that wait because the disk is full */
#define LIMIT_SYNC_LINE		   (64 * KIB) /* bytes of one line of a manifest */
#define LIMIT_REPLACED		   1000000 /* copies of replaced objects listed at a time */
#define LIMIT_SYNC_PROCS	   1024 /* writers watched at a time, one descriptor each */

/* The order of an epoch. */
/* samples of a data set, or positions of an epoch: as many as a JSON integer holds */
#define LIMIT_DATASET_SAMPLES ((uint64_t)INT64_MAX)
#define LIMIT_DATASET_RANKS   (1 << 20) /* ranks of a training run; the largest have 200,000 GPUs */
#define LIMIT_DATASET_WORKERS 4096 /* processes of one rank that load data, one per CPU */
/* samples of a rank's batch; its indices are in memory */
#define LIMIT_DATASET_BATCH   (1 << 24)
#define LIMIT_DATASET_SETS    1024 /* sets of one mix; the largest published mixes have hundreds */
/* sum of the weights of a mix: the product of two smaller numbers fits into 64 bits */
#define LIMIT_DATASET_WEIGHTS ((uint64_t)1 << 32)
#define LIMIT_DATASET_STATE   (4 * KIB) /* bytes of the saved place in a data set; about 150 */

#endif
