-- Workers that hold several runs at once.

-- Its worker held others beside it when its node died, and nobody knows which of them was going on: none was charged.
-- It is claimed alone from then on, so that the next such death can be charged.
ALTER TABLE queue ADD COLUMN is_suspect boolean NOT NULL DEFAULT false;

-- Room in each page for the claimed version of every row, which is a quarter longer: what is dead may be kept there by
-- somebody's snapshot, and then a claim would have to go to another page, and into each index.
ALTER TABLE queue SET (fillfactor = 40);
