/* Every statement of the store: SQL(name, text). Included only by internal.h and db.c. */

/* The headers of an object that is not the version "null" begin with the pair ":version". */
#define IS_NULL_VERSION "substr(headers,1,9) IS NOT x'3a76657273696f6e00'"

/* The bytes of a small body, their length, and the id of the body's row, which is 0 for a body
 * without a row. SQLite computes the length without reading the bytes. */
#define BODY_OF(row, stored, own)                                                                  \
	"CASE typeof(" row ".body) WHEN 'integer' THEN (SELECT " stored                            \
	" FROM bodies WHERE id=" row ".body) ELSE " own " END"
#define OBJECT_BODY    BODY_OF("o", "bytes", "o.body")
#define VERSION_BODY   BODY_OF("v", "bytes", "v.body")
#define OBJECT_LENGTH  BODY_OF("o", "length(bytes)", "length(o.body)")
#define VERSION_LENGTH BODY_OF("v", "length(bytes)", "length(v.body)")
#define BODY_ID	       "CASE typeof(body) WHEN 'integer' THEN body ELSE 0 END"

SQL(BEGIN, "BEGIN IMMEDIATE")
SQL(BEGIN_READ, "BEGIN")
SQL(COMMIT, "COMMIT")
SQL(ROLLBACK, "ROLLBACK")
SQL(META_GET, "SELECT value FROM meta WHERE name=?1")
SQL(META_SET, "INSERT OR REPLACE INTO meta(name,value) VALUES(?1,?2)")

SQL(BUCKET_ID, "SELECT id,versioning FROM buckets WHERE name=?1")
#define BUCKET_OWNER "(SELECT value FROM configs WHERE bucket=b.id AND name='owner')"
SQL(BUCKET_GET,
	"SELECT id,created,(SELECT value FROM meta WHERE name='region/'||?1),versioning," BUCKET_OWNER
	" FROM buckets b WHERE name=?1")
SQL(BUCKET_SET_VERSIONING, "UPDATE buckets SET versioning=?2 WHERE id=?1")
SQL(BUCKET_ADD, "INSERT INTO buckets(name,created) VALUES(?1,?2)")
/* False for a bucket that a killed import has left: its name begins with '.' (IMPORT_BUCKET). */
#define IS_COMPLETE "b.name NOT LIKE '.%'"
/* ?1 is NULL for buckets without an owner. */
#define IS_OF_OWNER "CAST(" BUCKET_OWNER " AS TEXT) IS ?1"
SQL(BUCKET_LIST, "SELECT b.name,b.created,m.value," BUCKET_OWNER " FROM buckets b LEFT JOIN meta m "
		 "ON m.name='region/'||b.name WHERE " IS_COMPLETE " AND " IS_OF_OWNER
		 " AND b.name>coalesce(?2,'') AND (?3 IS NULL OR substr(b.name,1,length(?3))=?3) "
		 "AND (?4 IS NULL OR coalesce(m.value,'')=?4) ORDER BY b.name LIMIT ?5")
SQL(BUCKET_COUNT, "SELECT count(*) FROM buckets b WHERE " IS_OF_OWNER)
SQL(REGION_SET, "INSERT OR REPLACE INTO meta(name,value) VALUES('region/'||?1,?2)")
SQL(REGION_DROP, "DELETE FROM meta WHERE name='region/'||?1")
SQL(BUCKET_USED, "SELECT 1 WHERE EXISTS(SELECT 1 FROM objects WHERE bucket=?1) OR "
		 "EXISTS(SELECT 1 FROM versions WHERE bucket=?1)")
SQL(BUCKET_DELETE, "DELETE FROM buckets WHERE id=?1")

SQL(RECORD_SET, "INSERT OR REPLACE INTO meta(name,value) VALUES('iam/'||?1,?2)")
SQL(RECORD_DROP, "DELETE FROM meta WHERE name='iam/'||?1")
SQL(RECORD_LIST, "SELECT substr(name,5),value FROM meta WHERE name>='iam/' AND name<'iam0'")

#define OBJECT_COLUMNS                                                                                        \
	"SELECT o.size,o.modified,o.etag,o.ck_algorithm,o.ck_type,o.ck_value,o.headers,o.layout," OBJECT_BODY \
	",b.versioning,0,0 FROM objects o JOIN buckets b ON b.id=o.bucket "                                   \
	"WHERE b.name=?1 AND o.key=?2"
