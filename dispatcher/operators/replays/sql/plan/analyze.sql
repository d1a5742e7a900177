-- Gives the planner statistics of the filter's candidates, before they are judged.
-- Needs no index.
ANALYZE pg_temp.holdfast_candidate
