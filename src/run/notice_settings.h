/*
 * How a run takes notices: what its workflow says, else `preemption` of ~/.config/penstock/config.yaml
 * ($PENSTOCK_CONFIG), else that of /etc/penstock/config.yaml ($PENSTOCK_SYSTEM_CONFIG).
 */
#ifndef RUN_NOTICE_SETTINGS_H
#define RUN_NOTICE_SETTINGS_H

#include "workflow/arena.h"
#include "workflow/model.h"

struct penstock_error;

struct notice_settings {
	struct workflow_preemption preemption; /* borrows from the workflow and the arena */
	struct workflow_arena arena;
};

/* PENSTOCK_E_INVALID: a file is wrong; the message says where. */
int notice_settings_read(struct notice_settings *out, const struct workflow_preemption *workflow,
	struct penstock_error *err);
void notice_settings_release(struct notice_settings *settings);
/* From a notice that does not say when to the end. */
int64_t notice_settings_grace_ms(const struct notice_settings *settings);

#endif