SQL(OBJECT_GET, OBJECT_COLUMNS)
SQL(OBJECT_OLD, "SELECT etag,layout,size,modified," IS_NULL_VERSION "," BODY_ID
		" FROM objects WHERE bucket=?1 AND key=?2")
SQL(CONFIG_GET, "SELECT c.value FROM buckets b JOIN configs c ON c.bucket=b.id WHERE b.name=?1 AND "
		"c.name=?2")
SQL(CONFIG_LIST, "SELECT b.name,c.value FROM configs c JOIN buckets b ON b.id=c.bucket WHERE "
		 "c.name=?1 ORDER BY b.name")
/* Sums over the configurations of a name: of a bucket, of all buckets of its owner, and of all
 * buckets. */
SQL(CONFIG_SIZES,
	"WITH c AS (SELECT b.name=?1 AS this," BUCKET_OWNER " AS owner,length(c.value)+?3 AS n "
	"FROM configs c JOIN buckets b ON b.id=c.bucket WHERE c.name=?2) "
	"SELECT coalesce(sum(n*this),0),coalesce(sum(n*(owner IS "
	"(SELECT " BUCKET_OWNER " FROM buckets b WHERE b.name=?1))),0),coalesce(sum(n),0) FROM c")
SQL(CONFIG_ANY, "SELECT 1 FROM configs WHERE name=?1 LIMIT 1")
SQL(CONFIG_OF, "SELECT value FROM configs WHERE bucket=?1 AND name=?2")
SQL(CONFIG_SET, "INSERT OR REPLACE INTO configs(bucket,name,value) VALUES(?1,?2,?3)")
SQL(CONFIG_DROP, "DELETE FROM configs WHERE bucket=?1 AND name=?2")
SQL(CONFIG_DROP_ALL, "DELETE FROM configs WHERE bucket=?1")

SQL(OBJECT_SET, "INSERT OR REPLACE INTO "
		"objects(bucket,key,size,modified,etag,ck_algorithm,ck_type,ck_value,"
		"headers,upload,layout,body) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)")
SQL(OBJECT_DELETE, "DELETE FROM objects WHERE bucket=?1 AND key=?2")
SQL(OBJECT_HEADERS, "SELECT headers FROM objects WHERE bucket=?1 AND key=?2")
SQL(OBJECT_SET_HEADERS, "UPDATE objects SET headers=?3 WHERE bucket=?1 AND key=?2")
SQL(OBJECT_LIST, "SELECT key,size,modified,etag,ck_algorithm,ck_type,headers FROM objects "
		 "WHERE bucket=?1 AND key>=?2 ORDER BY key")

/* Rows of `versions` are the older versions of a key, and delete markers. If the newest version is
 * a marker, the key has no row in `objects`. */
SQL(VERSION_KEEP,
	"INSERT INTO versions(bucket,key,modified,marker,is_null,size,etag,ck_algorithm,ck_type,"
	"ck_value,headers,upload,layout,body) SELECT "
	"bucket,key,modified,0," IS_NULL_VERSION ",size,etag,ck_algorithm,ck_type,ck_value,headers,"
	"upload,layout,body FROM objects WHERE bucket=?1 AND key=?2")
SQL(VERSION_ADD,
	"INSERT INTO versions(bucket,key,modified,marker,is_null,size,etag,ck_algorithm,ck_type,"
	"ck_value,headers,upload,layout,body) "
	"VALUES(?1,?2,?4,0,0,?3,?5,?6,?7,?8,?9,?10,?11,?12)")
SQL(VERSION_RESTORE, "INSERT INTO objects(bucket,key,size,modified,etag,ck_algorithm,ck_type,"
		     "ck_value,headers,upload,layout,body) SELECT "
		     "bucket,key,size,modified,etag,ck_algorithm,ck_type,ck_value,headers,upload,"
		     "layout,body FROM versions WHERE bucket=?1 AND key=?2 AND modified=?3")
SQL(VERSION_MARK,
	"INSERT INTO versions(bucket,key,modified,marker,is_null,size,etag,headers,layout)"
	" VALUES(?1,?2,?3,1,?4,0,'',?5,?6)")
SQL(VERSION_NEWEST, "SELECT modified,marker FROM versions WHERE bucket=?1 AND key=?2 "
		    "ORDER BY modified DESC LIMIT 1")
