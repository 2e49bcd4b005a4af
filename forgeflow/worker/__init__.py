"""A worker process: one connection, one run at a time; claim, execute, finish.

Owns its runs through its row in `workers`, which the node's beat keeps alive. It says READY when that row stands,
BATCH before it begins any of the runs that it has in hand, ENDED when none of them is going on, IDLE (with the time
before the claim that found nothing) when there is none, and RETRY_IN when a failed run is to be looked for again; it
hears WAKE, DRAIN, CANCEL and STOP. Which run of the batch it has begun stands in the shared page. May import everything
below `service`, and `executors`.
"""
