-- What becomes of a running job whose node cannot renew its lease: killed before the lease can pass, or left to run on.
ALTER TABLE jobs
    ADD COLUMN on_lease_loss text NOT NULL DEFAULT 'kill',
    ADD CONSTRAINT jobs_on_lease_loss_known CHECK (on_lease_loss IN ('kill', 'continue'));
