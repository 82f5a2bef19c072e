"""Texts of progress lines that tests wait for, as regular expressions: change them here if penstock rewords a line."""

WAITING = "waiting for"  # for resources, or for a store
WATCHING = "watching for"  # penstock checks if an owner elsewhere renews its lease
CONTINUES = "continues the last attempt"  # an attempt continues the one before it
FROM_FIRST_STEP = "starts at its first step"
ENDED_STRAYS = r"(ended|killed) \d+ process(es)?\b"  # left by a killed attempt
OLD_MODULE = "fetched before"  # the source of a module does not answer

# Ctrl-C
KILLS_NEXT = "a second request kills it"
STOPPING = "stopping before the steps"
STOPPED_BETWEEN_STEPS = "stopped during 'the start of the next step'"
UPLOADING = "still uploading"

# Preemption
NOTICE_OF = "preemption notice from"
ASKED_TO_SAVE = "asking the step to save"
WITHDRAWN = "was withdrawn"
STAYS = "this machine stays for now"
RUN_CONTINUES = "the run continues"
OTHER_NOTICE_REMAINS = "notice of preempt still holds"