SQL(VERSION_OLD, "SELECT modified,marker,layout,etag,size," BODY_ID
		 " FROM versions WHERE bucket=?1 AND key=?2 AND modified=?3 AND NOT is_null")
SQL(VERSION_OLD_NULL, "SELECT modified,marker,layout,etag,size," BODY_ID
		      " FROM versions WHERE bucket=?1 AND key=?2 AND is_null")
SQL(VERSION_HEADERS, "SELECT headers FROM versions WHERE bucket=?1 AND key=?2 AND modified=?3")
SQL(VERSION_SET_HEADERS,
	"UPDATE versions SET headers=?4 WHERE bucket=?1 AND key=?2 AND modified=?3")
SQL(VERSION_DELETE, "DELETE FROM versions WHERE bucket=?1 AND key=?2 AND modified=?3")
#define VERSION_COLUMNS                                                                                        \
	"SELECT v.size,v.modified,v.etag,v.ck_algorithm,v.ck_type,v.ck_value,v.headers,v.layout," VERSION_BODY \
	",b.versioning,v.marker,v.is_null FROM versions v JOIN buckets b ON "                                  \
	"b.id=v.bucket WHERE b.name=?1 AND v.key=?2 "
SQL(VERSION_GET, VERSION_COLUMNS "AND v.modified=?3 AND NOT v.is_null")
SQL(VERSION_GET_NULL, VERSION_COLUMNS "AND v.is_null")
SQL(VERSION_GET_UPLOAD,
	OBJECT_COLUMNS " AND o.upload=?3 UNION ALL " VERSION_COLUMNS "AND v.upload=?3")
SQL(VERSION_GET_NEWEST, VERSION_COLUMNS "ORDER BY v.modified DESC LIMIT 1")
/* Entries of all keys from a key on, or entries of one key that are older than a time. */
#define VERSION_ENTRIES(condition)                                                                 \
	"SELECT key,size,modified,etag,ck_algorithm,ck_type,headers,0," IS_NULL_VERSION            \
	" FROM objects WHERE bucket=?1 AND " condition " UNION ALL SELECT "                        \
	"key,size,modified,etag,ck_algorithm,ck_type,headers,marker,is_null FROM versions "        \
	"WHERE bucket=?1 AND " condition " ORDER BY key,modified DESC"
SQL(VERSION_LIST, VERSION_ENTRIES("key>=?2"))
SQL(VERSION_LIST_REST, VERSION_ENTRIES("key=?2 AND modified<?3"))
SQL(VERSION_IS_NEWER, "SELECT 1 WHERE EXISTS(SELECT 1 FROM objects WHERE bucket=?1 AND key=?2 AND "
		      "modified>=?3) OR EXISTS(SELECT 1 FROM versions WHERE bucket=?1 AND key=?2 "
		      "AND modified>=?3)")
SQL(VERSION_HAS_OLDER, "SELECT 1 FROM versions WHERE bucket=?1 AND key=?2 AND modified<?3")
/* Entries with their headers, for lifecycle. */
#define WALK_ROWS(condition)                                                                       \
	"SELECT key,modified,size,0," IS_NULL_VERSION ",headers FROM objects "                     \
	"WHERE bucket=?1 AND " condition " UNION ALL SELECT key,modified,size,marker,is_null,"     \
	"headers FROM versions WHERE bucket=?1 AND " condition " ORDER BY key,modified DESC"
SQL(WALK, WALK_ROWS("key>=?2"))
SQL(WALK_REST, WALK_ROWS("key=?2 AND modified<?3"))
SQL(VERSION_TIME_NULL,
	"SELECT modified FROM versions WHERE bucket=?1 AND key=?2 AND is_null "
	"UNION ALL SELECT modified FROM objects WHERE bucket=?1 AND key=?2 AND " IS_NULL_VERSION)

/* The number of pages of the database, and the number of unused pages. */
SQL(PAGES, "SELECT page_count,freelist_count FROM pragma_page_count,pragma_freelist_count")

SQL(BODY_SET, "INSERT OR REPLACE INTO bodies(id,bytes) VALUES(?1,?2)")
SQL(BODY_DELETE, "DELETE FROM bodies WHERE id=?1")

