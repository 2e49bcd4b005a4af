-- Many runs, as rows in the binary format of COPY.
-- in: (nothing)
-- out: nothing
-- why: binary, for constant columns are packed once, and neither side turns times and ids into text and back
COPY queue (id, job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, payload, function)
FROM STDIN (FORMAT binary)
