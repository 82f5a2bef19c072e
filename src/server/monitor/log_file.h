/*
 * A file to which lines are appended, each by one write and without a sync.
 *
 *	log_file_open(&file, "/var/log/penstock.log", err);
 *	log_file_write(file, &line); // a line that cannot be written is lost
 *	log_file_reopen(file, err); // after it was renamed
 *	log_file_close(file);
 *
 * Functions may be called by any thread.
 */
#ifndef SERVER_MONITOR_LOG_FILE_H
#define SERVER_MONITOR_LOG_FILE_H

struct buf;
struct log_file;
struct penstock_error;

int log_file_open(struct log_file **out, const char *path, struct penstock_error *err);
int log_file_reopen(struct log_file *log, struct penstock_error *err);
void log_file_write(struct log_file *log, const struct buf *line);
/* `log` may be NULL. */
void log_file_close(struct log_file *log);

#endif