SQL(BLOB_ADD, "INSERT INTO blobs(id,refs,size,seal) VALUES(?1,1,?2,NULLIF(?3,x''))")
SQL(BLOB_SEAL, "SELECT seal FROM blobs WHERE id=?1")
SQL(BLOB_HAS, "SELECT 1 FROM blobs WHERE id=?1")
SQL(BLOB_REF, "UPDATE blobs SET refs=refs+?2 WHERE id=?1")
SQL(BLOB_UNREF, "UPDATE blobs SET refs=refs-?2 WHERE id=?1 RETURNING refs")
SQL(BLOB_DELETE, "DELETE FROM blobs WHERE id=?1")
SQL(LAYOUTS, "SELECT layout FROM objects UNION ALL SELECT layout FROM versions UNION ALL SELECT "
	     "layout FROM parts")
SQL(NEXT_ID, "SELECT max(ifnull((SELECT max(id)+1 FROM blobs),1),"
	     "ifnull((SELECT max(id)+1 FROM bodies),1),"
	     /* The first stores of format 5 have a body's id from AUTOINCREMENT. */
	     "ifnull((SELECT seq+1 FROM sqlite_sequence WHERE name='bodies'),1),"
	     "ifnull((SELECT value FROM meta WHERE name='next-blob'),1))")

SQL(EVENT_ADD, "INSERT INTO events(target,added,document) VALUES(?1,?2,?3)")
SQL(EVENT_LIST, "SELECT id,added,document FROM events WHERE target=?1 ORDER BY id LIMIT ?2")
SQL(EVENT_REMOVE, "DELETE FROM events WHERE id=?1")
SQL(EVENT_TARGET, "SELECT target FROM events WHERE target>?1 ORDER BY target LIMIT 1")
SQL(EVENT_REMOVE_ALL, "DELETE FROM events WHERE target=?1")
/* The documents of replication events begin with a number of bytes. Other documents do not begin
 * with a digit, so they count as 0 bytes. */
SQL(EVENT_COUNT, "SELECT count(*),ifnull(sum(CAST(CAST(document AS TEXT) AS INTEGER)),0) "
		 "FROM events WHERE target=?1")

SQL(KEY_LIST, "SELECT id,wrapped FROM keys ORDER BY id")
SQL(KEY_ADD, "INSERT OR IGNORE INTO keys(id,wrapped) VALUES(?1,?2)")
SQL(KEY_SET, "UPDATE keys SET wrapped=?2 WHERE id=?1")

SQL(UPLOAD_ADD, "INSERT INTO uploads(bucket,key,id,started,ck_algorithm,ck_type,headers) "
		"VALUES(?1,?2,?3,?4,?5,?6,?7)")
SQL(UPLOAD_GET, "SELECT u.ck_algorithm,u.ck_type,u.headers,u.started FROM uploads u JOIN buckets b "
		"ON b.id=u.bucket WHERE b.name=?1 AND u.key=?2 AND u.id=?3")
SQL(UPLOAD_HAS, "SELECT headers FROM uploads WHERE bucket=?1 AND key=?2 AND id=?3")
SQL(UPLOAD_DELETE, "DELETE FROM uploads WHERE bucket=?1 AND key=?2 AND id=?3")
SQL(UPLOAD_LIST,
	"SELECT key,0,started,id,ck_algorithm,ck_type,headers FROM uploads WHERE bucket=?1 "
	"AND (key,id)>=(?2,?3) ORDER BY key,id")
SQL(UPLOAD_OF_BUCKET, "SELECT key,id FROM uploads WHERE bucket=?1 LIMIT 1")

#define UPLOAD_STALE                                                                               \
	"u.started<?1 AND NOT EXISTS(SELECT 1 FROM parts p WHERE p.upload=u.id AND p.modified>=?1)"
SQL(UPLOAD_NEXT, "SELECT u.bucket,u.key,u.id," UPLOAD_STALE " FROM uploads u WHERE "
		 "(u.bucket,u.key,u.id)>(?2,?3,?4) ORDER BY u.bucket,u.key,u.id LIMIT ?5")
SQL(UPLOAD_IS_STALE, "SELECT 1 FROM uploads u WHERE u.bucket=?2 AND u.key=?3 AND "
		     "u.id=?4 AND " UPLOAD_STALE)

SQL(PART_OLD, "SELECT layout FROM parts WHERE upload=?1 AND number=?2")
SQL(PART_LAYOUTS, "SELECT ifnull(sum(length(layout)),0) FROM parts WHERE upload=?1 AND number<>?2")
SQL(PART_SET, "INSERT OR REPLACE INTO parts(upload,number,size,modified,etag,ck_value,layout) "
	      "VALUES(?1,?2,?3,?4,?5,?6,?7)")
