-- Tells the planner how many entries a filter has, before they are judged.
-- Needs no index.
ANALYZE pg_temp.holdfast_candidate
