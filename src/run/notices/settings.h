/*
 * Settings for notices. Each setting is from the workflow, else from `preemption` of
 * ~/.config/penstock/config.yaml ($PENSTOCK_CONFIG), else from `preemption` of
 * /etc/penstock/config.yaml ($PENSTOCK_SYSTEM_CONFIG). If none of them has `sources`, the sources
 * are from $PENSTOCK_PREEMPTION_SOURCES.
 */
#ifndef RUN_NOTICES_SETTINGS_H
#define RUN_NOTICES_SETTINGS_H

#include "workflow/document/arena.h"
#include "workflow/model.h"

struct penstock_error;

struct notice_settings {
	struct workflow_preemption preemption; /* borrows from the workflow and the arena */
	struct workflow_arena arena;
};

/* Reads the settings. Returns -PENSTOCK_E_INVALID if a file or the variable is invalid; the message
 * has the name of the file or of the variable. */
int notice_settings_read(struct notice_settings *out, const struct workflow_preemption *workflow,
	struct penstock_error *err);
void notice_settings_release(struct notice_settings *settings);
/* Returns the grace period of a notice without a deadline: $PENSTOCK_STOP_GRACE, else the setting,
 * else the default. */
int64_t notice_settings_grace_ms(const struct notice_settings *settings);

#endif