SQL(PART_LIST, "SELECT number,size,modified,etag,ck_value FROM parts WHERE upload=?1 AND number>?2 "
	       "ORDER BY number LIMIT ?3")
SQL(PART_ALL, "SELECT number,size,etag,ck_value,layout FROM parts WHERE upload=?1 ORDER BY number")
SQL(PART_DELETE_ALL, "DELETE FROM parts WHERE upload=?1")

/* For src/store/upkeep. */
SQL(STAT_BUCKETS,
	"SELECT b.name,b.versioning,"
	"(SELECT count(*) FROM objects WHERE bucket=b.id),"
	"(SELECT coalesce(sum(size),0) FROM objects WHERE bucket=b.id),"
	"(SELECT count(*) FROM versions WHERE bucket=b.id AND NOT marker),"
	"(SELECT coalesce(sum(size),0) FROM versions WHERE bucket=b.id),"
	"(SELECT count(*) FROM versions WHERE bucket=b.id AND marker),"
	"(SELECT count(*) FROM uploads WHERE bucket=b.id),"
	"(SELECT coalesce(sum(p.size),0) FROM uploads u JOIN parts p ON p.upload=u.id WHERE "
	"u.bucket=b.id) FROM buckets b ORDER BY b.name")
SQL(STAT_FILES, "SELECT count(*),coalesce(sum(size),0),(SELECT user_version FROM "
		"pragma_user_version) FROM blobs")
/* Counts pending replication by bucket and destination. The text of an event begins with SIZE, a
 * letter and BUCKET. */
SQL(STAT_REPLICATION,
	"WITH e AS (SELECT substr(target,13,instr(target,':')-13) AS name,CAST(document AS TEXT) "
	"AS text,added FROM events WHERE target>'replication/' AND target<'replication0'),"
	"f AS (SELECT name,CAST(text AS INTEGER) AS bytes,substr(text,instr(text,' ')+3) AS rest,"
	"added FROM e) SELECT substr(rest,1,instr(rest,' ')-1),name,count(*),sum(bytes),min(added) "
	"FROM f GROUP BY 1,2")
/* Columns of OBJECT_GET, then the bucket's name and id, the key, a number (0, the time of a
 * version, or the number of a part), and the key of the cursor. */
SQL(CURSOR_OBJECT,
	"SELECT o.size,o.modified,o.etag,o.ck_algorithm,o.ck_type,o.ck_value,o.headers,"
	"o.layout," OBJECT_BODY ",b.versioning,0,0,b.name,o.bucket,o.key,0,o.key FROM objects o "
	"LEFT JOIN buckets b ON b.id=o.bucket WHERE (o.bucket,o.key)>(?1,?2) ORDER BY "
	"o.bucket,o.key LIMIT 1")
#define CURSOR_VERSION                                                                                         \
	"SELECT v.size,v.modified,v.etag,v.ck_algorithm,v.ck_type,v.ck_value,v.headers,v.layout," VERSION_BODY \
	",b.versioning,v.marker,v.is_null,b.name,v.bucket,v.key,v.modified,v.key FROM "                        \
	"versions v LEFT JOIN buckets b ON b.id=v.bucket WHERE "
SQL(CURSOR_VERSION_OF_KEY, CURSOR_VERSION "v.bucket=?1 AND v.key=?2 AND v.modified<?3 ORDER BY "
					  "v.modified DESC LIMIT 1")
SQL(CURSOR_VERSION_AFTER_KEY, CURSOR_VERSION "(v.bucket,v.key)>(?1,?2) ORDER BY "
					     "v.bucket,v.key,v.modified DESC LIMIT 1")
SQL(CURSOR_PART,
	"SELECT p.size,p.modified,p.etag,u.ck_algorithm,'FULL_OBJECT',p.ck_value,"
	"ifnull(u.headers,x''),p.layout,NULL,0,0,0,b.name,u.bucket,u.key,p.number,p.upload FROM parts p "
	"LEFT JOIN uploads u ON u.id=p.upload LEFT JOIN buckets b ON b.id=u.bucket WHERE "
	"(p.upload,p.number)>(?1,?2) ORDER BY p.upload,p.number LIMIT 1")
