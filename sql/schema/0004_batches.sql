-- Workers that hold several runs at once.

-- Its worker held others beside it when its node died, and nobody knows which of them was going on: none was charged.
-- It is claimed alone from then on, so that the next such death can be charged.
ALTER TABLE queue ADD COLUMN is_suspect boolean NOT NULL DEFAULT false;
