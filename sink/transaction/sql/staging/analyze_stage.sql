-- Gives the planner statistics of a new stage; runs as the schema's owner.
-- No index: it reads a sample.
SELECT holdfast.analyze_stage(%(number)s)