SQL(HAS_OBJECT, "SELECT etag FROM objects WHERE bucket=?1 AND key=?2 AND modified=?3")
SQL(HAS_VERSION, "SELECT etag FROM versions WHERE bucket=?1 AND key=?2 AND modified=?3")
SQL(HAS_PART, "SELECT 1 FROM parts WHERE upload=?1 AND number=?2 AND modified=?3")
/* Columns: kind (0 object, 1 version, 2 part, 3 marker), bucket, key, number (of the part, else the
 * time), size, layout, bytes of the body, bucket's name, 1 if the object is encrypted. */
#define IS_ENCRYPTED "instr(headers,x'3a656e6372797074696f6e00')>0" /* ":encryption" */
SQL(CHECK_ROWS,
	"SELECT 0,o.bucket,o.key,o.modified,o.size,o.layout," OBJECT_LENGTH ",b.name," IS_ENCRYPTED
	" FROM objects o LEFT JOIN buckets b ON b.id=o.bucket "
	"UNION ALL SELECT 1+v.marker*2,v.bucket,v.key,v.modified,v.size,v.layout," VERSION_LENGTH
	",b.name," IS_ENCRYPTED " FROM versions v LEFT JOIN buckets b "
	"ON b.id=v.bucket UNION ALL SELECT 2,u.bucket,u.key,p.number,p.size,p.layout,NULL,b.name," IS_ENCRYPTED
	" FROM parts p LEFT JOIN uploads u ON u.id=p.upload LEFT JOIN buckets b "
	"ON b.id=u.bucket")
/* Bodies that no object or several objects use, with the number of uses. */
SQL(CHECK_BODIES,
	"WITH uses AS (SELECT body FROM objects WHERE typeof(body)='integer' UNION ALL SELECT body "
	"FROM versions WHERE typeof(body)='integer') SELECT id,0 FROM bodies WHERE id NOT IN "
	"(SELECT body FROM uses) UNION ALL SELECT body,count(*) FROM uses GROUP BY body HAVING "
	"count(*)>1")
SQL(CHECK_BLOBS, "SELECT id,refs,size,seal IS NOT NULL FROM blobs ORDER BY id")
SQL(REPAIR_BODY, "SELECT bytes FROM bodies WHERE id=?1")
SQL(REPAIR_REFS, "UPDATE blobs SET refs=?2 WHERE id=?1")
SQL(REPAIR_BLOB, "INSERT INTO blobs(id,refs,size,seal) VALUES(?1,?2,?3,NULLIF(?4,x''))")
SQL(REPAIR_BUCKET,
	"INSERT INTO buckets(id,name,created,versioning) VALUES(?1,'recovered-'||?1,?2,1)")
SQL(REPAIR_PARTS, "DELETE FROM parts WHERE upload NOT IN (SELECT id FROM uploads)")
SQL(EXPORT_BUCKETS,
	"SELECT b.id,b.name,b.created,b.versioning,m.value FROM buckets b LEFT JOIN meta m "
	"ON m.name='region/'||b.name WHERE " IS_COMPLETE " ORDER BY b.name")
SQL(EXPORT_CONFIGS, "SELECT name,value FROM configs WHERE bucket=?1 ORDER BY name")
/* A bucket that is being imported has a name that no request can have. */
SQL(IMPORT_BUCKET, "INSERT INTO buckets(name,created,versioning) VALUES('.import-'||?1,?2,?3)")
SQL(IMPORT_RENAME, "UPDATE buckets SET name=?2 WHERE id=?1")
SQL(IMPORT_VERSION,
	"INSERT INTO versions(bucket,key,modified,marker,is_null,size,etag,ck_algorithm,"
	"ck_type,ck_value,headers,layout,body) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,"
	"?11,?12,?13)")
SQL(IMPORT_LEFT, "SELECT id FROM buckets WHERE name LIKE '.import-%' LIMIT 1")
SQL(IMPORT_LAYOUTS,
	"SELECT layout FROM objects WHERE bucket=?1 UNION ALL SELECT layout FROM versions "
	"WHERE bucket=?1")
#define BODIES_OF(table) "SELECT body FROM " table " WHERE bucket=?1 AND typeof(body)='integer'"
SQL(IMPORT_DROP_BODIES, "DELETE FROM bodies WHERE id IN (" BODIES_OF(
				"objects") " UNION ALL " BODIES_OF("versions") ")")
SQL(IMPORT_DROP_OBJECTS, "DELETE FROM objects WHERE bucket=?1")
SQL(IMPORT_DROP_VERSIONS, "DELETE FROM versions WHERE bucket=?1")
